"""What tasks share: the data of a configuration, the settings that name a run, and finding the trained model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from transformers.utils import logging as transformers_logging

from fmm import records
from fmm.errors import FmmError, unknown
from fmm.finetune import SELECTIONS
from fmm.masking import STRATEGIES
from fmm.metrics import NAMES as METRICS
from fmm.models.build import folder_digest, identity
from fmm.models.folder import check_model_folder
from fmm.report.consistency import flatten
from fmm.schema import check_value
from fmm.trainer import processes

_TRAINING_DATA = ("max_train_rows", "max_eval_rows", "max_length")
_TRAINER_DEFAULTS = {"gradient_clip_val": None, "gradient_clip_algorithm": None, "accumulate_grad_batches": 1}
_CHECKED = (
    "training.max_epochs",
    "training.batch_size",
    "training.learning_rate",
    "training.weight_decay",
    "training.warmup",
    "masking.max_ratio",
    "seed",
)
_COMMAND_KEYS = ("split", "selection", "scheduler", "training", "masking", "model", "data", "dataset", "trainer")


@dataclass(frozen=True)
class TrainedModel:
    """A model to explain: its folder, the key that names it, and its training record where fmm trained it."""

    directory: Path
    key: str
    record: records.Record | None

    def settings(self) -> dict[str, Any]:
        """What a record of an evaluation says about its model."""
        found: dict[str, Any] = {"key": self.key, "masking": None, "trained_seed": None, "name": self.directory.name}
        if self.record is not None:
            settings = self.record.settings
            found |= {
                "masking": settings["masking"],
                "trained_seed": settings["seed"],
                "name": settings["model"]["name"],
            }
        return found


def quiet_transformers() -> None:
    """Silence the loading bars and reports of transformers; fmm checks itself what they tell."""
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()


def container(config: Any) -> Any:
    """A configuration node as plain, resolved dictionaries and lists."""
    return OmegaConf.to_container(config, resolve=True) if OmegaConf.is_config(config) else config


def datamodule(cfg: DictConfig) -> Any:
    """The LightningDataModule of `dataset=`, with the data options of this run."""
    from fmm.data import build_datamodule

    cache = Path(cfg.data.cache_dir) if cfg.data.cache_dir else Path(cfg.output_dir) / "cache"
    return build_datamodule(
        container(cfg.dataset),
        container(cfg.data) | {"label_map": container(cfg.label_map)},
        seed=cfg.seed,
        split=cfg.split,
        batch_size=cfg.training.batch_size,
        cache_dir=cache,
    )


def train_settings(cfg: DictConfig, fingerprint: str) -> dict[str, Any]:
    """Everything that decides the trained weights; its digest names the model."""
    return {
        "dataset": {"name": cfg.dataset.name, "checkpoint_metric": cfg.dataset.checkpoint_metric},
        "data": {"fingerprint": fingerprint, "split": cfg.split, **{k: cfg.data[k] for k in _TRAINING_DATA}},
        "model": identity(container(cfg.model)),
        "masking": container(cfg.masking),
        "training": container(cfg.training),
        "selection": cfg.selection,
        "scheduler": cfg.scheduler,
        "seed": cfg.seed,
        **({"trainer": changed} if (changed := _changed_trainer(cfg)) else {}),
    }


def _changed_trainer(cfg: DictConfig) -> dict[str, Any]:
    """What of the Trainer changes the weights, where it is not the default (which thus names as before).

    Several processes make larger batches: `training.batch_size` is each one's.
    """
    changed = {
        name: cfg.trainer[name]
        for name, default in _TRAINER_DEFAULTS.items()
        if name in cfg.trainer and cfg.trainer[name] != default
    }
    several = processes(container(cfg.trainer))
    return changed | ({"processes": several} if several > 1 else {})


def check_training(cfg: DictConfig) -> None:
    """Refuse training settings that cannot work, before anything is loaded."""
    if cfg.selection not in SELECTIONS:
        raise unknown("selection", str(cfg.selection), SELECTIONS)
    if cfg.scheduler not in ("linear", "authors"):
        raise unknown("scheduler", str(cfg.scheduler), ("linear", "authors"))
    if cfg.masking.strategy not in STRATEGIES:
        raise unknown("masking strategy", str(cfg.masking.strategy), STRATEGIES)
    ratios = container(cfg.ratios)
    if 0 not in ratios or len(set(ratios)) < len(ratios):
        wrong = "holds a ratio twice" if 0 in ratios else "lacks 0, the unmasked test"
        raise FmmError(f"ratios={ratios} {wrong}; give each ratio once, such as ratios=[0,0.5,1]")
    measured = [*cfg.dataset.metrics, cfg.dataset.checkpoint_metric]
    if foreign := next((name for name in measured if name not in METRICS), None):
        raise unknown("metric", str(foreign), METRICS)
    if cfg.dataset.checkpoint_metric not in cfg.dataset.metrics:
        raise unknown("dataset.checkpoint_metric", str(cfg.dataset.checkpoint_metric), cfg.dataset.metrics)
    for name in _CHECKED:
        check_value(name, OmegaConf.select(cfg, name))


def train_run(cfg: DictConfig, fingerprint: str) -> records.Run:
    """The run that trains the model of this configuration, done or not."""
    model = Path(str(cfg.model.name)).name
    readable = f"{model}-{cfg.masking.strategy}-s{cfg.seed}"
    return records.open_run(cfg.output_dir, "train", cfg.dataset.name, readable, train_settings(cfg, fingerprint))


def trained_model(cfg: DictConfig, data: Any = None) -> TrainedModel:
    """The model that an evaluation is about: `checkpoint=`, or the one trained with this configuration.

    `data` is the run's datamodule, where the caller has it. Raises FmmError with the command that trains
    the model where there is none.
    """
    if cfg.checkpoint is not None:
        return _checkpoint(str(cfg.checkpoint))
    data = data or datamodule(cfg)
    run = train_run(cfg, data.training_fingerprint)
    record = run.record()
    if record is None or not (run.directory / "model" / "config.json").exists():
        raise FmmError(
            f"no model has been trained with these settings; train it with: {train_command(cfg)}{_nearest(cfg, run)}"
        )
    return TrainedModel(run.directory / "model", run.key, record)


def _nearest(cfg: DictConfig, wanted: records.Run) -> str:
    """Where a trained model differs from the wanted one in one setting alone: a hint at it, else nothing."""
    here = flatten(wanted.settings)
    for record in records.load_all(cfg.output_dir, "train", cfg.dataset.name):
        there = flatten(record.settings)
        apart = [name for name in here | there if here.get(name) != there.get(name)]
        apart = [name for name in apart if name != "data.fingerprint"] or apart  # it sums up the others of data
        if len(apart) == 1 and apart[0] not in ("seed", "masking.strategy", "data.fingerprint"):  # others on purpose
            name = apart[0]
            return (
                f"; or give checkpoint={record.directory}, which differs in {name} alone "
                f"({there.get(name)} there, {here.get(name)} here)"
            )
    return ""


def _checkpoint(name: str) -> TrainedModel:
    folder = Path(name)
    if (folder / records.RECORD).exists() and (folder / "model").is_dir():
        folder = folder / "model"
    if not folder.is_dir():
        check_model_folder(name)  # a file is named for what it is
        return TrainedModel(folder, records.content_key({"checkpoint": name}), None)
    record = records.read_record(folder.parent)
    if record is not None and record.task == "train":
        return TrainedModel(folder, record.key, record)
    return TrainedModel(folder, folder_digest(folder)[:12], None)


def train_command(cfg: DictConfig) -> str:
    """The command line that trains the model of this configuration: its own overrides, with task=train."""
    from hydra.core.hydra_config import HydraConfig

    hydra = HydraConfig.get() if HydraConfig.initialized() else None
    overrides = list(hydra.overrides.task) if hydra else []
    kept = [o for o in overrides if o.lstrip("+").split(".")[0].split("=")[0] in {*_COMMAND_KEYS, "seed", "output_dir"}]
    if not any(o.startswith("dataset=") for o in kept):
        kept.insert(0, f"dataset={cfg.dataset.name}")
    given = [o.partition("=")[2] for o in kept if o.lstrip("+").startswith("masking.strategy=")]
    if cfg.masking.strategy != (given[-1] if given else hydra and hydra.runtime.choices.get("masking")):
        kept.append(f"masking.strategy={cfg.masking.strategy}")  # a task asks for the plain model beside the masked one
    return "python run.py task=train " + " ".join(f"'{o}'" if set(o) & set(" [](){}$'\"") else o for o in kept)
