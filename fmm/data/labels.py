"""Labels by name: what a person, a file and a model may call one class, and how their names are brought together.

Names decide wherever there are any. A number stands for a class only where no name can be meant by it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln

from fmm.errors import FmmError, unknown

# Characters without width that mean nothing wherever they stand: zero-width space, word joiner, BOM, soft hyphen, marks
# and brackets of the writing direction, invisible operators.
_MEANINGLESS = "\u200b\u2060\ufeff\u00ad\u200e\u200f\u061c\u180e\u202a-\u202e\u2066-\u2069\u2061-\u2064\ufff9-\ufffb"
_INVISIBLE = re.compile(f"[{_MEANINGLESS}]")
# Within a word these join or part letters (Persian, emoji of several persons); at its ends they show as nothing.
_SHOWN_AS_NOTHING = "\u200c\u200d\u034f\u115f\u1160\u2800\u3164\uffa0\\x00-\\x1f\\x7f-\\x9f\\s"
_ENDS = re.compile(f"^[{_SHOWN_AS_NOTHING}]+|[{_SHOWN_AS_NOTHING}]+$")
_PLAIN = re.compile(r"[A-Za-z_][\w.-]*|\d+")
_WORDS = ("null", "true", "false", "nan", "inf")  # what a command line reads as something else than a text
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_SIGNIFICANT = 0.001


def normalised(name: str) -> str:
    """A label in one spelling: Unicode NFC, without invisible characters, blanks at the ends or doubled within.

    >>> normalised(" cafe\\u0301\\u200b  au lait ")
    'café au lait'
    """
    visible = _ENDS.sub("", _INVISIBLE.sub("", name))
    return " ".join(unicodedata.normalize("NFC", visible).split())


def label_text(value: Any) -> str:
    """A label of a configuration or command line as a text: YAML's true and null are names like others.

    >>> label_text(True), label_text(None), label_text(1.0), label_text(" a ")
    ('true', 'null', '1', 'a')
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return normalised(str(value))


def same(first: str, second: str) -> bool:
    """Whether two names stand for one label: alike but for case, Unicode form and blanks."""
    return _folded(first) == _folded(second)


def _folded(name: str) -> str:
    return normalised(name).casefold()


def are_generic(names: Sequence[str]) -> bool:
    """Whether these are the names that transformers makes up, LABEL_0, LABEL_1, ...: they say nothing of a class."""
    return all(re.fullmatch(rf"label_{number}", name, re.IGNORECASE) for number, name in enumerate(names))


def hold_numbers(names: Sequence[str]) -> bool:
    """Whether a number could be meant by a name, as in "1 star": then it is no number of a class."""
    return not are_generic(names) and any(re.search(r"\d", name) for name in names)


def find_label(called: str, names: Sequence[str]) -> int | None:
    """The class that is called so: by name, by name in another case where that is one class alone, or by number.

    Where names hold numbers, such as stars, a number is a part of a name: 0 is not the first of 1 to 5. None: no such
    class.

    >>> find_label("Good", ["bad", "good"]), find_label("1", ["bad", "good"]), find_label("a", ["A", "a"])
    (1, 1, 1)
    >>> find_label("1", ["1", "2"]), find_label("0", ["1", "2"]), find_label("1", ["1 star", "2 stars"])
    (0, None, None)
    """
    if called in names:
        return list(names).index(called)
    folded = [_folded(name) for name in names]
    if folded.count(_folded(called)) == 1:
        return folded.index(_folded(called))
    if hold_numbers(names) or not is_number(called):
        return None
    return int(called) if int(called) < len(names) else None


def target_label(target: Any, names: Sequence[str], label_map: Mapping[Any, Any] | None = None) -> str:
    """What is explained: `gold`, `predicted`, or the one of `names` that is called so.

    `names` are those of the model's classes in its own order, so that a number means one class whether a text, a file
    or a split is explained. A label that a `label_map` {label of the data: class} gives to a class stands for it.
    Raises FmmError for another, and for a number that the map gives to another class than the one of that number.

    >>> target_label(1, ["bad", "good"]), target_label("GOOD", ["bad", "good"]), target_label("gold", ["bad", "good"])
    ('good', 'good', 'gold')
    >>> target_label("gut", ["bad", "good"], {"gut": "good"})
    'good'
    """
    called = "null" if target is None else str(target)
    if called in ("gold", "predicted"):
        return called
    number = find_label(called, names)
    mapped = _mapped(called, names, label_map)
    if number is None:
        number = mapped
    elif mapped is not None and mapped != number:
        raise FmmError(
            f"target={called} is the model's class {names[number]!r}, and by label_map the data's label for "
            f"{names[mapped]!r}; give one of these names"
        )
    if number is not None:
        return names[number]
    if re.fullmatch(r"-?[0-9]+", called):
        choices = [f"{number} {name}" for number, name in enumerate(names)]
        shown = ", ".join(names if hold_numbers(names) else choices)
        raise FmmError(f"target={target} is no label; choose from {shown}")
    raise unknown("target", called, ["gold", "predicted", *names])


