"""The jobs of a sweep, counted and checked before the first of them starts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.types import ChoiceSweep, Glob, Override, RangeSweep
from hydra.errors import HydraException

from fmm.conf import Conf
from fmm.errors import FmmError, first_line
from fmm.overrides import check_job, parse

MOST_JOBS = 10_000


def jobs(overrides: Sequence[Override]) -> list[list[str]]:
    """The overrides of every job of a sweep, in Hydra's order (the last key varies fastest)."""
    return BasicSweeper.split_arguments(list(overrides), None)[0]


def check_sweep(conf: Conf, overrides: Sequence[Override]) -> None:
    """Refuse a sweep of which no job could run, or none safely; a single wrong job is left to fail on its own."""
    overrides = [expanded(conf, override) for override in overrides]
    n_jobs = math.prod(count(override) for override in overrides)
    if n_jobs > MOST_JOBS:
        raise FmmError(f"this sweep has {n_jobs:,} jobs, more than {MOST_JOBS:,}; split it")
    try:
        combinations = jobs(overrides)
    except (HydraException, ValueError) as error:
        raise FmmError(f"this sweep cannot be laid out ({first_line(error)}); give values such as seed=0,1") from error
    errors = []
    good = 0
    for job in combinations:
        try:
            check_job(conf, tuple(job))
            good += 1
        except FmmError as error:
            errors.append(error)
    if errors and not good:
        raise errors[0]


def expanded(conf: Conf, override: Override) -> Override:
    """An override with glob(...) as the options that it stands for. Raises `FmmError` where there is none."""
    group, glob = override.key_or_group, override.value()
    if not isinstance(glob, Glob):
        return override
    if group not in conf.groups:
        raise FmmError(f"{override.input_line}: only groups have options for glob; {group} takes values, such as 0,1")
    names = glob.filter(conf.groups[group])
    if not names:
        raise FmmError(f"{override.input_line} holds no choice of {group}; there are {', '.join(conf.groups[group])}")
    return parse([f"{group}={','.join(names)}"])[0]


def count(override: Override) -> int:
    """How many values an override has. Raises `FmmError` for none, or an endless range."""
    if not override.is_sweep_override():
        return 1
    value: Any = override.value()
    n = 1
    if isinstance(value, ChoiceSweep):
        n = len(value.list)
    elif isinstance(value, RangeSweep):
        start, stop, step = float(value.start or 0), float(value.stop or 0), float(value.step)
        if not step or not all(map(math.isfinite, (start, stop, step))):
            raise FmmError(f"{override.input_line} has no end; give a range such as range(0,5)")
        n = max(0, math.ceil((stop - start) / step))
    if n == 0:
        raise FmmError(f"{override.input_line} holds no value, so there is no job; give some, such as range(0,5)")
    return n
