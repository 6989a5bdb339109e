"""What one setting takes, said once: its kind, bounds and choices. Checks, `--help` and tests read the same words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fmm.errors import FmmError, unknown

WORDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list such as [a,b]",
    dict: "a section such as {a: 1}",
}


@dataclass(frozen=True)
class Setting:
    """The values that a key takes.

    Attributes:
        kind: bool, int, float (whole numbers too), str (any scalar, read as text), list or dict.
        low, high: smallest and largest number, or number of characters of a text, both allowed.
        choices: the only texts allowed. null: whether null is a value. other: a second kind, such as "auto" or a list.
        items: what a list holds. least: its smallest length. distinct: whether each item may be there once only.
        pattern, form: what a text must match in full, and how to say so in words.
        verbatim: a person's own words, never read as a number. path: a file or folder; ~ is the home folder.
    """

    kind: type
    low: float = float("-inf")
    high: float = float("inf")
    choices: tuple[str, ...] = ()
    null: bool = False
    other: Setting | None = None
    items: Setting | None = None
    least: int = 0
    distinct: bool = False
    pattern: str = ""
    form: str = ""
    verbatim: bool = False
    path: bool = False

    def words(self) -> str:
        """What it takes, in words.

        >>> Setting(int, low=1, high=9, null=True).words()
        'a whole number from 1 to 9, or null'
        """
        text = self.form or " | ".join(self.choices) or WORDS[self.kind]
        if self.kind in (int, float):
            text += self._limits()
        if self.other is not None:
            text += f", or {self.other.words()}"
        return text + (", or null" if self.null else "")

    def _limits(self) -> str:
        if self.high == float("inf"):
            return "" if self.low == float("-inf") else f" of at least {self.low:.12g}"
        return f" from {self.low:.12g} to {self.high:.12g}"

    def check(self, key: str, value: Any, equals: str = "=") -> None:
        """Raise `FmmError`, one sentence that begins with `key``equals``value`, unless `key` takes `value`.

        >>> Setting(int, low=1).check("training.batch_size", -1)
        Traceback (most recent call last):
        ...
        fmm.errors.FmmError: training.batch_size=-1 is too small: it takes a whole number of at least 1
        """
        if value is None:
            if not self.null:
                raise FmmError(f"{key}=null takes the value away that it needs: give {self.words()}")
            return
        if self.other is not None and self.other.is_kind(value) and not self.is_kind(value):
            self.other.check(key, value)
        elif self.choices and isinstance(value, bool | int | float | str):
            self._check_choice(key, value)
        elif not self.is_kind(value):
            raise FmmError(f"{key}{equals}{shown(value)} is not {self.words()}, as {key} needs")
        elif self.kind is list:
            self._check_list(key, value)
        elif self.kind is str:
            self._check_text(key, str(value))
        elif self.kind is dict and len(value) < self.least:
            raise FmmError(f"{key}{equals}{{}} is empty: give {self.words()}")
        elif phrase := self.outside(value):
            raise FmmError(f"{key}{equals}{shown(value)} {phrase}")

    def is_kind(self, value: Any) -> bool:
        """Whether a value is of the kind, whatever its size; NaN is no number."""
        if self.kind is bool or isinstance(value, bool):
            return self.kind in (bool, str) and isinstance(value, bool)
        if self.kind is float:
            return isinstance(value, int | float) and value == value
        if self.kind is str:
            return not isinstance(value, list | tuple | dict)
        return isinstance(value, self.kind)

    def outside(self, value: float) -> str:
        """How a number lies outside the bounds; "" within. The end of a sentence that begins with the number.

        >>> Setting(float, high=1).outside(2)
        'is too large: it takes a number of at most 1'
        """
        if not isinstance(value, int | float) or self.low <= value <= self.high:
            return ""
        size, limit = ("small", f"at least {self.low:.12g}")
        if value > self.high:
            size, limit = ("large", f"at most {self.high:.12g}")
        return f"is too {size}: it takes {WORDS[self.kind]} of {limit}"

    def _check_choice(self, key: str, value: Any) -> None:
        name = str(value).lower() if isinstance(value, bool) else str(value)
        if name not in self.choices:
            raise unknown(f"value of {key}", name, self.choices)

    def _check_text(self, key: str, text: str) -> None:
        if not text.strip():
            raise FmmError(f"{key} is empty: give {self.words()}, or leave {key}= out")
        if len(text) > self.high:
            raise FmmError(f"{key} has {len(text):,} characters, which is too long: give at most {self.high:.12g}")
        if self.pattern and not re.fullmatch(self.pattern, text):
            raise FmmError(f"{key}={text} is not {self.words()}, as {key} needs")

    def _check_list(self, key: str, values: Sequence[Any]) -> None:
        if len(values) < self.least:
            what = "is empty" if not values else f"has {len(values)} of at least {self.least} items"
            raise FmmError(f"{key}={shown(values)} {what}: give {self.least} or more, or leave {key}= out")
        for place, value in enumerate(values):
            if self.items is not None:
                self._check_item(key, values, value)
            if self.distinct and value in values[:place]:
                raise FmmError(f"{key}={shown(values)} holds {shown(value)} twice; give it once")

    def _check_item(self, key: str, values: Sequence[Any], value: Any) -> None:
        assert self.items is not None
        accepted = self.items.is_kind(value) or (self.items.other is not None and self.items.other.is_kind(value))
        if value is None or not accepted:
            raise FmmError(f"{key} holds {shown(value)}, which is not {WORDS[self.items.kind]}")
        if phrase := self.items.outside(value):
            noun = {int: "whole numbers", float: "numbers"}[self.items.kind]
            raise FmmError(f"{key}={shown(values)} {phrase.replace(WORDS[self.items.kind], noun)}")
        self.items.check(f"an item of {key}", value)


def shown(value: Any) -> str:
    """A value as it is written on the command line, cut where it is very long."""
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, Mapping):
        text = "{" + ", ".join(f"{name}: {shown(inner)}" for name, inner in value.items()) + "}"
    elif isinstance(value, list | tuple):
        text = "[" + ", ".join(map(shown, value)) + "]"
    else:
        text = "null" if value is None else str(value)
    return text if len(text) <= 200 else f"{text[:150]}… ({len(text):,} characters)"


def flag(**more: Any) -> Setting:
    """True or false."""
    return Setting(bool, **more)


def whole(low: int, high: float = float("inf"), **more: Any) -> Setting:
    """A whole number from `low` to `high`."""
    return Setting(int, low, high, **more)


def number(low: float, high: float = float("inf"), **more: Any) -> Setting:
    """A number from `low` to `high`."""
    return Setting(float, low, high, **more)


def choice(*names: str, **more: Any) -> Setting:
    """One of some names."""
    return Setting(str, choices=names, **more)


def text(**more: Any) -> Setting:
    """A text as it stands."""
    return Setting(str, verbatim=True, **more)


def path(**more: Any) -> Setting:
    """A file or folder."""
    return Setting(str, verbatim=True, path=True, **more)


def listed(items: Setting, **more: Any) -> Setting:
    """A list of some kind."""
    return Setting(list, items=items, **more)
