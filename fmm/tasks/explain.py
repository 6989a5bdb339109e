"""`task=explain`: which words decided this? Of a text, a file or a split, as Parquet, page and coloured words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from omegaconf import DictConfig

from fmm import records
from fmm.data.labels import label_text, target_label
from fmm.data.matching import Matching, check_classes
from fmm.errors import FmmError, counted, unknown
from fmm.explain import source as sources
from fmm.explain import work
from fmm.explain.evidence import evidence_table
from fmm.explain.source import Source
from fmm.explain.work import Job
from fmm.measures import build_all
from fmm.models import build
from fmm.records import Record, Run
from fmm.report import explain_page, terminal
from fmm.report.verdict import stored_verdict
from fmm.tasks.common import TrainedModel, container, datamodule, quiet_transformers, trained_model
from fmm.tasks.explain_job import forecast, input_ends, note_on_order, notes_on, prepare
from fmm.tasks.subject import matched_labels
from fmm.tracking import Tracker, tracker


def run(cfg: DictConfig) -> Record | None:
    """Explain what the configuration names and leave tokens.parquet, words.parquet, examples.parquet and explain.html.

    Returns the record; None after `dry_run=true`.
    """
    quiet_transformers()
    given = sources.of_text(str(cfg.text), _text(cfg.text_pair)) if cfg.text is not None else None
    path = _file(cfg)
    data = None if cfg.checkpoint is not None and (given or path) else datamodule(cfg)
    trained = trained_model(cfg, data)
    measures = chosen_measures(cfg, trained)
    matching = matched_labels(data, trained) if data is not None and cfg.checkpoint is not None else None
    classes = _class_names(trained, data, matching)
    source = given or (_of_file(cfg, path, classes) if path else _split(cfg, data))
    _check_texts(cfg, source)
    if given is not None:
        _check_map_beside_text(cfg, classes)
    run = _open(cfg, trained, source, measures, classes)
    if cfg.dry_run:
        print(forecast(run, prepare(cfg, trained.directory, source, measures, classes)))
        return None
    with run.lock():
        if cfg.force:
            run.clear()
        record = run.record()
        if record is None:
            with tracker(cfg, run.directory) as track:
                job = prepare(cfg, trained.directory, source, measures, classes)
                record = _explain(cfg, run, trained, job, matching, track)
        else:
            print(f"done already ({record.created}); force=true does it again")
    if source.kind == "text":
        _print_words(record)
    if (record.directory / "evidence.md").exists():
        print((record.directory / "evidence.md").read_text("utf-8"))
    print(f"page: {record.directory / 'explain.html'}")
    print(f"record: {record.directory / records.RECORD}")
    return record


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _file(cfg: DictConfig) -> Path | None:
    """The file to explain: `explanation.file`, or `data.path` where that is not what the model is trained on."""
    named = cfg.explanation.file
    if named is None and (cfg.dataset.name != "local" or cfg.checkpoint is not None):
        named = cfg.data.path
    if named is not None and cfg.text is not None:
        raise FmmError(f"text= and the file {named} are both given; explain one of them")
    return None if named is None else Path(str(named)).expanduser()


def _of_file(cfg: DictConfig, path: Path, classes: list[str]) -> Source:
    check_classes(container(cfg.label_map), classes, "the model")
    return sources.of_file(path, container(cfg.dataset), cfg.explanation, container(cfg.label_map))


def _check_map_beside_text(cfg: DictConfig, classes: list[str]) -> None:
    """A text of one's own has no label: a `label_map` must be right, and only the target can make use of it."""
    label_map = container(cfg.label_map)
    if label_map is None:
        return
    check_classes(label_map, classes, "the model")
    labels = {label_text(key).casefold() for key in label_map}
    if str(cfg.target).casefold() not in labels:
        print(f"label_map: {counted(len(labels), 'label')} not used, as text= has none")


def _split(cfg: DictConfig, data: Any) -> Source:
    if cfg.explanation.split not in ("train", "validation", "test"):
        raise unknown("explanation.split", str(cfg.explanation.split), ("train", "validation", "test"))
    return sources.of_split(data, cfg.explanation.split)


def _check_texts(cfg: DictConfig, source: Source) -> None:
    """A model of pairs needs pairs, and the explained text must be there."""
    pair = cfg.dataset.get("text_pair")
    if cfg.checkpoint is None and source.kind == "text" and bool(pair) != bool(source.pairs):
        wanted = (
            f"two texts ({cfg.dataset.text} and {pair}); give text_pair= too"
            if pair
            else "one text; leave out text_pair="
        )
        raise FmmError(f"the model of {cfg.dataset.name} reads {wanted}")
    if cfg.explain != "first" and source.pairs is None:
        raise FmmError(f"explain={cfg.explain} asks for a second text, but there is one text only; use explain=first")


def chosen_measures(cfg: DictConfig, trained: TrainedModel) -> list[dict[str, Any]]:
    """Measures to use: `measures`, a `measure` of the command line, the report's verdict on this model, or the default.

    Raises FmmError for an unknown one, or one that is named twice with different options.
    """
    asked = container(cfg.measures) if cfg.measures is not None else None
    if asked is None:
        verdict = None if _measure_was_chosen() else stored_verdict(cfg.output_dir, trained.key)
        if verdict is not None and verdict.measure is not None:
            print(f"measure: {verdict.measure}, by the report ({verdict.sentence})")
            asked = [verdict.measure]
        else:
            asked = [container(cfg.measure)]
    asked = asked if isinstance(asked, list) else [asked]
    built = {measure.name: measure for measure in build_all(asked)}
    found = {m["name"]: m for m in [dict(m) if isinstance(m, dict) else {"name": str(m)} for m in asked]}
    return [found[name] for name in built]


