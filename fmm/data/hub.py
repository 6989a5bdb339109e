"""Reader of datasets in the hub's Parquet layout (GLUE, SuperGLUE, IMDB, SNLI)."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fmm.data.labels import find_label, normalised
from fmm.data.raw import SPLITS, DatasetInfo, RawData, RawSplit, raw_split
from fmm.data.sources import Source, locate
from fmm.data.splits import authors_cut, split_rule, stratified_parts
from fmm.errors import FmmError, counted, first_line, unknown

log = logging.getLogger(__name__)

OPTIONS = ("mirror",)  # keys of `data` that name files which are read here


def read(dataset: Mapping[str, Any], data: Mapping[str, Any], *, split: str, cache_dir: Path) -> RawData:
    """Read the splits named in `dataset.splits`; without a validation split, cut 20% of train by the rule `split`."""
    seed = int(data.get("split_seed") or 0)
    rule = split_rule(split, seed)
    names = {name: source for name, source in dataset["splits"].items() if source}
    source = locate(dataset, names.values(), data.get("mirror"), cache_dir)
    tables = {name: _table(source.files[hub_split]) for name, hub_split in names.items()}
    rows = {name: _rows(table, dataset, source.files[names[name]][0]) for name, table in tables.items()}
    found = {name: len(part) for name, part in rows.items()}
    unlabelled = {name: int((part.labels < 0).sum()) for name, part in rows.items()}
    reasons = _unofficial(dataset, found)
    if "validation" not in rows:
        keys = _keys(tables["train"], dataset, source, rows["train"], reasons)
        rows |= cut(rows["train"], keys, rule, seed, names["train"])
    rows = {name: _labelled(part) for name, part in rows.items()}
    _check_splits(rows, unlabelled, names, dataset)
    info = DatasetInfo.from_config(dataset)
    kind = kind_of_split("official" if "validation" in names else rule, dataset, rows, reasons)
    origin = source.origin | kind | {"unlabelled_dropped": unlabelled, "identity": identity(dataset, source, rows)}
    return RawData(info, {name: rows[name] for name in SPLITS}, origin)


def _labelled(rows: RawSplit) -> RawSplit:
    """The rows that have a label."""
    labelled = rows.labels >= 0
    return rows if labelled.all() else rows.take(np.flatnonzero(labelled))


def _check_splits(
    rows: Mapping[str, RawSplit], unlabelled: Mapping[str, int], names: Mapping[str, str], dataset: Mapping[str, Any]
) -> None:
    """Refuse a split of which no row has a label, and training rows of one class."""
    for name, part in rows.items():
        if len(part) == 0:
            raise FmmError(
                f"no row of the split {names.get(name, name)!r} of {dataset['name']} has a label "
                f"({counted(unlabelled.get(name, 0), 'row')}); name a labelled split by dataset.splits.{name}="
            )
    classes = np.unique(rows["train"].labels)
    if len(classes) < 2:
        raise FmmError(
            f"the training rows of {dataset['name']} are all of one class ({dataset['labels'][classes[0]]!r}); nothing "
            "can be learnt from them"
        )


def cut(train: RawSplit, keys: Any, rule: str, seed: int, salt: str) -> dict[str, RawSplit]:
    """Cut training rows 80/20: `authors` by the md5 rule on `keys` (or a mask of validation rows), else at random."""
    if rule != "authors":
        kept, held_out = stratified_parts(train.labels, (0.8, 0.2), seed)
    elif isinstance(keys, np.ndarray) and keys.dtype == bool:
        kept, held_out = np.flatnonzero(~keys), np.flatnonzero(keys)
    else:
        kept, held_out = authors_cut(keys, salt)
    return {"train": train.take(kept), "validation": train.take(held_out)}


def kind_of_split(
    exact: str, dataset: Mapping[str, Any], rows: Mapping[str, RawSplit], reasons: list[str]
) -> dict[str, Any]:
    """What the record says of the split: `exact` where counts and keys bear it out, else `approximate` and why."""
    if exact.startswith("random"):
        return {"split": exact}
    counts = dataset.get("counts") or {}
    for name in SPLITS if not reasons else ():
        found = rows[name].class_counts(len(dataset["labels"]))
        if name in counts and found != list(counts[name]):
            reasons.append(f"{name} has {found} rows per class, the authors' has {list(counts[name])}")
    return {"split": "approximate", "split_reasons": reasons} if reasons else {"split": exact}


def identity(dataset: Mapping[str, Any], source: Source, rows: Mapping[str, RawSplit]) -> str:
    """Content identity of what was read: bytes of the files, columns, labels, which rows are in which split."""
    columns = [dataset.get(key) for key in ("text", "text_pair", "label", "key", "labels", "splits")]
    members = {name: hashlib.sha256(part.example_ids.tobytes()).hexdigest() for name, part in rows.items()}
    parts = [source.origin["sha256"], columns, members]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=list).encode()).hexdigest()


def _table(paths: list[Path]) -> pa.Table:
    try:
        return pa.concat_tables([pq.read_table(path) for path in paths], promote_options="permissive")
    except (pa.ArrowException, OSError) as error:
        raise FmmError(f"{paths[0]} is not a readable Parquet file ({first_line(error)}); fetch it again") from error


def _rows(table: pa.Table, dataset: Mapping[str, Any], path: Path) -> RawSplit:
    fields = [dataset["text"], *([dataset["text_pair"]] if dataset.get("text_pair") else [])]
    for column in (*fields, dataset["label"]):
        if table.column_names.count(column) != 1:
            problem = "no column" if column not in table.column_names else "more than one column"
            raise FmmError(f"{path} has {problem} {column!r}; it has {', '.join(table.column_names)}")
    if len(table) == 0:
        raise FmmError(f"{path} has no rows; fetch it again, or give another mirror")
    _check_label_names(table, dataset, path)
    texts, *pairs = (_texts(table, field, path) for field in fields)
    if dataset.get("strip"):
        texts = pc.utf8_trim_whitespace(texts)
    return raw_split(texts, pairs[0] if pairs else None, _labels(table, dataset, path))


def _texts(table: pa.Table, column: str, path: Path) -> pa.ChunkedArray:
    """A column of texts. Raises FmmError for one of another kind, and for rows without a text."""
    values = _plain(table[column])
    if not _is_text(values.type):
        raise FmmError(f"{path} has {values.type} in column {column!r}, not texts; name a column of texts")
    if values.null_count:
        raise FmmError(f"{path} has no text in column {column!r} in {_which(pc.is_null(values))}; fill in or drop them")
    return values


def _labels(table: pa.Table, dataset: Mapping[str, Any], path: Path) -> NDArray[np.int64]:
    """Classes [N], -1 without label, from numbers of any type or from names.

    Raises FmmError for values that are no class.
    """
    values, names, name = _plain(table[dataset["label"]]), list(dataset["labels"]), dataset["label"]
    if _is_text(values.type):
        return _named_labels(values, names, path)
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    numeric = pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_decimal(values.type)
    if not numeric and not pa.types.is_null(values.type):
        raise FmmError(f"{path} has {values.type} in column {name!r}, where labels are numbers or names")
    numbers = values.cast(pa.float64()).fill_null(-1).to_numpy()
    numbers = np.where(np.isnan(numbers), -1, numbers)
    wrong = (numbers != np.round(numbers)) | (numbers < -1) | (numbers >= len(names))
    if wrong.any():
        first = numbers[np.argmax(wrong)]
        raise FmmError(
            f"{path} has label {first:g}, but {dataset['name']} has labels 0 to {len(names) - 1}: "
            f"{_which(pa.array(wrong))}"
        )
    return numbers.astype(np.int64)


def _named_labels(values: pa.ChunkedArray, names: list[str], path: Path) -> NDArray[np.int64]:
    spelt = values.to_pylist()
    classes = {value: -1 if value is None else find_label(normalised(value), names) for value in set(spelt)}
    foreign = next((value for value in spelt if classes[value] is None), None)
    if foreign is not None:
        rows = _which(pc.equal(values, foreign))
        raise FmmError(f"{path}: {unknown('label', foreign, names)} in {rows}")
    return np.array([classes[value] for value in spelt], dtype=np.int64)


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column without the dictionary that tables keep repeated values in."""
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _which(mask: pa.Array | pa.ChunkedArray) -> str:
    """The rows that a mask [N] marks, in words; rows count from 1."""
    rows = np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False))
    return f"{counted(len(rows), 'row')} (the first is row {rows[0] + 1})"


