"""From curves to numbers: ACU and RACU of each measure with intervals, comparisons, MaSF and cost of one group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fmm.comparison import Comparison, Estimate, Pair, compare_sample, sample
from fmm.curves import Curve
from fmm.records import Record
from fmm.report.load import BASELINE, Group
from fmm.report.published import published_racu
from fmm.resampling import Sample
from fmm.statistics import Interval, metric_interval, papers_interval, student_interval

TESTS = ("calibrated", "authors")  # MaSF variants, the one whose p-values hold first
LEVEL = 0.05


@dataclass(frozen=True)
class Cost:
    """What one curve took, mean over seeds: seconds, forward passes of a row, test rows; None where not recorded."""

    seconds: float | None
    forwards: float | None
    rows: float | None
    forwards_per_row: float | None


@dataclass(frozen=True)
class MeasureResult:
    """One row of the main table. Intervals over `seeds`: Student t, the papers' BCa, and seeds and rows together.

    With one model `acu_rows` and `racu_rows` are over its rows and the others are empty. `undefined` says why there is
    no RACU; `p_random` is the p-value against random masking, adjusted for all measures compared.
    """

    measure: str
    seeds: list[int]
    missing: list[int]
    acu: Interval
    acu_papers: Interval
    acu_rows: Interval
    racu: Interval
    racu_papers: Interval
    racu_rows: Interval
    undefined: str | None
    rank: tuple[float, float | None, float | None]
    cost: Cost
    published: dict[str, float]
    p_random: float | None = None


@dataclass(frozen=True)
class ModelResult:
    """What the rows of one model say of it: its measures by ACU and by RACU."""

    seed: int
    acu: Comparison
    racu: Comparison

    @property
    def best(self) -> str:
        """The measure with the largest ACU."""
        return max(self.acu.estimates, key=lambda name: self.acu.estimates[name].mean)


@dataclass(frozen=True)
class Shares:
    """MaSF of one measure: share of rows with p < `LEVEL` at each ratio [R], mean over seeds, and its rise over ratio 0
    with a 95% interval over rows. `rows` [N, R] are the rises of single rows."""

    measure: str
    test: str
    ratios: NDArray[np.float64]
    share: NDArray[np.float64]
    rise: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    rows: NDArray[np.float64]


def masf_rows(group: Group, kind: str) -> tuple[int, int] | None:
    """The fewest validation rows that fit and that calibrate a MaSF of `kind` in the records; None where none says."""
    steps = [
        (run.results.get("masf") or {}).get(kind) or [{}] for found in group.runs.values() for run in found.values()
    ]
    counts = [(step[0]["n_fit"], step[0]["n_calibration"]) for step in steps if "n_fit" in step[0]]
    return min(counts) if counts else None


@dataclass(frozen=True)
class Analysis:
    """Everything the report says about one group; `results` are sorted by ACU, the most faithful first.

    Attributes:
        comparison: by ACU, of the measures that all models have. models: by seed, what each model's rows say.
        normalisers: by seed, RACU's denominator.
    """

    group: Group
    results: list[MeasureResult]
    comparison: Comparison | None
    masf: list[Shares]
    models: dict[int, ModelResult]
    normalisers: dict[int, Estimate]

    @property
    def pairs(self) -> list[Pair]:
        """All pairs of measures with the difference of their ACU."""
        return self.comparison.pairs if self.comparison else []


def analyse(group: Group, expected: Sequence[int], resamples: int = 2000) -> Analysis:
    """Numbers of one group. `expected` are the seeds there should be."""
    measured = [seed for seed in group.seeds if len(group.curves[seed]) > 1]
    shared = _sample(group, measured, None, resamples)
    acu, racu = _by_both(group, shared, measured) if shared else (None, None)
    models = {seed: _model(group, seed, shared, measured, resamples) for seed in measured}
    scales = {seed: model.racu.normalisers[0] for seed, model in models.items()}
    scales |= {seed: _normaliser(group, seed, resamples) for seed in group.seeds if seed not in models}
    results = []
    for measure in group.measures:
        seeds = sorted(group.of(measure))
        if len(seeds) == 1:
            pair = models[seeds[0]].acu, models[seeds[0]].racu
        elif acu is not None and racu is not None and measure in acu.estimates:
            pair = acu, racu
        else:
            alone = _sample(group, seeds, measure, resamples)
            assert alone is not None
            pair = _by_both(group, alone, seeds)
        results.append(_result(group, measure, expected, *pair, acu))
    results.sort(key=lambda result: -result.acu.mean)
    return Analysis(group, results, acu, _masf(group), models, scales)


def _model(group: Group, seed: int, shared: Sample | None, seeds: list[int], resamples: int) -> ModelResult:
    """One model's comparisons, from the sample of all models where it holds all measures of this one."""
    if shared is not None and set(shared.names) == set(group.curves[seed]) - {BASELINE}:
        found = shared.model(seeds.index(seed))
    else:
        found = sample([group.curves[seed]], group.metric, replicates=resamples)
    return ModelResult(seed, *_by_both(group, found, [seed]))


def _normaliser(group: Group, seed: int, resamples: int) -> Estimate:
    """RACU's denominator of a model that has no curve but random masking's."""
    baseline = group.curves[seed][BASELINE]
    found = sample([{"alone": baseline, BASELINE: baseline}], group.metric, replicates=resamples)
    return compare_sample(found, group.metric, "racu").normalisers[0]


