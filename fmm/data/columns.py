"""The rows of a user's file: texts, labels and ids from its columns, with all faults told at once."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fmm.data.labels import LabelColumn, label_column, normalised
from fmm.data.tables import Reading, Table
from fmm.errors import FmmError, counted

log = logging.getLogger(__name__)

_SHOWN = 8  # row numbers in a message


@dataclass
class FileRows:
    """What a file holds, row by row.

    Attributes:
        texts, pairs: first and second texts; no pairs where there is no such column.
        spelling: its `values` are the labels in one spelling, None where a row has none.
        ids: the numbers of `dataset.id`, else row numbers from 0.
        equal_pairs: rows whose two texts are the same.
    """

    path: Path
    texts: list[str] = field(default_factory=list)
    pairs: list[str] | None = None
    ids: list[int] = field(default_factory=list)
    spelling: LabelColumn = field(default_factory=lambda: LabelColumn([], 0, {}))
    reading: Reading = field(default_factory=Reading)
    equal_pairs: int = 0

    @property
    def labels(self) -> list[str]:
        """Labels of the rows that have one."""
        return [label for label in self.spelling.values if label is not None]

    def record(self) -> dict[str, Any]:
        """How the file was read, for the record."""
        return self.reading.record() | ({"equal_pairs": self.equal_pairs} if self.equal_pairs else {})

    def said(self) -> list[str]:
        """Sentences on what a reader would not expect."""
        lines = self.spelling.said(self.path.name)
        if self.equal_pairs:
            lines.append(f"{self.path.name}: both texts are the same in {counted(self.equal_pairs, 'row')}")
        return lines


class Faults:
    """Rows that cannot be used: all are counted, the first one is told in full."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._first = ""
        self._rows: dict[str, list[int]] = {}
        self._bad: set[int] = set()

    def add(self, number: int, kind: str, sentence: str) -> None:
        """Note a row's fault: its kind in few words, and a sentence that goes on after `<file> row <number>`."""
        self._first = self._first or f"{self.path} row {number} {sentence}"
        self._rows.setdefault(kind, []).append(number)
        self._bad.add(number)

    def has(self, number: int) -> bool:
        """Whether a row has a fault already."""
        return number in self._bad

    def check(self) -> None:
        """Raise FmmError where there are any."""
        if not self._rows:
            return
        if sum(map(len, self._rows.values())) == 1:
            raise FmmError(self._first)
        kinds = [f"{counted(len(rows), 'row')} {kind}: {_numbers(rows)}" for kind, rows in self._rows.items()]
        raise FmmError(f"{self._first} ({'; '.join(kinds)})")


def _numbers(rows: list[int]) -> str:
    shown = ", ".join(map(str, rows[:_SHOWN]))
    return f"{shown}, …" if len(rows) > _SHOWN else shown


def rows_of(table: Table, path: Path, columns: Mapping[str, str], *, checked: bool, needs_labels: bool) -> FileRows:
    """The rows of an open table by the names of its columns: `text`, and maybe `text_pair`, `label` and `id`.

    Where `checked`, a quoted text may not swallow rows; where `needs_labels`, a row without a label is a fault.
    Raises FmmError for a file without rows and, in one message, for all rows that cannot be used.
    """
    faults = Faults(path)
    rows = FileRows(path, pairs=[] if "text_pair" in columns else None, reading=table.reading)
    cells: list[Any] = []
    broken: list[tuple[int, str]] = []  # texts of several lines
    text = columns["text"]
    pair, label, key = (columns.get(name) for name in ("text_pair", "label", "id"))
    for number, row in enumerate(table.rows, start=1):
        value: Any = row.get(text)
        if not _sound(value):
            _add_fault(faults, value, text, number)
        elif "\n" in value:
            broken.append((number, value))
        rows.texts.append(value)
        if pair is not None and rows.pairs is not None:
            second: Any = row.get(pair)
            if not _sound(second):
                _add_fault(faults, second, pair, number)
            rows.equal_pairs += second == value
            rows.pairs.append(second)
        if label is not None:
            cells.append(_label_cell(row.get(label), label, number, faults))
        rows.ids.append(number - 1 if key is None else _id(row.get(key), key, number, faults))
    if not rows.texts:
        raise FmmError(f"{path} has no rows; give at least one row with a text")
    if label is not None:
        rows.spelling = label_column(cells)
        if checked:
            _check_swallowed(table, broken, columns, {value for value in rows.spelling.values if value}, path)
        if needs_labels:
            for number, value in enumerate(rows.spelling.values, start=1):
                if value is None and not faults.has(number):
                    faults.add(number, "without a label", f"has no label in column {label!r}; fill it in or drop it")
    faults.check()
    if len(set(rows.ids)) < len(rows.ids):
        raise FmmError(f"{path} has an id twice in column {key!r}; leave dataset.id out to number the rows")
    log.info(table.reading.said(path))
    return rows


