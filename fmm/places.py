"""The directory of every job of a sweep, known, and each a job's own, before the first of them starts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, open_dict

from fmm.conf import Conf
from fmm.errors import FmmError
from fmm.overrides import in_quotes
from fmm.setting import shown
from fmm.settings import LONGEST_NAME

SUBDIR_KEY = "hydra.sweep.subdir"
BY_NUMBER = "${hydra.job.num}"  # Hydra's default, and ours
HYDRAS_SWEEP_DIR = "multirun/${now:%Y-%m-%d}/${now:%H-%M-%S}"  # its default, which two sweeps may share


def named_sweep(conf: Conf, overrides: Sequence[Override]) -> bool:
    """Whether the command line or the configuration, such as an experiment, names the directory of the sweep."""
    same = [str(override.input_line) for override in overrides if not override.is_sweep_override()]
    with contextlib.suppress(FmmError):  # a key that only some of the swept datasets have
        raw = OmegaConf.to_container(conf.compose(same, with_hydra=True).hydra.sweep, resolve=False)
        return isinstance(raw, dict) and raw["dir"] != HYDRAS_SWEEP_DIR
    return any(override.key_or_group == "hydra.sweep.dir" for override in overrides)


def by_number(cfg: DictConfig) -> bool:
    """Whether the jobs' directories are their numbers."""
    raw = OmegaConf.to_container(cfg.hydra.sweep, resolve=False)
    return isinstance(raw, dict) and raw["subdir"] == BY_NUMBER


def directories(cfg: DictConfig, loader: ConfigLoader, jobs: Sequence[Sequence[str]]) -> list[Path]:
    """The directory of each job, in order. Raises `FmmError` for a name no disk takes, and for one that two jobs share.

    `cfg` is the configuration of the sweep. A job that cannot be composed goes by its number.
    """
    names = [str(number) for number in range(len(jobs))]
    if not by_number(cfg):
        names = [_subdir(cfg, loader, number, job) for number, job in enumerate(jobs)]
    places = [Path(cfg.hydra.sweep.dir) / name for name in names]
    first: dict[str, int] = {}
    for number, place in enumerate(places):
        _check_name(number, place)
        other = first.setdefault(os.path.normpath(place), number)
        if other != number:
            raise FmmError(
                f"{SUBDIR_KEY} gives the jobs {other} and {number} one directory, {shown(str(place))}; put "
                f"{BY_NUMBER} into it, or leave it out"
            )
    return places


def pinned(job: Sequence[str], place: Path) -> list[str]:
    """The overrides of a job with its directory as it is now, whatever a launcher's clock or numbers would make it."""
    return [*job, f"{SUBDIR_KEY}={in_quotes(str(place.absolute()))}"]


def _subdir(cfg: DictConfig, loader: ConfigLoader, number: int, job: Sequence[str]) -> str:
    try:
        composed = loader.load_sweep_config(cfg, list(job))
    except Exception:  # Hydra's errors are of many kinds; the job fails by itself, with a sentence
        return str(number)
    with open_dict(composed):
        composed.hydra.job.id = str(number)
        composed.hydra.job.num = number
    return str(OmegaConf.select(composed, SUBDIR_KEY))


def _check_name(number: int, place: Path) -> None:
    long = next((part for part in place.parts if len(os.fsencode(part)) > LONGEST_NAME), None)
    if long is not None or "\0" in str(place):
        raise FmmError(
            f"{SUBDIR_KEY} gives job {number} a name that no disk takes ({(long or str(place))[:60]!r}…); leave it out "
            "for numbers, or keep keys out of it by hydra.job.config.override_dirname.exclude_keys"
        )
