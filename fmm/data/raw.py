"""What a dataset is before tokenisation: its facts, its texts and its labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

SPLITS = ("train", "validation", "test")

Spans = list[tuple[int, int]]


@dataclass(frozen=True)
class DatasetInfo:
    """Facts of a dataset. `text_fields` holds one or two columns, the masked text first."""

    name: str
    label_names: list[str]
    text_fields: list[str]
    metrics: list[str]
    checkpoint_metric: str
    jain_metric: str | None
    convergence_threshold: float | None
    epochs: int

    @classmethod
    def from_config(cls, dataset: Mapping[str, Any], label_names: list[str] | None = None) -> DatasetInfo:
        """Build the facts from a dataset's YAML; `label_names` replaces its `labels` where data decides them."""
        pair = [dataset["text_pair"]] if dataset.get("text_pair") else []
        return cls(
            name=dataset["name"],
            label_names=list(dataset["labels"] if label_names is None else label_names),
            text_fields=[dataset["text"], *pair],
            metrics=list(dataset["metrics"]),
            checkpoint_metric=dataset["checkpoint_metric"],
            jain_metric=dataset.get("jain_metric"),
            convergence_threshold=dataset.get("convergence_threshold"),
            epochs=int(dataset["epochs"]),
        )


@dataclass
class RawSplit:
    """Rows of one split. Texts stay in Arrow; `texts` and `pairs` are Python lists made when asked for.

    `labels` int64 [N], -1 without gold label; `example_ids` int64 [N], the row's number in the source,
    from 0, before any split or limit; `evidence` per row the character spans of the first text that decide
    the label, where known.
    """

    first: pa.ChunkedArray
    second: pa.ChunkedArray | None
    labels: np.ndarray
    example_ids: np.ndarray
    evidence: list[Spans] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def texts(self) -> list[str]:
        """First (masked) texts."""
        return self.first.to_pylist()

    @cached_property
    def pairs(self) -> list[str] | None:
        """Second (auxiliary) texts, or None."""
        return None if self.second is None else self.second.to_pylist()

    def rows(self, start: int, stop: int) -> tuple[list[str], list[str] | None]:
        """Texts and pairs of rows start..stop as lists, without making lists of the whole split."""
        pairs = None if self.second is None else self.second.slice(start, stop - start).to_pylist()
        return self.first.slice(start, stop - start).to_pylist(), pairs

    def take(self, index: np.ndarray) -> RawSplit:
        """Rows at `index`, in that order."""
        where = pa.array(index)
        return RawSplit(
            first=self.first.take(where),
            second=None if self.second is None else self.second.take(where),
            labels=self.labels[index],
            example_ids=self.example_ids[index],
            evidence=None if self.evidence is None else [self.evidence[i] for i in index],
        )

    def class_counts(self, classes: int) -> list[int]:
        """Rows per class; rows without gold label are not counted."""
        return np.bincount(self.labels[self.labels >= 0], minlength=classes).tolist()


@dataclass
class RawData:
    """What a reader returns: facts, the three splits and where they come from (`origin`: plain JSON)."""

    info: DatasetInfo
    splits: dict[str, RawSplit]
    origin: dict[str, Any] = field(default_factory=dict)


def text_column(values: list[str] | pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    """Texts as one Arrow column without nulls, with 64-bit offsets so that no corpus is too large for `take`."""
    column = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([pa.array(values, pa.large_string())])
    return column.cast(pa.large_string()).fill_null("")


def raw_split(
    texts: list[str] | pa.ChunkedArray,
    pairs: list[str] | pa.ChunkedArray | None,
    labels: Any,
    example_ids: Any = None,
    evidence: list[Spans] | None = None,
) -> RawSplit:
    """Build a RawSplit from lists, arrays or Arrow columns; ids default to the row number."""
    labels = np.asarray(labels, dtype=np.int64)
    ids = np.arange(len(labels)) if example_ids is None else example_ids
    second = None if pairs is None else text_column(pairs)
    return RawSplit(text_column(texts), second, labels, np.asarray(ids, dtype=np.int64), evidence)
