"""The random-masking test: every metric of the test split at each masking ratio (arXiv 2310.07819, section 4.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from omegaconf import DictConfig
from torch import Tensor

from fmm import metrics
from fmm.curves import SCHEMA
from fmm.inference import Rows, evaluate
from fmm.masking import mask_random_share, maskable_tokens
from fmm.models.classifier import Classifier, load_classifier
from fmm.tasks.common import container

_CHUNK = 2048  # rows held in memory at all their ratios


def test(cfg: DictConfig, model: Path, data: Any) -> tuple[list[dict[str, Any]], pa.Table, dict[str, int]]:
    """Score the test split with `model` at every ratio of the configuration, both texts masked.

    Returns the table (a row per ratio: `masking_ratio`, every metric, `n`), the predictions it is derived from
    (a row per example and ratio, the columns of a curve), and the work done.
    """
    classifier, _ = load_classifier(str(model))
    ratios = sorted(float(ratio) for ratio in container(cfg.ratios))
    parts: list[dict[str, list[Any]]] = []
    work = {"n_forward": 0, "n_tokens": 0}
    for start in range(0, len(data.test), _CHUNK):
        batch = data.test.batch(range(start, min(start + _CHUNK, len(data.test))))
        columns, counts = _score(classifier, batch, ratios, cfg.seed, cfg.inference.token_budget)
        parts.append(columns)
        work = {name: work[name] + counts[name] for name in work}
    merged = {name: [value for part in parts for value in part[name]] for name in parts[0]}
    table = pa.table(merged, schema=SCHEMA)
    return _metrics(table, ratios, data.info.metrics), table, work


def _score(
    classifier: Classifier, batch: dict[str, Tensor], ratios: list[float], seed: int, token_budget: int | None
) -> tuple[dict[str, list[Any]], dict[str, int]]:
    maskable = maskable_tokens(batch["attention_mask"], batch["sequence_id"])
    views = [
        mask_random_share(batch["input_ids"], maskable, classifier.mask_id, batch["example_id"], ratio=ratio, seed=seed)
        for ratio in ratios
    ]
    rows = Rows.concatenate([Rows.from_batch({**batch, "input_ids": view}) for view in views])
    evaluation = evaluate(classifier, rows, token_budget=token_budget)
    n, size = maskable.sum(1), len(views[0])
    columns = {
        "example_id": batch["example_id"].tolist() * len(ratios),
        "masking_ratio": [ratio for ratio in ratios for _ in range(size)],
        "label": batch["labels"].tolist() * len(ratios),
        "target": batch["labels"].tolist() * len(ratios),
        "logits": list(evaluation.logits.numpy()),
        "n_masked": [c for view in views for c in ((view == classifier.mask_id) & maskable).sum(1).tolist()],
        "n_maskable": n.tolist() * len(ratios),
        "n_tokens": batch["attention_mask"].sum(1).tolist() * len(ratios),
        "order": [[] for _ in range(size * len(ratios))],
        "masf_authors": [None] * (size * len(ratios)),
        "masf_calibrated": [None] * (size * len(ratios)),
    }
    return columns, {"n_forward": evaluation.n_forward, "n_tokens": evaluation.n_tokens}


def _metrics(table: pa.Table, ratios: list[float], names: list[str]) -> list[dict[str, Any]]:
    at = torch.tensor(table["masking_ratio"].to_numpy())
    logits = torch.tensor(table["logits"].combine_chunks().flatten().to_numpy()).reshape(len(at), -1)
    labels = torch.tensor(table["label"].to_numpy()).long()
    rows = []
    for ratio in ratios:
        chosen = (at == ratio) & (labels >= 0)
        rows.append(
            {"masking_ratio": ratio, **metrics.compute(names, logits[chosen], labels[chosen]), "n": int(chosen.sum())}
        )
    return rows