def _check_label_names(table: pa.Table, dataset: Mapping[str, Any], path: Path) -> None:
    metadata = (table.schema.metadata or {}).get(b"huggingface")
    try:
        feature = json.loads(metadata)["info"]["features"][dataset["label"]] if metadata else {}
        names = feature.get("names")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning(
            "%s: its note on the labels cannot be read (%s); their order is taken to be %s",
            path,
            first_line(error),
            ", ".join(dataset["labels"]),
        )
        return
    if names is not None and names != list(dataset["labels"]):
        raise FmmError(
            f"{path} orders its labels {names}, {dataset['name']} expects {list(dataset['labels'])}; use the hub's file"
        )


def _unofficial(dataset: Mapping[str, Any], found: Mapping[str, int]) -> list[str]:
    expected = dataset.get("rows") or {}
    return [
        f"{name} source has {n} rows, the official one {expected[name]}"
        for name, n in found.items()
        if name in expected and n != expected[name]
    ]


def _keys(
    table: pa.Table, dataset: Mapping[str, Any], source: Source, train: RawSplit, reasons: list[str]
) -> Sequence[object] | np.ndarray:
    digests = dataset.get("validation_digests")
    key = dataset.get("key")
    if key in table.column_names:
        return table[key].to_pylist()
    mirror = source.origin.get("mirror")
    if digests and mirror and (path := Path(mirror) / dataset["hub"]["id"] / digests).is_file():
        known = set(path.read_text().split())
        return np.array([hashlib.sha256(t.strip().encode()).hexdigest()[:16] in known for t in train.first.to_pylist()])
    reasons.append(f"the source lacks the authors' keys ({dataset.get('key_hint', key)}), so row numbers stand in")
    return range(len(train))
