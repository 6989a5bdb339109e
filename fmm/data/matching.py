"""Which class of a model each label of the data is: one rule for every task.

Names decide. A number is the number of a class only where the model's names hold no numbers and every number from 0
occurs, or where a `label_map` says so. Names that transformers made up (LABEL_0, ...) are taken in the data's order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fmm.data.labels import (
    are_generic,
    exact_label,
    find_label,
    hold_numbers,
    is_number,
    label_text,
    proposed_map,
)
from fmm.errors import FmmError, counted, nearest, unknown


@dataclass(frozen=True)
class Matching:
    """Which class of a model each label of the data is.

    Attributes:
        model_names: names of the model's C classes.
        labels: the data's K labels as they are called there, K <= C.
        classes: the model's class of each label.
        by_number: whether some of the labels are numbers of classes.
        assumed: whether the model's names mean nothing, so that the data's order is assumed.
    """

    model_names: list[str]
    labels: list[str]
    classes: list[int]
    by_number: bool = False
    assumed: bool = False

    @property
    def names(self) -> list[str]:
        """The data's labels as they are shown [K]: by the model's names where they are numbers of its classes."""
        if not self.by_number:
            return list(self.labels)
        return [
            self.model_names[number] if is_number(label) else label for label, number in zip(self.labels, self.classes)
        ]

    @property
    def absent(self) -> list[str]:
        """Classes of the model that no label of the data is."""
        return [name for number, name in enumerate(self.model_names) if number not in self.classes]

    @property
    def order(self) -> list[int]:
        """The model's C classes in the order of the data's labels, those that the data lack at the end."""
        return [*self.classes, *(number for number in range(len(self.model_names)) if number not in self.classes)]

    @property
    def ordered_names(self) -> list[str]:
        """Names of the classes in that order [C]."""
        return [*self.names, *self.absent]

    @property
    def class_names(self) -> list[str]:
        """Names of the classes in the model's order [C], as the data call them."""
        called = dict(zip(self.order, self.ordered_names))
        return [called[number] for number in range(len(self.model_names))]

    def said(self, model: str) -> list[str]:
        """Sentences for the log: what a reader would not expect."""
        lines = []
        if self.assumed and not are_generic(self.labels):
            shown = ", ".join(self.labels)
            lines.append(f"the labels of {model} have no names; they are taken to be {shown}, in this order")
        if self.by_number:
            lines.append(numbers_said({label: self.model_names[n] for label, n in zip(self.labels, self.classes)}))
        if self.absent:
            lines.append(
                f"the data hold {len(self.labels)} of the {len(self.model_names)} labels of {model}; without rows: "
                f"{', '.join(self.absent)} (macro averages are over the labels of the data)"
            )
        return lines

    def record(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "model": self.model_names,
            "data": dict(zip(self.labels, (self.model_names[number] for number in self.classes))),
            "by_number": self.by_number,
            "assumed_order": self.assumed,
            "absent": self.absent,
        }


def numbers_said(meant: Mapping[str, str]) -> str:
    """The sentence for labels that are read as numbers of classes, {label: name of its class}."""
    shown = ", ".join(f"{label} {name}" for label, name in meant.items() if is_number(label))
    return f"the numbers among the labels are read as those of the model's classes: {shown} (label_map= says otherwise)"


def match_labels(
    model_names: Sequence[str], labels: Sequence[str], model: str, explicit: Collection[str] = ()
) -> Matching:
    """Which of the model's classes the labels of the data are. The data may lack some of the classes.

    `explicit` are numbers that a `label_map` gives as classes. Raises FmmError, with a `label_map` that could be
    meant, for a label that the model does not know and for numbers that may count otherwise.

    >>> match_labels(["bad", "good", "none"], ["Good", "bad"], "m").classes
    [1, 0]
    >>> match_labels(["bad", "good"], ["0", "1"], "m").names
    ['bad', 'good']
    """
    names = list(model_names)
    exact = [exact_label(label, names) for label in labels]
    numbers = set(range(len(names)))
    # "1.0" of a table is "1" by now; "01" is a name.
    indices = [int(label) if is_number(label) and int(label) in numbers else None for label in labels]
    places = [index if place is None else place for place, index in zip(exact, indices)]
    by_number = [label for label, place in zip(labels, exact) if place is None and is_number(label)]
    if by_number and (hold_numbers(names) or not (set(places) >= numbers or set(by_number) <= set(explicit))):
        places = exact
    nameless = are_generic(names) and not any(place is not None for place in exact)
    if nameless and None in places and len(labels) == len(names) and not all(map(is_number, labels)):
        places = list(range(len(names)))
    known = [place for place in places if place is not None]
    if len(known) < len(labels):
        raise FmmError(_unmatched(names, labels, places, model))
    if len(set(known)) < len(known):
        twice = next(place for place in known if known.count(place) > 1)
        both = [repr(label) for label, place in zip(labels, known) if place == twice]
        raise FmmError(
            f"the labels {' and '.join(both)} of the data are one class of {model}, {names[twice]}; give the data one "
            "name for it"
        )
    return Matching(names, list(labels), known, by_number=places != exact and not nameless, assumed=nameless)


