"""Checks of the command line, made before Hydra runs and before anything slow is imported.

Hydra's own messages name its internals; these are sentences that name the nearest thing that exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException

from fmm.conf import Conf
from fmm.errors import FmmError, unknown
from fmm.schema import check_measure, check_task, check_value, declared, is_numbered
from fmm.setting import Setting, listed, shown, whole
from fmm.settings import check_declared, check_settings, resolved, unfolded

# Values that are a person's own words or paths, in which Hydra's grammar must not look for lists and sweeps.
TEXT_KEYS = ("text", "text_pair")

# Keys of Hydra's that take what they should not, and then end in a traceback or mean something else.
HYDRA = {
    "hydra.verbose": Setting(str, form="true, false or the name of a logger", other=listed(Setting(str), least=1)),
    "hydra.sweeper.max_batch_size": whole(1, null=True),
}


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
    setting = declared(key)
    verbatim = setting is not None and setting.verbatim and "," not in value and not value.startswith(("[", "{", "$"))
    free = key in TEXT_KEYS or verbatim
    if not equals or not free or value[:1] in "\"'" or value in ("", "null"):
        return argument
    value = value.replace("${", "\\${") if key in TEXT_KEYS else value
    return f"{argument[: argument.index('=')]}={in_quotes(value)}"


def in_quotes(value: str) -> str:
    """A text as Hydra's grammar reads it back: in quotes a backslash is itself unless a quote follows."""
    escaped = re.sub(r'(\\*)("|$)', lambda part: part[1] * 2 + part[2].replace('"', '\\"'), value)
    return f'"{escaped}"'


def parse(arguments: Sequence[str]) -> list[Override]:
    """Parse the overrides of a command line; `FmmError` for one that is not `key=value` in Hydra's grammar."""
    overrides = []
    for argument in arguments:
        if "=" not in argument and not argument.startswith("~"):
            name = argument.strip("- ") or "<key>"
            raise FmmError(f"{argument!r} sets nothing: write it as {name}=<value>, without a space")
        try:
            overrides += OverridesParser.create().parse_overrides([argument])
        except HydraException as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise FmmError(
                f"{argument!r} cannot be read ({reason}): quote values with special characters, such as key='\"a,b\"'"
            ) from error
    return overrides


def with_searchpath(conf: Conf, overrides: Sequence[Override]) -> Conf:
    """The folders, with those that the overrides give by `hydra.searchpath`. Raises `FmmError`."""
    places = [override for override in overrides if override.key_or_group == "hydra.searchpath"]
    return conf.with_searchpath(_value(places[-1])) if places else conf


def check_single(conf: Conf, overrides: Sequence[Override]) -> None:
    """Check the overrides of one run; `FmmError` says what is wrong."""
    for override in overrides:
        if override.is_sweep_override():
            raise FmmError(
                f"{override.input_line!r} holds several values: add -m to run one job for each, "
                f"or write [..] for a list and quotes for a text"
            )
    check_job(conf, tuple(str(override.input_line) for override in overrides))


@lru_cache(maxsize=4096)
def check_job(conf: Conf, arguments: tuple[str, ...]) -> dict[str, Any]:
    """Check the overrides of one job and return its settings by full key; `FmmError` says what is wrong."""
    overrides = OverridesParser.create().parse_overrides(list(arguments))
    chosen = [override for override in overrides if override.key_or_group in conf.groups]
    others = [o for o in overrides if o not in chosen and not re.match(r"hydra[./]|hydra$", o.key_or_group)]
    for override in overrides:
        if override.key_or_group in HYDRA and "${" not in str(override.input_line):
            HYDRA[override.key_or_group].check(override.key_or_group, _value(override))
    for override in chosen:
        check_option(override, conf.groups[override.key_or_group])
    flat = _chosen(conf, tuple(str(override.input_line) for override in chosen))
    for override in others:
        check_key(override, flat, conf)
    if len(chosen) + len(others) == len(overrides) and all(map(_is_plain, others)):
        flat = flat | {o.key_or_group: _value(o) for o in others}
    else:
        flat = resolved(conf.compose(arguments))
    check_settings(flat, conf.measures)
    for override in others:
        for key, value in unfolded(override.key_or_group, _value(override)).items():
            check_task(key, value, str(flat["task.name"]))
    return flat


