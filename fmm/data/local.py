"""Reader of the user's own CSV, TSV, JSONL or Parquet files (`dataset=local`)."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from fmm.data.labels import LabelColumn, label_column
from fmm.data.raw import SPLITS, DatasetInfo, RawData, RawSplit, raw_split
from fmm.data.sources import sha256
from fmm.data.splits import grouped_parts, text_groups
from fmm.data.tables import read_table
from fmm.errors import FmmError, nearest, unknown

log = logging.getLogger(__name__)

MAX_CLASSES = 1000  # more distinct labels than this are taken for a wrong column

OPTIONS = ("path", "train", "validation", "test")  # keys of `data` that name files which are read here


@dataclass
class _Columns:
    texts: list[str] = field(default_factory=list)
    pairs: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    respelt: int = 0  # labels spelt otherwise
    merged: dict[str, int] = field(default_factory=dict)  # labels that came together by that, and their spellings


def read(dataset: Mapping[str, Any], data: Mapping[str, Any], *, split: str, cache_dir: Path) -> RawData:
    """Read `data.path`, cut 80/10/10, or `data.train`, `data.test` and maybe `data.validation` (else 20% of train).

    A cut keeps rows of equal texts together. Texts that given files share are counted in `origin` and warned of.
    Raises FmmError for files that cannot be read, and where training and test data are one file.
    """
    files = _files(data)
    columns = {name: _read_columns(path, dataset, f"data.{name}") for name, path in files.items()}
    sums = {name: sha256(path) for name, path in files.items()}
    _check_apart(files, sums)
    first = next(iter(files))
    names = _label_names(columns[first].labels, files[first], dataset["label"])
    rows = {name: _to_split(part, names, files[name], dataset) for name, part in columns.items()}
    seed = int(data.get("split_seed") or 0)
    groups = {name: text_groups(part.texts, part.pairs or None) for name, part in columns.items()}
    splits = _splits(rows, files, seed, groups[first])
    repeated = {name: len(numbers) - len(np.unique(numbers)) for name, numbers in groups.items()}
    shared = {} if first == "path" else shared_texts(splits)  # a cut of one file shares none
    parts = [sums, [dataset.get(key) for key in ("text", "text_pair", "label", "id")]]
    cut = "validation" not in rows
    if cut and repeated[first]:
        parts.append("equal texts together")
    origin = {
        "source": "local",
        "files": {name: str(path) for name, path in files.items()},
        "revision": None,
        "sha256": sums,
        "split": f"random, seed {seed}" if cut else "official",
        "rows_repeated": {name: count for name, count in repeated.items() if count},
        "texts_shared": shared,
        "labels_respelt": {name: part.respelt for name, part in columns.items() if part.respelt},
        "labels_merged": {name: part.merged for name, part in columns.items() if part.merged},
        "identity": hashlib.sha256(json.dumps([parts, seed if cut else None]).encode()).hexdigest(),
    }
    return RawData(DatasetInfo.from_config(dataset, names), splits, origin)


def _check_apart(files: Mapping[str, Path], sums: Mapping[str, str]) -> None:
    """Refuse a test file that is the training file: its scores would be those of rows seen in training."""
    if "test" in files and sums["train"] == sums["test"]:
        raise FmmError(
            f"data.train={files['train']} and data.test={files['test']} hold the same bytes; give a test file of other "
            "rows, or one file to be cut as data.path=<file>"
        )


def shared_texts(splits: Mapping[str, RawSplit]) -> dict[str, int]:
    """Rows of a later split whose text (or pair) an earlier one has too, such as {"train, test": 3}; warned of."""
    texts = [text for name in SPLITS for text in splits[name].texts]
    pairs = [pair for name in SPLITS for pair in splits[name].pairs or []]
    groups = text_groups(texts, pairs or None)
    edges = np.cumsum([len(splits[name]) for name in SPLITS])[:-1]
    numbers = dict(zip(SPLITS, np.split(groups, edges)))
    counts: dict[str, int] = {}
    for one, other in combinations(SPLITS, 2):
        count = int(np.isin(numbers[other], numbers[one]).sum())
        if count:
            counts[f"{one}, {other}"] = count
            log.warning(
                "%d of %d rows of %s have a text that %s has too; scores on them say what was learnt by heart",
                count,
                len(numbers[other]),
                other,
                one,
            )
    return counts


def _files(data: Mapping[str, Any]) -> dict[str, Path]:
    given = {name: Path(str(data[name])).expanduser() for name in SPLITS if data.get(name)}
    if data.get("path"):
        if given:
            raise FmmError(f"data.path and data.{next(iter(given))} are both given; give one file or one per split")
        return {"path": Path(str(data["path"])).expanduser()}
    if not given:
        raise FmmError("dataset=local has no file; give data.path=<file>, or data.train=<file> data.test=<file>")
    for name in ("train", "test"):
        if name not in given:
            raise FmmError(f"dataset=local lacks data.{name}; give it, or one file to be cut as data.path=<file>")
    return given


def _read_columns(path: Path, dataset: Mapping[str, Any], option: str) -> _Columns:
    names, rows = read_table(path, option)
    wanted = {key: dataset[key] for key in ("text", "text_pair", "label", "id") if dataset.get(key)}
    for option, name in wanted.items():
        if other := next((key for key in wanted if key != option and wanted[key] == name), None):
            raise FmmError(f"dataset.{option} and dataset.{other} both name column {name!r}; give each its own column")
    for option, name in wanted.items():
        if name not in names:
            close = nearest(name, names)
            hint = f"; did you mean dataset.{option}={close[0]}?" if close else f"; choose one with dataset.{option}="
            raise FmmError(f"{path} has no column {name!r}{hint} (it has {', '.join(map(str, names)) or 'none'})")
    out = _Columns()
    cells: list[Any] = []
    for number, row in enumerate(rows, start=1):
        out.texts.append(_text(row, wanted["text"], path, number))
        if "text_pair" in wanted:
            out.pairs.append(_text(row, wanted["text_pair"], path, number))
        if "label" in wanted:
            cells.append(row.get(wanted["label"]))
            _check_cell(cells[-1], wanted["label"], path, number)
        out.ids.append(_id(row, wanted["id"], path, number) if "id" in wanted else number - 1)
    if not out.texts:
        raise FmmError(f"{path} has no rows; give at least one row per class and split")
    if "label" in wanted:
        out.labels, spelt = _labels(cells, wanted["label"], path)
        out.respelt, out.merged = spelt.respelt, spelt.merged
        for line in spelt.said(str(path)):
            print(line, flush=True)
    if len(set(out.ids)) < len(out.ids):
        raise FmmError(f"{path} has an id twice in column {wanted['id']!r}; leave dataset.id out to number the rows")
    return out


def _text(row: Mapping[str, Any], column: str, path: Path, number: int) -> str:
    value = row.get(column)
    if value is not None and not isinstance(value, str):
        raise FmmError(
            f"{path} row {number} has {value!r} in column {column!r}, which is not a text; name a text column"
        )
    if value is None or not value.strip():
        raise FmmError(f"{path} row {number} has an empty text in column {column!r}; fill it in or drop the row")
    check_characters(value, column, path, number)
    return value


def _check_cell(value: Any, column: str, path: Path, number: int) -> None:
    """Refuse a cell that cannot hold a label."""
    if isinstance(value, str):
        check_characters(value, column, path, number)
    elif value is not None and not isinstance(value, int | float):  # bool is an int
        raise FmmError(
            f"{path} row {number} has label {value!r}; labels are whole numbers or names, not {type(value).__name__}"
        )


def _labels(cells: list[Any], column: str, path: Path) -> tuple[list[str], LabelColumn]:
    """Labels of all rows. Raises FmmError for a row without one, and for numbers that are no classes."""
    labels = label_column(cells)
    values: list[str] = []
    for number, label in enumerate(labels.values, start=1):
        if label is None:
            raise FmmError(f"{path} row {number} has no label in column {column!r}; fill it in or drop the row")
        if re.fullmatch(r"-?\d+\.\d+(e[+-]?\d+)?", label):
            raise FmmError(
                f"{path} row {number} has label {label}; labels are whole numbers or names, not quantities: round "
                "them, or name another column by dataset.label="
            )
        values.append(label)
    return values, labels


def check_characters(value: str, column: str | None, path: Path, number: int) -> None:
    """Refuse a text with half a character (a lone surrogate), which no tokenizer and no file takes."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise FmmError(
            f"{path} row {number} has half a character ({error.object[error.start]!r}) in {column!r}; mend or drop it"
        ) from error


