"""Datasets: raw rows, tokens, batches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fmm.data.encoding import Encoded, encode
from fmm.data.raw import DatasetInfo, RawSplit

if TYPE_CHECKING:
    from fmm.data.datamodule import TextClassificationDataModule

__all__ = ["DatasetInfo", "Encoded", "RawSplit", "build_datamodule", "encode"]


def build_datamodule(
    dataset: Mapping[str, Any], data: Mapping[str, Any], *, seed: int, split: str, batch_size: int, cache_dir: Path
) -> TextClassificationDataModule:
    """Build the data module of a dataset's YAML (`dataset`) under a run's options (`data`). Reads nothing yet."""
    from fmm.data.datamodule import TextClassificationDataModule  # Lightning takes seconds to import

    return TextClassificationDataModule(
        dataset, data, seed=seed, split=split, batch_size=batch_size, cache_dir=cache_dir
    )
