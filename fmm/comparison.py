"""Paired comparison of measures over the same rows and, where there are several, the same models (seeds).

**One model**: everything is conditional on it and only the test rows vary. The variance is that of a bootstrap over
rows; measures share each draw of rows, so their differences are paired. Random masking's orders are drawn anew for
each row, so the draw of rows holds their noise too. **Several models** speak of the recipe that made them: seeds vary
as well. Seeds that were tested on the same rows share the draw of rows, as they are the same texts: drawing them anew
within each seed would average away the part of the uncertainty that the test set causes.

Intervals are Student's, with Satterthwaite's degrees of freedom between S - 1 (all variance from seeds) and N - 1 (all
from rows). A bootstrap has (N - 1) / N of the variance it should have, and where all rows agree it has none, though
the next row may differ: the variance of one more row that goes wholly the other way is added. RACU of one model is
Fieller's interval of the quotient. `tests/test_comparison.py` simulates the coverage of all these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fmm.curves import Curve
from fmm.errors import FmmError
from fmm.faithfulness import NOTHING
from fmm.resampling import Sample, resample
from fmm.statistics import Interval, holm, rank_of

Array = NDArray[np.float64]
LEVEL = 0.05


@dataclass(frozen=True)
class Estimate:
    """A mean over models, its standard error and degrees of freedom, and the parts of its variance.

    `between` is the seeds' part (0 for one model) and `within` the rows'. `error` is None where there is none to be
    had: fewer than two rows, or a value that is not finite.
    """

    mean: float
    error: float | None
    freedom: float
    between: float
    within: float
    n: int
    n_rows: int

    @property
    def interval(self) -> Interval:
        """The 95% interval."""
        return self.interval_at(LEVEL)

    def interval_at(self, level: float) -> Interval:
        """The interval that misses with probability `level`."""
        if self.error is None:
            return Interval(self.mean, None, None, self.n)
        half = float(stats.t.ppf(1 - level / 2, self.freedom)) * self.error
        return Interval(self.mean, self.mean - half, self.mean + half, self.n)

    @property
    def p(self) -> float | None:
        """Two-sided p-value against 0: below 0.05 just where the 95% interval leaves 0 out."""
        if self.error is None:
            return None
        if self.error == 0:  # ratios at which nothing can differ
            return float(self.mean == 0)
        return float(2 * stats.t.sf(abs(self.mean) / self.error, self.freedom))


@dataclass(frozen=True)
class Pair:
    """Difference of two measures, first minus second. None where there are fewer than two rows."""

    first: str
    second: str
    difference: Interval
    p: float | None
    p_holm: float | None


@dataclass(frozen=True)
class Rank:
    """Rank of a measure (1 = most faithful) with the ranks that the tests of all pairs leave open.

    A measure is no better than 1 + the number of measures shown to be better (Holm), and so from below. With 95% all
    measures' ranks lie within. A bootstrap of ranks would not hold: it counts noise as distance where measures tie.
    """

    measure: str
    rank: float
    lower: float | None
    upper: float | None


@dataclass(frozen=True)
class Comparison:
    """All measures of one data set on one model, or on the models of one recipe.

    Attributes:
        estimates: by measure; `n` is the number of models. errors: the same with their standard errors.
        p_random: p against random masking, Holm over all measures. per_seed: each model's values by measure.
        undefined: why there is no RACU, else None. normalisers: RACU's denominator of each model.
    """

    quantity: str
    metric: str
    n_rows: int
    estimates: dict[str, Interval]
    per_seed: dict[str, list[float]]
    pairs: list[Pair]
    ranks: list[Rank]
    errors: dict[str, Estimate] = field(default_factory=dict)
    p_random: dict[str, float | None] = field(default_factory=dict)
    undefined: str | None = None
    normalisers: list[Estimate] = field(default_factory=list)

    def told_apart(self, measure: str) -> set[str]:
        """Measures that are shown to differ from this one."""
        pairs = [p for p in self.pairs if measure in (p.first, p.second)]
        names = {name for p in pairs if p.p_holm is not None and p.p_holm < LEVEL for name in (p.first, p.second)}
        return names - {measure}


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
    have are compared. One model is compared on its rows alone.
    """
    return compare_sample(sample(seeds, metric, baseline=baseline, replicates=replicates, seed=seed), metric, quantity)


