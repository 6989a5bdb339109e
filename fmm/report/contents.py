"""The report's tables, one group at a time."""

from __future__ import annotations

from fmm.errors import counted
from fmm.records import Record
from fmm.report.analyse import LEVEL, Analysis, MeasureResult, masf_rows
from fmm.report.load import BASELINE
from fmm.report.preconditions import at_ratio
from fmm.report.tables import Column, Table, interval, percent, points, pvalue, text, whole
from fmm.report.verdict import Verdict, draws

COVERAGE = "the papers' BCa covers 50% at n=2, 72% at n=3, 85% at n=5 (simulated)"


def faithfulness(analysis: Analysis) -> Table:
    """The main table: RACU and ACU with their intervals, rank and cost, the most faithful first."""
    over = "rows" if one_model(analysis) else "seeds and rows"
    columns = [
        Column("measure", "measure", text, False),
        Column("racu", "RACU (%)", percent),
        Column("racu_rows", f"95% ({over})", interval),
        Column("acu", "ACU (×100)", percent),
        Column("acu_rows", f"95% ({over})", interval),
        Column("rank", "rank", text),
        Column("cost", "passes per row", whole),
        Column("n", "seeds", whole),
    ]
    rows = [_faithfulness_row(result) for result in analysis.results]
    if len({len(result.seeds) for result in analysis.results}) == 1:  # then the note says how many
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    group, orders = analysis.group, draws(analysis.group)
    of_orders = f"the mean of {orders} random orders" if orders > 1 else "one random order, as in the papers"
    notes = [
        f"{group.metric}, {_models(analysis)}, {group.n_rows} test rows, sorted by ACU; random masking ({of_orders}) "
        "is 0. A rank's interval holds the ranks that the tests of all pairs leave open. Passes: forward passes per "
        "test row."
    ]
    undefined = {r.undefined: r for r in analysis.results if r.undefined}
    notes += [f"RACU is undefined: {reason}." for reason in undefined]
    notes += [f"Seed {seed} is left out: {reason}." for seed, reason in sorted(group.excluded.items())]
    if analysis.results and one_model(analysis):
        notes.append("Intervals are over the rows of this one model; -m seed=0,1,2,3,4 speaks of the recipe too.")
    return Table("faithfulness", f"Faithfulness, {group.name}", columns, rows, notes, best=0 if rows else None)


def _models(analysis: Analysis) -> str:
    return counted(max((len(result.seeds) for result in analysis.results), default=len(analysis.group.seeds)), "seed")


def one_model(analysis: Analysis) -> bool:
    """Whether all numbers are of a single model."""
    return all(len(result.seeds) == 1 for result in analysis.results)


def _faithfulness_row(result: MeasureResult) -> list:
    return [
        result.measure,
        None if result.undefined else result.racu.mean,
        _ends(result.racu_rows),
        result.acu.mean,
        _ends(result.acu_rows),
        _rank(*result.rank),
        result.cost.forwards_per_row,
        len(result.seeds),
    ]


def _rank(rank: float, low: float | None, high: float | None) -> str | None:
    if rank != rank:
        return None
    return f"{rank:g}" if low is None or high is None else f"{rank:g} ({low:g}–{high:g})"


def over_seeds(analysis: Analysis) -> Table:
    """Means with the interval over seeds alone, the seeds there are, and the papers' RACU where they print one."""
    columns = [
        Column("measure", "measure", text, False),
        Column("racu", "RACU (%)", percent),
        Column("racu_t", "95% (seeds, t)", interval),
        Column("acu", "ACU (×100)", percent),
        Column("acu_t", "95% (seeds, t)", interval),
        Column("p_random", "p against random, Holm", pvalue),
        Column("n", "seeds", whole),
        Column("missing", "seeds missing", text, False),
        Column("fmm", "FMM paper, RACU (%)", percent),
        Column("rroar", "R-ROAR paper, RACU (%)", percent),
    ]
    rows = [
        [r.measure, r.racu.mean, _ends(r.racu), r.acu.mean, _ends(r.acu), r.p_random, len(r.seeds),
         ", ".join(map(str, r.missing)) or "none", r.published.get("FMM"), r.published.get("R-ROAR")]
        for r in analysis.results
    ]  # fmt: skip
    notes = (
        ["The papers' numbers are RoBERTa-base on the full test set."]
        if any(row[-2:] != [None, None] for row in rows)
        else []
    )
    return Table("over_seeds", f"Seeds and published numbers, {analysis.group.name}", columns, rows, notes)