def _mapped(called: str, names: Sequence[str], label_map: Mapping[Any, Any] | None) -> int | None:
    """The class that a `label_map` gives to the label of the data that is called so."""
    for key, value in (label_map or {}).items():
        if same(label_text(key), called):
            return find_label(label_text(value), names)
    return None


def class_numbers(
    values: Sequence[str | None], names: Sequence[str], source: str, explicit: Collection[str] = ()
) -> NDArray[np.int64]:
    """Labels of rows by name, or by number where all numbers from 0 occur, as classes of `names`. -1: no label.

    `explicit` are numbers that a `label_map` gives as classes. Returns int64 [N]. Raises FmmError, with a `label_map`
    that could be meant, for a label that no class is called by, and for numbers of which some do not occur: they may
    count from another start.
    """
    known = {value for value in values if value is not None}
    numbers = {value: find_label(value, names) for value in known}
    if "-1" in known and numbers["-1"] is None:
        numbers["-1"] = -1  # the hub's "no label", unless the model has one of that name
    strange = sorted(value for value, number in numbers.items() if number is None)
    if strange:
        row = values.index(strange[0]) + 1
        error = unknown("label", strange[0], names)
        raise FmmError(
            f"{source} row {row}: {error}, as the model has only these; or say what is what by "
            f"{proposed_map(sorted(known - {'-1'}), names)}"
        )
    by_number = numbers_of_classes(known, names)
    classes = {number for number in numbers.values() if number != -1}
    if by_number - set(explicit) and len(classes) < len(names):
        shown = ", ".join(sorted(by_number, key=int))
        raise FmmError(
            f"{source} has the labels {shown} and the model {', '.join(names)}: as not all numbers from 0 to "
            f"{len(names) - 1} occur, they may not be the numbers of its classes; say what is what by "
            f"{proposed_map(sorted(by_number, key=int), names)}"
        )
    return np.array([-1 if value is None else numbers[value] for value in values], dtype=np.int64)


def numbers_of_classes(labels: Iterable[str], names: Sequence[str]) -> set[str]:
    """Those of the labels that are numbers and no names of a class."""
    return {label for label in labels if is_number(label) and not any(same(label, name) for name in names)}


def rename_labels(names: Sequence[str], label_map: Mapping[Any, Any] | None) -> list[str]:
    """The names of the data's labels under a `label_map` of the command line, {label of the data: name}.

    Labels that the map does not hold keep their names. Raises FmmError for a label that the data lack, and where two
    labels become one.

    >>> rename_labels(["0", "1"], {0: "negative", 1: "positive"})
    ['negative', 'positive']
    """
    renamed = list(names)
    for key, value in (label_map or {}).items():
        place = exact_label(label_text(key), names)
        if place is None:
            raise FmmError(f"label_map: {unknown('label', label_text(key), names)}, as the data have only these")
        renamed[place] = label_text(value)
    folded = [_folded(name) for name in renamed]
    twice = next((place for place, name in enumerate(folded) if name in folded[:place]), None)
    if twice is not None:
        first = folded.index(folded[twice])
        raise FmmError(
            f"label_map makes one label {renamed[twice]!r} of {names[first]!r} and {names[twice]!r}; give each label a "
            "name of its own"
        )
    return renamed


def is_number(label: str) -> bool:
    """Whether a label could be the number of a class: 0, 1, 2, ... and not 01, which is a name."""
    return re.fullmatch(r"0|[1-9][0-9]{0,8}", label) is not None


def exact_label(called: str, names: Sequence[str]) -> int | None:
    """The place of a name, in any case where that is one name alone; None where there is none."""
    if called in names:
        return list(names).index(called)
    folded = [_folded(name) for name in names]
    return folded.index(_folded(called)) if folded.count(_folded(called)) == 1 else None


def proposed_map(values: Sequence[str], names: Sequence[str]) -> str:
    """A `label_map=` to paste into a command line: by numbers or spellings in common, numbers else in order; ? where
    nothing speaks for a name.

    >>> proposed_map(["0", "1"], ["negative", "positive"])
    "'label_map={0: negative, 1: positive}'"
    >>> print(proposed_map(["1", "2"], ["1 star", "2 stars", "3 stars"]))
    'label_map={1: "1 star", 2: "2 stars"}'
    >>> print(proposed_map(["neg", "gut"], ["negative", "positive"]))
    'label_map={neg: negative, gut: ?}'
    """
    matches = [_likeliest(value, names) for value in values]
    numbers = all(re.fullmatch(r"-?[0-9]+", value) for value in values)
    if numbers and (None in matches or len(set(matches)) < len(matches)):
        ordered = sorted(values, key=int)
        meant = dict(zip(ordered, names)) if len(values) <= len(names) else {}
        matches = [meant.get(value) for value in values]
    inside = [f"{_quoted(value)}: {'?' if match is None else _quoted(match)}" for value, match in zip(values, matches)]
    return f"'label_map={{{', '.join(inside)}}}'"


