"""Put a report together: analyse, judge, and write every form of it beside its record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fmm.records import Record, Run
from fmm.report import contents, figures, page, slices
from fmm.report.analyse import Analysis, analyse
from fmm.report.load import Group
from fmm.report.tables import Table
from fmm.report.verdict import Command, Verdict, as_json, judge

FOOT = (
    "ACU is the area between the curve of random masking and that of the measure; RACU divides it by the area between "
    "random masking and its end point, where that is shown to lie above 0. Recursive masking for all measures but "
    "beam. Intervals: of one model over its rows (bootstrap variance, Student t; Fieller's for RACU), of several over "
    f"seeds and rows together (Satterthwaite's degrees of freedom); {contents.COVERAGE}.",
    "Method: Faithfulness Measurable Masked Language Models, arXiv 2310.07819; Recursive ROAR, arXiv 2110.08412.",
)

_BY_MEASURE, _BY_ROW = "ACU by measure", "row by row"  # pictures with a line per measure


@dataclass(frozen=True)
class Options:
    """What a report takes from the configuration; see `conf/task/report.yaml`."""

    seeds: Sequence[int] = (0, 1, 2, 3, 4)
    margin: float = 0.02
    tolerance: float = 0.05
    resamples: int = 2000


@dataclass(frozen=True)
class Report:
    """The analyses of all groups and the verdict on each dataset and masking, before anything is written."""

    analyses: list[Analysis]
    judged: dict[str, Verdict]

    @property
    def verdicts(self) -> list[Verdict]:
        """One verdict per dataset and masking."""
        return list(self.judged.values())


def build(
    groups: list[Group], trained: list[Record], options: Options | None = None, command: Command | None = None
) -> Report:
    """Analyse and judge; the same numbers and sentences as on the page. `command`: see `fmm.report.verdict.judge`."""
    options = options or Options()
    analyses = [analyse(group, options.seeds, options.resamples) for group in groups]
    judged = {
        a.group.name: judge(
            a, groups, trained, options.margin, options.tolerance, resamples=options.resamples, command=command
        )
        for a in _heads(analyses)
    }
    return Report(analyses, judged)


def write(
    run: Run, groups: list[Group], trained: list[Record], options: Options, command: Command | None = None
) -> dict[str, Any]:
    """Write Markdown, CSV, LaTeX, HTML and figures into `run`. Returns the record's results."""
    report = build(groups, trained, options, command)
    analyses, judged = report.analyses, report.judged
    sections = []
    for dataset in sorted({group.dataset for group in groups}):
        sections += _training_section(run, dataset, groups, trained)
        for analysis in (a for a in analyses if a.group.dataset == dataset):
            sections.append(_section(run, analysis, judged.get(analysis.group.name)))
    verdicts = report.verdicts
    _write_texts(run, verdicts, sections, groups)
    main = {a.group.name: _rows(contents.faithfulness(a)) for a in analyses}
    run.write_json("verdict.json", as_json(verdicts))
    return {"verdicts": as_json(verdicts), "tables": main, "page": "report.html"}


def _heads(analyses: list[Analysis]) -> list[Analysis]:
    """One analysis per dataset and masking: on the rows that all measures have, where they differ."""
    last = {(a.group.dataset, a.group.strategy): a for a in analyses}
    return list(last.values())


def _rows(table: Table) -> list[dict[str, Any]]:
    return [{column.key: value for column, value in zip(table.columns, row)} for row in table.rows]


def _training_section(run: Run, dataset: str, groups: list[Group], trained: list[Record]) -> list[page.Section]:
    models = contents.by_strategy(dataset, trained)
    if not models:
        return []
    metric = next(group.metric for group in groups if group.dataset == dataset)
    draw = figures.random_masking(models, metric)
    figures.save(draw, run.directory / "figures", f"{dataset}-random-masking")
    picture = figures.svg(draw, f"{dataset} under random masking")
    return [
        page.Section(
            f"{dataset}: fine-tuning", [("random masking", picture)], [contents.fine_tuning(dataset, models, metric)]
        )
    ]


