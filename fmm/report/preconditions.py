"""What has to hold for a verdict to be worth anything: each answered yes or no where the data suffice.

Where they do not, the answer is "unclear" and says how many rows or seeds would settle it at the observed effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import stats

from fmm import records
from fmm.comparison import Estimate, estimate
from fmm.curves import Curve, from_table
from fmm.errors import counted
from fmm.records import Record
from fmm.report.analyse import LEVEL, Analysis, Shares, masf_rows, mean_of_rows
from fmm.report.load import Group
from fmm.report.settle import FEW_ROWS, SOME_HUNDRED, needed, rows_to_settle
from fmm.resampling import performance
from fmm.statistics import metric_from_confusion, student_interval

Status = Literal["yes", "no", "unclear", "unknown", "n/a"]
PLAIN = "none"  # the masking strategy of plain fine-tuning
_PREDICTIONS = "random_masking.parquet"


@dataclass(frozen=True)
class Check:
    """One precondition: what was asked, the answer, and the numbers behind it.

    `rows` are the test rows that would most likely settle an open one, where rows would. "n/a" does not apply.
    """

    question: str
    status: Status
    detail: str
    rows: int | None = None


def performance_kept(group: Group, trained: list[Record], margin: float, resamples: int) -> Check:
    """Whether masked models are as good on unmasked rows as plain ones of the same seed and the same rows."""
    question = "Does masked fine-tuning keep unmasked performance?"
    if group.strategy == PLAIN:
        return Check(question, "n/a", "this is the plainly fine-tuned model")
    if not group.models:
        return Check(question, "n/a", "fmm did not train this model, so there is no plain one to hold it against")
    plain = {int(r.settings["seed"]): r for r in trained if r.dataset == group.dataset and _is_plain(r)}
    seeds = [seed for seed in group.seeds if seed in plain and seed in group.models]
    if not seeds:
        return Check(question, "unknown", "no plain model of the same settings to hold it against")
    pairs = [(group.models[seed], plain[seed]) for seed in seeds]
    rows = [_shared_rows(*(_at(model, 0.0) for model in pair)) for pair in pairs]
    change = [at_ratio(model, 0.0, group.metric) - at_ratio(other, 0.0, group.metric) for model, other in pairs]
    return _no_loss(question, "changes by", group.metric, change, rows, margin, resamples)


def _is_plain(record: Record) -> bool:
    masking = record.settings.get("masking")
    return (masking.get("strategy") if isinstance(masking, Mapping) else masking) == PLAIN


def at_ratio(model: Record, ratio: float, metric: str) -> float:
    """A metric of the random-masking test of a train record at one ratio."""
    table = model.results["test_table"]
    return float(min(table, key=lambda row: abs(row["masking_ratio"] - ratio))[metric])


def _at(model: Record, ratio: float) -> Curve | None:
    """Predictions of the random-masking test at the nearest ratio, of rows with a label; None where they are gone."""
    if records.read_parquet(model.directory / _PREDICTIONS) is None:
        return None
    curve = from_table(pq.read_table(model.directory / _PREDICTIONS))
    place = int(np.abs(curve.ratios - ratio).argmin())
    curve = curve.select(curve.label >= 0)
    return replace(curve, ratios=curve.ratios[[place]], logits=curve.logits[:, [place]], masf={})


def _shared_rows(first: Curve | None, second: Curve | None) -> list[Curve] | None:
    if first is None or second is None:
        return None
    common = np.intersect1d(first.example_id, second.example_id)
    return [first.restrict(common), second.restrict(common)] if len(common) else None


def _no_loss(
    question: str,
    verb: str,
    metric: str,
    change: Sequence[float],
    rows: Sequence[list[Curve] | None],
    margin: float,
    resamples: int,
) -> Check:
    """Whether `change` (of each model) is above -`margin`, by the models' paired rows where all have them."""
    paired = [pair for pair in rows if pair is not None]
    if len(paired) < len(rows):
        return _no_loss_over_seeds(question, verb, metric, change, margin)
    differences = [(exact[0, 0] - exact[1, 0], drawn[:, 0, 0] - drawn[:, 1, 0]) for exact, drawn in
                   performance(paired, metric, resamples, 0)]  # fmt: skip
    n = min(len(pair[0].example_id) for pair in paired)
    found = estimate(np.array([d[0] for d in differences]), np.stack([d[1] for d in differences]), n, 1.0)
    ends = found.interval
    models = f"{counted(found.n, 'seed')} and {counted(n, 'row')}" if found.n > 1 else f"{counted(n, 'test row')}"
    detail = f"{metric} {verb} {100 * found.mean:+.1f} points{_ends(ends.lower, ends.upper)} over {models}, "
    detail += f"allowed {-100 * margin:+.1f}"
    if ends.lower is not None and ends.upper is not None:
        if ends.lower > -margin:
            return Check(question, "yes", detail)
        if ends.upper < -margin:
            return Check(question, "no", detail)
    says, more = needed(found, abs(found.mean + margin))
    return Check(question, "unclear", f"{detail}; {says}", more)


