"""Importance measures. Every `Measure` subclass in a file of this package is found by itself."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from fmm.errors import FmmError, unknown
from fmm.measures.attribution import Attribution, attribute
from fmm.measures.base import Measure, rankable_tokens
from fmm.schema import is_numbered

__all__ = [
    "Attribution",
    "Measure",
    "attribute",
    "available",
    "build",
    "build_all",
    "options_of",
    "rankable_tokens",
]


@cache
def _families() -> tuple[type[Measure], ...]:
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    found, queue = [], [Measure]
    while queue:
        family = queue.pop()
        queue += family.__subclasses__()
        found += [family] if family.presets else []
    return tuple(sorted(found, key=lambda family: family.__name__))


def available() -> list[str]:
    """Names of all measures, sorted. Families with a number in the name, such as `beam_7`, take any number.

    >>> "loo_sign" in available()
    True
    """
    return sorted(name for family in _families() for name in family.presets)


def build(measure: str | Mapping[str, Any] | Measure) -> Measure:
    """The measure of this name, or of this mapping of `name` and options.

    Raises:
        FmmError: unknown name or option, or a value that the measure refuses.

    >>> build("beam_7").width
    7
    >>> build({"name": "int_grad_abs", "variant": "textbook"}).variant
    'textbook'
    """
    if isinstance(measure, Measure):
        return measure
    options = {"name": measure} if isinstance(measure, str) else dict(measure)
    name = str(options.pop("name", ""))
    if not name:
        raise FmmError(f"the measure {options} has no name; give one, such as {{name: loo_abs}}")
    family, fixed = _find(name)
    accepted = [
        key for key in inspect.signature(family.__init__).parameters if key not in ("self", "args", "kwargs", *fixed)
    ]
    for key in options:
        if key not in accepted:
            if not accepted:
                raise FmmError(f"measure {name} has no option {key!r}; it takes none")
            raise unknown(f"option of measure {name}", key, accepted)
    built = family(**fixed, **options)
    built.name = name
    return built


def build_all(asked: object) -> list[Measure]:
    """The measures of a list of names and mappings, or of a single one; one that is there twice is taken once.

    Raises FmmError for an empty list, and where one name has different options: a record holds a name once.
    """
    wanted = asked if isinstance(asked, list) else [asked]
    found: dict[str, tuple[object, Measure]] = {}
    for one in wanted:
        measure = build(one if isinstance(one, Mapping | Measure) else str(one))
        first, _ = found.setdefault(measure.name, (options_of(measure), measure))
        if first != options_of(measure):
            raise FmmError(f"measures names {measure.name} twice with different options; give one command to each")
    if not found:
        raise FmmError("measures=[] names no measure; give some, such as measures=[grad_l2,loo_abs]")
    return [measure for _, measure in found.values()]


def options_of(measure: Measure) -> dict[str, Any]:
    """The arguments that made a measure, as it keeps them."""
    names = inspect.signature(type(measure).__init__).parameters
    return {name: getattr(measure, name) for name in names if hasattr(measure, name)}


def _find(name: str) -> tuple[type[Measure], Mapping[str, Any]]:
    for family in _families():
        if name in family.presets:
            return family, family.presets[name]
    is_numbered(name)  # refuses a number out of bounds, however long
    for family in _families():
        if family.pattern is not None and (match := family.pattern.fullmatch(name)):
            return family, {key: int(value) for key, value in match.groupdict().items()}
    raise unknown("measure", name, available())
