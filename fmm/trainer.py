"""Lightning's Trainer from `conf/trainer`, with what this framework needs of it fixed."""

from __future__ import annotations

import contextlib
import inspect
import logging
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.plugins.environments import LightningEnvironment, SLURMEnvironment, TorchElasticEnvironment
from pytorch_lightning.utilities.exceptions import MisconfigurationException, SIGTERMException

from fmm import team
from fmm.errors import FmmError, first_line, unknown
from fmm.interruption import SignalsPutOff, Terminated
from fmm.schema import TRAINER_RESERVED

OWN_OPTIONS = ("save_every_minutes",)  # keys of conf/trainer that are not Lightning's
NOISE = (
    ".*The `srun` command is available on your system but is not used.*",  # a login node, or Slurm's job of one process
    ".*ended before the epoch ended and your dataloader is not resumable.*",  # a resumed run skips the batches done
    ".*does not have many workers.*",
    ".*Checkpoint directory .* exists and is not empty.*",
    ".*number of training batches .* is smaller than the logging interval.*",
    ".*isinstance\\(treespec, LeafSpec\\).*",
    ".*all_gather is deprecated.*",
    ".*when logging on epoch level in distributed setting.*",  # predictions are gathered before metrics are taken
)


def build_trainer(
    cfg: DictConfig,
    *,
    callbacks: Sequence[Callback],
    logger: Any,
    max_epochs: int,
    plugins: Sequence[Any] = (),
) -> Trainer:
    """Build the Trainer of `cfg.trainer`; `logger` may be None.

    Inference mode is off, as gradients are taken in test steps too, and samplers are left alone, as the batch
    samplers of `fmm.data` share out their batches between processes themselves.
    Raises `FmmError` for options that do not exist, hardware that is not there and half precision on a CPU.
    """
    settings = OmegaConf.to_container(cfg.trainer, resolve=True)
    assert isinstance(settings, dict)
    options = trainer_options({str(name): value for name, value in settings.items()})
    quiet()
    try:
        return Trainer(
            **options,
            max_epochs=max_epochs,
            callbacks=list(callbacks),
            logger=logger or False,  # None would make Lightning choose one
            plugins=[*plugins, *_environment(cfg)] or None,
            inference_mode=False,
            use_distributed_sampler=False,
        )
    except (MisconfigurationException, ValueError, TypeError, ImportError) as error:
        if isinstance(error, FmmError):
            raise
        given = ", ".join(f"{name}={value}" for name, value in options.items() if name in cfg.trainer)
        raise FmmError(f"Lightning refuses these options of trainer ({first_line(error)}): {given}") from error


def _environment(cfg: DictConfig) -> list[Any]:
    """What starts this training's processes, where Lightning would guess it from what a launcher left around.

    Slurm without Lightning's own requeueing, which would hide SIGTERM; fmm itself also inside of a job of one process.
    """
    if team.starts_processes() or team.counts(cfg)[0] == 1:
        return [LightningEnvironment()]
    if SLURMEnvironment.detect() and not TorchElasticEnvironment.detect():  # the latter is chosen first
        return [SLURMEnvironment(auto_requeue=False)]
    return []


def check_trainer(cfg: DictConfig) -> None:
    """Refuse options of `trainer` that no Trainer can be built with, before anything is read or trained."""
    build_trainer(cfg, callbacks=[], logger=None, max_epochs=1)


