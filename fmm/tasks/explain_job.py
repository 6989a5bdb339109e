"""Load the model, tokenise the rows, and say what a reader must know about them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig

from fmm.data import encode
from fmm.data.labels import are_generic, numbers_of_classes, suspected_order, target_label
from fmm.data.matching import numbers_said
from fmm.errors import counted
from fmm.explain.source import Source
from fmm.explain.work import Job, cut_characters, explain_rows
from fmm.models.classifier import load_classifier
from fmm.records import Run
from fmm.tasks.common import container
from fmm.tasks.forecast import duration


def prepare(
    cfg: DictConfig,
    directory: Path,
    source: Source,
    measures: list[dict[str, Any]],
    classes: list[str],
) -> Job:
    """Load the model, whose classes are called `classes`, and tokenise the rows. Raises FmmError for a label that the
    model does not have."""
    device = "cpu" if cfg.trainer.accelerator == "cpu" else "auto"
    classifier, tokenizer = load_classifier(str(directory), device, getattr(torch, cfg.inference.dtype))
    if cfg.inference.token_budget is not None:
        classifier.token_budget = int(cfg.inference.token_budget)
    classifier.label_names = names = list(classes)
    limit = min(classifier.max_length, int(cfg.data.max_length or classifier.max_length))
    rows = encode(tokenizer, source.texts, source.pairs, limit, offsets=True)
    label = target_label(container(cfg.target), names, container(cfg.label_map))
    target: str | int = label if label in ("gold", "predicted") else names.index(label)
    return Job(classifier, tokenizer, source, rows, source.gold(names), measures, target, cfg.explain, int(cfg.seed))


def notes_on(job: Job) -> list[str]:
    """What a reader must know: texts that were cut, literal mask strings, targets that are predictions."""
    notes, n = [], len(job.source.texts)
    cut = [cut_characters(job, row) for row in range(n)]
    if any(cut):
        rows = sum(c > 0 for c in cut)
        length = max(map(len, job.rows.input_ids))
        notes.append(
            f"Cut at the model's {length} tokens: {rows} of {counted(n, 'text')}, {counted(sum(cut), 'character')} at "
            f"the ends (at most {max(cut)} in one) not read."
        )
    mask = job.tokenizer.mask_token
    literal = sum(mask in text for text in [*job.source.texts, *(job.source.pairs or [])])
    if literal:
        notes.append(
            f"The literal mask string {mask!r} stands in {counted(literal, 'text')}; the model reads it as a masked "
            "word, occlusion gives it 0."
        )
    if job.target == "gold" and (job.gold < 0).any():
        without = f"{int((job.gold < 0).sum())} of {counted(n, 'row')}"
        notes.append(f"Without a gold label: {without}; the predicted label is explained there.")
    names = job.classifier.label_names
    if are_generic(names):
        notes.append("The labels of the model have no names: LABEL_0 is its first output, and so on.")
    by_number = sorted(numbers_of_classes({label for label in job.source.labels if label}, names), key=int)
    if by_number:
        said = numbers_said({label: names[int(label)] for label in by_number})
        notes.append(said[0].upper() + said[1:] + ".")
    notes += job.source.notes
    if job.target == "predicted":
        notes.append("The predicted label is explained.")
    return notes


def note_on_order(job: Job, predicted: list[str]) -> list[str]:
    """What the predictions of the labelled rows say of the order of the model's labels, if anything."""
    names = job.classifier.label_names
    numbers = np.array([names.index(name) for name in predicted], dtype=np.int64)
    suspicion = suspected_order(job.gold, numbers, len(names))
    return [] if suspicion is None else [suspicion.sentence(names)]


def forecast(run: Run, job: Job) -> str:
    """What the explanation will take, from rows of three typical lengths, as one line."""
    if run.done:
        return f"forecast: nothing to do, {run.directory} is there"
    order = np.argsort([len(ids) for ids in job.rows.input_ids], kind="stable")
    rows = np.unique(order[[len(order) // 4, len(order) // 2, 3 * len(order) // 4]])
    started = time.perf_counter()
    tokens, _ = explain_rows(job, rows)
    scale, seconds = len(order) / len(rows), time.perf_counter() - started
    names = ", ".join(str(measure["name"]) for measure in job.measures)
    disk = f"about {max(tokens.nbytes * scale / 1e6, 0.1):,.1f} MB before compression"
    return f"forecast: {counted(len(order), 'row')} by {names}, about {duration(seconds * scale)}, {disk}"


def input_ends(job: Job) -> dict[int, list[int | None]]:
    """Where the model's input ended in the texts of the rows that were cut."""
    assert job.rows.offsets is not None
    found: dict[int, list[int | None]] = {}
    for row in [row for row, cut in enumerate(job.rows.truncated) if cut]:
        spans = list(zip(job.rows.offsets[row], job.rows.sequence_id[row]))
        found[row] = [max((end for (_, end), s in spans if s == number), default=None) for number in (1, 2)]
    return found
