"""What the keys of `conf/config.yaml` take: kinds, smallest and largest values, choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fmm.errors import FmmError, unknown

# Keys whose default is null say nothing about their kind.
NULLABLE: dict[str, type] = {
    "checkpoint": str,
    "recursive": bool,
    "measures": list,
    "label_map": dict,
    "data.max_length": int,
    "data.max_train_rows": int,
    "data.max_eval_rows": int,
    "data.max_test_rows": int,
    "inference.token_budget": int,
    "trainer.gradient_clip_val": float,
}

CHOICES: dict[str, tuple[str, ...]] = {
    "selection": ("both", "nomask", "mask"),
    "scheduler": ("linear", "authors"),
    "explain": ("first", "second", "both"),
    "masf": ("authors", "calibrated", "none"),
    "masking.strategy": ("half_det", "half_ran", "uniform", "none"),
    "inference.dtype": ("float32", "bfloat16"),
    "logger.name": ("none", "csv", "wandb"),
}

# Smallest and largest values, both allowed.
BOUNDS: dict[str, tuple[float, float]] = {
    "seed": (0, 2**32 - 1),
    "training.max_epochs": (1, 10_000),
    "training.batch_size": (1, 65_536),
    "training.learning_rate": (0, 10),
    "training.weight_decay": (0, 10),
    "training.adam_epsilon": (0, float("inf")),
    "training.warmup": (0, 1),
    "masking.max_ratio": (0, 1),
    "data.max_length": (8, float("inf")),
    "data.max_train_rows": (1, float("inf")),
    "data.max_eval_rows": (1, float("inf")),
    "data.max_test_rows": (1, float("inf")),
    "data.split_seed": (0, 2**32 - 1),
    "data.num_workers": (0, float("inf")),
    "inference.token_budget": (1, float("inf")),
    "trainer.accumulate_grad_batches": (1, float("inf")),
    "ratios": (0, 1),
    **{f"dataset.rows.{split}": (2, float("inf")) for split in ("train", "validation", "test")},
    "dataset.epochs": (1, float("inf")),
    **{f"model.{name}": (1, float("inf")) for name in ("hidden_size", "num_layers", "num_heads", "vocab_size")},
    "model.intermediate_size": (1, float("inf")),
    "model.max_length": (8, float("inf")),
}

WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list such as [a,b]",
    dict: "a map such as {0: negative, 1: positive}",
}

# Keys that take several kinds: a label may be a number, Lightning's devices a number, a list or "auto".
FREE = ("target", "trainer.devices", "trainer.precision", "trainer.deterministic", "text", "text_pair")

# Keys and sections that not every task reads, and the tasks that do.
READ_BY: dict[str, tuple[str, ...]] = {
    "checkpoint": ("racu", "masf", "explain", "check", "pipeline"),
    "text": ("explain",),
    "text_pair": ("explain",),
    "explanation": ("explain",),
    "report": ("report", "pipeline"),
}


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
            f"{key}={_shown(value)} is not read by task={task}; leave it out, or give task={' or '.join(readers)}{own}"
        )


def check_value(key: str, value: Any, default: Any) -> None:
    """Raise `FmmError` unless `value` is of the kind of the key's default, within its bounds and choices.

    >>> check_value("training.batch_size", -1, 16)
    Traceback (most recent call last):
    ...
    fmm.errors.FmmError: training.batch_size=-1 is too small: it takes a whole number of at least 1
    """
    if key in FREE or (isinstance(value, str) and "${" in value):
        return
    kind = NULLABLE.get(key) or type(default)
    if value is None:
        if default is not None and key not in NULLABLE:
            raise FmmError(f"{key}=null takes the value away that it needs: give {WORDS.get(kind, 'a value')}")
        return
    if value == "" and kind is str:
        raise FmmError(f"{key} is empty: give {WORDS[str]}, or leave {key}= out for {default}")
    if kind in WORDS and not _is_kind(value, kind):
        raise FmmError(f"{key}={_shown(value)} is not {WORDS[kind]}, as {key} needs")
    if key in CHOICES and str(value) not in CHOICES[key]:
        raise unknown(f"value of {key}", str(value), CHOICES[key])
    if key in BOUNDS:
        low, high = BOUNDS[key]
        for number in value if isinstance(value, Sequence) else [value]:
            if not _is_kind(number, float):
                raise FmmError(f"{key} holds {_shown(number)}, which is not a number")
            if number < low or number > high:
                size = "small" if number < low else "large"
                limit = f"at least {low:.12g}" if number < low else f"at most {high:.12g}"
                item = WORDS[kind] if kind in (int, float) else "numbers"
                raise FmmError(f"{key}={_shown(value)} is too {size}: it takes {item} of {limit}")


def _is_kind(value: Any, kind: type) -> bool:
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind is float:
        return isinstance(value, int | float) and value == value
    if kind is str:
        return not isinstance(value, list | dict)
    return isinstance(value, kind)


def _shown(value: Any) -> str:
    return str(value).replace("'", "") if isinstance(value, list) else str(value)