def sample(
    seeds: Sequence[Mapping[str, Curve]], metric: str, *, baseline: str = "rand", replicates: int = 2000, seed: int = 0
) -> Sample:
    """Resampled areas of the measures that all models have, for `compare_sample` (by ACU and by RACU)."""
    names = sorted(set.intersection(*(set(curves) for curves in seeds)) - {baseline}) if seeds else []
    if not names or not all(baseline in curves for curves in seeds):
        raise FmmError(
            f"nothing to compare: every seed needs a curve of {baseline} and of one measure that all seeds have"
        )
    rows = [_shared_rows([curves[name] for name in [*names, baseline]]) for curves in seeds]
    return resample(rows, names, metric, replicates, seed)


def compare_sample(found: Sample, metric: str, quantity: str, models: Sequence[str] = ()) -> Comparison:
    """As `compare`, of a sample that is there already. `models` are the names of several models, for sentences."""
    if quantity == "acu":
        return _summarise(found, metric, quantity, found.area, found.area_drawn, found.reach)
    scales = normalisers(found)
    whole = found.scale[:, None]
    defined = whole > NOTHING
    exact = np.divide(found.area, whole, out=np.full_like(found.area, np.nan), where=defined)
    # Linearised about RACU of all rows: the same to first order, and no draw divides by (nearly) zero.
    change = found.area_drawn - exact[:, None] * found.scale_drawn[:, :, None]
    drawn = exact[:, None] + change / np.where(defined, whole, np.nan)[:, None]
    reach = found.reach / float(np.min(np.where(whole > NOTHING, whole, np.inf)))
    result = _summarise(found, metric, quantity, exact, drawn, reach)
    labels = models if len(scales) > 1 and models else [f"model {s + 1}" for s in range(len(scales))]
    reasons = [_undefined(f"{label}: " if len(scales) > 1 else "", scale) for label, scale in zip(labels, scales)]
    reason = "; ".join(text for text in reasons if text) or None
    estimates = result.estimates
    if len(found.area) == 1 and reason is None:
        estimates = {name: fieller(found, k) for k, name in enumerate(found.names)}
    return Comparison(
        quantity, metric, found.n_rows, estimates, result.per_seed, result.pairs, result.ranks, result.errors,
        result.p_random, reason, scales,
    )  # fmt: skip


def normalisers(found: Sample) -> list[Estimate]:
    """RACU's denominator of each model, over its rows and random masking's orders."""
    drawn = found.scale_drawn[:, None]
    return [
        estimate(found.scale[s : s + 1], drawn[s], found.n_rows, found.scale_reach) for s in range(len(found.scale))
    ]  # fmt: skip


def _undefined(of_model: str, scale: Estimate) -> str | None:
    """Why a model's RACU is undefined: its normaliser is not shown to lie above 0."""
    ends = scale.interval
    if ends.lower is None or ends.upper is None:
        return f"{of_model}{scale.n_rows} row gives no interval of the normaliser"
    if ends.lower > 0:
        return None
    if abs(scale.mean) <= NOTHING:
        return f"{of_model}the normaliser is zero: random masking does not lower performance on these rows"
    shown = f"{100 * ends.mean:.1f} [{100 * ends.lower:.1f}, {100 * ends.upper:.1f}]"
    return f"{of_model}the normaliser, {shown} points over rows and random orders, is not shown to lie above 0"


def fieller(found: Sample, k: int, level: float = LEVEL) -> Interval:
    """Fieller's interval of one model's RACU, measure `k`: all quotients that its ACU and normaliser allow.

    It is bounded just where the normaliser is above 0 at the same level.
    """
    area, scale = found.area[0, k], found.scale[0]
    n = found.n_rows
    t = float(stats.t.ppf(1 - level / 2, max(1, n - 1)))
    table = np.cov(found.area_drawn[0, :, k], found.scale_drawn[0]) * n / max(1, n - 1)
    spare_area, spare_scale = (found.reach / n) ** 2, (found.scale_reach / n) ** 2
    var_area, var_scale, both = table[0, 0] + spare_area, table[1, 1] + spare_scale, table[0, 1]
    a, b, c = scale**2 - t**2 * var_scale, area * scale - t**2 * both, area**2 - t**2 * var_area
    root = b**2 - a * c
    value = float(area / scale)
    if a <= 0 or root < 0:
        return Interval(value, None, None, 1)
    return Interval(value, float((b - np.sqrt(root)) / a), float((b + np.sqrt(root)) / a), 1)


