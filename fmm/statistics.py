"""Intervals, tests and fast metrics behind the tables. Pure functions of numpy arrays.

Two kinds of interval are kept apart: the papers' bootstrap over seeds, for comparison with their tables, and ours
(Student t over seeds, `fmm.comparison` over seeds and rows), whose coverage `tests/test_statistics.py` simulates.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from fmm.errors import unknown

Array = NDArray[np.float64]


class Interval(NamedTuple):
    """A mean with its interval over `n` values; `lower` and `upper` are None where no interval can be given."""

    mean: float
    lower: float | None
    upper: float | None
    n: int


def papers_interval(values: ArrayLike, *, seed: int = 0, level: float = 0.95) -> Interval:
    """The papers' interval over seeds: BCa bootstrap of the mean, 9,999 resamples, fresh `default_rng(seed)`.

    Where BCa is degenerate (one value, all equal) both ends are the mean, as with the authors. Over few seeds its
    coverage is far below 95% (simulated: 50% at n = 2, 72% at 3, 85% at 5);
    print it only beside their numbers, and labelled.
    """
    data = np.asarray(values, dtype=np.float64)
    mean = float(np.mean(data))
    if len(data) < 2 or np.all(data == data[0]):
        return Interval(mean, mean, mean, len(data))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        result = stats.bootstrap(
            (data,),
            np.mean,
            confidence_level=level,
            n_resamples=9999,
            method="BCa",
            random_state=np.random.default_rng(seed),
        )
    lower, upper = (float(end) if np.isfinite(end) else mean for end in result.confidence_interval)
    return Interval(mean, lower, upper, len(data))


def student_interval(values: ArrayLike, *, level: float = 0.95) -> Interval:
    """Student t interval of the mean over seeds; none below two values or where a value is not finite."""
    data = np.asarray(values, dtype=np.float64)
    mean = float(np.mean(data)) if len(data) else float("nan")
    if len(data) < 2 or not np.all(np.isfinite(data)):
        return Interval(mean, None, None, len(data))
    half = float(stats.t.ppf(0.5 + level / 2, len(data) - 1) * np.std(data, ddof=1) / np.sqrt(len(data)))
    return Interval(mean, mean - half, mean + half, len(data))


def holm(p_values: ArrayLike) -> Array:
    """Holm's step-down adjustment. `p_values` [m], NaN where there is no test. Returns [m], NaN staying NaN.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full_like(p, np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return adjusted


def rank_of(values: ArrayLike) -> Array:
    """Rank of each value along the last axis, the largest first (1); ties share their mean rank."""
    return stats.rankdata(-np.asarray(values, dtype=np.float64), axis=-1)


def confusion(labels: ArrayLike, predictions: ArrayLike, classes: int, weights: ArrayLike | None = None) -> Array:
    """Confusion counts of `predictions` [N, ...] against `labels` [N]. Returns [..., C, C], true class first.

    With `weights` [B, N], the number of times each row occurs in each of B resamples, returns [B, ..., C, C]:
    one matrix product in place of B passes over the rows.
    """
    predicted = np.asarray(predictions)
    truth = np.asarray(labels).reshape(-1, *[1] * (predicted.ndim - 1))
    code = truth * classes + predicted
    onehot = (code[..., None] == np.arange(classes * classes)).astype(np.float32)
    flat = onehot.reshape(len(predicted), -1)
    # float32 counts are exact up to 2**24 rows
    rows = np.ones((1, len(flat)), np.float32) if weights is None else np.asarray(weights, dtype=np.float32)
    counts = (rows @ flat).astype(np.float64).reshape(-1, *predicted.shape[1:], classes, classes)
    return counts[0] if weights is None else counts


