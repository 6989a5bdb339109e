"""Reader of datasets in the hub's Parquet layout (GLUE, SuperGLUE, IMDB, SNLI)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fmm.data.raw import SPLITS, DatasetInfo, RawData, RawSplit, raw_split
from fmm.data.sources import Source, locate
from fmm.data.splits import authors_cut, split_rule, stratified_parts
from fmm.errors import FmmError, first_line

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
    rows = {
        name: part.take(np.flatnonzero(part.labels >= 0)) if unlabelled.get(name) else part
        for name, part in rows.items()
    }
    info = DatasetInfo.from_config(dataset)
    kind = kind_of_split("official" if "validation" in names else rule, dataset, rows, reasons)
    origin = source.origin | kind | {"unlabelled_dropped": unlabelled, "identity": identity(dataset, source, rows)}
    return RawData(info, {name: rows[name] for name in SPLITS}, origin)


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
        return pa.concat_tables([pq.read_table(path) for path in paths])
    except (pa.ArrowException, OSError) as error:
        raise FmmError(f"{paths[0]} is not a readable Parquet file ({first_line(error)}); fetch it again") from error


def _rows(table: pa.Table, dataset: Mapping[str, Any], path: Path) -> RawSplit:
    fields = [dataset["text"], *([dataset["text_pair"]] if dataset.get("text_pair") else [])]
    for column in (*fields, dataset["label"]):
        if column not in table.column_names:
            raise FmmError(f"{path} has no column {column!r}; it has {', '.join(table.column_names)}")
    _check_label_names(table, dataset, path)
    labels = table[dataset["label"]].fill_null(-1).to_numpy().astype(np.int64)
    if labels.max(initial=-1) >= len(dataset["labels"]):
        raise FmmError(
            f"{path} has label {labels.max()}, but {dataset['name']} has labels 0 to {len(dataset['labels']) - 1}"
        )
    texts = table[fields[0]]
    if dataset.get("strip"):
        texts = pc.utf8_trim_whitespace(texts)
    return raw_split(texts, table[fields[1]] if len(fields) > 1 else None, labels)


def _check_label_names(table: pa.Table, dataset: Mapping[str, Any], path: Path) -> None:
    metadata = (table.schema.metadata or {}).get(b"huggingface")
    feature = json.loads(metadata)["info"].get("features", {}).get(dataset["label"], {}) if metadata else {}
    names = feature.get("names")
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