def _id(row: Mapping[str, Any], column: str, path: Path, number: int) -> int:
    try:
        return int(str(row.get(column)))
    except ValueError as error:
        raise FmmError(
            f"{path} row {number} has the id {row.get(column)!r}, which is not a whole number; "
            "leave dataset.id out to number the rows"
        ) from error


def _label_names(labels: list[str], path: Path, column: str) -> list[str]:
    names = set(labels)
    if len(names) < 2:
        raise FmmError(
            f"{path} has one class only ({next(iter(names))!r} in column {column!r}); give rows of at least two"
        )
    if len(names) > MAX_CLASSES:
        raise FmmError(
            f"{path} has {len(names)} labels in column {column!r}; choose the label column with dataset.label="
        )
    folded: dict[str, str] = {}
    for name in sorted(names):
        if (other := folded.setdefault(name.casefold(), name)) != name:
            raise FmmError(
                f"{path} has labels {other!r} and {name!r} in column {column!r}, which differ in case only; spell a "
                "label in one way, as fmm finds labels by name in any case"
            )
    try:
        return sorted(names, key=int)
    except ValueError:
        return sorted(names)


def _to_split(columns: _Columns, names: list[str], path: Path, dataset: Mapping[str, Any]) -> RawSplit:
    number = {name: i for i, name in enumerate(names)}
    labels = [-1] * len(columns.texts) if not dataset.get("label") else []
    for row, label in enumerate(columns.labels, start=1):
        if label not in number:
            error = unknown("label", label, names)
            raise FmmError(f"{path} row {row}: {error}, as training data has only these")
        labels.append(number[label])
    return raw_split(columns.texts, columns.pairs or None, np.array(labels), np.array(columns.ids))


def _splits(
    rows: Mapping[str, RawSplit], files: Mapping[str, Path], seed: int, groups: np.ndarray
) -> dict[str, RawSplit]:
    if "path" in rows:
        whole = rows["path"]
        parts = grouped_parts(whole.labels, groups, (0.8, 0.1, 0.1), seed)
        splits = {name: whole.take(part) for name, part in zip(SPLITS, parts)}
    elif "validation" in rows:
        splits = dict(rows)
    else:
        parts = grouped_parts(rows["train"].labels, groups, (0.8, 0.2), seed)
        splits = {
            "train": rows["train"].take(parts[0]),
            "validation": rows["train"].take(parts[1]),
            "test": rows["test"],
        }
    for name in SPLITS:
        if len(splits[name]) == 0:
            raise FmmError(
                f"{next(iter(files.values()))} has too few rows for a {name} split ({_counted(rows, groups)}); "
                "give at least 3 rows of different texts per class, or name another column by dataset.label="
            )
    return {name: splits[name] for name in SPLITS}


def _counted(rows: Mapping[str, RawSplit], groups: np.ndarray) -> str:
    labels = next(iter(rows.values())).labels
    return f"{len(labels)} rows of {len(np.unique(labels))} classes and {len(np.unique(groups))} different texts"
