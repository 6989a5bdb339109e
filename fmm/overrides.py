"""Checks of the command line, made before Hydra runs and before anything slow is imported.

Hydra's own messages name its internals; these are sentences that name the nearest thing that exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fmm.errors import FmmError, unknown
from fmm.schema import check_task, check_value

# Values that are a person's own words or paths, in which Hydra's grammar must not look for lists and sweeps.
TEXT_KEYS = ("text", "text_pair")
DATA_PATHS = ("mirror", "cache_dir", "path", "train", "validation", "test", "id_list", "noteevents", "diagnoses")
PATH_KEYS = ("checkpoint", "output_dir", "model.name", *(f"data.{name}" for name in DATA_PATHS))


def quote(argument: str) -> str:
    """Return the override with free text quoted, so that commas and brackets in it mean themselves.

    >>> quote("text=A great, great film (really)")
    'text="A great, great film (really)"'
    >>> quote("checkpoint=runs/epoch=3.ckpt")
    'checkpoint="runs/epoch=3.ckpt"'
    >>> quote("seed=0,1")
    'seed=0,1'
    """
    key, equals, value = argument.partition("=")
    key = key.lstrip("+")
    free = key in TEXT_KEYS or (key in PATH_KEYS and "," not in value and not value.startswith(("[", "$")))
    if not equals or not free or value[:1] in "\"'" or value in ("", "null"):
        return argument
    # In quotes, Hydra reads a backslash as itself unless a quote follows; `${` would be an interpolation.
    value = value.replace("${", "\\${") if key in TEXT_KEYS else value
    escaped = re.sub(r'(\\*)("|$)', lambda found: found[1] * 2 + found[2].replace('"', '\\"'), value)
    return f'{argument[: argument.index("=")]}="{escaped}"'


def parse(arguments: Sequence[str]) -> list[Override]:
    """Parse the overrides of a command line; `FmmError` for one that is not `key=value` in Hydra's grammar."""
    overrides = []
    for argument in arguments:
        if "=" not in argument and not argument.startswith("~"):
            raise FmmError(f"{argument!r} sets nothing: write it as {argument.lstrip('-')}=<value>, without a space")
        try:
            overrides += OverridesParser.create().parse_overrides([argument])
        except HydraException as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise FmmError(
                f"{argument!r} cannot be read ({reason}): quote values with special characters, such as key='\"a,b\"'"
            ) from error
    return overrides


def jobs(overrides: Sequence[Override]) -> list[list[str]]:
    """Return the overrides of every job of a sweep, in Hydra's order (the last key varies fastest)."""
    return BasicSweeper.split_arguments(list(overrides), None)[0]


def check_single(conf: Path, overrides: Sequence[Override]) -> None:
    """Check the overrides of one run; `FmmError` says what is wrong."""
    for override in overrides:
        if override.is_sweep_override():
            raise FmmError(
                f"{override.input_line!r} holds several values: add -m to run one job for each, "
                f"or write [..] for a list and quotes for a text"
            )
    check_job(conf, tuple(str(override.input_line) for override in overrides))


def check_sweep(conf: Path, overrides: Sequence[Override]) -> None:
    """Refuse a sweep of which no job could run, or none safely; a single wrong job is left to fail on its own."""
    errors = []
    good = 0
    for job in jobs(overrides):
        try:
            refuse_relaunching(check_job(conf, tuple(job)))
            good += 1
        except RelaunchError:
            raise
        except FmmError as error:
            errors.append(error)
    if errors and not good:
        raise errors[0]


class RelaunchError(FmmError):
    """A sweep whose jobs would start the command line again in every process."""


def refuse_relaunching(cfg: DictConfig) -> None:
    """Refuse a job that Lightning would run by relaunching the command line, and with it the whole sweep."""
    strategy = str(cfg.trainer.strategy)
    several = str(cfg.trainer.devices) not in ("1", "[0]")
    spawns = strategy.startswith(("ddp_spawn", "ddp_fork", "ddp_notebook"))
    if several and not spawns:
        raise RelaunchError(
            f"strategy {strategy!r} with {cfg.trainer.devices} devices cannot run inside a sweep, as each of its "
            "processes would start the whole sweep again: start one process per job, such as "
            "`for s in 0 1; do python run.py seed=$s trainer=ddp; done`, or add trainer.devices=1"
        )


@lru_cache(maxsize=4096)
def check_job(conf: Path, arguments: tuple[str, ...]) -> DictConfig:
    """Check the overrides of one job and return its configuration; `FmmError` says what is wrong."""
    overrides = OverridesParser.create().parse_overrides(list(arguments))
    groups = groups_of(conf)
    chosen = [override for override in overrides if override.key_or_group in groups]
    for override in chosen:
        check_option(override, groups[override.key_or_group])
    base = compose_or_explain(conf, [str(override.input_line) for override in chosen])
    for override in overrides:
        if override not in chosen and not override.key_or_group.startswith("hydra"):
            check_key(override, base, groups)
    checked = all(o in chosen or (o.type == OverrideType.CHANGE and _is_plain(o.key_or_group)) for o in overrides)
    return base if checked else compose_or_explain(conf, arguments)