def _no_loss_over_seeds(question: str, verb: str, metric: str, change: Sequence[float], margin: float) -> Check:
    """As `_no_loss`, from the models' records alone: their rows are not there."""
    found = student_interval(change)
    detail = f"{metric} {verb} {100 * found.mean:+.1f} points{_ends(found.lower, found.upper)}, "
    detail += f"allowed {-100 * margin:+.1f}"
    if found.lower is None or found.upper is None:
        return Check(question, "unclear", f"{detail}; the predictions of one seed are gone: test the models again")
    if found.lower >= -margin:
        return Check(question, "yes", detail)
    if found.upper < -margin:
        return Check(question, "no", detail)
    return Check(question, "unclear", f"{detail}; {counted(found.n, 'seed')} scatter too much to tell")


def _ends(lower: float | None, upper: float | None) -> str:
    return "" if lower is None or upper is None else f" [{100 * lower:+.1f}, {100 * upper:+.1f}]"


def fully_masked(group: Group, margin: float, resamples: int) -> Check:
    """Whether the answer to a text without words is as good as the most frequent class of the training rows.

    On rows of nearly balanced classes the share of a class is too noisy to tell, but which class is answered is known:
    then the shares of the training rows decide.
    """
    question = "Is a fully masked input predicted at the class-majority baseline?"
    if not group.models:
        return Check(question, "n/a", "fmm did not train this model, so the class shares of its training are not known")
    models = list(group.models.values())
    answers = [_at(model, 1.0) for model in models]
    rows = [None if a is None else [a, _majority(a, m)] for a, m in zip(answers, models)]
    gaps = [at_ratio(model, 1.0, group.metric) - model.results["majority"][group.metric] for model in models]
    check = _no_loss(question, "at 100% minus the majority's:", group.metric, gaps, rows, margin, resamples)
    losses = [None if a is None else _loss_by_shares(a, m, group.metric) for a, m in zip(answers, models)]
    known = [loss for loss in losses if loss is not None]
    if check.status != "unclear" or len(known) < len(models):
        return check
    if max(known) <= margin:
        detail = check.detail.split(";")[0]
        shares = (
            f"by the class shares of the training rows the answers given cost {100 * max(known):.1f} points at most"
        )
        return Check(question, "yes", f"{detail}; {shares}")
    return check


def _majority(answers: Curve, model: Record) -> Curve:
    """The same rows, all predicted as the most frequent training class."""
    names, label = model.results["label_names"], model.results["majority"]["label"]
    logits = np.zeros_like(answers.logits)
    logits[..., names.index(label)] = 1
    return replace(answers, logits=logits)


def _loss_by_shares(answers: Curve, model: Record, metric: str) -> float | None:
    """What the answers cost against the majority class if rows had the training rows' shares of classes."""
    counts = model.results.get("data", {}).get("class_counts", {}).get("train")
    if counts is None or not sum(counts):
        return None
    shares = np.asarray(counts, dtype=np.float64) / sum(counts)
    given = np.bincount(answers.predictions[:, 0], minlength=len(shares)) / len(answers.example_id)
    best = np.eye(len(shares))[shares.argmax()]
    value, most = (float(metric_from_confusion(metric, np.outer(shares, each))) for each in (given, best))
    return most - value


