"""Reader of the user's own CSV, TSV, JSONL or Parquet files (`dataset=local`)."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fmm.data.columns import FileRows, rows_of
from fmm.data.raw import SPLITS, DatasetInfo, RawData, RawSplit, raw_split
from fmm.data.sources import sha256
from fmm.data.splits import grouped_parts, shared_texts, text_groups
from fmm.data.tables import read_table
from fmm.errors import FmmError, counted, nearest, unknown

log = logging.getLogger(__name__)

MAX_CLASSES = 1000  # more distinct labels than this are taken for a wrong column

OPTIONS = ("path", "train", "validation", "test")  # keys of `data` that name files which are read here


def read(dataset: Mapping[str, Any], data: Mapping[str, Any], *, split: str, cache_dir: Path) -> RawData:
    """Read `data.path`, cut 80/10/10, or `data.train`, `data.test` and maybe `data.validation` (else 20% of train).

    A cut keeps rows of equal texts together. Texts that given files share are counted in `origin` and warned of.
    Raises FmmError for files that cannot be read, and where training and test data are one file.
    """
    files = _files(data)
    quoting = data.get("quoting")
    columns = {name: _read(path, dataset, f"data.{name}", quoting) for name, path in files.items()}
    sums = {name: sha256(path) for name, path in files.items()}
    _check_apart(files, sums)
    first = next(iter(files))
    names = _label_names(columns[first].labels, files[first], dataset["label"])
    rows = {name: _to_split(part, names, files[name], dataset) for name, part in columns.items()}
    seed = int(data.get("split_seed") or 0)
    groups = {name: text_groups(part.texts, part.pairs) for name, part in columns.items()}
    splits = _splits(rows, files, seed, groups[first])
    repeated = {name: len(numbers) - len(np.unique(numbers)) for name, numbers in groups.items()}
    texts = {name: (rows.texts, rows.pairs) for name, rows in splits.items()}
    shared = {} if first == "path" else shared_texts(texts)  # a cut of one file shares none
    parts = [sums, [dataset.get(key) for key in ("text", "text_pair", "label", "id")]]
    cut = "validation" not in rows
    rare = rare_classes(rows[first], names) if cut else {}
    if cut and repeated[first]:
        parts.append("equal texts together")
    if any(part.reading.quotes and part.reading.quoting == "none" for part in columns.values()):
        parts.append("quotes are characters")
    origin = {
        "source": "local",
        "files": {name: str(path) for name, path in files.items()},
        "revision": None,
        "sha256": sums,
        "split": f"random, seed {seed}" if cut else "official",
        "rows_repeated": {name: count for name, count in repeated.items() if count},
        "texts_shared": shared,
        "reading": {name: part.record() for name, part in columns.items()},
        "labels_respelt": {name: part.spelling.respelt for name, part in columns.items() if part.spelling.respelt},
        "labels_merged": {name: part.spelling.merged for name, part in columns.items() if part.spelling.merged},
        "rare_classes": rare,
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


def _read(path: Path, dataset: Mapping[str, Any], option: str, quoting: str | None) -> FileRows:
    columns = {key: str(dataset[key]) for key in ("text", "text_pair", "label", "id") if dataset.get(key)}
    for key, name in columns.items():
        if other := next((k for k in columns if k != key and columns[k] == name), None):
            raise FmmError(f"dataset.{key} and dataset.{other} both name column {name!r}; give each its own column")
    table = read_table(path, option, quoting)
    for key, name in columns.items():
        if name not in table.columns:
            close = nearest(name, table.columns)
            hint = f"; did you mean dataset.{key}={close[0]}?" if close else f"; choose one with dataset.{key}="
            has = ", ".join(filter(None, map(str, table.columns)))
            raise FmmError(f"{path} has no column {name!r}{hint} (it has {has or 'none'})")
    rows = rows_of(table, path, columns, checked=quoting is None, needs_labels="label" in columns)
    _check_quantities(rows)
    for line in rows.said():
        print(line, flush=True)
    return rows


def _check_quantities(rows: FileRows) -> None:
    """Refuse labels that are numbers with a fraction: quantities, not classes."""
    fractions = {label for label in set(rows.labels) if re.fullmatch(r"-?\d+\.\d+(e[+-]?\d+)?", label)}
    numbers = [number for number, label in enumerate(rows.labels, start=1) if label in fractions] if fractions else []
    if numbers:
        others = f" ({counted(len(numbers), 'row')} like it)" if len(numbers) > 1 else ""
        raise FmmError(
            f"{rows.path} row {numbers[0]} has label {rows.labels[numbers[0] - 1]}; labels are whole numbers or names, "
            f"not quantities: round them, or name another column by dataset.label={others}"
        )


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


def rare_classes(rows: RawSplit, names: list[str]) -> dict[str, int]:
    """Classes of fewer rows than a cut has parts, so that some split lacks them; warned of. {name: rows}."""
    counts = dict(zip(names, rows.class_counts(len(names))))
    rare = {name: count for name, count in counts.items() if count < len(SPLITS)}
    if rare:
        shown = ", ".join(f"{name!r} ({counted(count, 'row')})" for name, count in rare.items())
        log.warning("too few rows to be in every split: %s; give at least %d of each class", shown, len(SPLITS))
    return rare


def _to_split(columns: FileRows, names: list[str], path: Path, dataset: Mapping[str, Any]) -> RawSplit:
    number = {name: i for i, name in enumerate(names)}
    labels = [-1] * len(columns.texts) if not dataset.get("label") else []
    for row, label in enumerate(columns.labels, start=1):
        if label not in number:
            error = unknown("label", label, names)
            raise FmmError(f"{path} row {row}: {error}, as training data has only these")
        labels.append(number[label])
    return raw_split(columns.texts, columns.pairs, np.array(labels), np.array(columns.ids))


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
