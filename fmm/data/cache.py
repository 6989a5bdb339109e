"""Tokenised splits on disk: flat memory-mapped arrays, keyed by content, built once, checked when opened."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from fmm.data.encoding import encode
from fmm.data.raw import RawSplit
from fmm.errors import FmmError

VERSION = 1  # of the arrays' layout and of the encoding; raise it when either changes
CHUNK = 4096  # rows tokenised at a time, so that memory stays flat
META = "meta.json"


class EncodedSplit:
    """A tokenised split, memory-mapped. `split[3]` is a row, `split[[3, 5]]` and `split.batch([3, 5])` a padded batch.

    `lengths`, `labels`, `example_ids`: int64 [N]. A batch is a dict of tensors `input_ids`, `attention_mask`,
    `sequence_id` [B, T] (and `token_type_ids` if the tokenizer yields them), `labels`, `example_id` [B].
    """

    def __init__(self, arrays: dict[str, np.ndarray], tokenizer: Any) -> None:
        self._starts = arrays["offsets"]
        self.lengths = np.diff(self._starts)
        self.labels = np.asarray(arrays["labels"])
        self.example_ids = np.asarray(arrays["example_ids"])
        self.truncated = np.asarray(arrays["truncated"])
        padding_type = getattr(tokenizer, "pad_token_type_id", 0)
        self._padding = {"input_ids": tokenizer.pad_token_id, "sequence_id": 0, "token_type_ids": padding_type}
        self._tokens = {key: arrays[key] for key in self._padding if key in arrays}

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def without_tokens(self) -> int:
        """Rows of which no text has a token: nothing of them can be masked or explained."""
        of_texts = np.concatenate([[0], np.cumsum(self._tokens["sequence_id"] > 0)])
        return int((of_texts[self._starts[1:]] == of_texts[self._starts[:-1]]).sum())

    def __getitem__(self, index: int | Sequence[int]) -> dict[str, Any]:
        if not isinstance(index, int | np.integer):
            return self.batch(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of a split of {len(self)} rows")
        index = int(index) % len(self)
        span = slice(int(self._starts[index]), int(self._starts[index + 1]))
        row: dict[str, Any] = {key: values[span].astype(np.int64) for key, values in self._tokens.items()}
        row["attention_mask"] = np.ones(span.stop - span.start, dtype=np.int64)
        return row | {"labels": self.labels[index], "example_id": self.example_ids[index]}

    def batch(self, index: Sequence[int] | np.ndarray) -> dict[str, Tensor]:
        """Rows at `index` padded to the longest of them, each key with its own padding value."""
        index = np.asarray(index, dtype=np.int64)
        lengths = self.lengths[index]
        attended = np.arange(lengths.max())[None, :] < lengths[:, None]
        spans = [slice(a, b) for a, b in zip(self._starts[index].tolist(), self._starts[index + 1].tolist())]
        batch = {"attention_mask": torch.from_numpy(attended.astype(np.int64))}
        for key, values in self._tokens.items():
            padded = np.full(attended.shape, self._padding[key], dtype=np.int64)
            padded[attended] = np.concatenate([values[span] for span in spans])
            batch[key] = torch.from_numpy(padded)
        batch["labels"] = torch.from_numpy(self.labels[index])
        batch["example_id"] = torch.from_numpy(self.example_ids[index])
        return batch


def encode_split(raw: RawSplit, tokenizer: Any, max_length: int) -> dict[str, np.ndarray]:
    """Tokenise a split chunk by chunk into flat arrays: tokens [sum of lengths], rows [N], `offsets` [N + 1]."""
    flat: dict[str, list[np.ndarray]] = {"input_ids": [], "sequence_id": [], "token_type_ids": []}
    lengths, truncated = [np.zeros(1, dtype=np.int64)], []
    for start in range(0, len(raw), CHUNK):
        texts, pairs = raw.rows(start, min(start + CHUNK, len(raw)))
        rows = encode(tokenizer, texts, pairs, max_length)
        flat["input_ids"].append(_flatten(rows.input_ids, np.int32))
        flat["sequence_id"].append(_flatten(rows.sequence_id, np.int8))
        if rows.token_type_ids is not None:
            flat["token_type_ids"].append(_flatten(rows.token_type_ids, np.int8))
        lengths.append(np.fromiter(map(len, rows.input_ids), dtype=np.int64, count=len(rows)))
        truncated.append(np.array(rows.truncated, dtype=bool))
    arrays = {key: np.concatenate(chunks) for key, chunks in flat.items() if chunks}
    arrays["offsets"] = np.cumsum(np.concatenate(lengths))
    arrays["truncated"] = np.concatenate(truncated)
    return arrays | {"labels": raw.labels, "example_ids": raw.example_ids}


def _flatten(rows: list[list[int]], dtype: type) -> np.ndarray:
    return np.fromiter(chain.from_iterable(rows), dtype=dtype, count=sum(map(len, rows)))


def write_split(directory: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write a split so that it is there whole or not at all: into a neighbour first, then renamed.

    Call it under the lock. Raises FmmError when the disk refuses.
    """
    for abandoned in directory.parent.glob(f".{directory.name}-*"):
        shutil.rmtree(abandoned, ignore_errors=True)  # of a process that was killed: no other writes under the lock
    draft = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        for name, values in arrays.items():
            np.save(draft / f"{name}.npy", values)
        sums = {path.name: _checksum(path) for path in sorted(draft.glob("*.npy"))}
        (draft / META).write_text(json.dumps({"version": VERSION, "sha256": sums}))
        shutil.rmtree(directory, ignore_errors=True)
        os.replace(draft, directory)
    except OSError as error:
        raise FmmError(
            f"cannot write tokenised data to {directory} ({error.strerror or error}); "
            "free space there or set data.cache_dir to another folder"
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def read_split(directory: Path) -> dict[str, np.ndarray] | None:
    """Open a written split memory-mapped, or None where there is none. Raises ValueError when it is damaged."""
    if not directory.is_dir():
        return None
    try:
        sums = json.loads((directory / META).read_text())["sha256"]
        for name, expected in sums.items():
            if _checksum(directory / name) != expected:
                raise ValueError(f"{name} does not match its checksum")
        return {name.removesuffix(".npy"): np.load(directory / name, mmap_mode="r") for name in sums}
    except (OSError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file or folder of the cache, whose parent is made. Raises FmmError where that cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(f"{path}.lock")
        lock.acquire()
    except OSError as error:
        raise FmmError(
            f"cannot write in {path.parent} ({error.strerror or error}); set data.cache_dir to another folder"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
