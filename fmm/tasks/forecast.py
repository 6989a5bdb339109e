"""What a long task will cost, measured on a few batches before it starts."""

from __future__ import annotations

import math
import shutil
import time
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from fmm.models.classifier import call

_BYTES_WHILE_TRAINING = 4 * (1 + 1 + 3)  # the model's folder, the best weights, the last weights with AdamW's state
_TIMED_BATCHES = 3


def training(cfg: DictConfig, data: Any, model: Any) -> str:
    """Steps, forward passes, time and disk of training with this configuration, as one line.

    Times a few forward and backward passes on batches of the training split; the model's weights stay as they are.
    """
    rows, batch = len(data.train), int(cfg.training.batch_size)
    steps = math.ceil(rows / batch) * int(cfg.training.max_epochs)
    views = 2 if cfg.selection == "both" else 1
    selection = views * len(data.validation) * int(cfg.training.max_epochs)
    tested = len(data.test) * len(cfg.ratios)
    seconds_a_row = _seconds_a_row(cfg, data, model, batch)
    seconds = seconds_a_row * (steps * batch + (selection + tested) / 3)  # a forward pass is a third of a training pass
    disk = sum(p.numel() for p in model.parameters()) * _BYTES_WHILE_TRAINING
    free = shutil.disk_usage(_existing(Path(cfg.output_dir))).free
    warning = "; THE DISK HAS LESS FREE" if free < disk else ""
    return (
        f"forecast: {steps:,} steps of {batch} rows, {selection + tested:,} rows scored for selection and test, "
        f"about {duration(seconds)}, {disk / 1e6:,.0f} MB of disk while training ({free / 1e9:,.0f} GB free){warning}"
    )


def _seconds_a_row(cfg: DictConfig, data: Any, model: Any, batch: int) -> float:
    cuda = torch.cuda.is_available() and cfg.trainer.accelerator in ("auto", "gpu", "cuda")
    device = torch.device("cuda" if cuda else "cpu")
    model.to(device).train()
    picked = torch.linspace(0, len(data.train) - 1, batch * _TIMED_BATCHES).long().unique()
    times = []
    for indices in picked.split(batch):
        rows = data.train.batch(indices.tolist())
        inputs = {
            k: v.to(device) for k, v in rows.items() if k in ("input_ids", "attention_mask", "token_type_ids", "labels")
        }
        started = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16, enabled=cuda):
            call(model, **inputs).loss.backward()
        if cuda:
            torch.cuda.synchronize()
        times.append((time.perf_counter() - started) / len(indices))
    model.zero_grad(set_to_none=True)
    model.to("cpu")
    return sorted(times)[len(times) // 2]


def duration(seconds: float) -> str:
    """A duration for people.

    >>> duration(40), duration(600), duration(9000)
    ('40 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _existing(path: Path) -> Path:
    path = path.absolute()
    return path if path.exists() else _existing(path.parent)
