"""Load the model, tokenise the rows, and say what a reader must know about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from fmm.data import encode
from fmm.errors import unknown
from fmm.explain.source import Source
from fmm.explain.work import Job, cut_characters
from fmm.models.classifier import load_classifier
from fmm.tasks.common import label_mapping


def prepare(
    cfg: DictConfig,
    directory: Path,
    source: Source,
    measures: list[dict[str, Any]],
    dataset_labels: list[str] | None,
) -> Job:
    """Load the model and tokenise the rows, refusing labels that do not match by name; says what was cut."""
    device = "cpu" if cfg.trainer.accelerator == "cpu" else "auto"
    classifier, tokenizer = load_classifier(str(directory), device, getattr(torch, cfg.inference.dtype))
    if cfg.inference.token_budget is not None:
        classifier.token_budget = int(cfg.inference.token_budget)
    names = classifier.label_names
    if dataset_labels is not None:
        mapping = label_mapping(dict(enumerate(names)), dataset_labels, str(directory))
        if all(name.startswith("LABEL_") for name in names):
            names = classifier.label_names = [dataset_labels[mapping.index(i)] for i in range(len(names))]
    limit = min(classifier.max_length, int(cfg.data.max_length or classifier.max_length))
    rows = encode(tokenizer, source.texts, source.pairs, limit, offsets=True)
    target = cfg.target
    if isinstance(target, int) and dataset_labels is not None and 0 <= target < len(mapping):
        target = mapping[target]  # a number means the dataset's label
    if isinstance(target, str) and target not in ("gold", "predicted", *names):
        raise unknown("target", target, ["gold", "predicted", *names])
    return Job(classifier, tokenizer, source, rows, source.gold(names), measures, target, cfg.explain, int(cfg.seed))


def notes_on(job: Job) -> list[str]:
    """What a reader must know: texts that were cut, literal mask strings, targets that are predictions."""
    notes, n = [], len(job.source.texts)
    cut = [cut_characters(job, row) for row in range(n)]
    if any(cut):
        rows = sum(c > 0 for c in cut)
        length = max(map(len, job.rows.input_ids))
        notes.append(
            f"{rows} of {n} texts are longer than the model's {length} tokens: {sum(cut)} characters at their ends "
            f"(at most {max(cut)} in one) were not read."
        )
    mask = job.tokenizer.mask_token
    literal = sum(mask in text for text in [*job.source.texts, *(job.source.pairs or [])])
    if literal:
        notes.append(
            f"{literal} texts hold the literal mask string {mask!r}, which the model reads as a masked word; "
            "occlusion gives it 0."
        )
    if job.target == "gold" and (job.gold < 0).any():
        notes.append(f"{int((job.gold < 0).sum())} of {n} rows have no gold label; their predicted label is explained.")
    if job.target == "predicted":
        notes.append("The predicted label is explained.")
    return notes


def input_ends(job: Job) -> dict[int, list[int | None]]:
    """Where the model's input ended in the texts of the rows that were cut."""
    assert job.rows.offsets is not None
    found: dict[int, list[int | None]] = {}
    for row in [row for row, cut in enumerate(job.rows.truncated) if cut]:
        spans = list(zip(job.rows.offsets[row], job.rows.sequence_id[row]))
        found[row] = [max((end for (_, end), s in spans if s == number), default=None) for number in (1, 2)]
    return found