def _sound(value: Any) -> bool:
    """Whether a value is a text that can be used."""
    if not isinstance(value, str) or not value or value.isspace():
        return False
    return (value.isascii() and "\0" not in value) or _damage(value) is None


def _damage(value: str) -> str | None:
    """What no tokenizer and no file takes in a text: half a character (a lone surrogate), or a zero character."""
    if "\0" in value:
        return "a zero character ('\\x00')"
    try:
        value.encode()
    except UnicodeEncodeError as error:
        return f"half a character ({error.object[error.start]!r})"
    return None


def _add_fault(faults: Faults, value: Any, column: str, number: int) -> None:
    if value is not None and not isinstance(value, str):
        kind = f"with something else than a text in {column!r}"
        faults.add(number, kind, f"has {value!r} in column {column!r}, which is not a text; name a text column")
    elif value is None or not value.strip():
        kind = f"with an empty text in {column!r}"
        faults.add(number, kind, f"has an empty text in column {column!r}; fill it in or drop the row")
    else:
        faults.add(number, f"with a damaged text in {column!r}", f"has {_damage(value)} in {column!r}; mend or drop it")


def _label_cell(value: Any, column: str, number: int, faults: Faults) -> Any:
    """A cell that may hold a label; None, and a fault, for another."""
    if isinstance(value, str):
        if value.isascii() or (damage := _damage(value)) is None:
            return value
        faults.add(number, f"with a damaged label in {column!r}", f"has {damage} in {column!r}; mend or drop it")
        return None
    if value is None or isinstance(value, int | float):  # bool is an int
        return value
    what = f"has label {value!r}; labels are whole numbers or names, not {type(value).__name__}"
    faults.add(number, "whose label is neither", what)
    return None


def _id(value: Any, column: str, number: int, faults: Faults) -> int:
    try:
        return int(str(value))
    except ValueError:
        what = f"has the id {value!r}, which is not a whole number; leave dataset.id out to number the rows"
        faults.add(number, f"whose id in {column!r} is no whole number", what)
        return -number


def _check_swallowed(
    table: Table, texts: list[tuple[int, str]], columns: Mapping[str, str], labels: set[str], path: Path
) -> None:
    """Refuse a quoted text that holds whole rows: a quote was opened that is none of CSV's.

    A line within a text is a row where it has all fields, and in that of the label a label of the file.
    """
    delimiter, names = table.reading.delimiter, table.columns
    if delimiter is None or columns.get("label") not in names or len(names) < 2:
        return
    place = names.index(columns["label"])
    first = 0 if names[0] == columns["text"] else 1  # the rest of the record's own first line
    for number, text in texts:
        for line in text.split("\n")[first:-1]:
            fields = line.rstrip("\r").split(delimiter)
            if len(fields) == len(names) and normalised(fields[place].strip('"')) in labels:
                raise FmmError(
                    f"{path} row {number} holds what looks like a row of its own in its text ({line.strip()[:60]!r}); "
                    "mend the quote that opens the text, or say what quotes are by data.quoting=none or "
                    "data.quoting=csv"
                )