def _unmatched(names: Sequence[str], labels: Sequence[str], places: Sequence[int | None], model: str) -> str:
    strange = [label for label, place in zip(labels, places) if place is None]
    start = f"the model {model} has {counted(len(names), 'label')} ({', '.join(names)})"
    remedy = f"choose a model trained on this dataset, or say what is what by {proposed_map(labels, names)}"
    if all(is_number(label) and int(label) < len(names) for label in strange) and not hold_numbers(names):
        return (
            f"{start} but the dataset has {', '.join(labels)}: as not all numbers from 0 to {len(names) - 1} occur, "
            f"they may not be the numbers of its classes; {remedy}"
        )
    close = nearest(strange[0], names)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    others = f", of which it does not know {', '.join(strange)}{hint}"
    return f"{start} but the dataset has {len(labels)} ({', '.join(labels)}){others}; {remedy}"


@dataclass(frozen=True)
class LabelMap:
    """A `label_map` of a person, {label of the data: class of the model}, and which of it the data use.

    Attributes:
        names: {label of the data: its new name}, of the labels that are there.
        unused: labels of the map that the data do not hold.
    """

    names: dict[str, str]
    unused: list[str]

    @property
    def numbers(self) -> set[str]:
        """New names that are numbers: a person says that these are classes."""
        return {name for name in self.names.values() if is_number(name)}

    def said(self, source: str) -> list[str]:
        """Sentences for the log."""
        if not self.unused:
            return []
        labels = counted(len(self.unused), "label")
        return [f"label_map: {labels} not used, as {source} does not hold them: {', '.join(self.unused)}"]


def read_map(label_map: Mapping[Any, Any] | None, labels: Sequence[str], source: str) -> LabelMap:
    """A `label_map` beside the labels that the data hold.

    Raises FmmError where none of its labels is there, or one is a misspelling of a label that the map leaves out.

    >>> read_map({0: "bad", 1: "good", 2: "none"}, ["0", "1"], "a.csv").unused
    ['2']
    """
    given = {label_text(key): label_text(value) for key, value in (label_map or {}).items()}
    places = {key: exact_label(key, labels) for key in given}
    names = {labels[place]: given[key] for key, place in places.items() if place is not None}
    unused = [key for key, place in places.items() if place is None]
    left = [label for label in labels if label not in names]
    mistaken = next((key for key in unused if not names or nearest(key, left)), None)
    if mistaken is not None:
        turned = {value: key for key, value in given.items()}
        hint = ""
        if not names and all(exact_label(value, labels) is not None for value in turned):
            pairs = ", ".join(f"{value}: {key}" for value, key in turned.items())
            hint = f" (the other way round? label_map={{{pairs}}})"
        raise FmmError(
            f"label_map: {unknown('label', mistaken, labels)}, as the data have only these, in {source}{hint}"
        )
    return LabelMap(names, unused)


def check_classes(label_map: Mapping[Any, Any] | None, model_names: Sequence[str], model: str) -> None:
    """Refuse a `label_map` to a class that the model does not have. Raises FmmError, naming the nearest."""
    for key, value in (label_map or {}).items():
        if find_label(label_text(value), model_names) is None:
            error = unknown("class", label_text(value), model_names)
            raise FmmError(f"label_map gives {label_text(key)!r} a class that {model} does not have: {error}")
