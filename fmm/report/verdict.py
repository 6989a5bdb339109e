"""Which measure to use for this model, and what has to hold for that answer to be worth anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from fmm import records
from fmm.comparison import Comparison
from fmm.errors import counted
from fmm.records import Record
from fmm.report import preconditions
from fmm.report.analyse import LEVEL, Analysis, MeasureResult, ModelResult
from fmm.report.load import BASELINE, Group
from fmm.report.preconditions import PLAIN, Check, Status
from fmm.report.settle import curves_command

Command = Callable[[Group, int], str]  # of a group, the command that makes its curves on so many rows


@dataclass(frozen=True)
class Verdict:
    """The measure to use (None: none is shown to beat random), how far to trust it, and why.

    Attributes:
        trust: "yes" all preconditions hold, "no" one fails or no measure is shown to beat random, "unclear" else.
        tied: measures that are not told apart from it. cheapest: of these and it, the one with the fewest passes.
        scope: "model" where everything is conditional on one model, "recipe" where seeds vary too.
        acu, racu: value and ends of the 95% interval; p against random masking (Holm over measures).
        draws: random orders that the baseline is the mean of. next: what to do, commands or advice.
        each: by seed, what the rows of each model say of it alone.
    """

    dataset: str
    strategy: str
    measure: str | None
    trust: Status
    sentence: str
    checks: list[Check]
    tied: list[str]
    models: list[str]
    scope: str = "recipe"
    seeds: list[int] = field(default_factory=list)
    n_rows: int | None = None
    metric: str | None = None
    draws: int = 1
    cheapest: str | None = None
    acu: list[float | None] | None = None
    racu: list[float | None] | None = None
    p: float | None = None
    next: list[str] = field(default_factory=list)
    each: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class _Answer:
    """The measure with the largest ACU and what the tests say of it; `best` is None where it does not beat random."""

    top: MeasureResult | None
    best: str | None
    tied: list[str]
    comparison: Comparison | None
    scope: str


def judge(
    analysis: Analysis,
    groups: list[Group],
    trained: list[Record],
    margin: float,
    tolerance: float,
    *,
    resamples: int = 2000,
    command: Command | None = None,
) -> Verdict:
    """The verdict on one group. `margin` (metric) and `tolerance` (share of rows) are the losses that count as none.

    `command` gives the command that makes a group's curves on more rows; by default it is made from the records.
    """
    group, answer = analysis.group, _answer(analysis)
    top, comparison = answer.top, answer.comparison
    best_measure, errors = (top.measure, comparison.errors) if top and comparison else (None, {})
    checks = [
        preconditions.performance_kept(group, trained, margin, resamples),
        preconditions.fully_masked(group, margin, resamples),
        preconditions.in_distribution(analysis, tolerance),
        preconditions.racu_defined(analysis),
        preconditions.beats_random(best_measure, errors, top.p_random if top else None),
    ]
    trust = _trust(checks, answer.best)
    cheapest = _cheapest([answer.best, *answer.tied], analysis) if answer.best else None
    steps = _next(analysis, answer, checks, command or _from_records)
    return Verdict(
        group.dataset, group.strategy, answer.best, trust, _sentence(analysis, answer, checks, trust, cheapest), checks,
        answer.tied, sorted({group.runs[seed][BASELINE].settings["model"]["key"] for seed in group.seeds}),
        scope=answer.scope, seeds=top.seeds if top else group.seeds, n_rows=comparison.n_rows if comparison else None,
        metric=group.metric, draws=draws(group), cheapest=cheapest,
        acu=list(top.acu_rows[:3]) if top else None,
        racu=list(top.racu_rows[:3]) if top and not top.undefined else None,
        p=top.p_random if top else None, next=steps,
        each=[_alone(analysis, model) for model in analysis.models.values()],
    )  # fmt: skip


def draws(group: Group) -> int:
    """Random orders of each row that the baseline is the mean of."""
    return max((found[BASELINE].draws for found in group.curves.values()), default=1)


def _answer(analysis: Analysis) -> _Answer:
    candidates = _candidates(analysis)
    if not candidates:
        return _Answer(None, None, [], None, "model" if len(analysis.group.seeds) == 1 else "recipe")
    alone = len(candidates[0].seeds) == 1
    comparison = analysis.models[candidates[0].seeds[0]].acu if alone else analysis.comparison
    names = [r.measure for r in candidates if comparison is not None and r.measure in comparison.estimates]
    if comparison is None or not names:
        return _Answer(None, None, [], None, "recipe")
    top = next(result for result in candidates if result.measure == names[0])
    scope = "model" if alone else "recipe"
    p = comparison.p_random[top.measure]
    if p is None or p >= LEVEL or top.acu.mean <= 0:
        return _Answer(top, None, [], comparison, scope)
    return _Answer(top, top.measure, sorted(set(names[1:]) - comparison.told_apart(top.measure)), comparison, scope)


def _candidates(analysis: Analysis) -> list[MeasureResult]:
    """Results of the measures with the most seeds, by falling ACU: a mean over fewer models is one of other models."""
    most = max((len(result.seeds) for result in analysis.results), default=0)
    return [result for result in analysis.results if len(result.seeds) == most]


def _trust(checks: list[Check], best: str | None) -> Status:
    """RACU that is undefined leaves ACU standing: it is a reason for care, not one against the measure."""
    statuses = {check.status for place, check in enumerate(checks) if place != 3}
    if best is None or "no" in statuses:
        return "no"
    return "yes" if statuses | {checks[3].status} <= {"yes", "n/a"} else "unclear"


def _sentence(analysis: Analysis, answer: _Answer, checks: list[Check], trust: Status, cheapest: str | None) -> str:
    group, top = analysis.group, answer.top
    if top is None:
        known = "; masked text is foreign to this model, so do not judge its explanations by masking"
        foreign = known if checks[2].status == "no" else ""
        return f"No curve to judge for {group.name}: only random masking was run{foreign}."
    shown = f"ACU {_shown(top.acu_rows)}" + ("" if top.undefined else f", RACU {_shown(top.racu_rows)}%")
    failed = [check for place, check in enumerate(checks) if check.status == "no" and place != 3]
    if answer.best is None:
        below = _not_above(top)
        best = f"the best, {top.measure}, has {shown}, {below}"
        return f"No measure is shown to beat random masking on {group.name}: {best}."
    tied = f", not told apart from {', '.join(answer.tied)}" if answer.tied else ""
    advice = f" (the cheapest of them is {cheapest})" if cheapest != answer.best else ""
    alone = _scope(analysis, answer)
    if failed:
        reasons = " and ".join(_FAILED[checks.index(check)] for check in failed)
        return (
            f"Do not rely on {answer.best} for {group.name}, though it ranks first ({shown}{tied}): {reasons}.{alone}"
        )
    still = [_OPEN[place] for place, check in enumerate(checks) if check.status in ("unclear", "unknown", "no")]
    ending = ": all preconditions hold" if trust == "yes" else f"; open: {', '.join(still)}"
    return f"Use {answer.best} on {group.name} ({shown}){tied}{advice}{ending}.{alone}"


def _not_above(top: MeasureResult) -> str:
    """Why the largest ACU is not shown to lie above 0."""
    if top.acu_rows.lower is None or top.acu_rows.upper is None:
        return "of which one row gives no interval"
    if top.acu_rows.upper < 0:
        return "which is worse than random"
    return "but its interval, widened for the choice among all measures, reaches 0"


_FAILED = (
    "masked fine-tuning costs unmasked performance",
    "a fully masked input is predicted worse than the class majority",
    "masked text is foreign to this model, so that its curves mix importance with strangeness",
    "",
    "the measure does no better than random masking",
)
_OPEN = (
    "whether masked fine-tuning keeps unmasked performance",
    "whether a fully masked input is predicted at the class majority",
    "whether masked text is in-distribution",
    "RACU, which is undefined, so that ACU stands alone",
    "whether the measure beats random masking",
)


def _scope(analysis: Analysis, answer: _Answer) -> str:
    if answer.scope == "model":
        return " One seed speaks of this one model only."
    best = {model.best for model in analysis.models.values()}
    same = (
        "each of them ranks it first"
        if best == {answer.best}
        else f"of single models {', '.join(sorted(best))} come first"
    )
    n = len(answer.top.seeds) if answer.top else 0
    lacking = [result.measure for result in analysis.results if len(result.seeds) < n]
    left_out = f" Not judged, as they lack seeds: {', '.join(sorted(lacking))}." if lacking else ""
    return f" {counted(n, 'seed')} speak of the recipe; {same}.{left_out}"


def _shown(found: Any) -> str:
    if found.lower is None or found.upper is None:
        return _number(found.mean)
    return f"{_number(found.mean)} [{_number(found.lower)}, {_number(found.upper)}]"


def _number(value: float) -> str:
    """A share in percent; a zero without sign."""
    return f"{round(100 * value, 1) + 0.0:.1f}"


def _next(analysis: Analysis, answer: _Answer, checks: list[Check], command: Command) -> list[str]:
    """What to do now: the commands that settle what is open, or that make a model whose curves can be read."""
    group = analysis.group
    steps: list[str] = []
    if checks[2].status == "no":
        masked = f"python run.py task=pipeline dataset={group.dataset} masking=half_det"
        untouched = group.strategy in (PLAIN, "unknown")
        remedy = "fine-tune with masking" if untouched else "masked fine-tuning did not reach it; train longer"
        steps.append(f"{remedy}: {masked}, with the settings of this model")
        return steps  # more rows would not help a model to which masked text is foreign
    if checks[0].status == "unknown":
        steps.append(
            f"train the plain model too: the command that trained this one (dataset={group.dataset}), with masking=none"
        )
    if answer.top is None:
        steps.append(f"measure an explanation: python run.py task=racu dataset={group.dataset} measure=loo_sign")
    steps += _missing_curves(analysis, answer)
    rows = [check.rows for check in checks if check.status == "unclear" and check.rows is not None]
    if rows:
        steps.append(_more_rows(group, max(rows), command))
    if checks[2].status == "unknown":
        steps.append("run the curves with masf=calibrated, and with more validation rows where MaSF needs them")
    return steps


def _missing_curves(analysis: Analysis, answer: _Answer) -> list[str]:
    """The curves that keep a measure from being judged beside the others."""
    seeds = set(answer.top.seeds) if answer.top else set()
    missing = {r.measure: sorted(seeds - set(r.seeds)) for r in analysis.results}
    return [
        f"measure {name} for {', '.join(f'seed {seed}' for seed in lacking)} too, with the command of the other seeds"
        for name, lacking in sorted(missing.items())
        if lacking
    ]


def _more_rows(group: Group, rows: int, command: Command) -> str:
    run = group.runs[group.seeds[0]][BASELINE]
    if run.settings.get("data", {}).get("max_test_rows") is None:
        here = int(run.results["n_examples"])
        used = "the only test row is" if here == 1 else f"all {here} test rows are"
        return f"{used} used; what is open takes about {rows} rows, that is more labelled test data"
    return f"take about {rows} test rows, or all there are: {command(group, rows)}"


def _from_records(group: Group, rows: int) -> str:
    seed = group.seeds[0]
    found = group.runs[seed]
    return curves_command(found[BASELINE], group.models.get(seed), sorted(set(found) - {BASELINE}) or [BASELINE], rows)


def _alone(analysis: Analysis, model: ModelResult) -> dict[str, Any]:
    """What the rows of one model say of it."""
    top, acu = model.best, model.acu
    p, ends = acu.p_random[top], acu.estimates[top]
    beats = p is not None and p < LEVEL and ends.mean > 0
    tied = sorted(set(acu.estimates) - {top} - acu.told_apart(top)) if beats else []
    racu = None if model.racu.undefined else list(model.racu.estimates[top][:3])
    return {
        "seed": model.seed,
        "model": analysis.group.runs[model.seed][BASELINE].settings["model"]["key"],
        "measure": top if beats else None,
        "first": top,
        "tied": tied,
        "acu": list(ends[:3]),
        "racu": racu,
        "racu_undefined": model.racu.undefined,
        "p": p,
        "n_rows": acu.n_rows,
    }


def _cheapest(names: list[str], analysis: Analysis) -> str:
    known = {r.measure: r.cost.forwards_per_row for r in analysis.results}
    cost = {name: np.inf if passes is None else passes for name, passes in known.items()}
    return min(names, key=lambda name: cost[name])


def stored_verdict(output_dir: str | Path, model_key: str) -> Verdict | None:
    """The newest stored verdict on the model with this key, or None.

    `task=explain` takes its measure as the default for that model.
    """
    reports = sorted(records.load_all(output_dir, "report"), key=lambda record: record.created, reverse=True)
    for record in reports:
        for found in record.results.get("verdicts", []):
            if model_key in found["models"]:
                return from_json(found)
    return None


def from_json(stored: Mapping[str, Any]) -> Verdict:
    """A verdict as `as_json` wrote it, by this version or an older one."""
    known = {f.name for f in fields(Verdict)}
    checks = [Check(**check) for check in stored["checks"]]
    return Verdict(**({name: value for name, value in stored.items() if name in known} | {"checks": checks}))


def as_json(verdicts: list[Verdict]) -> list[dict[str, Any]]:
    """Verdicts as plain JSON values, as `stored_verdict` reads them."""
    return json.loads(json.dumps([records.plain(asdict(verdict)) for verdict in verdicts]))