def _measure_was_chosen() -> bool:
    """Whether the command line itself chose `measure=`."""
    from hydra.core.hydra_config import HydraConfig

    overrides = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
    return any(override.lstrip("+").split("=")[0].split(".")[0] == "measure" for override in overrides)


def _class_names(trained: TrainedModel, data: Any, matching: Matching | None) -> list[str]:
    """The names of the model's classes in its own order, as the data call them where there are any."""
    if matching is not None:
        return matching.class_names
    return data.info.label_names if data is not None else build.class_names(str(trained.directory))


def _open(
    cfg: DictConfig, trained: TrainedModel, source: Source, measures: list[dict[str, Any]], classes: list[str]
) -> Run:
    settings = {
        "model": trained.settings(),
        "dataset": cfg.dataset.name,
        "measures": measures,
        "target": target_label(container(cfg.target), classes, container(cfg.label_map)),
        "explain": cfg.explain,
        "seed": cfg.seed,
        "dtype": cfg.inference.dtype,
        "max_length": cfg.data.max_length,
        "source": {"kind": source.kind, "name": source.name, "rows": len(source.texts), "content": source.identity},
        "page_rows": cfg.explanation.page_rows,
    }
    readable = f"{source.name}-{'-'.join(str(measure['name']) for measure in measures)}"
    return records.open_run(cfg.output_dir, "explain", cfg.dataset.name, readable, settings)


def _explain(
    cfg: DictConfig, run: Run, trained: TrainedModel, job: Job, matching: Matching | None, track: Tracker
) -> Record:
    source = job.source
    notes = notes_on(job)
    for note in notes:
        print(note, flush=True)
    tokens, examples = work.explain(job, run)
    for note in (order := note_on_order(job, examples["predicted"].to_pylist())):
        print(f"warning: {note}", flush=True)
    notes += order
    words = work.word_table(job, tokens)
    for name, table in (("tokens", tokens), ("words", words), ("examples", examples)):
        run.write_parquet(f"{name}.parquet", table)
    _write_page(cfg, run, trained, job, (examples, words), notes)
    if source.evidence is not None:
        looked = evidence_table(tokens, source.evidence)
        run.write_text("evidence.csv", looked.csv())
        run.write_text("evidence.md", looked.markdown())
    correct = [g == p for g, p in zip(examples["gold"].to_pylist(), examples["predicted"].to_pylist()) if g is not None]
    results = {
        "n_examples": len(source.texts),
        "notes": notes,
        "label_names": job.classifier.label_names,
        "labels": _labels_record(cfg, job, matching),
        "loading": job.classifier.loading,
        "accuracy": sum(correct) / len(correct) if correct else None,
        "n_labelled": len(correct),
        "predicted_targets": int(sum(examples["target_is_prediction"].to_pylist())),
        "files": ["tokens.parquet", "words.parquet", "examples.parquet", "explain.html"],
    }
    track.summary({name: results[name] for name in ("accuracy", "n_examples", "n_labelled", "predicted_targets")})
    record = run.finish(results)
    work.remove_parts(run)
    return record


def _labels_record(cfg: DictConfig, job: Job, matching: Matching | None) -> dict[str, Any]:
    """What was done to the labels of the rows before they were read as classes of the model."""
    own = {} if matching is None else matching.record()
    return {**own, "label_map": container(cfg.label_map), **job.source.spelling}


def _write_page(
    cfg: DictConfig, run: Run, trained: TrainedModel, job: Job, tables: tuple[pa.Table, pa.Table], notes: list[str]
) -> None:
    names = [str(measure["name"]) for measure in job.measures]
    lead = (
        f"{job.source.name} ({len(job.source.texts)} examples) of {cfg.dataset.name}, explained by {', '.join(names)}"
    )
    page = explain_page.Page("Which words decided this?", f"{lead}; model {trained.directory}.", notes, names)
    rows = int(cfg.explanation.page_rows)
    run.write_text("explain.html", explain_page.render(page, *tables, input_ends(job), rows, job.source.evidence))


def _print_words(record: Record) -> None:
    """The explained text in colour, with the prediction."""
    example = _table(record, "examples")[0]
    words = _table(record, "words")
    measures: dict[str, tuple[bool, list[terminal.Word], list[terminal.Word]]] = {}
    for measure in record.settings["measures"]:
        rows = [row for row in words if row["measure"] == measure["name"]]
        first, second = (
            [(r["start"], r["end"], r["score"]) for r in rows if r["text"] == which] for which in ("first", "second")
        )
        measures[str(measure["name"])] = (bool(rows and rows[0]["signed"]), first, second)
    why = "the prediction" if example["target_is_prediction"] else "as asked"
    lines = [
        f"prediction: {example['predicted']} ({100 * example['probability']:.1f}%)",
        f"explained: {example['target']} ({why})",
    ]
    terminal.print_explanation(example["text"], example["text_pair"], measures, lines)


def _table(record: Record, name: str) -> list[dict[str, Any]]:
    table = records.read_parquet(record.directory / f"{name}.parquet")
    if table is None:
        raise FmmError(f"{record.directory / name}.parquet is missing or damaged; run the same command with force=true")
    return table.to_pylist()