def in_distribution(analysis: Analysis, tolerance: float) -> Check:
    """Whether MaSF flags masked rows no more often than the same rows unmasked, at every ratio.

    "no": at one ratio at least, for one measure or for all together, the rise is above `tolerance` beyond doubt
    (Bonferroni over ratios and measures). "yes": at each ratio the mean over measures, and for each measure the
    mean over ratios, is below it beyond doubt.
    """
    question = "Is masked text in-distribution at every ratio, judged against unmasked test text?"
    if not analysis.masf:
        tested = any(curve.masf for found in analysis.group.curves.values() for curve in found.values())
        few = _too_few(analysis)
        none = "the curves hold no MaSF p-values: run them with masf=calibrated"
        return Check(question, "unknown", few if tested else none)
    first, rises = analysis.masf[0], analysis.masf
    inner = first.ratios > 0
    n = min(len(s.rows) for s in rises)
    worst = max(rises, key=lambda s: float(s.rise[inner].max()))
    at = first.ratios[inner][int(worst.rise[inner].argmax())]
    detail = f"largest rise of the share with p < {LEVEL} over ratio 0: {100 * worst.rise[inner].max():+.1f} points "
    detail += (
        f"({worst.measure} at {100 * at:.0f}%; MaSF {first.test}; {counted(n, 'row')}), allowed {100 * tolerance:+.1f}"
    )
    out = _beyond_doubt(rises, inner, tolerance)
    if out:
        return Check(question, "no", f"{detail}; out of distribution at {_ratios(out)}")
    return _settled(question, detail, rises, inner, tolerance)


def _too_few(analysis: Analysis) -> str:
    """Why no MaSF value can be low enough, and what would do."""
    few = f"no MaSF value can fall below {LEVEL} with so few validation rows beside the model's dimensions"
    counts = masf_rows(analysis.group, "authors")
    have = "" if counts is None else f" ({counts[0]} fit it)"
    return f"{few}{have}; at 384 dimensions masf=authors takes some 600, masf=calibrated some 100"


def _beyond_doubt(rises: list[Shares], inner: NDArray[np.bool_], tolerance: float) -> list[tuple[str, float]]:
    """Measures and ratios whose rise is above `tolerance`; together wrong with 5% at most."""
    several = len({len(s.rows) for s in rises}) == 1 and len(rises) > 1
    tests = int(inner.sum()) * (len(rises) + several)
    places = np.flatnonzero(inner)
    named = [(s.measure, s.rows) for s in rises]
    named += [("all together", np.mean([s.rows for s in rises], axis=0))] if several else []
    found = []
    for measure, rows in named:
        rise, error = mean_of_rows(rows)
        lower = rise - stats.t.ppf(1 - LEVEL / tests, max(1, len(rows) - 1)) * error
        found += [(measure, float(rises[0].ratios[place])) for place in places if lower[place] > tolerance]
    return found


def _settled(question: str, detail: str, rises: list[Shares], inner: NDArray[np.bool_], tolerance: float) -> Check:
    """ "yes" where every mean is below `tolerance` beyond doubt, else the rows that would show it."""
    means = [s.rows[:, inner].mean(axis=1, keepdims=True) for s in rises]
    if len({len(s.rows) for s in rises}) == 1:
        means.append(np.mean([s.rows for s in rises], axis=0)[:, inner])
    open_rows: list[int | None] = []
    for rows in means:
        rise, error = mean_of_rows(rows)
        quantile = float(stats.t.ppf(1 - LEVEL, max(1, len(rows) - 1)))
        for at in np.flatnonzero(rise + quantile * error >= tolerance):
            open_rows.append(rows_to_settle(len(rows), float(error[at]), abs(tolerance - float(rise[at])), quantile))
    n = min(len(s.rows) for s in rises)
    if not open_rows:
        above = max(float(s.rise[inner].max()) for s in rises) > tolerance
        scatter = "; single ratios scatter, the means over measures and over ratios are below that" if above else ""
        return Check(question, "yes", f"{detail}{scatter}")
    if n < FEW_ROWS:
        says = f"{counted(n, 'row')} cannot tell; take some hundred"
        return Check(question, "unclear", f"{detail}; {says}", SOME_HUNDRED)
    if None in open_rows:
        return Check(question, "unclear", f"{detail}; in doubt: the rise is too close to what is allowed to tell")
    rows_needed = max(rows for rows in open_rows if rows is not None)
    return Check(question, "unclear", f"{detail}; about {rows_needed} rows would settle it; you have {n}", rows_needed)


