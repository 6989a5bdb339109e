"""From curves to numbers: ACU and RACU of each measure with intervals, comparisons, MaSF and cost of one group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fmm.comparison import Comparison, Pair, compare
from fmm.curves import Curve, curve_faithfulness
from fmm.records import Record
from fmm.report.load import BASELINE, Group
from fmm.report.published import published_racu
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

    `undefined` says why there is no RACU.
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


@dataclass(frozen=True)
class Shares:
    """MaSF of one measure: share of rows with p < `LEVEL` at each ratio [R], mean over seeds, and its rise over ratio 0
    with a 95% interval over rows."""

    measure: str
    test: str
    ratios: NDArray[np.float64]
    share: NDArray[np.float64]
    rise: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]


@dataclass(frozen=True)
class Analysis:
    """Everything the report says about one group; `results` are sorted by ACU, the most faithful first."""

    group: Group
    results: list[MeasureResult]
    comparison: Comparison | None
    masf: list[Shares]

    @property
    def pairs(self) -> list[Pair]:
        """All pairs of measures with the difference of their ACU."""
        return self.comparison.pairs if self.comparison else []


def analyse(group: Group, expected: Sequence[int], resamples: int = 2000) -> Analysis:
    """Numbers of one group. `expected` are the seeds there should be."""
    if not group.measures:
        return Analysis(group, [], None, _masf(group))
    everywhere = [found for found in group.curves.values() if len(found) > 1]  # with more than the baseline
    shared = set.intersection(*(set(found) for found in everywhere)) - {BASELINE}
    acu = compare(everywhere, group.metric, quantity="acu", replicates=resamples) if shared else None
    racu = compare(everywhere, group.metric, quantity="racu", replicates=resamples) if shared else None
    results = []
    for measure in group.measures:
        curves = list(group.of(measure).values())
        own = [
            c.estimates[measure]
            if c and measure in c.estimates
            else compare(curves, group.metric, quantity=q, replicates=resamples).estimates[measure]
            for q, c in (("acu", acu), ("racu", racu))
        ]
        results.append(_result(group, measure, expected, own[0], own[1], acu))
    results.sort(key=lambda result: -result.acu.mean)
    return Analysis(group, results, acu, _masf(group))


def _result(
    group: Group, measure: str, expected: Sequence[int], acu: Interval, racu: Interval, comparison: Comparison | None
) -> MeasureResult:
    curves = group.of(measure)
    found = {s: curve_faithfulness(c[measure], c[BASELINE], group.metric) for s, c in curves.items()}
    reasons = [f"seed {seed}: {value.undefined}" for seed, value in found.items() if value.undefined]
    none = Interval(float("nan"), None, None, len(found))
    areas, relative = [f.acu for f in found.values()], [f.racu for f in found.values()]
    rank = (
        next(((r.rank, r.lower, r.upper) for r in comparison.ranks if r.measure == measure), None)
        if comparison
        else None
    )
    return MeasureResult(
        measure,
        sorted(found),
        [s for s in expected if s not in found and s not in group.excluded],
        student_interval(areas),
        _papers(areas),
        acu,
        none if reasons else student_interval(relative),
        none if reasons else _papers(relative),
        none if reasons else racu,
        "; ".join(reasons) or None,
        rank or (float("nan"), None, None),
        _cost(group, measure),
        published_racu(group.dataset, measure),
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
        classes = curve.logits.shape[2]
        return mean, *metric_interval([group.metric], curve.reference, curve.predictions, classes)[group.metric]
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
    rise, error = per_row.mean(axis=0), 1.96 * per_row.std(axis=0) / np.sqrt(len(rows))
    share = np.nanmean(flagged, axis=(0, 1))
    return Shares(measure, test, curves[0].ratios, share, rise, rise - error, rise + error)
