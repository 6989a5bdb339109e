"""Paired comparison of measures over the same models (seeds) and the same rows.

Two things vary: the model (its seed) and the test rows. One replicate draws rows, recomputes the metric, ACU and
RACU of every measure on the drawn rows, and draws seeds; measures share each draw, so their differences are paired.
Seeds that were tested on the same rows share the draw of rows too, as they are the same texts: drawing them anew
within each seed would average away the part of the uncertainty that the test set causes.

A bootstrap over S seeds has only (S - 1) / S of the variance it should have, 67% at S = 3. So the seeds' part is scaled
up by S / (S - 1) and the quantile is Student's, with Satterthwaite's degrees of freedom between S - 1 (all variance
from seeds) and the normal case (all from rows). `tests/test_comparison.py` simulates the coverage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fmm.curves import Curve
from fmm.errors import FmmError
from fmm.faithfulness import NOTHING, acu, normaliser
from fmm.statistics import Interval, confusion, holm, metric_from_confusion, rank_of, resample_rows

Array = NDArray[np.float64]
_BLOCK = 256  # replicates at once: bounds memory at MNLI's size


@dataclass(frozen=True)
class Pair:
    """Difference of two measures, first minus second. None where there are fewer than two seeds."""

    first: str
    second: str
    difference: Interval
    p: float | None
    p_holm: float | None


@dataclass(frozen=True)
class Rank:
    """Rank of a measure (1 = most faithful) with the central 95% of its ranks over replicates."""

    measure: str
    rank: float
    lower: float | None
    upper: float | None


@dataclass(frozen=True)
class Comparison:
    """All measures of one data set. `estimates[measure].n` is the number of seeds."""

    quantity: str
    metric: str
    n_rows: int
    estimates: dict[str, Interval]
    per_seed: dict[str, list[float]]
    pairs: list[Pair]
    ranks: list[Rank]


def compare(
    seeds: Sequence[Mapping[str, Curve]],
    metric: str,
    *,
    quantity: str = "racu",
    baseline: str = "rand",
    replicates: int = 2000,
    seed: int = 0,
) -> Comparison:
    """Compare measures by ACU or RACU (`quantity`) of `metric`.

    `seeds` holds, for each model, its curves by measure, `baseline` among them; only measures and rows that all
    have are compared. Fewer than two seeds give estimates without intervals.
    """
    names = sorted(set.intersection(*(set(curves) for curves in seeds)) - {baseline}) if seeds else []
    if not names or not all(baseline in curves for curves in seeds):
        raise FmmError(
            f"nothing to compare: every seed needs a curve of {baseline} and of one measure that all seeds have"
        )
    rows = [_shared_rows([curves[name] for name in [*names, baseline]]) for curves in seeds]
    weights = _row_weights([curves[0].example_id for curves in rows], replicates, seed)
    exact = np.stack([_quantities(curves, metric, quantity, None)[0] for curves in rows])
    drawn = np.stack([_quantities(curves, metric, quantity, w) for curves, w in zip(rows, weights)])
    return _summarise(names, metric, quantity, len(rows[0][0].example_id), exact, drawn, seed)


def row_interval(
    curve: Curve,
    baseline: Curve,
    metric: str,
    *,
    quantity: str = "acu",
    replicates: int = 2000,
    seed: int = 0,
    tests: int = 1,
) -> tuple[float, float, float]:
    """ACU or RACU of one curve of one model with its 95% percentile bootstrap over rows: (value, lower, upper).

    `tests` intervals together hold at 95% (Bonferroni).
    """
    rows = _shared_rows([curve, baseline])
    weights = resample_rows(len(rows[0].example_id), replicates, np.random.default_rng(seed))
    drawn = _quantities(rows, metric, quantity, weights)[:, 0]
    drawn = drawn[np.isfinite(drawn)]
    lower, upper = np.percentile(drawn, [2.5 / tests, 100 - 2.5 / tests]) if len(drawn) else (np.nan, np.nan)
    return float(_quantities(rows, metric, quantity, None)[0, 0]), float(lower), float(upper)


def _shared_rows(curves: Sequence[Curve]) -> list[Curve]:
    common = curves[0].example_id
    for curve in curves:
        common = np.intersect1d(common, curve.example_id)
        if not np.array_equal(curve.ratios, curves[0].ratios):
            raise FmmError("curves with different masking ratios cannot be compared; run all with one list of ratios")
    if not len(common):
        raise FmmError("the measures share no test row; run them on the same rows")
    return [curve.restrict(common) for curve in curves]


def _row_weights(ids: Sequence[NDArray[np.int64]], replicates: int, seed: int) -> list[NDArray[np.float32]]:
    """How often each row is drawn, for each seed [replicates, N]; the same draw for seeds with the same rows."""
    rng, known = np.random.default_rng(seed), {}
    for rows in ids:
        if rows.tobytes() not in known:
            known[rows.tobytes()] = resample_rows(len(rows), replicates, rng)
    return [known[rows.tobytes()] for rows in ids]


def _quantities(curves: Sequence[Curve], metric: str, quantity: str, weights: NDArray[np.float32] | None) -> Array:
    """ACU or RACU of all curves but the last, the baseline. Returns [replicates or 1, K], NaN if undefined.

    A drawn RACU is linearised about that of all rows: R + (area - R scale) / scale of all rows. It is the same to first
    order, and a draw in which random masking happens to hurt nothing does not divide by (nearly) zero.
    """
    ratios = curves[0].ratios
    performance = np.stack([_performance(curve, metric, weights) for curve in curves])
    area = acu(ratios, performance[:-1], performance[-1]).T
    if quantity == "acu":
        return area
    scale = normaliser(ratios, performance[-1])[:, None]
    if weights is None:
        return np.divide(area, scale, out=np.full_like(area, np.nan), where=scale > NOTHING)
    whole = normaliser(ratios, _performance(curves[-1], metric, None))[:, None]
    exact = _quantities(curves, metric, quantity, None)
    return exact + np.divide(area - exact * scale, whole, out=np.full_like(area, np.nan), where=whole > NOTHING)


def _performance(curve: Curve, metric: str, weights: NDArray[np.float32] | None) -> Array:
    classes = curve.logits.shape[2]
    if weights is None:
        return metric_from_confusion(metric, confusion(curve.reference, curve.predictions, classes))[None]
    blocks = (weights[start : start + _BLOCK] for start in range(0, len(weights), _BLOCK))
    counts = [confusion(curve.reference, curve.predictions, classes, block) for block in blocks]
    return np.concatenate([metric_from_confusion(metric, block) for block in counts])


def _summarise(
    names: list[str], metric: str, quantity: str, n_rows: int, exact: Array, drawn: Array, seed: int
) -> Comparison:
    """`exact` [S, K] are the seeds' values, `drawn` [S, replicates, K] the same on drawn rows."""
    estimates = {name: _interval(exact[:, k], drawn[:, :, k])[0] for k, name in enumerate(names)}
    found = []
    for i, j in combinations(range(len(names)), 2):
        found.append((i, j, *_interval(exact[:, i] - exact[:, j], drawn[:, :, i] - drawn[:, :, j])))
    adjusted = holm([np.nan if p is None else p for *_, p in found])
    pairs = [
        Pair(names[i], names[j], difference, p, None if p is None else float(q))
        for (i, j, difference, p), q in zip(found, adjusted)
    ]
    per_seed = {name: exact[:, k].tolist() for k, name in enumerate(names)}
    return Comparison(quantity, metric, n_rows, estimates, per_seed, pairs, _ranks(names, exact, drawn, seed))


