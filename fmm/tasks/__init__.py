"""The tasks: one module each, with `run(cfg)`. Only they meet Hydra and the disk."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fmm import tracking
from fmm.errors import unknown
from fmm.schema import TASKS

if TYPE_CHECKING:
    from omegaconf import DictConfig


def run_task(cfg: DictConfig) -> Any:
    """Run the task named by `cfg.task.name` and return what its `run(cfg)` returns.

    Only that task's module is imported: the others' dependencies cost seconds.
    Raises `FmmError` for a name that is not a task.
    """
    name = cfg.task.name
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    tracking.check(cfg)
    return importlib.import_module(f"fmm.tasks.{name}").run(cfg)