def _ratios(found: list[tuple[str, float]]) -> str:
    ratios = sorted({ratio for _, ratio in found})
    measures = sorted({measure for measure, _ in found} - {"all together"})
    named = f" ({', '.join(measures)})" if measures else ""
    return f"{', '.join(f'{100 * ratio:.0f}%' for ratio in ratios)}{named}"


def racu_defined(analysis: Analysis) -> Check:
    """Whether each model's normaliser lies above 0, over its rows and random masking's orders."""
    question = "Does random masking hurt the model, so that RACU is defined?"
    group = analysis.group
    lines: list[tuple[Status, str, int | None]] = []
    for seed, scale in sorted(analysis.normalisers.items()):
        ends, of_seed = scale.interval, f"seed {seed}: " if len(analysis.normalisers) > 1 else ""
        shown = f"{of_seed}the normaliser is {100 * scale.mean:.1f}{_ends(ends.lower, ends.upper)} points"
        if ends.lower is not None and ends.lower > 0:
            lines.append(("yes", shown, None))
        elif ends.upper is not None and ends.upper < 0:
            lines.append(("no", f"{shown}: random masking helps; RACU is undefined and ACU stands alone", None))
        else:
            says, rows = needed(scale, scale.mean)
            lines.append(("unclear", f"{shown}; RACU is undefined and ACU stands alone; {says}", rows))
    if not lines:
        return Check(question, "unknown", "no model is left")
    statuses: tuple[Status, Status] = ("no", "unclear")
    for status in statuses:
        chosen = [line for line in lines if line[0] == status]
        if chosen:
            enough = [line[2] for line in chosen if line[2] is not None]
            return Check(question, status, "; ".join(line[1] for line in chosen), max(enough) if enough else None)
    draws = max(curve.draws for found in group.curves.values() for curve in found.values())
    text = lines[0][1] if len(lines) == 1 else "the normaliser lies above 0 for every seed"
    return Check(question, "yes", f"{text}, over rows and {counted(draws, 'random order')} of each")


def beats_random(top: str | None, errors: Mapping[str, Estimate], p: float | None) -> Check:
    """Whether the measure with the largest ACU does better than random masking, as the largest of so many."""
    question = "Does a measure beat random masking?"
    if top is None:
        return Check(question, "unknown", "no measure was run beside random masking")
    found, measures = errors[top], len(errors)
    ends = found.interval
    shown = f"{top}, the best of {measures}: ACU {100 * found.mean:+.1f}{_ends(ends.lower, ends.upper)}"
    if p is not None:
        size = "< 0.001" if p < 0.001 else f"= {p:.3f}"
        shown += f", p {size} (Holm)"
    if p is not None and p < LEVEL:
        return Check(question, "yes" if found.mean > 0 else "no", shown)
    if all(e.interval.upper is not None and e.interval.upper < 0 for e in errors.values()):
        return Check(question, "no", shown)
    quantile = float(stats.norm.ppf(1 - LEVEL / 2 / max(1, measures)))
    says, rows = needed(found, found.mean, quantile)
    if found.mean <= 0 and found.n_rows >= FEW_ROWS:
        says = "at the observed effect no number of rows would show it to be better"
    return Check(question, "unclear", f"{shown}; {says}", rows)