def _interval(exact: Array, drawn: Array) -> tuple[Interval, float | None]:
    """Mean over seeds with its 95% interval and two-sided p against 0. `exact` [S], `drawn` [S, replicates]."""
    n, mean = len(exact), float(np.mean(exact))
    if n < 2 or not np.isfinite(mean):
        return Interval(mean, None, None, n), None
    of_rows = drawn.mean(axis=0)
    of_rows = of_rows[np.isfinite(of_rows)]
    between, within = np.var(exact, ddof=1) / n, np.var(of_rows) if len(of_rows) > 1 else np.inf
    error = float(np.sqrt(between + within))
    if not 0.0 < error < np.inf:
        return (
            (Interval(mean, mean, mean, n), 1.0 if mean == 0 else 0.0)
            if error == 0
            else (Interval(mean, None, None, n), None)
        )
    freedom = (between + within) ** 2 / (between**2 / (n - 1)) if between > 0 else np.inf
    half = float(stats.t.ppf(0.975, freedom)) * error
    return Interval(mean, mean - half, mean + half, n), float(2 * stats.t.sf(abs(mean) / error, freedom))


def _ranks(names: list[str], exact: Array, drawn: Array, seed: int) -> list[Rank]:
    """Ranks over replicates of rows and seeds, the seeds' deviations scaled up by sqrt(S / (S - 1))."""
    n = len(exact)
    points = rank_of(np.nan_to_num(exact.mean(axis=0), nan=-np.inf))
    if n < 2:
        return [Rank(name, float(point), None, None) for name, point in zip(names, points)]
    rng = np.random.default_rng(seed + 1)
    draws = rng.multinomial(n, np.full(n, 1 / n), size=drawn.shape[1]) / n  # [replicates, S]
    shares = 1 / n + np.sqrt(n / (n - 1)) * (draws - 1 / n)
    replicate = np.einsum("bs,sbk->bk", shares, drawn)
    replicate = replicate[np.isfinite(replicate).all(axis=1)]
    if not len(replicate):
        return [Rank(name, float(point), None, None) for name, point in zip(names, points)]
    lower, upper = np.percentile(rank_of(replicate), [2.5, 97.5], axis=0)
    return [Rank(name, float(point), float(a), float(b)) for name, point, a, b in zip(names, points, lower, upper)]