def _is_plain(key: str) -> bool:
    return not key.startswith(("hydra", "trainer."))


def check_option(override: Override, options: Sequence[str]) -> None:
    """Raise `FmmError` unless the override chooses among the options of its group."""
    group, value = override.key_or_group, override.value()
    if override.is_delete() or value is None:
        raise FmmError(
            f"{override.input_line} takes the choice of {group} away; leave it out, or choose from {', '.join(options)}"
        )
    for name in value if isinstance(value, list) else [value]:
        if str(name) in options or str(name).removesuffix(".yaml") in options:
            continue
        if group == "measure" and _add_numbered(str(name)):
            continue
        error = unknown(group, str(name), options)
        if group == "model":
            raise FmmError(f"{error}; any encoder by its hub id or folder is model.name={name}")
        raise error


def _add_numbered(name: str) -> bool:
    """Make `beam_7`, of a family that takes any number, a choice like those of conf/measure; False: no such family."""
    if not name[-1:].isdigit():
        return False  # spares a mistyped name the import of torch
    from fmm.measures import numbered

    if found := numbered(name):
        ConfigStore.instance().store(group="measure", name=name, node={"name": name})
    return found


def check_key(override: Override, cfg: DictConfig, groups: Iterable[str]) -> None:
    """Raise `FmmError` unless the key exists (or is added with +) and takes such a value."""
    key = override.key_or_group
    if override.is_add() or override.is_force_add():
        return
    leaves = keys_of(cfg)
    if key not in leaves:
        node = OmegaConf.select(cfg, key, throw_on_missing=False) if "/" not in key else None
        if isinstance(node, DictConfig):
            if override.is_delete() or isinstance(override.value(), dict):
                return
            inside = ", ".join(f"{key}.{name}" for name in map(str, node))
            raise FmmError(f"{key} is a section, not a key; set one of {inside}")
        raise unknown_key(key, [*leaves, *groups], str(override.input_line))
    if not override.is_delete():
        check_value(key, override.value(), leaves[key])
        check_task(key, override.value(), cfg.task.name)


def unknown_key(key: str, options: Iterable[str], line: str) -> FmmError:
    """Build the error for a key that does not exist, naming the nearest full keys."""
    likeness = {option: _likeness(key, option) for option in options}
    best = max(likeness.values())
    close = [option for option in likeness if likeness[option] >= max(0.6, best - 0.1)]
    close = sorted(close, key=lambda option: (-likeness[option], option))[:3]
    hint = f"did you mean {' or '.join(close)}?" if close else "`python run.py --help` lists the keys"
    own = "" if line.startswith("~") else f" (a key of your own is added by a plus sign: +{line})"
    return FmmError(f"unknown key {key!r}; {hint}{own}")


def _likeness(key: str, option: str) -> float:
    """Return how alike two keys look, 0 to 1: as a whole, or by their last parts where a section was left out."""
    whole = SequenceMatcher(None, key, option).ratio()
    last = SequenceMatcher(None, key.rsplit(".", 1)[-1], option.rsplit(".", 1)[-1]).ratio()
    return max(whole, last - 0.05)


def keys_of(cfg: DictConfig, prefix: str = "") -> dict[str, Any]:
    """Return every full key of a configuration with its value, None where it cannot be resolved."""
    found: dict[str, Any] = {}
    for name in cfg:
        key = f"{prefix}{name!s}"
        try:
            value = cfg[name]
        except OmegaConfBaseException:
            value = None
        if isinstance(value, DictConfig) and len(value):
            found |= keys_of(value, f"{key}.")
        else:
            found[key] = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
    return found


@lru_cache(maxsize=8)
def groups_of(conf: Path) -> dict[str, list[str]]:
    """Return the groups of a configuration folder and the options of each; Hydra's own groups are left to Hydra."""
    folders = [path for path in conf.iterdir() if path.is_dir() and path.name != "hydra"]
    return {folder.name: sorted(path.stem for path in folder.glob("*.yaml")) for folder in sorted(folders)}


@lru_cache(maxsize=4096)
def _compose(conf: Path, arguments: tuple[str, ...]) -> DictConfig:
    active = GlobalHydra.instance().hydra
    if active is not None:  # inside a sweep: Hydra is already running on this very folder
        return compose("config", list(arguments))
    with initialize_config_dir(str(conf), version_base="1.3", job_name="run"):
        return compose("config", list(arguments))


def compose_or_explain(conf: Path, arguments: Sequence[str]) -> DictConfig:
    """Compose the configuration; an error of Hydra becomes a sentence."""
    try:
        return _compose(conf, tuple(arguments))
    except (HydraException, OmegaConfBaseException) as error:
        lines = [line.strip() for line in f"{error}\n{error.__cause__ or ''}".splitlines() if line.strip()]
        launcher = next((a.split("=", 1)[1] for a in arguments if a.startswith("hydra/launcher=")), None)
        if launcher and "hydra/launcher" in lines[0]:
            raise FmmError(
                f"hydra/launcher={launcher} is not installed: pip install hydra-{launcher.split('_')[0]}-launcher"
            ) from error
        reason = "; ".join(dict.fromkeys(lines[:2])).rstrip(".:")
        raise FmmError(f"these settings do not fit together: {reason}") from error
