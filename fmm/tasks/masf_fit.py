"""MaSF of a trained model: fitted once on its validation split and kept under `<output_dir>/cache/masf`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import filelock
import numpy as np
import torch

from fmm import masf, records
from fmm.errors import FmmError
from fmm.inference import Rows, evaluate
from fmm.masf import KINDS, Masf
from fmm.masking import UniformMasking, mask_uniformly, maskable_tokens
from fmm.tasks.subject import Subject

_CHUNK = 1024  # validation rows evaluated at once
_PARTS = ("columns", "simes", "fisher")


def fitted(subject: Subject) -> dict[str, Masf]:
    """Both kinds of MaSF for this model, from the cache or fitted now. Safe in any number of processes."""
    settings = {
        "model": subject.trained.key,
        "data": subject.data.training_fingerprint,
        "max_length": subject.cfg.data.max_length,
        "strategy": subject.strategy,
        "max_ratio": subject.max_ratio,
        "seed": subject.trained_seed,
        "dtype": subject.cfg.inference.dtype,
    }
    name = f"{subject.cfg.dataset.name}-{records.content_key(settings)}"
    folder = Path(subject.cfg.output_dir) / "cache" / "masf" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(f"{folder}.lock"):
        found = _read(folder)
        if found is None:
            shutil.rmtree(folder, ignore_errors=True)
            _fit(subject, folder)
            records.write_json(folder / "done.json", settings)
            found = _read(folder)
    assert found is not None
    return found


def _read(folder: Path) -> dict[str, Masf] | None:
    """The fitted MaSFs, memory-mapped; None where they are missing or damaged."""
    if not (folder / "done.json").exists():
        return None
    try:
        json.loads((folder / "done.json").read_text("utf-8"))
        found = {}
        for kind in KINDS:
            parts = [torch.from_numpy(np.load(folder / f"{kind}-{part}.npy", mmap_mode="c")) for part in _PARTS]
            found[kind] = Masf(kind, *parts)  # type: ignore[arg-type]
        return found
    except (OSError, ValueError, EOFError):
        print(f"the fitted MaSF in {folder} is damaged; fitting it again", flush=True)
        return None


def _fit(subject: Subject, folder: Path) -> None:
    classifier, rows = subject.classifier, subject.data.validation
    ids = torch.tensor(rows.example_ids)
    split = masf.split_rows(ids, subject.trained_seed)
    if min(int(split.sum()), int((~split).sum())) < 2:
        raise FmmError(f"MaSF needs more than {len(rows)} validation rows; raise data.max_eval_rows or give masf=none")
    print(f"fitting MaSF to {len(rows)} validation rows, once for this model", flush=True)
    folder.mkdir(parents=True)
    path = folder / "signals.npy"
    signals: np.memmap | None = None
    for start in range(0, len(rows), _CHUNK):
        places = range(start, min(start + _CHUNK, len(rows)))
        batch = _masked(subject, rows.batch(places))
        found = evaluate(
            classifier, Rows.from_batch(batch), token_budget=subject.cfg.inference.token_budget, signals=True
        ).signals
        assert found is not None
        if signals is None:
            shape = (found.shape[1], len(rows), found.shape[2])
            signals = np.lib.format.open_memmap(path, "w+", np.float32, shape)
        signals[:, places.start : places.stop] = found.transpose(0, 1).numpy()
    assert signals is not None
    signals.flush()
    del signals  # mapped pages count as memory
    layers = Layers(path)
    for kind in KINDS:
        model = masf.fit(layers, kind, split)  # type: ignore[arg-type]
        for part in _PARTS:
            np.save(folder / f"{kind}-{part}.npy", getattr(model, part).numpy())
        del model
    path.unlink()


def _masked(subject: Subject, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The batch as the model saw it in training: all rows, none or a half masked, by (seed, example id)."""
    ids, seed = batch["example_id"], subject.trained_seed
    chosen = masf.masked_rows(subject.strategy or "none", ids, seed)
    maskable = maskable_tokens(batch["attention_mask"], batch["sequence_id"])
    draws = UniformMasking.of_masf(seed)
    masked = mask_uniformly(batch["input_ids"], maskable, subject.classifier.mask_id, ids, draws, subject.max_ratio)
    return {**batch, "input_ids": torch.where(chosen[:, None], masked, batch["input_ids"])}


class Layers:
    """The layers [N, D] of a saved [L + 1, N, D] array, read one at a time: mapped pages would all stay in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[torch.Tensor]:
        array = np.load(self.path, mmap_mode="r")
        _, rows, dims = array.shape
        with open(self.path, "rb") as file:
            file.seek(array.offset)
            for _ in range(len(array)):
                layer = np.fromfile(file, np.float32, rows * dims)
                yield torch.from_numpy(layer.reshape(rows, dims))