def each_model(analysis: Analysis) -> Table:
    """Every model by itself: its measures with intervals over its rows, and the ranks its own tests leave open."""
    columns = [
        Column("seed", "seed", text),
        Column("measure", "measure", text, False),
        Column("racu", "RACU (%)", percent),
        Column("racu_rows", "95% (rows)", interval),
        Column("acu", "ACU (×100)", percent),
        Column("acu_rows", "95% (rows)", interval),
        Column("rank", "rank", text),
        Column("p_random", "p against random, Holm", pvalue),
    ]
    rows, notes = [], []
    for seed, model in sorted(analysis.models.items()):
        ranks = {rank.measure: rank for rank in model.acu.ranks}
        for name in sorted(model.acu.estimates, key=lambda name: -model.acu.estimates[name].mean):
            area, relative, rank = model.acu.estimates[name], model.racu.estimates[name], ranks[name]
            racu = (None, (None, None)) if model.racu.undefined else (relative.mean, _ends(relative))
            of_rank = _rank(rank.rank, rank.lower, rank.upper)
            rows.append([seed, name, *racu, area.mean, _ends(area), of_rank, model.acu.p_random[name]])
        if model.racu.undefined:
            notes.append(f"Seed {seed} has no RACU: {model.racu.undefined}.")
    notes.append("Conditional on each model: only its test rows and random masking's orders vary.")
    return Table("each_model", f"Each model by itself, {analysis.group.name}", columns, rows, notes)


def model_verdicts(verdict: Verdict) -> Table:
    """What each model says for itself, a line a seed."""
    columns = [
        Column("seed", "seed", text),
        Column("measure", "measure to use", text, False),
        Column("acu", "ACU (×100)", percent),
        Column("acu_rows", "95% (rows)", interval),
        Column("racu", "RACU (%)", percent),
        Column("racu_rows", "95% (rows)", interval),
        Column("tied", "not told apart from", text, False),
    ]
    rows = [
        [m["seed"], m["measure"] or f"none shown ({m['first']} first)", m["acu"][0], tuple(m["acu"][1:]),
         m["racu"][0] if m["racu"] else None, tuple(m["racu"][1:]) if m["racu"] else None,
         ", ".join(m["tied"]) or "none"]
        for m in verdict.each
    ]  # fmt: skip
    return Table("models", f"This recipe's models, one by one, {verdict.dataset} · {verdict.strategy}", columns, rows)


def _ends(found) -> tuple[float | None, float | None]:
    return found.lower, found.upper


def papers_intervals(analysis: Analysis) -> Table:
    """Means with the papers' own interval, for comparison with their tables only."""
    columns = [
        Column("measure", "measure", text, False),
        Column("acu", "ACU (×100)", percent),
        Column("acu_bca", "BCa 95%", interval),
        Column("racu", "RACU (%)", percent),
        Column("racu_bca", "BCa 95%", interval),
        Column("n", "seeds", whole),
    ]
    rows = [
        [r.measure, r.acu.mean, _ends(r.acu_papers), r.racu.mean, _ends(r.racu_papers), len(r.seeds)]
        for r in analysis.results
    ]
    note = f"To set beside the papers' tables, not to decide by: {COVERAGE}."
    return Table("papers", f"The papers' interval (BCa over seeds), {analysis.group.name}", columns, rows, [note])


def comparisons(analysis: Analysis) -> Table:
    """All pairs of measures: difference of ACU with interval and Holm-adjusted p, the clearest first."""
    columns = [
        Column("first", "measure", text, False),
        Column("second", "against", text, False),
        Column("difference", "difference of ACU (×100)", points),
        Column("ci", "95%", interval),
        Column("p", "p", pvalue),
        Column("p_holm", "p, Holm", pvalue),
        Column("told_apart", "told apart", text, False),
    ]
    rows = []
    for pair in sorted(analysis.pairs, key=lambda pair: (pair.p_holm if pair.p_holm is not None else 2, pair.first)):
        first, second, sign = (
            (pair.first, pair.second, 1) if pair.difference.mean >= 0 else (pair.second, pair.first, -1)
        )
        ends = [None if end is None else sign * end for end in _ends(pair.difference)]
        apart = None
        if pair.p_holm is not None:
            apart = "yes" if pair.p_holm < LEVEL else "no"
        low_high = tuple(sorted(ends)) if None not in ends else (None, None)  # type: ignore[type-var]
        rows.append([first, second, abs(pair.difference.mean), low_high, pair.p, pair.p_holm, apart])
    what = "rows" if one_model(analysis) else "seeds and rows"
    note = f"The same {what} for both. Holm over all {len(rows)} pairs."
    return Table("comparisons", f"Measures compared, {analysis.group.name}", columns, rows, [note])


def cost(analysis: Analysis) -> Table:
    """Seconds and forward passes of a whole curve, mean over seeds."""
    columns = [
        Column("measure", "measure", text, False),
        Column("seconds", "seconds", whole),
        Column("forwards", "forward passes of a row", whole),
        Column("rows", "test rows", whole),
        Column("per_row", "forward passes per test row", whole),
    ]
    rows = [
        [r.measure, r.cost.seconds, r.cost.forwards, r.cost.rows, r.cost.forwards_per_row]
        for r in sorted(analysis.results, key=lambda r: r.cost.forwards_per_row or 0)
    ]
    note = (
        "One curve of one seed, as it was run, on all of its test rows; a backward pass counts as two forward passes. "
        "No fine-tuning is needed for a curve."
    )
    return Table("cost", f"Cost of a curve, {analysis.group.name}", columns, rows, [note])


