"""What is explained: a text of the user, a file, or a split of the dataset."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmm.data.labels import class_numbers, label_column, label_text
from fmm.data.local import check_characters
from fmm.data.matching import LabelMap, read_map
from fmm.data.tables import read_table
from fmm.errors import FmmError, nearest


@dataclass
class Source:
    """Rows to explain. `labels` are gold labels by name, None where a row has none.

    `evidence` holds, where it is known, each row's character spans of the first text that decide its label;
    `notes` what a reader must know of the labels, `spelling` the same for a record; `explicit` numbers that a
    `label_map` gives as classes.
    """

    kind: str  # text | file | split
    name: str
    texts: list[str]
    pairs: list[str] | None
    labels: list[str | None]
    example_ids: NDArray[np.int64]
    evidence: list[list[tuple[int, int]]] | None = None
    notes: list[str] = field(default_factory=list)
    spelling: dict[str, Any] = field(default_factory=dict)
    explicit: frozenset[str] = frozenset()

    @property
    def identity(self) -> str:
        """Digest of all that is explained."""
        content = [self.texts, self.pairs, self.labels, self.example_ids.tolist()]
        return hashlib.sha256(json.dumps(content, ensure_ascii=True).encode()).hexdigest()[:16]

    def gold(self, label_names: Sequence[str]) -> NDArray[np.int64]:
        """Gold labels [N] as numbers of the model's `label_names`, −1 where there is none.

        Raises FmmError for a label that the model does not have.
        """
        return class_numbers(self.labels, label_names, self.name, self.explicit)


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
    spelling = {key: data.origin[key] for key in ("labels_respelt", "labels_merged") if key in data.origin}
    return Source(
        "split", split, list(rows.texts), pairs, labels, rows.example_ids, rows.evidence, spelling=spelling
    )  # fmt: skip


def of_file(
    path: Path, dataset: Mapping[str, Any], options: Mapping[str, Any], label_map: Mapping[Any, Any] | None = None
) -> Source:
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
    cells: list[Any] = []
    for number, row in enumerate(rows, start=1):
        texts.append(_text(row.get(str(text)), text, path, number))
        if pair is not None:
            pairs.append(_text(row.get(pair), pair, path, number))
        cells.append(None if label is None else row.get(label))
    if not texts:
        raise FmmError(f"{path} has no rows; give at least one text to explain")
    column = label_column(cells)
    present = sorted({label for label in column.values if label is not None})
    # Of rows without any label nothing can be misspelt: the map is only not used.
    renaming = (
        read_map(label_map, present, path.name) if present else LabelMap({}, [label_text(k) for k in label_map or {}])
    )
    labels = [None if label is None else renaming.names.get(label, label) for label in column.values]
    ids = np.arange(len(texts), dtype=np.int64)
    return Source(
        "file", path.name, texts, pairs if pair is not None else None, labels, ids,
        notes=[*column.said(path.name), *renaming.said(path.name)],
        spelling={"respelt": column.respelt, "merged": column.merged, "label_map_unused": renaming.unused},
        explicit=frozenset(renaming.numbers),
    )  # fmt: skip


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