def _likeliest(value: str, names: Sequence[str]) -> str | None:
    """The one name that the value shares its spelling, its number or its beginning with; None where none or several."""
    folded = _folded(value)
    close = get_close_matches(folded, [_folded(name) for name in names], n=1, cutoff=0.8)
    for alike in (
        [name for name in names if same(name, value)],
        [name for name in names if re.findall(r"\d+", name) == [value]],
        [name for name in names if _folded(name).startswith(folded) or folded.startswith(_folded(name))],
        [name for name in names if close and _folded(name) == close[0]],
    ):
        if len(alike) == 1:
            return alike[0]
    return None


def _quoted(name: str) -> str:
    if _PLAIN.fullmatch(name) and name.casefold() not in _WORDS:
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@dataclass(frozen=True)
class Suspicion:
    """Labels that seem to be in another order: the accuracy as they are, of the class majority, and as they may be.

    `order[i]` is the class that the model's output i seems to stand for.
    """

    accuracy: float
    majority: float
    permuted: float
    order: list[int]
    rows: int

    def sentence(self, names: Sequence[str]) -> str:
        """What to tell a reader."""
        moved = [(name, names[place]) for name, place in zip(names, self.order) if names[place] != name]
        outputs = ", ".join(f"{name!r} for {meant!r}" for name, meant in moved)
        return (
            f"the accuracy on {self.rows} labelled rows is {self.accuracy:.1%}, below always saying the most frequent "
            f"label ({self.majority:.1%}); it would be {self.permuted:.1%} if the model's labels stood in another "
            f"order ({outputs}): check id2label in its config.json"
        )


def suspected_order(gold: NDArray[np.int64], predicted: NDArray[np.int64], classes: int) -> Suspicion | None:
    """Whether another order of the labels would explain an accuracy below the class majority.

    `gold` [N] (-1: no label) and `predicted` [N] are classes. None unless the accuracy lies below the majority, and
    that of the best order above it, both beyond chance (one-sided binomial tests, p < 0.001, the second times the
    number of orders): a weak model alone raises no suspicion.
    """
    labelled = gold >= 0
    n = int(labelled.sum())
    if n == 0:
        return None
    counts = np.zeros((classes, classes), dtype=np.int64)  # [predicted, gold]
    np.add.at(counts, (predicted[labelled], gold[labelled]), 1)
    outputs, order = linear_sum_assignment(-counts)
    right, permuted, majority = int(np.trace(counts)), int(counts[outputs, order].sum()), int(counts.sum(axis=0).max())
    share = majority / n
    if share >= 1 or right >= majority or permuted <= majority:
        return None
    # The best order is chosen among all: each of the classes! orders is a test (Bonferroni).
    below = stats.binom.logcdf(right, n, share)
    above = stats.binom.logsf(permuted - 1, n, share) + gammaln(classes + 1)
    if max(below, above) >= np.log(_SIGNIFICANT):
        return None
    return Suspicion(right / n, share, permuted / n, order.tolist(), n)


@dataclass(frozen=True)
class LabelColumn:
    """Labels of rows as texts in one spelling, None where a row has none.

    Attributes:
        values: labels by row.
        respelt: rows whose label was spelt otherwise, by Unicode form, invisible characters or blanks.
        merged: labels that came together by that, {label: number of spellings}.
    """

    values: list[str | None]
    respelt: int
    merged: dict[str, int]

    def said(self, source: str) -> list[str]:
        """Sentences for the log."""
        if not self.respelt:
            return []
        together = [f"{count} spellings of {label!r}" for label, count in self.merged.items()]
        note = f"; {', '.join(together)} are one label" if together else ""
        return [f"{source}: {self.respelt} labels respelt (Unicode form, invisible characters, blanks){note}"]


def label_column(cells: Sequence[Any]) -> LabelColumn:
    """Labels from the cells of a column: texts or whole numbers; 1.0 is 1, as table programs write it.

    An empty cell is no label. Neither is nan among numbers, which is what numpy writes where there is none; among
    names it is a name.
    """
    texts = ["" if cell is None else _cell_text(cell) for cell in cells]
    values = [normalised(text) for text in texts]
    named = [value for value in set(values) if value and value.casefold() != "nan"]
    numbers = bool(named) and all(_NUMBER.fullmatch(value) for value in named)
    missing = {"", "nan"} if numbers or not named else {""}
    labels = [None if value.casefold() in missing else without_fraction(value) for value in values]
    respelt = sum(text.strip(" \t\r\n") != value for text, value in zip(texts, values))
    forms: dict[str, set[str]] = {}
    for text, label in zip(texts, labels):
        if label is not None:
            forms.setdefault(label, set()).add(without_fraction(text.strip(" \t\r\n")))
    return LabelColumn(labels, respelt, {label: len(seen) for label, seen in forms.items() if len(seen) > 1})


def _cell_text(cell: Any) -> str:
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def without_fraction(label: str) -> str:
    """A label without the fraction that table programs write where a cell of the column is empty: 1.0 is 1.

    >>> without_fraction("1.0"), without_fraction("1.5"), without_fraction("v1.0")
    ('1', '1.5', 'v1.0')
    """
    return label.split(".")[0] if re.fullmatch(r"-?\d+\.0+", label, re.ASCII) else label
