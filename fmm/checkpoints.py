"""Lightning callbacks of masked fine-tuning: best and last weights on disk, and a log a person can read."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO

from fmm.errors import FmmError, first_line
from fmm.finetune import MaskedFineTuning

LAST = "last.ckpt"
BEST = "best"


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its place and renames it, so that a killed run leaves the previous one whole."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Save to a temporary file, flush it to disk, and rename."""
        temporary = Path(f"{path}.tmp")
        try:
            super().save_checkpoint(checkpoint, temporary, storage_options)
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except (OSError, RuntimeError) as error:  # RuntimeError: torch's own writer
            temporary.unlink(missing_ok=True)
            raise FmmError(
                f"could not write the checkpoint {path}: {first_line(error)}; free space there (or in "
                f"{tempfile.gettempdir()}) or choose another output_dir; the same command then continues"
            ) from error


def checkpoint_callbacks(directory: Path, metric: str) -> list[ModelCheckpoint]:
    """Keep the weights of the best epoch by `val_<metric>` (the first of equals) and all that resuming needs."""
    # At the end of the training epoch, not of its validation: a run resumed from there starts with the next epoch.
    common: dict[str, Any] = {"dirpath": directory, "enable_version_counter": False, "save_on_train_epoch_end": True}
    best = ModelCheckpoint(filename=BEST, monitor=f"val_{metric}", mode="max", save_weights_only=True, **common)
    last = ModelCheckpoint(filename=LAST.removesuffix(".ckpt"), **common)
    return [best, last]


def resumable(path: Path) -> bool:
    """Whether `path` is a whole checkpoint; a damaged one is removed and said."""
    if not path.exists():
        return False
    try:
        torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        return True
    except Exception as error:  # torch raises many kinds for a damaged file
        print(f"{path} is damaged ({type(error).__name__}); training starts anew", flush=True)
        path.unlink()
        return False


class EpochHistory(Callback):
    """One line an epoch on the terminal and in `train.log`, and the history for the record.

    The history travels in the checkpoint, so that a resumed run has all of it.
    """

    def __init__(self, log: Path, metric_names: list[str]) -> None:
        self.log_path, self.metric_names = log, metric_names
        self.history: list[dict[str, Any]] = []
        self._started = time.monotonic()

    def on_train_epoch_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Start the epoch's clock."""
        self._started = time.monotonic()

    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        """Write down the epoch that ended; validation has run by now."""
        assert isinstance(module, MaskedFineTuning)
        values = {f"val_{name}": float(trainer.callback_metrics[f"val_{name}"]) for name in self.metric_names}
        values["train_loss"] = module.train_loss()
        row = {"epoch": trainer.current_epoch, **values, "seconds": round(time.monotonic() - self._started, 2)}
        row["learning_rate"] = trainer.optimizers[0].param_groups[0]["lr"]
        self.history.append(row)
        if trainer.is_global_zero:
            shown = "  ".join(f"val_{n} {values[f'val_{n}']:.4f}" for n in self.metric_names)
            loss, epoch = values["train_loss"], f"epoch {row['epoch'] + 1}/{trainer.max_epochs}"
            say(f"{epoch}  train_loss {loss:.4f}  {shown}  {row['seconds']:.0f} s", self.log_path)

    def state_dict(self) -> dict[str, Any]:
        """The history so far."""
        return {"history": self.history}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up the history of an interrupted run."""
        self.history = list(state_dict["history"])


def say(line: str, log: Path) -> None:
    """Print a line and append it to the run's log with the time."""
    print(line, flush=True)
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {line}\n")
