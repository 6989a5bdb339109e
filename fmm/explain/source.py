"""What is explained: a text of the user, a file, or a split of the dataset."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmm.data.labels import find_label
from fmm.data.local import check_characters, without_fraction
from fmm.data.tables import read_table
from fmm.errors import FmmError, nearest, unknown


@dataclass
class Source:
    """Rows to explain. `labels` are gold labels by name, None where a row has none.

    `evidence` holds, where it is known, each row's character spans of the first text that decide its label.
    """

    kind: str  # text | file | split
    name: str
    texts: list[str]
    pairs: list[str] | None
    labels: list[str | None]
    example_ids: NDArray[np.int64]
    evidence: list[list[tuple[int, int]]] | None = None

    @property
    def identity(self) -> str:
        """Digest of all that is explained."""
        content = [self.texts, self.pairs, self.labels, self.example_ids.tolist()]
        return hashlib.sha256(json.dumps(content, ensure_ascii=True).encode()).hexdigest()[:16]

    def gold(self, label_names: Sequence[str]) -> NDArray[np.int64]:
        """Gold labels [N] as numbers of the model's `label_names`, −1 where there is none.

        Raises FmmError for a label that the model does not have.
        """
        found = []
        for row, label in enumerate(self.labels, start=1):
            number = -1 if label is None else find_label(label, label_names)
            if number is None and label == "-1":  # the hub's "no label", unless the model has one of that name
                number = -1
            if number is None:
                raise FmmError(
                    f"{self.name} row {row}: {unknown('label', str(label), label_names)}, as the model has only these"
                )
            found.append(number)
        return np.array(found, dtype=np.int64)


def of_text(text: str, text_pair: str | None) -> Source:
    """The user's own text, and a second one for models of pairs. Raises FmmError where one is empty."""
    for name, value in (("text", text), ("text_pair", text_pair)):
        if value is not None and not value.strip():
            raise FmmError(f'{name} is empty; give a text to explain, such as {name}="not a great film"')
    pairs = None if text_pair is None else [text_pair]
    return Source("text", "text", [text], pairs, [None], np.zeros(1, dtype=np.int64))


def of_split(data: Any, split: str) -> Source:
    """Rows of a split of the run's datamodule."""
    rows, names = data.raw(split), data.info.label_names
    labels = [names[label] if label >= 0 else None for label in rows.labels.tolist()]
    pairs = None if rows.pairs is None else list(rows.pairs)
    return Source("split", split, list(rows.texts), pairs, labels, rows.example_ids, rows.evidence)


def of_file(path: Path, dataset: Mapping[str, Any], options: Mapping[str, Any]) -> Source:
    """Rows of a file. Its columns are named by `options`, else by `dataset`, else they are text, text_pair and label.

    A label column is read where there is one. Raises FmmError for a missing column, an empty text, a broken row or a
    file that is not UTF-8.
    """
    names, rows = read_table(path, "explanation.file")
    text = _column(path, names, "text", options, dataset, required=True)
    pair = _column(path, names, "text_pair", options, dataset, required=bool(dataset.get("text_pair")))
    label = _column(path, names, "label", options, dataset, required=False)
    texts: list[str] = []
    pairs: list[str] = []
    labels: list[str | None] = []
    for number, row in enumerate(rows, start=1):
        texts.append(_text(row.get(str(text)), text, path, number))
        if pair is not None:
            pairs.append(_text(row.get(pair), pair, path, number))
        labels.append(_label(row.get(label)) if label is not None else None)
    if not texts:
        raise FmmError(f"{path} has no rows; give at least one text to explain")
    return Source(
        "file", path.name, texts, pairs if pair is not None else None, labels, np.arange(len(texts), dtype=np.int64)
    )


def _column(
    path: Path, names: list[str], key: str, options: Mapping[str, Any], dataset: Mapping[str, Any], *, required: bool
) -> str | None:
    asked = options.get(key)
    for name in (asked,) if asked else (dataset.get(key), key):
        if name and name in names:
            return str(name)
    if not required and not asked:
        return None
    wanted = str(asked or dataset.get(key) or key)
    close = nearest(wanted, names) or nearest(key, names)
    hint = f"did you mean explanation.{key}={close[0]}?" if close else f"name it with explanation.{key}="
    raise FmmError(f"{path} has no column {wanted!r}; {hint} (it has {', '.join(map(str, names)) or 'none'})")


def _text(value: Any, column: str | None, path: Path, number: int) -> str:
    if not isinstance(value, str) or not value.strip():
        what = "an empty text" if value is None or isinstance(value, str) else f"{value!r}, which is not a text,"
        raise FmmError(f"{path} row {number} has {what} in column {column!r}; fill it in or drop the row")
    check_characters(value, column, path, number)
    return value


def _label(value: Any) -> str | None:
    label = "" if value is None else str(value).strip()
    return None if label.casefold() in ("", "nan") else without_fraction(label)
