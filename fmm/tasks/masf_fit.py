"""MaSF of a trained model: fitted once on its validation split and kept under `<output_dir>/cache/masf`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import torch

from fmm import masf, records
from fmm.errors import FmmError
from fmm.inference import Rows, evaluate
from fmm.masf import KINDS, Masf, MasfByRatio
from fmm.masking import UniformMasking, mask_by_importance, mask_uniformly, maskable_tokens
from fmm.measures import rankable_tokens
from fmm.tasks.subject import Subject

_CHUNK = 1024  # validation rows evaluated at once
_PARTS = {"authors": ("columns", "simes", "fisher"), "calibrated": ("columns", "simes")}


def fitted(subject: Subject, ratios: Sequence[float], explain: str) -> dict[str, MasfByRatio]:
    """Both kinds of MaSF for this model, from the cache or fitted now. Safe in any number of processes.

    `ratios` and `explain` are those of the curve: a calibrated MaSF reads rows against others of which the same text
    is masked at random to the same ratio, at most that of the model's training. A plainly fine-tuned model was trained
    on unmasked text, so that its rows are read against unmasked ones at every ratio; so is a model of unknown training.
    """
    folder = _folder(subject)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(f"{folder}.lock"):
        records.remove_drafts(folder)
        models = _read(folder)
        if models is None:
            shutil.rmtree(folder, ignore_errors=True)
            _fit(subject, folder)
            records.write_json(folder / "done.json", _settings(subject))
            models = _read(folder)
        assert models is not None
        steps = _reference_ratios(subject, ratios)
        references = {ratio: _reference(subject, folder, models["calibrated"], ratio, explain) for ratio in steps}
    largest = max(references)
    return {
        "authors": MasfByRatio(models["authors"], {}),
        "calibrated": MasfByRatio(models["calibrated"], references, largest),
    }


def _settings(subject: Subject) -> dict[str, Any]:
    return {
        "model": subject.trained.key,
        "data": subject.data.training_fingerprint,
        "max_length": subject.cfg.data.max_length,
        "strategy": subject.strategy,
        "max_ratio": subject.max_ratio,
        "seed": subject.trained_seed,
        "dtype": subject.cfg.inference.dtype,
    }


def _folder(subject: Subject) -> Path:
    name = f"{subject.cfg.dataset.name}-{records.content_key(_settings(subject))}"
    return Path(subject.cfg.output_dir) / "cache" / "masf" / name


def _reference_ratios(subject: Subject, ratios: Sequence[float]) -> list[float]:
    """Ratios that calibration rows are masked to: those of the curve, as far as the model was trained."""
    if (subject.strategy or "none") == "none":
        return [0.0]
    return sorted({min(float(ratio), subject.max_ratio) for ratio in ratios})


def _read(folder: Path) -> dict[str, Masf] | None:
    """The fitted MaSFs, memory-mapped; None where they are missing or damaged."""
    if not (folder / "done.json").exists():
        return None
    try:
        json.loads((folder / "done.json").read_text("utf-8"))
        models = {}
        for kind in KINDS:
            parts = {part: _mapped(folder / f"{kind}-{part}.npy") for part in _PARTS[kind]}
            models[kind] = Masf(kind, **{"fisher": torch.empty(0), **parts})  # type: ignore[arg-type]
        return models
    except (OSError, ValueError, EOFError):
        print(f"the fitted MaSF in {folder} is damaged; fitting it again", flush=True)
        return None


def _mapped(path: Path) -> torch.Tensor:
    return torch.from_numpy(np.load(path, mmap_mode="c"))


def _calibration_rows(subject: Subject) -> np.ndarray:
    """Places of the validation rows that calibrate; the others fit."""
    ids = torch.tensor(subject.data.validation.example_ids)
    return (~masf.split_rows(ids, subject.trained_seed)).nonzero()[:, 0].numpy()


def _reference(subject: Subject, folder: Path, levels: Masf, ratio: float, explain: str) -> torch.Tensor:
    """Level-3 statistics of the calibration rows masked at random to `ratio`, sorted: from the cache or computed.

    One ratio is one file, so that an interrupted calibration goes on where it was.
    """
    path = folder / f"calibrated-{explain}-{ratio:.6g}.npy"
    if path.exists():
        try:
            return _mapped(path)
        except (OSError, ValueError, EOFError):
            print(f"{path} is damaged; computing it again", flush=True)
    mask_id = subject.classifier.mask_id  # loading it tokenises the data
    places = _calibration_rows(subject)
    print(f"calibrating MaSF at {ratio:.0%} masking on {len(places)} validation rows, once for this model", flush=True)
    parts = []
    for chunk in np.array_split(places, -(-len(places) // _CHUNK)):
        batch = subject.data.validation.batch(chunk)
        scores = masf.calibration_scores(batch["example_id"], batch["input_ids"].shape[1], subject.trained_seed)
        rankable = rankable_tokens(batch, explain)
        masked = mask_by_importance(batch["input_ids"], scores, rankable, mask_id, ratio)
        parts.append(levels.statistic(_signals(subject, {**batch, "input_ids": masked})))
    reference = torch.cat(parts).sort().values
    with records.atomic_path(path) as temporary, temporary.open("wb") as file:
        np.save(file, reference.numpy())
    return reference


def _signals(subject: Subject, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    budget = subject.cfg.inference.token_budget
    signals = evaluate(subject.classifier, Rows.from_batch(batch), token_budget=budget, signals=True).signals
    assert signals is not None
    return signals


def _fit(subject: Subject, folder: Path) -> None:
    _ = subject.classifier  # tokenises the data
    rows = subject.data.validation
    fits = np.ones(len(rows), dtype=bool)
    fits[_calibration_rows(subject)] = False
    if min(int(fits.sum()), int((~fits).sum())) < 2:
        raise FmmError(f"MaSF needs more than {len(rows)} validation rows; raise data.max_eval_rows or give masf=none")
    print(f"fitting MaSF to {len(rows)} validation rows, once for this model", flush=True)
    folder.mkdir(parents=True)
    path = folder / "signals.npy"
    signals: np.memmap | None = None
    for start in range(0, len(rows), _CHUNK):
        places = range(start, min(start + _CHUNK, len(rows)))
        chunk = _signals(subject, _masked(subject, rows.batch(places)))
        if signals is None:
            shape = (chunk.shape[1], len(rows), chunk.shape[2])
            signals = np.lib.format.open_memmap(path, "w+", np.float32, shape)
        signals[:, places.start : places.stop] = chunk.transpose(0, 1).numpy()
    assert signals is not None
    signals.flush()
    del signals  # mapped pages count as memory
    layers = Layers(path)
    for kind in KINDS:
        model = masf.fit(layers, kind, torch.from_numpy(fits))  # type: ignore[arg-type]
        for part in _PARTS[kind]:
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
