"""Every setting of `conf/`, declared once: what a command line or a Python call gives is checked against this table.

A key of the configuration that is not declared here fails tests/test_settings.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fmm.errors import FmmError, unknown
from fmm.setting import Setting, choice, flag, listed, number, path, shown, text, whole

TASKS = ("train", "racu", "masf", "report", "explain", "check", "pipeline")
METRICS = ("accuracy", "macro_f1", "micro_f1", "matthews")
LOGGER_MODES = ("auto", "online", "offline", "disabled", "dryrun", "run", "shared")
NAME = Setting(str, high=100, pattern=r"[A-Za-z0-9_][A-Za-z0-9_.+-]*", form="a short name of letters, digits, - and _")
SEED = whole(0, 2**32 - 1)
SHARE = number(0, 1)
ROWS = whole(1, 10**9, null=True)
SIZE = whole(1, 65_536)
COLUMN = text(null=True)
COUNTS = listed(whole(0, 10**12), least=2, null=True)
DIGEST = Setting(str, pattern="[0-9a-fA-F]{32,64}", form="a digest of hexadecimal digits", null=True)

_MAIN: dict[str, Setting] = {
    "seed": SEED,
    "force": flag(),
    "dry_run": flag(),
    "output_dir": path(),
    "checkpoint": path(null=True),
    "selection": choice("both", "nomask", "mask"),
    "scheduler": choice("linear", "authors"),
    "split": choice("authors", "random"),
    "label_map": Setting(dict, least=1, null=True, form="a map such as {0: negative, 1: positive}"),
    "target": Setting(str, form="""gold, predicted or a label (one named null is written '"null"')"""),
    "explain": choice("first", "second", "both"),
    "text": text(null=True),
    "text_pair": text(null=True),
    "measures": listed(Setting(str, other=Setting(dict)), least=1, null=True),
    "recursive": flag(null=True),
    "ratios": listed(SHARE, least=2, distinct=True),
    "masf": choice("authors", "calibrated", "none"),
}

_SECTIONS: dict[str, Setting] = {
    "training.max_epochs": whole(1, 10_000),
    "training.batch_size": whole(1, 65_536),
    "training.learning_rate": number(0, 10),
    "training.weight_decay": number(0, 10),
    "training.adam_epsilon": SHARE,
    "training.warmup": SHARE,
    "data.max_length": whole(8, 10**6, null=True),
    "data.max_train_rows": ROWS,
    "data.max_eval_rows": ROWS,
    "data.max_test_rows": ROWS,
    "data.split_seed": SEED,
    "data.num_workers": whole(0, 256),
    **{f"data.{name}": path(null=True) for name in ("mirror", "cache_dir", "path", "train", "validation", "test")},
    **{f"data.{name}": path(null=True) for name in ("id_list", "noteevents", "diagnoses")},
    "baseline.draws": whole(1, 1000),
    "inference.token_budget": whole(1, 10**9, null=True),
    "inference.dtype": choice("float32", "bfloat16"),
    "explanation.split": choice("train", "validation", "test"),
    "explanation.file": path(null=True),
    "explanation.text": COLUMN,
    "explanation.text_pair": COLUMN,
    "explanation.label": COLUMN,
    "explanation.page_rows": whole(1, 10**6),
    "report.datasets": listed(Setting(str), least=1, distinct=True, null=True, other=NAME),
    "report.where": listed(Setting(str, pattern=r"[^=\s]+=.*", form="key=value, such as data.max_test_rows=100")),
    "report.allow": listed(Setting(str)),
    "report.seeds": listed(SEED, least=1, distinct=True),
    "report.margin": number(0, 0.999),
    "report.tolerance": number(0, 0.999),
    "report.resamples": whole(100, 100_000),
    "task.name": choice(*TASKS),
    "task.plain": flag(),
    "masking.strategy": choice("half_det", "half_ran", "uniform", "none"),
    "masking.max_ratio": SHARE,
    "logger.name": choice("none", "csv", "wandb"),
    "logger.project": text(high=128),
    "logger.entity": text(null=True, high=128),
    "logger.mode": choice(*LOGGER_MODES),
    "logger.tags": listed(Setting(str, high=64)),
    "model.name": path(),
    "model.revision": text(null=True),
    "model.attention": text(),
    **{f"model.{name}": SIZE for name in ("hidden_size", "num_layers", "num_heads", "intermediate_size")},
    "model.vocab_size": whole(1, 10**7),
    "model.max_length": whole(8, 10**6),
}

_DATASET: dict[str, Setting] = {
    "name": NAME,
    "reader": Setting(str, pattern=r"[A-Za-z_][\w.]*\.\w+", form="a function such as fmm.data.local.read"),
    "hub.id": text(),
    "hub.config": text(),
    "hub.file": text(),
    "hub.revision": text(),
    "hub.revisions": listed(Setting(str), least=1),
    "hub.sha256.*": DIGEST,
    "url": text(),
    "files.*": text(),
    "md5.*": DIGEST,
    "text": text(),
    "text_pair": COLUMN,
    "label": text(),
    "id": COLUMN,
    "labels": listed(Setting(str), least=2, distinct=True),
    "key": COLUMN,
    "key_hint": text(),
    "strip": flag(),
    "validation_digests": COLUMN,
    "code": text(),
    "seed": Setting(int),
    "splits.*": text(null=True),
    "rows.*": whole(2, 10**9),
    "counts.*": COUNTS,
    "metrics": listed(choice(*METRICS), least=1, distinct=True),
    "checkpoint_metric": choice(*METRICS),
    "jain_metric": choice(*METRICS, null=True),
    "convergence_threshold": number(-1, 1, null=True),
    "epochs": whole(1, 10_000),
}

# Lightning's arguments that a person may set; those of conf/trainer and, with a plus sign, the others.
_TRAINER: dict[str, Setting] = {
    "accelerator": choice("auto", "cpu", "gpu", "cuda", "mps", "tpu"),
    "devices": Setting(
        str,
        pattern=r"auto|-1|[1-9][0-9]{0,3}|[0-9]{1,4}(,[0-9]{1,4})+",
        form="a number of devices, or auto",
        other=listed(whole(0, 1024), least=1, distinct=True),
    ),
    "num_nodes": whole(1, 10_000),
    "strategy": text(),
    "precision": choice(
        "auto", "32-true", "32", "bf16-mixed", "bf16", "16-mixed", "16", "bf16-true", "16-true", "64-true", "64"
    ),
    "gradient_clip_val": number(0, 1e9, null=True),
    "gradient_clip_algorithm": choice("norm", "value", null=True),
    "accumulate_grad_batches": whole(1, 65_536),
    "save_every_minutes": number(0, 100_000, null=True),
    "deterministic": choice("true", "false", "warn"),
    "benchmark": flag(null=True),
    "log_every_n_steps": whole(0, 10**9, null=True),
    "num_sanity_val_steps": whole(-1, 10**6, null=True),
    "enable_progress_bar": flag(null=True),
    "enable_model_summary": flag(null=True),
    "profiler": choice("simple", "advanced", "pytorch", "xla", null=True),
    "detect_anomaly": flag(),
    "sync_batchnorm": flag(),
    "default_root_dir": path(null=True),
    "enable_autolog_hparams": flag(),
}

# Arguments that are set here or by other keys, so that there is one place for each: None, or what to set instead.
TRAINER_RESERVED: dict[str, str | None] = {
    "max_epochs": "training.max_epochs",
    "logger": "logger=",
    "callbacks": None,
    "plugins": None,
    "inference_mode": None,
    "max_steps": "training.max_epochs",
    "min_epochs": "training.max_epochs",
    "min_steps": "training.max_epochs",
    "max_time": "training.max_epochs",
    "fast_dev_run": "experiment=quick",
    "overfit_batches": "data.max_train_rows",
    "limit_train_batches": "data.max_train_rows",
    "limit_val_batches": "data.max_eval_rows",
    "limit_test_batches": "data.max_test_rows",
    "limit_predict_batches": "data.max_test_rows",
    "check_val_every_n_epoch": None,  # every epoch is a candidate for the best one
    "val_check_interval": None,
    "enable_checkpointing": None,
    "barebones": None,
    "model_registry": None,
    "reload_dataloaders_every_n_epochs": None,
    "use_distributed_sampler": None,
}

# Options of measures, for the command line and for Python. A beam of 10,000 on a row of 100 tokens takes 50 million
# passes; the papers' widest is 50.
BEAM_WIDTH = whole(1, 10_000)
INTEGRATION_STEPS = whole(1, 10_000)
INTEGRATION_VARIANT = choice("authors", "textbook")
INTEGRATION_BASELINE = choice("pad", "mask", "zero")
_MEASURE: dict[str, Setting] = {
    "name": Setting(str, high=100),
    "variant": INTEGRATION_VARIANT,
    "baseline": INTEGRATION_BASELINE,
    "steps": INTEGRATION_STEPS,
}
NUMBERED: dict[str, tuple[str, Setting]] = {"beam": ("beam width", BEAM_WIDTH)}  # families with a number in the name

SETTINGS: dict[str, Setting] = {
    **_MAIN,
    **_SECTIONS,
    **{f"dataset.{name}": setting for name, setting in _DATASET.items()},
    **{f"trainer.{name}": setting for name, setting in _TRAINER.items()},
    **{f"measure.{name}": setting for name, setting in _MEASURE.items()},
}

# Keys and sections that not every task reads, and the tasks that do.
READ_BY: dict[str, tuple[str, ...]] = {
    "checkpoint": ("racu", "masf", "explain", "check", "pipeline"),
    "baseline": ("racu", "masf", "check", "pipeline"),
    "text": ("explain",),
    "text_pair": ("explain",),
    "explanation": ("explain",),
    "report": ("report", "pipeline"),
}


def declared(key: str) -> Setting | None:
    """The declaration of a full key; None where there is none.

    >>> declared("dataset.rows.train").low, declared("seeed")
    (2, None)
    """
    head, _, _ = key.rpartition(".")
    return SETTINGS.get(key) or SETTINGS.get(f"{head}.*")


def sections() -> set[str]:
    """The first parts of the declared keys that have several parts, such as training."""
    return {key.partition(".")[0] for key in SETTINGS if "." in key}


def check_task(key: str, value: Any, task: str) -> None:
    """Raise `FmmError` for a value given to a key that the task would not look at.

    >>> check_task("explanation.file", "mine.csv", "train")
    Traceback (most recent call last):
    ...
    fmm.errors.FmmError: explanation.file=mine.csv is not read by task=train; leave it out, or give task=explain
    """
    readers = READ_BY.get(key.split(".")[0], (task,))
    if value is not None and task not in readers:
        own = "; a model to start from is model.name=" if (key, task) == ("checkpoint", "train") else ""
        raise FmmError(
            f"{key}={shown(value)} is not read by task={task}; leave it out, or give task={' or '.join(readers)}{own}"
        )


def check_value(key: str, value: Any) -> None:
    """Raise `FmmError` unless a declared key takes this value; keys of a person's own take any.

    >>> check_value("training.batch_size", 0)
    Traceback (most recent call last):
    ...
    fmm.errors.FmmError: training.batch_size=0 is too small: it takes a whole number of at least 1
    """
    setting = declared(key)
    if setting is not None:
        setting.check(key, value)
    if key.startswith("trainer.") and (name := key.removeprefix("trainer.")) in TRAINER_RESERVED:
        instead = TRAINER_RESERVED[name]
        raise FmmError(f"{key} is not an option here; {f'set {instead} instead' if instead else 'fmm sets it itself'}")


def check_measure(measure: Any, options: Mapping[str, tuple[str, ...]]) -> None:
    """Raise `FmmError` unless a measure, a name or a mapping of name and options, is one of `options` and takes them.

    `options` says which options each measure has, by its YAML.

    >>> check_measure("beam_99999999", {"loo_abs": ()})
    Traceback (most recent call last):
    ...
    fmm.errors.FmmError: beam width 99999999 is too large: it takes a whole number of at most 10000
    """
    given = dict(measure) if isinstance(measure, Mapping) else {"name": measure}
    if "name" not in given:
        raise FmmError(f"the measure {shown(measure)} has no name; give one, such as {{name: loo_abs}}")
    name = str(given.pop("name"))
    if name not in options and not is_numbered(name):
        raise unknown("measure", name, options)
    accepted = options.get(name, ())
    for option, value in given.items():
        if option not in accepted:
            if not accepted:
                raise FmmError(f"measure {name} has no option {option!r}; it takes none")
            raise unknown(f"option of measure {name}", str(option), accepted)
        if f"measure.{option}" in SETTINGS:
            SETTINGS[f"measure.{option}"].check(f"{name}.{option}", value)


def is_numbered(name: str) -> bool:
    """Whether a name is that of a family that takes a number, such as beam_7; `FmmError` for a number it refuses."""
    family, _, digits = name.rpartition("_")
    if family not in NUMBERED or not (digits.isascii() and digits.isdigit()):
        return False
    words, setting = NUMBERED[family]
    value = int(digits[:18])
    if phrase := setting.outside(value):
        raise FmmError(f"{words} {digits[:18]} {phrase}")
    if str(value) != digits:
        raise FmmError(f"the measure {name} is written {family}_{value}")
    return True