def _sample(group: Group, seeds: Sequence[int], measure: str | None, resamples: int) -> Sample | None:
    """One measure, or those that all these models have, on resampled rows; None where they share none."""
    curves = [group.curves[seed] for seed in seeds]
    if measure is not None:
        curves = [{measure: found[measure], BASELINE: found[BASELINE]} for found in curves]
    if not curves or not set.intersection(*(set(found) for found in curves)) - {BASELINE}:
        return None
    return sample(curves, group.metric, replicates=resamples)


def _by_both(group: Group, found: Sample, seeds: Sequence[int]) -> tuple[Comparison, Comparison]:
    names = [f"seed {seed}" for seed in seeds]
    by_acu, by_racu = (compare_sample(found, group.metric, quantity, names) for quantity in ("acu", "racu"))
    return by_acu, by_racu


def _result(
    group: Group, measure: str, expected: Sequence[int], acu: Comparison, racu: Comparison, ranked: Comparison | None
) -> MeasureResult:
    areas, relative = acu.per_seed[measure], racu.per_seed[measure]
    seeds = sorted(group.of(measure))
    none = Interval(float("nan"), None, None, len(seeds))
    rank = next(((r.rank, r.lower, r.upper) for r in (ranked.ranks if ranked else []) if r.measure == measure), None)
    return MeasureResult(
        measure,
        seeds,
        [s for s in expected if s not in seeds and s not in group.excluded],
        student_interval(areas),
        _papers(areas),
        acu.estimates[measure],
        none if racu.undefined else student_interval(relative),
        none if racu.undefined else _papers(relative),
        none if racu.undefined else racu.estimates[measure],
        racu.undefined,
        rank or (float("nan"), None, None),
        _cost(group, measure),
        published_racu(group.dataset, measure),
        acu.p_random[measure],
    )


def _papers(values: list[float]) -> Interval:
    """The papers' interval; none for one seed, where it would be a point."""
    return papers_interval(values) if len(values) > 1 else Interval(values[0], None, None, 1)


def _cost(group: Group, measure: str) -> Cost:
    """From the records, whose curves may have more rows than the group."""
    found = [group.runs[seed][measure].results for seed in group.of(measure)]

    def mean(key: str, over: str | None = None) -> float | None:
        values = [(r[key] / r[over] if over else r[key]) for r in found if r.get(key) is not None]
        return float(np.mean(values)) if values else None

    passes = "forward_equivalents"
    return Cost(mean("seconds"), mean(passes), mean("n_examples"), mean(passes, "n_examples"))


def mean_curve(group: Group, measure: str) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean metric over seeds at each ratio, with the ends of its 95% band: mean, lower, upper [R].

    The band is of the spread over seeds (Student t); with one seed it is a bootstrap over that model's rows.
    """
    seeds = group.curves if measure == BASELINE else group.of(measure)
    values = np.stack([found[measure].metric(group.metric) for found in seeds.values()])
    mean, n = values.mean(axis=0), len(values)
    if n == 1:
        curve = next(iter(seeds.values()))[measure]
        shape = curve.reference, curve.predictions, curve.logits.shape[2]
        return mean, *metric_interval([group.metric], *shape, averaged=curve.classes)[group.metric]
    half = stats.t.ppf(0.975, n - 1) * values.std(axis=0, ddof=1) / np.sqrt(n)
    return mean, mean - half, mean + half


def masf_test(group: Group) -> str | None:
    """The MaSF variant that every curve of the group has and whose values can fall below `LEVEL`: calibrated before
    authors; None where there is none."""
    curves = [curve for found in group.curves.values() for curve in found.values()]
    runs = [run for found in group.runs.values() for run in found.values()]
    for test in TESTS:
        if curves and all(test in curve.masf for curve in curves) and all(_attainable(run, test) for run in runs):
            return test
    return None


def _attainable(run: Record, test: str) -> bool:
    """False where the record says that no value of this test can fall below `LEVEL`."""
    steps = (run.results.get("masf") or {}).get(test, [])
    return all(step["below"].get(f"{LEVEL:g}", 0.0) is not None for step in steps)


def _masf(group: Group) -> list[Shares]:
    test = masf_test(group)
    if test is None:
        return []
    names = [BASELINE, *group.measures]
    return [_shares(name, test, [found[name] for found in group.curves.values() if name in found]) for name in names]


def _shares(measure: str, test: str, curves: list[Curve]) -> Shares:
    """Rows are the unit of the interval: a row's rise is averaged over seeds first, as seeds share their rows."""
    rows = np.unique(np.concatenate([curve.example_id for curve in curves]))
    flagged = np.full((len(curves), len(rows), len(curves[0].ratios)), np.nan)
    for seed, curve in enumerate(curves):
        flagged[seed, np.searchsorted(rows, curve.example_id)] = curve.masf[test] < LEVEL
    per_row = np.nanmean(flagged - flagged[..., :1], axis=0)
    rise, error = mean_of_rows(per_row)
    half = stats.t.ppf(0.975, max(1, len(rows) - 1)) * error
    share = np.nanmean(flagged, axis=(0, 1))
    return Shares(measure, test, curves[0].ratios, share, rise, rise - half, rise + half, per_row)


def mean_of_rows(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean over rows of values [N, ...] within [-1, 1] and its standard error, with one more row that goes another way.

    Infinite for one row, which says nothing of the next.
    """
    n = len(values)
    spread = values.var(axis=0, ddof=1) / n if n > 1 else np.full(values.shape[1:], np.inf)
    return values.mean(axis=0), np.sqrt(spread + 1 / n**2)