def _section(run: Run, analysis: Analysis, verdict: Verdict | None) -> page.Section:
    group, section = analysis.group, page.Section(analysis.group.name)
    section.tables = [contents.faithfulness(analysis)]
    several = len(analysis.models) > 1
    section.tables += [contents.model_verdicts(verdict)] if several and verdict is not None else []
    if not analysis.results:
        section.tables += [contents.masf(analysis)] if analysis.masf else []
        return section
    drawings = [(_BY_MEASURE, figures.ranking(analysis))]
    drawings += [(r.measure, figures.erasure(analysis, r.measure)) for r in analysis.results]
    if analysis.masf:
        drawings.append(("MaSF", figures.masf(analysis)))
    values = slices.per_example(group)
    drawings.append((_BY_ROW, figures.per_example({r.measure: values[r.measure][1] for r in analysis.results})))
    for title, draw in drawings:
        size = (4.2, max(2.9, 0.9 + 0.27 * len(analysis.results))) if title in (_BY_MEASURE, _BY_ROW) else (4.2, 2.9)
        figures.save(draw, run.directory / "figures", f"{group.name}-{title}", size)
        section.figures.append((title, figures.svg(draw, f"{group.name}: {title}", size)))
    labels: list[str] = next((m.results["label_names"] for m in group.models.values()), [])
    section.tables += [contents.masf(analysis)] if analysis.masf else []
    section.tables += [contents.comparisons(analysis), slices.slice_table(group, labels)]
    section.details = [contents.each_model(analysis)] if several else []
    section.details += [
        contents.over_seeds(analysis),
        slices.per_example_summary(group, values),
        contents.cost(analysis),
        contents.papers_intervals(analysis),
    ]
    section.details += [contents.masf_long(analysis), contents.masf_levels(analysis)] if analysis.masf else []
    run.write_parquet(f"per_example-{_safe(group.name)}.parquet", _per_example_table(values))
    return section


def _per_example_table(values: dict[str, tuple[np.ndarray, np.ndarray]]) -> pa.Table:
    names = [name for name, (ids, _) in values.items() for _ in ids]
    ids, areas = (np.concatenate([pair[k] for pair in values.values()]) for k in (0, 1))
    return pa.table({"measure": names, "example_id": ids, "acu": areas})


def _safe(name: str) -> str:
    return "-".join(part for part in "".join(c if c.isalnum() else " " for c in name).split())


def _write_texts(run: Run, verdicts: list[Verdict], sections: list[page.Section], groups: list[Group]) -> None:
    names = ", ".join(sorted({group.dataset for group in groups}))
    title = f"Which explanation can be trusted? {names}"
    markdown = [f"# {title}", "", *(_markdown_verdict(verdict) for verdict in verdicts)]
    latex = ["% needs \\usepackage{booktabs}", ""]
    for section in sections:
        markdown.append(f"## {section.title}\n")
        for table in [*section.tables, *section.details]:
            markdown.append(table.filled().markdown())
            latex.append(table.filled().latex())
            run.write_text(f"csv/{_safe(section.title)}-{table.key}.csv", table.csv())
    run.write_text("report.md", "\n".join([*markdown, "", *(f"{line}\n" for line in FOOT)]))
    run.write_text("report.tex", "\n".join(latex))
    lead = "Which importance measure is faithful for this very model, how sure that is, and what it costs."
    run.write_text("report.html", page.render(title, lead, verdicts, sections, [*FOOT, _provenance(groups)]))


def _markdown_verdict(verdict: Verdict) -> str:
    lines = [f"- **{check.status}** {check.question} {check.detail}" for check in verdict.checks]
    steps = [f"- next: {step}" for step in verdict.next]
    return "\n".join([f"**{verdict.sentence}**", "", *lines, *steps, ""])


def _provenance(groups: list[Group]) -> str:
    runs = {run.key: run for group in groups for found in group.runs.values() for run in found.values()}
    versions = next(iter(runs.values())).versions
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"From {len(runs)} curves: {', '.join(sorted(runs))}. {listed}."