def masf(analysis: Analysis) -> Table:
    """Rise of the share of flagged rows over ratio 0, by measure and ratio."""
    ratios = analysis.masf[0].ratios
    columns = [Column("measure", "measure", text, False), Column("at_0", "share at 0% (%)", percent)]
    columns += [Column(f"rise_{100 * r:.0f}", f"{100 * r:.0f}%", points) for r in ratios if r > 0]
    rows = [[s.measure, float(s.share[0]), *s.rise[1:].tolist()] for s in analysis.masf]
    rows.sort(key=lambda row: row[0] != BASELINE)
    test = analysis.masf[0].test
    notes = [
        f"Share of test rows with MaSF p < {LEVEL} ({test}), in points above ratio 0 of the same rows: unmasked test "
        "text may itself look foreign, so only the rise speaks of masking."
    ]
    if test == "authors":
        notes.append(
            "The authors' values are not p-values: rows beyond all fit rows get exactly 0, so that under the null "
            "9–19% fall below 0.05. masf=calibrated gives p-values."
        )
    counts = masf_rows(analysis.group, test)
    if counts is not None and test == "calibrated":
        notes.append(
            f"{counts[0]} validation rows fit it and {counts[1]} calibrate it. The fewer fit, the less it finds: at "
            "384 dimensions 1,000 found nothing in a plain model's short texts below 80% masking (docs/method.md)."
        )
    return Table("masf", f"Is masked text in-distribution? {analysis.group.name}", columns, rows, notes)


def masf_long(analysis: Analysis) -> Table:
    """MaSF by measure and ratio with intervals, for the CSV."""
    columns = [
        Column("measure", "measure", text, False),
        Column("test", "test", text, False),
        Column("masking_ratio", "ratio", percent),
        Column("share", "share", percent),
        Column("rise", "rise", points),
        Column("rise_ci", "95%", interval),
    ]
    rows = [
        [s.measure, s.test, *values, (low, high)]
        for s in analysis.masf
        for *values, low, high in zip(
            s.ratios.tolist(), s.share.tolist(), s.rise.tolist(), s.lower.tolist(), s.upper.tolist()
        )
    ]
    return Table("masf_by_ratio", f"MaSF by ratio, {analysis.group.name}", columns, rows)


def masf_levels(analysis: Analysis) -> Table:
    """Shares below every level and the global p-values, by measure, ratio and seed, as the records have them."""
    levels = ("0.001", "0.005", "0.01", "0.05", "0.1")
    columns = [
        Column("measure", "measure", text, False),
        Column("seed", "seed", text),
        Column("masking_ratio", "masked (%)", percent),
        *(Column(f"below_{level}", f"p < {level} (%)", percent) for level in levels),
        Column("simes", "Simes", pvalue),
        Column("fisher", "Fisher", pvalue),
        Column("n", "rows", whole),
        Column("n_calibration", "n to compare with", whole),
    ]
    test, rows = analysis.masf[0].test, []
    for seed, found in sorted(analysis.group.runs.items()):
        for measure, run in sorted(found.items()):
            for at in (run.results.get("masf") or {}).get(test, []):
                shares = [at["below"].get(level) for level in levels]
                ends = [at["simes"], at["fisher"], at["n"], at["n_calibration"]]
                rows.append([measure, seed, at["masking_ratio"], *shares, *ends])
    notes = [
        "– where a level is below 1 / (n + 1), so that no p-value can reach it. Simes and Fisher are global p-values; "
        "Fisher by the survival function, where the authors print its opposite."
    ]
    return Table("masf_levels", f"MaSF at every level ({test}), {analysis.group.name}", columns, rows, notes)


def by_strategy(dataset: str, trained: list[Record]) -> dict[str, list[Record]]:
    """Train records of a dataset by masking strategy."""
    found: dict[str, list[Record]] = {}
    for record in trained:
        if record.dataset == dataset:
            found.setdefault(str(record.settings["masking"]["strategy"]), []).append(record)
    return found


def fine_tuning(dataset: str, models: dict[str, list[Record]], metric: str) -> Table:
    """Masked against plain fine-tuning under random masking at each ratio, with class majority."""
    ratios = [row["masking_ratio"] for row in next(iter(models.values()))[0].results["test_table"]]
    columns = [Column("masking", "fine-tuning", text, False), Column("n", "seeds", whole)]
    columns += [Column(f"at_{100 * r:.0f}", f"{100 * r:.0f}%", percent) for r in ratios]
    rows = []
    for strategy, found in sorted(models.items()):
        means = [sum(at_ratio(model, ratio, metric) for model in found) / len(found) for ratio in ratios]
        rows.append(["plain (none)" if strategy == "none" else strategy, len(found), *means])
    majority = next(iter(models.values()))[0].results["majority"]
    rows.append(["class majority", None, *[majority[metric]] * len(ratios)])
    note = (
        f"Test {metric} (%) with that share of all texts' tokens masked at random, mean over seeds. The majority "
        "is the most frequent training class."
    )
    return Table("fine_tuning", f"Masked and plain fine-tuning, {dataset}", columns, rows, [note])
