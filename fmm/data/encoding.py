"""The one place that turns texts into tokens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fmm.errors import FmmError

_TEXT = {None: 0, 0: 1, 1: 2}  # the tokenizer's number of a text to ours


@dataclass
class Encoded:
    """Ragged token lists, one entry per text (or pair of texts).

    `sequence_id`: 0 special token, 1 first text, 2 second text; `offsets`: character span of each token in its
    own text; `truncated`: whether tokens were cut off.
    """

    input_ids: list[list[int]] = field(default_factory=list)
    sequence_id: list[list[int]] = field(default_factory=list)
    token_type_ids: list[list[int]] | None = None
    offsets: list[list[tuple[int, int]]] | None = None
    truncated: list[bool] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.input_ids)

    def batch(self, tokenizer: Any, rows: Sequence[int] | None = None) -> dict[str, Tensor]:
        """These rows (default: all) as tensors [B, T], padded to the longest of them."""
        picked = range(len(self)) if rows is None else rows
        width = max(len(self.input_ids[row]) for row in picked)
        columns = {"input_ids": (self.input_ids, tokenizer.pad_token_id), "sequence_id": (self.sequence_id, 0)}
        if self.token_type_ids is not None:
            columns["token_type_ids"] = (self.token_type_ids, getattr(tokenizer, "pad_token_type_id", 0))
        columns["attention_mask"] = ([[1] * len(ids) for ids in self.input_ids], 0)
        return {
            name: torch.tensor([values[row] + [fill] * (width - len(values[row])) for row in picked])
            for name, (values, fill) in columns.items()
        }


def encode(
    tokenizer: Any, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int, offsets: bool = False
) -> Encoded:
    """Tokenise texts, or pairs of texts, with special tokens, cutting longest-first to `max_length` tokens.

    What belongs to which text comes from the tokenizer's own bookkeeping, never from token ids. Cutting drops
    the end of the longer text until both fit and keeps at least one token of each. Raises FmmError for a slow
    tokenizer and for a `max_length` without room.
    """
    backend = fast_backend(tokenizer)
    inputs = list(texts) if pairs is None else list(zip(texts, pairs, strict=True))
    with _untruncated(backend):
        encodings = (backend.encode_batch if offsets else backend.encode_batch_fast)(inputs)
    with_types = "token_type_ids" in tokenizer.model_input_names
    out = Encoded(token_type_ids=[] if with_types else None, offsets=[] if offsets else None)
    for encoding in encodings:
        _append(out, encoding, max_length)
    return out


def fast_backend(tokenizer: Any) -> Any:
    """The Rust tokenizer behind a fast tokenizer. Raises FmmError for a slow one."""
    if not getattr(tokenizer, "is_fast", False):
        raise FmmError(
            f"tokenizer {type(tokenizer).__name__} is not a fast tokenizer, so tokens cannot be traced "
            "to their text; choose a model that has a tokenizer.json"
        )
    return tokenizer.backend_tokenizer


def tokenizer_hash(tokenizer: Any) -> str:
    """Content identity of a tokenizer, unchanged by calls that set truncation or padding on it."""
    content = json.loads(fast_backend(tokenizer).to_str())
    content.pop("truncation", None)
    content.pop("padding", None)
    settings = [content, sorted(tokenizer.model_input_names), tokenizer.pad_token_id, tokenizer.mask_token_id]
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


@contextmanager
def _untruncated(backend: Any) -> Iterator[None]:
    # A saved tokenizer may carry its own truncation and padding (sentence-transformers cut at 128).
    truncation, padding = backend.truncation, backend.padding
    backend.no_truncation()
    backend.no_padding()
    try:
        yield
    finally:
        if truncation is not None:
            backend.enable_truncation(**truncation)
        if padding is not None:
            backend.enable_padding(**padding)


def _append(out: Encoded, encoding: Any, max_length: int) -> None:
    ids = encoding.ids
    sequence = [_TEXT[text] for text in encoding.sequence_ids]
    kept = _kept(sequence, max_length) if len(ids) > max_length else None

    def cut(values: list) -> list:
        return values if kept is None else [values[i] for i in kept]

    out.input_ids.append(cut(ids))
    out.sequence_id.append(cut(sequence))
    out.truncated.append(kept is not None)
    if out.token_type_ids is not None:
        out.token_type_ids.append(cut(encoding.type_ids))
    if out.offsets is not None:
        out.offsets.append(cut(encoding.offsets))


def _kept(sequence: list[int], max_length: int) -> list[int]:
    ids = np.array(sequence)
    lengths = [int((ids == text).sum()) for text in (1, 2)]
    room = max_length - int((ids == 0).sum())
    present = sum(n > 0 for n in lengths)
    if room < present:
        raise FmmError(
            f"max_length {max_length} leaves no room for a token of each text beside {max_length - room} "
            f"special tokens; set data.max_length to at least {max_length - room + present}"
        )
    first, second = longest_first(lengths[0], lengths[1], room)
    limit = np.array([len(ids), first, second])[ids]
    rank = np.zeros(len(ids), dtype=np.int64)
    for text in (1, 2):
        rank[ids == text] = np.arange(lengths[text - 1])
    return np.flatnonzero(rank < limit).tolist()


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """Tokens kept of two texts so that together they fill at most `room`, cutting the longer one first.

    >>> longest_first(3, 700, 508), longest_first(400, 400, 101)
    ((3, 505), (50, 51))
    """
    if first + second <= room:
        return first, second
    short = min(first, second, room // 2)
    if first <= second:
        return short, min(second, room - short)
    return min(first, room - short), short
