"""Lightning callbacks of masked fine-tuning: best and last weights on disk, and a log a person can read."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor

from fmm.errors import FmmError, first_line
from fmm.finetune import MaskedFineTuning
from fmm.interruption import SignalsPutOff

LAST = "last.ckpt"
BEST = "best"
WITHIN = "within_epoch"  # the part of a checkpoint that says how far its epoch is


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


def resumable(path: Path) -> str | None:
    """Where the whole checkpoint at `path` left off, in words; None where there is none. A damaged one is removed."""
    if not path.exists():
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch raises many kinds for a damaged file
        print(f"{path} is damaged ({type(error).__name__}); training starts anew", flush=True)
        path.unlink()
        return None
    within = state.get(WITHIN)
    if within is None:
        return f"after epoch {state['epoch'] + 1}"
    return f"in epoch {within['epoch'] + 1}, after batch {within['batches']} of {within['batches_of_epoch']}"


class SavesWithinEpoch(Callback):
    """Saves all that resuming needs every so many minutes, and before a signal takes effect.

    A run that goes on from there reaches the same weights as an uninterrupted one: beside what Lightning saves, the
    batches done, the losses so far and the state of the random numbers of dropout (one row a process) are kept.
    Several processes agree, once a batch, on when to save. A signal that comes in validation is handled after its
    batch; the resumed run does the whole validation.
    """

    def __init__(self, path: Path, signals: SignalsPutOff, minutes: float | None, log: Path) -> None:
        self.path, self.signals, self.log_path = path, signals, log
        self.seconds = math.inf if minutes is None else 60 * minutes
        self._saved = time.monotonic()
        self._position: dict[str, Any] | None = None  # set while it saves
        self._random: Tensor | None = None  # taken up by the first batch of a resumed run

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Hear signals in place of Lightning, which has set its own handlers by now."""
        self.signals.listen()
        self._saved = time.monotonic()

    def on_train_epoch_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Start the clock again, as the end of the epoch before was saved; a new epoch has random numbers of its own.

        A resumed epoch does not come by here; one that had no batch left must not hand its numbers on.
        """
        self._saved = time.monotonic()
        self._random = None

    def on_train_batch_start(self, trainer: Trainer, module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Go on with the random numbers of dropout where the interrupted run left them."""
        if self._random is not None:
            _set_random_state(module.device, self._random)
            self._random = None

    def on_train_batch_end(
        self, trainer: Trainer, module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save where it is time or a signal came; not while gradients accumulate, as they are not saved."""
        done = batch_idx + 1
        last = done >= trainer.num_training_batches  # validation follows at once
        if not last and done % trainer.accumulate_grad_batches == 0:
            self._save_if_due(trainer, module, done)

    def on_validation_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Save the state before validation where it is time or a signal came."""
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking:
            self._save_if_due(trainer, module, int(trainer.num_training_batches))

    def on_validation_batch_end(self, trainer: Trainer, module: LightningModule, *batch: Any) -> None:
        """Save the state before validation where a signal came; of several processes, each has batches of its own."""
        if trainer.state.fn == TrainerFn.FITTING and trainer.world_size == 1 and self.signals.noted:
            self._save_if_due(trainer, module, int(trainer.num_training_batches))

    def on_save_checkpoint(self, trainer: Trainer, module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Add the position within the epoch, and have Lightning do the whole validation again."""
        if self._position is None:
            return
        assert isinstance(module, MaskedFineTuning)
        checkpoint[WITHIN] = self._position | {
            "losses": _of_all_processes(module, module.losses()),
            "random": _of_all_processes(module, _random_state(module.device)),
        }
        if self._position["batches"] == self._position["batches_of_epoch"]:
            # what Lightning's loop takes for a validation that had begun its first batch
            begun = {"ready": 1, "completed": 0, "started": 1, "processed": 0}
            validation = {"total": begun, "current": dict(begun), "is_last_batch": False}
            checkpoint["loops"]["fit_loop"]["epoch_loop.val_loop.batch_progress"] = validation

    def on_load_checkpoint(self, trainer: Trainer, module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Take up the position within the epoch, where there is one."""
        within = checkpoint.get(WITHIN)
        if within is None:
            return
        assert isinstance(module, MaskedFineTuning)
        rank = trainer.global_rank
        module.resume_losses(within["losses"][rank])
        self._random = within["random"][rank]
        trainer.datamodule.batches_done = (within["epoch"], within["batches"])  # type: ignore[attr-defined]

    def _save_if_due(self, trainer: Trainer, module: LightningModule, batches: int) -> None:
        due = time.monotonic() - self._saved >= self.seconds or bool(self.signals.noted)
        if trainer.world_size > 1:
            due = trainer.strategy.reduce_boolean_decision(due, all=False)
        if not due:
            return
        whole = int(trainer.num_training_batches)
        self._position = {"epoch": trainer.current_epoch, "batches": batches, "batches_of_epoch": whole}
        try:
            trainer.save_checkpoint(self.path)
        finally:
            self._position = None
        self._saved = time.monotonic()
        if self.signals.noted and trainer.is_global_zero:
            place = f"epoch {trainer.current_epoch + 1}, batch {batches} of {whole}"
            say(f"{' and '.join(self.signals.noted)}: state saved at {place}", self.log_path)
        self.signals.handle()


def _random_state(device: torch.device) -> Tensor:
    """State of the random numbers that dropout draws on a device, as bytes [N]."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _set_random_state(device: torch.device, state: Tensor) -> None:
    """Set what `_random_state` gave; the state of another kind of device is left, as its numbers mean nothing here."""
    if len(state) != len(_random_state(device)):
        return
    if device.type == "cuda":
        torch.cuda.set_rng_state(state.cpu(), device)
    else:
        torch.set_rng_state(state.cpu())


def _of_all_processes(module: LightningModule, values: Tensor) -> Tensor:
    """Values [N] of each process, [processes, N] on the CPU."""
    if module.trainer.world_size == 1:
        return values.cpu()[None]
    gathered = module.all_gather(values.to(module.device))
    assert isinstance(gathered, Tensor)
    return gathered.cpu()


class EpochHistory(Callback):
    """One line an epoch on the terminal and in `train.log`, and the history for the record.

    The history travels in the checkpoint, so that a resumed run has all of it, and so do the seconds spent; those
    between the last saved state and a kill are not known. `show` is called with all rows after each epoch.
    """

    def __init__(
        self, log: Path, metric_names: list[str], show: Callable[[list[dict[str, Any]]], None] | None = None
    ) -> None:
        self.log_path, self.metric_names, self.show = log, metric_names, show
        self.history: list[dict[str, Any]] = []
        self.pieces = 1  # how many runs of the command it took
        self.earlier_seconds = 0.0  # of fitting, in the pieces before this one
        self._fit_started = self._epoch_started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds of fitting so far, in all pieces."""
        return self.earlier_seconds + time.monotonic() - self._fit_started

    def on_train_epoch_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Start the epoch's clock."""
        self._epoch_started = time.monotonic()

    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        """Write down the epoch that ended; validation has run by now."""
        assert isinstance(module, MaskedFineTuning)
        values = {f"val_{name}": float(trainer.callback_metrics[f"val_{name}"]) for name in self.metric_names}
        values["train_loss"] = module.train_loss()
        row = {"epoch": trainer.current_epoch, "step": trainer.global_step, **values}
        row["seconds"] = round(time.monotonic() - self._epoch_started, 2)
        row["learning_rate"] = trainer.optimizers[0].param_groups[0]["lr"]
        self.history.append(row)
        if trainer.is_global_zero:
            shown = "  ".join(f"val_{n} {values[f'val_{n}']:.4f}" for n in self.metric_names)
            loss, epoch = values["train_loss"], f"epoch {row['epoch'] + 1}/{trainer.max_epochs}"
            say(f"{epoch}  train_loss {loss:.4f}  {shown}  {row['seconds']:.0f} s", self.log_path)
            if self.show is not None:
                self.show(self.history)

    def state_dict(self) -> dict[str, Any]:
        """The history so far, and the time it took."""
        epoch_seconds = time.monotonic() - self._epoch_started
        return {
            "history": self.history,
            "pieces": self.pieces,
            "seconds": self.seconds,
            "epoch_seconds": epoch_seconds,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up the history of an interrupted run."""
        self.history = list(state_dict["history"])
        self.pieces = state_dict["pieces"] + 1
        self.earlier_seconds = state_dict["seconds"]
        self._fit_started = time.monotonic()
        self._epoch_started = self._fit_started - state_dict["epoch_seconds"]  # begun anew where an epoch begins


def say(line: str, log: Path) -> None:
    """Print a line and append it to the run's log with the time."""
    print(line, flush=True)
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {line}\n")