def metric_from_confusion(name: str, counts: ArrayLike, classes: int | None = None) -> Array:
    """A metric of `fmm.metrics` from confusion counts [..., C, C] (true class first). Returns [...] float64.

    `classes` as in `metric_from_counts`.
    """
    table = np.asarray(counts, dtype=np.float64)
    right = np.diagonal(table, axis1=-2, axis2=-1)
    return metric_from_counts(name, right, table.sum(axis=-2), table.sum(axis=-1), classes)


def metric_from_counts(
    name: str, right: ArrayLike, predicted: ArrayLike, true: ArrayLike, classes: int | None = None
) -> Array:
    """A metric from the rows of each class that are predicted rightly, predicted, and true [..., C]. Returns [...].

    A macro average is over the first `classes` alone (default: all C): the others are classes of the model that the
    data's labels do not hold. Where `needs_classes(name)` is false, `right` and `true` may hold all classes as one,
    and `predicted` nothing.
    """
    if name not in _METRICS:
        raise unknown("metric", name, _METRICS)
    parts = [np.asarray(counts, dtype=np.float64) for counts in (right, predicted, true)]
    if name == "macro_f1" and classes is not None:
        parts = [part[..., :classes] for part in parts]
    return _METRICS[name](*parts)


def needs_classes(name: str) -> bool:
    """Whether a metric needs more than the number of right rows. Raises FmmError for an unknown one."""
    if name not in _METRICS:
        raise unknown("metric", name, _METRICS)
    return _METRICS[name] is not _accuracy


def _accuracy(right: Array, predicted: Array, true: Array) -> Array:
    return _ratio(right.sum(axis=-1), true.sum(axis=-1))


def _macro_f1(right: Array, predicted: Array, true: Array) -> Array:
    return _ratio(2 * right, true + predicted).mean(axis=-1)  # a class neither true nor predicted counts as 0


def _matthews(right: Array, predicted: Array, true: Array) -> Array:
    total, hits = true.sum(axis=-1), right.sum(axis=-1)
    covariance = hits * total - (true * predicted).sum(axis=-1)
    spread = (total**2 - (predicted**2).sum(axis=-1)) * (total**2 - (true**2).sum(axis=-1))
    return _ratio(covariance, np.sqrt(spread))


def _ratio(numerator: Array, denominator: Array) -> Array:
    numerator, denominator = np.broadcast_arrays(numerator, denominator)
    return np.divide(numerator, denominator, out=np.zeros(numerator.shape), where=denominator > 0)


_METRICS: dict[str, Callable[[Array, Array, Array], Array]] = {
    "accuracy": _accuracy,
    "micro_f1": _accuracy,  # with one label a row micro F1 is accuracy
    "macro_f1": _macro_f1,
    "matthews": _matthews,
}


def resample_rows(n: int, replicates: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """How often each of `n` rows occurs in each bootstrap resample. Returns [replicates, n] float32."""
    draws = rng.integers(0, n, size=(replicates, n))
    flat = (draws + np.arange(replicates)[:, None] * n).ravel()
    return np.bincount(flat, minlength=replicates * n).reshape(replicates, n).astype(np.float32)


def metric_interval(
    names: Sequence[str],
    labels: ArrayLike,
    predictions: ArrayLike,
    classes: int,
    *,
    replicates: int = 2000,
    seed: int = 0,
    averaged: int | None = None,
) -> dict[str, tuple[Array, Array]]:
    """Percentile bootstrap over rows (95%) of metrics at each ratio: the bands of one curve.

    `labels` [N], `predictions` [N, R]; a macro average is over the first `averaged` classes (default: all). Returns
    name -> (lower [R], upper [R]).
    """
    weights = resample_rows(len(np.asarray(labels)), replicates, np.random.default_rng(seed))
    counts = confusion(labels, predictions, classes, weights)
    values = {name: metric_from_confusion(name, counts, averaged) for name in names}
    ends = {name: np.percentile(drawn, [2.5, 97.5], axis=0) for name, drawn in values.items()}
    return {name: (lower, upper) for name, (lower, upper) in ends.items()}