def trainer_options(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the Trainer's arguments of the group `trainer`, with `auto` resolved for this machine."""
    known = [name for name in inspect.signature(Trainer).parameters if name not in TRAINER_RESERVED]
    known += OWN_OPTIONS
    for name in settings:
        if name in TRAINER_RESERVED:
            key = TRAINER_RESERVED[name]
            raise FmmError(
                f"trainer.{name} is not an option here; {f'set {key} instead' if key else 'fmm sets it itself'}"
            )
        if name not in known:
            raise unknown("option of trainer", name, known)
    settings = {name: value for name, value in settings.items() if name not in OWN_OPTIONS}
    accelerator = resolved_accelerator(str(settings.get("accelerator", "auto")))
    terminal = sys.stdout.isatty() and sys.stderr.isatty()
    defaults = {
        "enable_progress_bar": terminal,  # a log gets the line per epoch instead
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        "log_every_n_steps": 50,
    }
    options = defaults | settings
    options["accelerator"] = accelerator
    options["precision"] = resolved_precision(str(settings.get("precision", "auto")), accelerator)
    if str(options.get("strategy")).startswith(("ddp_spawn", "ddp_fork", "ddp_notebook")):
        raise FmmError(
            f"trainer.strategy={options['strategy']} loses the history of the epochs with its processes; "
            "take trainer.strategy=ddp"
        )
    return options


def processes(settings: Mapping[str, Any]) -> int:
    """How many processes train, of which each takes batches of its own: devices of a node times nodes.

    >>> processes({"accelerator": "cpu", "devices": 2, "num_nodes": 3}), processes({"devices": "0,1"})
    (6, 2)
    """
    devices = settings.get("devices", 1)
    if isinstance(devices, str) and "," in devices:
        devices = [part for part in devices.split(",") if part.strip()]
    if isinstance(devices, Sequence) and not isinstance(devices, str):
        count = len(devices)
    elif str(devices) in ("auto", "-1"):
        on_gpu = settings.get("accelerator") in ("auto", "gpu", "cuda")
        count = max(1, torch.cuda.device_count()) if on_gpu else 1
    else:
        count = int(devices) if str(devices).isdecimal() else 1  # Lightning refuses it
    return count * int(settings.get("num_nodes", 1))


def resolved_accelerator(name: str) -> str:
    """Return `gpu`, `mps` or `cpu` for `auto`, else the name; `FmmError` for a GPU that is not there."""
    if name in ("gpu", "cuda") and not torch.cuda.is_available() and not torch.backends.mps.is_available():
        raise FmmError(f"trainer.accelerator={name}, but torch {torch.__version__} sees no GPU; take trainer=cpu")
    if name != "auto":
        return name
    if torch.cuda.is_available():
        return "gpu"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def resolved_precision(name: str, accelerator: str) -> str:
    """Return the precision for `auto`: bf16-mixed or 16-mixed on an NVIDIA GPU, else 32-true.

    Raises `FmmError` for float16 on a CPU, which Lightning would turn into bfloat16 without a word.
    """
    if name == "auto":
        if accelerator not in ("gpu", "cuda") or not torch.cuda.is_available():
            return "32-true"
        return "bf16-mixed" if torch.cuda.is_bf16_supported(including_emulation=False) else "16-mixed"
    if accelerator == "cpu" and name.startswith("16"):
        raise FmmError(f"trainer.precision={name} needs a GPU; on a CPU take bf16-mixed or 32-true")
    return name


def quiet() -> None:
    """Silence what Lightning says at every start; its warnings that matter stay."""
    for name in ("pytorch_lightning", "lightning_fabric"):
        for part in (name, f"{name}.utilities.rank_zero", f"{name}.utilities.distributed"):
            logging.getLogger(part).setLevel(logging.WARNING)
    for message in NOISE:
        warnings.filterwarnings("ignore", message)


@contextlib.contextmanager
def interruptible() -> Iterator[SignalsPutOff]:
    """Put signals off while a fit is under way; the fit's callback handles them once the state is saved.

    Lightning turns a KeyboardInterrupt into SystemExit(1), which looks like a job that failed, and SIGTERM into a
    SystemExit without a status, which looks like one that is done: here both are what they were.
    """
    with SignalsPutOff() as signals:
        try:
            yield signals
        except SIGTERMException as stop:
            raise Terminated(signal.SIGTERM) from stop
        except SystemExit as stop:
            if isinstance(stop.__context__, KeyboardInterrupt):
                raise stop.__context__ from None
            raise
