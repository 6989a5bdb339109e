"""ACU and RACU's normaliser of several models on bootstrap resamples of their test rows.

Everything is derived from counts (right, predicted and true rows of a class), summed over blocks of resamples and
blocks of rows: never all resamples times all rows at once, so that 100,000 rows take no more memory than 1,000.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fmm.curves import Curve
from fmm.faithfulness import acu, normaliser
from fmm.statistics import metric_from_counts, needs_classes, resample_rows

Array = NDArray[np.float64]
_CELLS = 2**25  # resamples x rows whose weights are held at once, a byte each: no row is drawn 256 times
_DRAWN = 2**20  # of them drawn at once
_FEATURES = 2**22  # rows x columns of counted features held at once, four bytes each


@dataclass(frozen=True)
class Sample:
    """ACU of K measures and the normaliser of S models, on all rows and on B resamples of them.

    Attributes:
        names: K measures. n_rows: rows of a model. area [S, K], area_drawn [S, B, K]: ACU.
        scale [S], scale_drawn [S, B]: RACU's normaliser. reach, scale_reach: the largest ACU and normaliser that
            there can be: the share of the ratios at which two measures can differ, times the range of the metric.
        same: pairs of measures (by place) whose curves are one and the same in every model, to the last logit.
    """

    names: list[str]
    n_rows: int
    area: Array
    area_drawn: Array
    scale: Array
    scale_drawn: Array
    reach: float
    scale_reach: float
    same: frozenset[tuple[int, int]] = frozenset()

    def model(self, place: int) -> Sample:
        """The sample of one of the models alone."""
        at = slice(place, place + 1)
        parts = {name: getattr(self, name)[at] for name in ("area", "area_drawn", "scale", "scale_drawn")}
        return replace(self, **parts)


def resample(
    models: Sequence[Sequence[Curve]], names: Sequence[str], metric: str, replicates: int, seed: int
) -> Sample:
    """Resample the rows of models. `models` holds, for each, its K curves in the order of `names`, the baseline last.

    Curves of a model have the same rows. Models with the same rows share each draw of them: they are the same texts.
    """
    ratios = models[0][0].ratios
    area, area_drawn, scale, scale_drawn = [], [], [], []
    for exact, drawn in performance(models, metric, replicates, seed):
        area.append(np.array([float(acu(ratios, measure, exact[-1])) for measure in exact[:-1]]))
        area_drawn.append(acu(ratios, drawn[:, :-1], drawn[:, -1:]))
        scale.append(normaliser(ratios, exact[-1]))
        scale_drawn.append(normaliser(ratios, drawn[:, -1]))
    inner = np.where((ratios > ratios.min()) & (ratios < ratios.max()), 1.0, 0.0)
    before_the_end = np.where(ratios < ratios.max(), 1.0, 0.0)
    span = 2.0 if metric == "matthews" else 1.0  # it runs from -1 to 1
    reach, scale_reach = (span * float(np.trapezoid(part, ratios)) for part in (inner, before_the_end))
    n_rows = min(len(curves[0].example_id) for curves in models)
    drawn = np.stack(area_drawn)
    return Sample(
        list(names), n_rows, np.stack(area), drawn, np.stack(scale), np.stack(scale_drawn), reach, scale_reach,
        _same(models, drawn),
    )  # fmt: skip


def _same(models: Sequence[Sequence[Curve]], drawn: Array) -> frozenset[tuple[int, int]]:
    pairs = [
        (i, j) for i, j in combinations(range(drawn.shape[2]), 2) if np.array_equal(drawn[:, :, i], drawn[:, :, j])
    ]
    return frozenset(
        (i, j) for i, j in pairs if all(np.array_equal(curves[i].logits, curves[j].logits) for curves in models)
    )


def performance(
    models: Sequence[Sequence[Curve]], metric: str, replicates: int, seed: int
) -> list[tuple[Array, Array]]:
    """The metric of each model's curves on all rows [K + 1, R] and on each resample [B, K + 1, R]."""
    rng = np.random.default_rng(seed)
    sets: dict[bytes, list[int]] = {}
    for place, curves in enumerate(models):
        sets.setdefault(curves[0].example_id.tobytes(), []).append(place)
    results: dict[int, tuple[Array, Array]] = {}
    for places in sets.values():
        counters = [_Counter(models[place], metric) for place in places]
        n = len(models[places[0]][0].example_id)
        exact = [counter.metric(np.ones((1, n), np.uint8))[0] for counter in counters]
        parts: list[list[Array]] = [[] for _ in places]
        block = max(1, _CELLS // n)
        for start in range(0, replicates, block):
            weights = _weights(n, min(block, replicates - start), rng)
            for part, counter in zip(parts, counters):
                part.append(counter.metric(weights))
        for place, whole, part in zip(places, exact, parts):
            results[place] = whole, np.concatenate(part)
    return [results[place] for place in range(len(models))]


def _weights(n: int, replicates: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """How often each of `n` rows occurs in each resample [replicates, n]."""
    weights, block = np.empty((replicates, n), np.uint8), max(1, _DRAWN // n)
    for start in range(0, replicates, block):
        stop = min(start + block, replicates)
        weights[start:stop] = resample_rows(n, stop - start, rng)
    return weights


class _Counter:
    """Counts what one metric of one model's curves needs; a curve of several orders is the mean of their metrics."""

    def __init__(self, curves: Sequence[Curve], name: str) -> None:
        self.name, self.labels = name, curves[0].reference
        orders = [curve.orders for curve in curves]
        self.predictions = [order for several in orders for order in several]  # each [N, R]
        self.first = np.cumsum([0, *(len(several) for several in orders)])
        self.classes = curves[0].logits.shape[2] if needs_classes(name) else 0
        self.averaged = curves[0].classes

    def metric(self, weights: NDArray[np.uint8]) -> Array:
        """The metric on rows weighted by `weights` [B, N]. Returns [B, curves, R]."""
        right, predicted, true = self._counts(weights)
        values = metric_from_counts(self.name, right, predicted, true[:, None, None], self.averaged)
        groups = [values[:, start:stop].mean(axis=1) for start, stop in zip(self.first, self.first[1:])]
        return np.stack(groups, axis=1)

    def _counts(self, weights: NDArray[np.uint8]) -> tuple[Array, Array, Array]:
        """Right and predicted rows [B, orders, R, C] and true rows [B, C] of each class.

        A metric that needs no classes gets C = 1 and all rows as one class.
        """
        shape = (len(self.predictions), self.predictions[0].shape[1], max(1, self.classes))
        columns = int(np.prod(shape))
        right, predicted = np.zeros((len(weights), columns)), np.zeros((len(weights), columns if self.classes else 0))
        true = np.zeros((len(weights), shape[2]))
        step = max(1, _FEATURES // columns)
        for start in range(0, len(self.labels), step):
            rows = slice(start, start + step)
            times = weights[:, rows].astype(np.float32)  # counts in float32 are exact up to 2**24 rows
            labels = self.labels[rows, None]
            if not self.classes:
                hits = np.concatenate([p[rows] == labels for p in self.predictions], axis=1)
                right += times @ hits.astype(np.float32)
                true[:, 0] += times.sum(axis=1)
                continue
            each = np.arange(self.classes)
            chosen = np.stack([p[rows] for p in self.predictions], axis=1)[..., None] == each  # [n, orders, R, C]
            truth = (labels == each).astype(np.float32)
            hits = chosen & (truth[:, None, None] > 0)
            right += times @ hits.reshape(len(labels), -1).astype(np.float32)
            predicted += times @ chosen.reshape(len(labels), -1).astype(np.float32)
            true += times @ truth
        b = len(weights)
        return right.reshape(b, *shape), predicted.reshape(b, *shape[:2], -1), true