def row_interval(
    curve: Curve, baseline: Curve, metric: str, *, replicates: int = 2000, seed: int = 0
) -> tuple[float, float, float]:
    """ACU of one curve of one model with its 95% interval over rows: (value, lower, upper); NaN ends for one row."""
    found = compare([{"curve": curve, "rand": baseline}], metric, quantity="acu", replicates=replicates, seed=seed)
    ends = found.estimates["curve"]
    lower, upper = (np.nan if end is None else end for end in ends[1:3])
    return ends.mean, float(lower), float(upper)


def _shared_rows(curves: Sequence[Curve]) -> list[Curve]:
    common = curves[0].example_id
    for curve in curves:
        if not np.array_equal(curve.ratios, curves[0].ratios):
            raise FmmError("curves with different masking ratios cannot be compared; run all with one list of ratios")
        if not np.array_equal(common, curve.example_id):
            common = np.intersect1d(common, curve.example_id)
    if not len(common):
        raise FmmError("the measures share no test row; run them on the same rows")
    return [c if np.array_equal(c.example_id, common) else c.restrict(common) for c in curves]


def estimate(exact: Array, drawn: Array, n_rows: int, reach: float) -> Estimate:
    """Mean over models with its standard error. `exact` [S], `drawn` [S, B]: values on all and on resampled rows.

    `reach` is what one row's value can be at most: the part of one more row that differs from all.
    """
    n, mean = len(exact), float(np.mean(exact))
    of_rows = drawn.mean(axis=0)
    of_rows = of_rows[np.isfinite(of_rows)]
    if n_rows < 2 or not np.isfinite(mean) or len(of_rows) < 2:
        return Estimate(mean, None, 1.0, 0.0, 0.0, n, n_rows)
    between = float(np.var(exact, ddof=1)) / n if n > 1 else 0.0
    within = float(np.var(of_rows)) * n_rows / (n_rows - 1) + (reach / n_rows) ** 2
    parts = within**2 / (n_rows - 1) + (between**2 / (n - 1) if n > 1 else 0.0)
    total = between + within
    freedom = total**2 / parts if parts > 0 else np.inf
    return Estimate(mean, float(np.sqrt(total)), float(freedom), between, within, n, n_rows)


def _summarise(found: Sample, metric: str, quantity: str, exact: Array, drawn: Array, reach: float) -> Comparison:
    """`exact` [S, K] are the models' values, `drawn` [S, B, K] the same on drawn rows."""
    names = found.names
    errors = {name: estimate(exact[:, k], drawn[:, :, k], found.n_rows, reach) for k, name in enumerate(names)}
    differences = []
    for i, j in combinations(range(len(names)), 2):
        if (i, j) in found.same:
            differences.append((i, j, Estimate(0.0, 0.0, 1.0, 0.0, 0.0, len(exact), found.n_rows)))
            continue
        apart = estimate(exact[:, i] - exact[:, j], drawn[:, :, i] - drawn[:, :, j], found.n_rows, reach)
        differences.append((i, j, apart))
    p_values = [apart.p for *_, apart in differences]
    pairs = [
        Pair(names[i], names[j], apart.interval, p, None if p is None else float(q))
        for (i, j, apart), p, q in zip(differences, p_values, holm([np.nan if p is None else p for p in p_values]))
    ]
    adjusted = holm([np.nan if e.p is None else e.p for e in errors.values()])
    p_random = {name: None if np.isnan(p) else float(p) for name, p in zip(names, adjusted)}
    per_seed = {name: exact[:, k].tolist() for k, name in enumerate(names)}
    estimates = {name: e.interval for name, e in errors.items()}
    ranks = _ranks(names, exact, pairs)
    return Comparison(quantity, metric, found.n_rows, estimates, per_seed, pairs, ranks, errors, p_random)


def _ranks(names: list[str], exact: Array, pairs: list[Pair]) -> list[Rank]:
    points = rank_of(np.nan_to_num(exact.mean(axis=0), nan=-np.inf))
    better, worse = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for pair in pairs:
        if pair.p_holm is not None and pair.p_holm < LEVEL:
            first_is_better = pair.difference.mean > 0
            better[pair.second if first_is_better else pair.first] += 1
            worse[pair.first if first_is_better else pair.second] += 1
    known = all(pair.p_holm is not None for pair in pairs)
    return [
        Rank(name, float(point), *((1.0 + better[name], float(len(names) - worse[name])) if known else (None, None)))
        for name, point in zip(names, points)
    ]
