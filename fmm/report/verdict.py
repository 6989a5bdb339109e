"""Which measure to use for this model, and what has to hold for that answer to be worth anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fmm import records
from fmm.comparison import row_interval
from fmm.curves import curve_faithfulness
from fmm.errors import counted
from fmm.records import Record
from fmm.report.analyse import LEVEL, Analysis, MeasureResult
from fmm.report.load import BASELINE, Group
from fmm.statistics import student_interval

Status = Literal["yes", "no", "unclear", "unknown"]
_PLAIN = "none"  # the masking strategy of plain fine-tuning


@dataclass(frozen=True)
class Check:
    """One precondition: what was asked, the answer, and the numbers behind it."""

    question: str
    status: Status
    detail: str


@dataclass(frozen=True)
class Verdict:
    """The measure to use (None: none is shown to beat random), how far to trust it, and why.

    `trust`: "yes" all preconditions hold, "no" one fails, "unclear" else. `tied` measures are not told apart from it.
    """

    dataset: str
    strategy: str
    measure: str | None
    trust: Status
    sentence: str
    checks: list[Check]
    tied: list[str]
    models: list[str]


def judge(analysis: Analysis, groups: list[Group], trained: list[Record], margin: float, tolerance: float) -> Verdict:
    """The verdict on one group. `margin` (metric) and `tolerance` (share of rows) are the losses that count as none."""
    group = analysis.group
    checks = [
        _performance_kept(group, trained, margin),
        _fully_masked(group, margin),
        _in_distribution(analysis, tolerance),
        _normaliser(analysis),
        _enough_seeds(analysis),
    ]
    best, tied = _best(analysis)
    statuses = {check.status for check in checks}
    trust: Status = "no" if "no" in statuses or best is None else "yes" if statuses == {"yes"} else "unclear"
    models = sorted({group.runs[seed][BASELINE].settings["model"]["key"] for seed in group.seeds})
    return Verdict(
        group.dataset, group.strategy, best, trust, _sentence(analysis, best, tied, trust), checks, tied, models
    )


def _candidates(analysis: Analysis) -> list[MeasureResult]:
    """Results of the measures with the most seeds, by falling ACU: a mean over fewer models is one of other models."""
    most = max((len(result.seeds) for result in analysis.results), default=0)
    return [result for result in analysis.results if len(result.seeds) == most]


def _best(analysis: Analysis) -> tuple[str | None, list[str]]:
    """The measure with the largest mean ACU if its interval lies above 0, and those that are not told apart from it."""
    candidates = _candidates(analysis)
    if not candidates:
        return None, []
    if len(candidates[0].seeds) == 1:
        return _best_of_one_model(analysis, candidates[0].seeds[0])
    top, others = candidates[0], [result.measure for result in candidates[1:]]
    lower = top.acu_rows.lower
    if lower is None or lower <= 0:
        return None, []
    pairs = [pair for pair in analysis.pairs if top.measure in (pair.first, pair.second)]
    apart = {name for p in pairs if p.p_holm is not None and p.p_holm < LEVEL for name in (p.first, p.second)}
    return top.measure, sorted(set(others) - apart)


def _best_of_one_model(analysis: Analysis, seed: int) -> tuple[str | None, list[str]]:
    """As `_best`, for a single model: by a bootstrap over its rows, each pair at the level of Bonferroni."""
    group, curves = analysis.group, analysis.group.curves[seed]
    names = [result.measure for result in analysis.results if result.measure in curves]
    top = curves[names[0]]
    if row_interval(top, curves[BASELINE], group.metric)[1] <= 0:
        return None, []
    pairs = len(names) * (len(names) - 1) // 2
    lower = {name: row_interval(top, curves[name], group.metric, tests=pairs)[1] for name in names[1:]}
    return names[0], sorted(name for name, bound in lower.items() if bound <= 0)


def _sentence(analysis: Analysis, best: str | None, tied: list[str], trust: Status) -> str:
    group = analysis.group
    if not analysis.results:
        return f"No curve to judge for {group.name}."
    if best is None:
        top = _candidates(analysis)[0]
        return (
            f"No measure is shown to beat random masking on {group.name}: the best, {top.measure}, has an ACU of "
            f"{100 * top.acu.mean:.1f}, but its interval reaches 0."
        )
    ending = {"yes": ": all preconditions hold", "no": ", but a precondition fails"}.get(
        trust, ", with open preconditions"
    )
    parts = f", not told apart from {', '.join(tied)}" if tied else ""
    cheap = _cheapest([best, *tied], analysis) if tied else best
    advice = f" (the cheapest of them is {cheap})" if cheap != best else ""
    alone = "; one seed speaks of this one model only" if len(_candidates(analysis)[0].seeds) == 1 else ""
    return f"Use {best} on {group.name}{parts}{advice}{ending}{alone}."


def _cheapest(names: list[str], analysis: Analysis) -> str:
    known = {r.measure: r.cost.forwards_per_row for r in analysis.results}
    cost = {name: np.inf if passes is None else passes for name, passes in known.items()}
    return min(names, key=lambda name: cost[name])


def _performance_kept(group: Group, trained: list[Record], margin: float) -> Check:
    question = "Does masked fine-tuning keep unmasked performance?"
    if group.strategy == _PLAIN:
        return Check(question, "yes", "this is the plainly fine-tuned model")
    plain = {int(r.settings["seed"]): r for r in trained if r.dataset == group.dataset and _is_plain(r)}
    seeds = [seed for seed in group.seeds if seed in plain and seed in group.models]
    if not seeds:
        return Check(
            question,
            "unknown",
            "no plain model to compare with; run the command that trained the masked one with masking=none added",
        )
    change = [at_ratio(group.models[s], 0.0, group.metric) - at_ratio(plain[s], 0.0, group.metric) for s in seeds]
    found = student_interval(change)
    change_by = f"{100 * found.mean:+.1f} points{_ends(found.lower, found.upper)}"
    detail = f"{group.metric} changes by {change_by} over {counted(found.n, 'seed')}"
    if found.lower is None:
        return Check(question, "unclear", f"{detail}; one seed gives no interval")
    status: Status = "yes" if found.lower > -margin else "no" if found.upper < -margin else "unclear"  # type: ignore[operator]
    return Check(question, status, f"{detail}, allowed {-100 * margin:+.1f}")


def _is_plain(record: Record) -> bool:
    masking = record.settings.get("masking")
    return (masking.get("strategy") if isinstance(masking, Mapping) else masking) == _PLAIN


def at_ratio(model: Record, ratio: float, metric: str) -> float:
    """A metric of the random-masking test of a train record at one ratio."""
    table = model.results["test_table"]
    return float(min(table, key=lambda row: abs(row["masking_ratio"] - ratio))[metric])


def _ends(lower: float | None, upper: float | None) -> str:
    return "" if lower is None or upper is None else f" [{100 * lower:+.1f}, {100 * upper:+.1f}]"


def _fully_masked(group: Group, margin: float) -> Check:
    question = "Is a fully masked input predicted at the class-majority baseline?"
    if not group.models:
        return Check(question, "unknown", "no train record of this model")
    gaps = [at_ratio(m, 1.0, group.metric) - m.results["majority"][group.metric] for m in group.models.values()]
    found = student_interval(gaps)
    detail = (
        f"{group.metric} at 100% is {100 * found.mean:+.1f} points from the majority{_ends(found.lower, found.upper)}"
    )
    if found.lower is None or found.upper is None:
        return Check(question, "unclear", f"{detail}, allowed {-100 * margin:+.1f}; one seed gives no interval")
    status: Status = "yes" if found.lower >= -margin else "no" if found.upper < -margin else "unclear"
    return Check(question, status, f"{detail}, allowed {-100 * margin:+.1f}")


def _in_distribution(analysis: Analysis, tolerance: float) -> Check:
    question = "Is masked text in-distribution at every ratio, judged against unmasked test text?"
    if not analysis.masf:
        tested = any(curve.masf for found in analysis.group.curves.values() for curve in found.values())
        few = f"no MaSF value can fall below {LEVEL} with so few validation rows beside the model's dimensions"
        none = "the curves hold no MaSF p-values; they were run with masf=none"
        return Check(question, "unknown", few if tested else none)
    out = [(s.measure, r) for s in analysis.masf for r, low in zip(s.ratios, s.lower) if low > tolerance]
    doubtful = [(s.measure, r) for s in analysis.masf for r, rise in zip(s.ratios, s.rise) if rise > tolerance]
    test = analysis.masf[0].test
    worst = max(float(s.rise.max()) for s in analysis.masf)
    detail = f"largest rise of the share with p < {LEVEL} over ratio 0: {100 * worst:+.1f} points (MaSF {test})"
    if out:
        return Check(question, "no", f"{detail}; out of distribution at {_ratios(out)}")
    if doubtful:
        return Check(question, "unclear", f"{detail}; in doubt at {_ratios(doubtful)}")
    return Check(question, "yes", detail)


def _ratios(found: list[tuple[str, float]]) -> str:
    ratios = sorted({ratio for _, ratio in found})
    measures = sorted({measure for measure, _ in found})
    return f"{', '.join(f'{100 * ratio:.0f}%' for ratio in ratios)} ({', '.join(measures)})"


def _normaliser(analysis: Analysis) -> Check:
    question = "Does random masking hurt the model, so that RACU is defined?"
    group = analysis.group
    baselines = {seed: curves[BASELINE] for seed, curves in group.curves.items()}
    reasons = {s: curve_faithfulness(rand, rand, group.metric).undefined for s, rand in baselines.items()}
    undefined = [f"seed {seed}: {reason}" for seed, reason in reasons.items() if reason]
    if undefined:
        return Check(question, "no", undefined[0])
    return Check(question, "yes", "the normaliser is positive for every seed")


def _enough_seeds(analysis: Analysis) -> Check:
    question = "Are there enough seeds?"
    n = max((len(result.seeds) for result in analysis.results), default=0)
    left_out = "".join(f"; seed {seed} left out, {reason}" for seed, reason in analysis.group.excluded.items())
    status: Status = "yes" if n >= 5 else "unclear" if n >= 3 else "no"
    return Check(question, status, f"{n} of the papers' 5{left_out}")


def stored_verdict(output_dir: str | Path, model_key: str) -> Verdict | None:
    """The newest stored verdict on the model with this key, or None.

    `task=explain` takes its measure as the default for that model.
    """
    reports = sorted(records.load_all(output_dir, "report"), key=lambda record: record.created, reverse=True)
    for record in reports:
        for found in record.results.get("verdicts", []):
            if model_key in found["models"]:
                return Verdict(**(found | {"checks": [Check(**check) for check in found["checks"]]}))
    return None


def as_json(verdicts: list[Verdict]) -> list[dict[str, Any]]:
    """Verdicts as plain JSON values, as `stored_verdict` reads them."""
    return json.loads(json.dumps([asdict(verdict) for verdict in verdicts]))