@lru_cache(maxsize=1024)
def _chosen(conf: Conf, arguments: tuple[str, ...]) -> dict[str, Any]:
    return resolved(conf.compose(arguments))


def _is_plain(override: Override) -> bool:
    """Whether an override puts a value where there was one, and nothing else changes."""
    value = _value(override)
    return override.type == OverrideType.CHANGE and not isinstance(value, dict) and "${" not in str(value)


def _value(override: Override) -> Any:
    """The value of an override: a plain one, a list or a dict; its type in Hydra says less than that."""
    return override.value()


def check_option(override: Override, options: Sequence[str]) -> None:
    """Raise `FmmError` unless the override chooses among the options of its group."""
    group, value = override.key_or_group, _value(override)
    if override.is_delete() or value is None:
        raise FmmError(
            f"{override.input_line} takes the choice of {group} away; leave it out, or choose from {', '.join(options)}"
        )
    if (override.is_add() or override.is_force_add()) and override.package is None:
        raise FmmError(f"{group} has a choice already: write {group}={shown(value)} without the plus sign")
    if isinstance(value, list | dict) and (group != "experiment" or not value):
        names = ",".join(map(str, value)) or ",".join(options[:2])
        raise FmmError(f"{override.input_line} holds several: {group} takes one; -m {group}={names} runs each")
    for name in value if isinstance(value, list) else [value]:
        check_name(group, str(name), options)


def check_name(group: str, name: str, options: Sequence[str]) -> None:
    """Raise `FmmError` unless a group has this choice; `beam_7`, of a family that takes any number, becomes one."""
    if name in options or name.removesuffix(".yaml") in options:
        return
    if group == "measure" and is_numbered(name):
        ConfigStore.instance().store(group="measure", name=name, node={"name": name})
        return
    error = unknown(group, name, options)
    if group == "model":
        raise FmmError(f"{error}; any encoder by its hub id or folder is model.name={name}")
    raise error


def check_key(override: Override, flat: Mapping[str, Any], conf: Conf) -> None:
    """Raise `FmmError` unless the override sets a key that exists, or adds one with +, to a value that it takes."""
    key, line = override.key_or_group, str(override.input_line)
    inside = [other for other in flat if other.startswith(f"{key}.")]
    if override.is_delete():
        raise _deleted(key, line, flat, inside, conf)
    values = unfolded(key, _value(override))
    if override.is_add() or override.is_force_add():
        _check_added(override, flat, values, inside)
    elif inside and not isinstance(_value(override), dict):
        raise FmmError(f"{key} is a section, not a key; set one of {', '.join(inside)}")
    elif not values:
        raise FmmError(f"{line} sets nothing; set one of {', '.join(inside) or key}, or leave it out")
    for full, value in values.items():
        if override.type == OverrideType.CHANGE and full not in flat and key not in flat:
            _check_option_of_measure(full, value, flat, conf)
            raise unknown_key(full, [*flat, *conf.groups], line)
        if "${" not in str(value):
            check_value(full, value)


def _check_added(override: Override, flat: Mapping[str, Any], values: Mapping[str, Any], inside: Sequence[str]) -> None:
    key, line = override.key_or_group, str(override.input_line)
    if override.is_add() and (key in flat or inside):
        raise FmmError(f"{key} is there already: write {line.lstrip('+')} without the plus sign")
    for full in values or {key: None}:
        check_declared(full, flat)
        of_ours = str(flat.get("dataset.reader", "")).startswith("fmm.")
        if full.startswith("dataset.") and declared(full) is None and of_ours:
            known = [other for other in flat if other.startswith("dataset.")]
            raise unknown("key", full, known)


def _deleted(key: str, line: str, flat: Mapping[str, Any], inside: Sequence[str], conf: Conf) -> FmmError:
    if key not in flat and not inside:
        return unknown_key(key, [*flat, *conf.groups], line)
    setting = declared(key)
    instead = f"write {key}=null for none" if setting is not None and setting.null else "leave it out for the default"
    return FmmError(f"{line} takes {key} away, which the tasks read; {instead}")


def _check_option_of_measure(key: str, value: Any, flat: Mapping[str, Any], conf: Conf) -> None:
    if key.startswith("measure."):
        check_measure({"name": flat["measure.name"], key.removeprefix("measure."): value}, conf.measures)


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
