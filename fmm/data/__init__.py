"""Datasets: raw rows, tokens, batches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fmm.data.encoding import Encoded, encode
from fmm.data.local import read_unlabelled
from fmm.data.raw import DatasetInfo, RawSplit

if TYPE_CHECKING:
    from fmm.data.cache import EncodedSplit
    from fmm.data.datamodule import TextClassificationDataModule

__all__ = ["DatasetInfo", "Encoded", "RawSplit", "build_datamodule", "encode", "encode_rows", "read_unlabelled"]


def build_datamodule(
    dataset: Mapping[str, Any], data: Mapping[str, Any], *, seed: int, split: str, batch_size: int, cache_dir: Path
) -> TextClassificationDataModule:
    """Build the data module of a dataset's YAML (`dataset`) under a run's options (`data`). Reads nothing yet."""
    from fmm.data.datamodule import TextClassificationDataModule  # Lightning takes seconds to import

    return TextClassificationDataModule(
        dataset, data, seed=seed, split=split, batch_size=batch_size, cache_dir=cache_dir
    )


def encode_rows(rows: RawSplit, tokenizer: Any, max_length: int) -> EncodedSplit:
    """Tokenise rows in memory, without cache: for rows that are to be explained rather than learned from."""
    from fmm.data.cache import EncodedSplit, encode_split

    return EncodedSplit(encode_split(rows, tokenizer, max_length), tokenizer)
