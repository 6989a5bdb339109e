"""The one place that turns many small inputs into full batches.

A budget of tokens rather than a number of rows; rows of equal length together, so that nothing is padded; no input
evaluated twice; a pass that does not fit in memory is halved and repeated. The result of a row depends on nothing but
the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from fmm.errors import FmmError
from fmm.models.classifier import Classifier

Answer = TypeVar("Answer")

# Tokens in one pass where none is given: what runs fastest (benchmarks/measures.py), small enough for any memory.
CPU_TOKENS, GPU_TOKENS = 2048, 65536


@dataclass(frozen=True)
class Block:
    """n rows of one length T without padding.

    Attributes:
        index [n]: the rows' places in the `Rows` they come from.
        input_ids [n, T]: int64; token_type_ids [n, T]: int64, or None where the model has none.
        example_id [n]: int64, names the row in errors.
    """

    index: Tensor
    input_ids: Tensor
    token_type_ids: Tensor | None
    example_id: Tensor

    def __len__(self) -> int:
        return len(self.index)

    def take(self, rows: Tensor | slice, input_ids: Tensor | None = None) -> Block:
        """These rows (repeats allowed), with `input_ids` in place of their own if given."""
        types = None if self.token_type_ids is None else self.token_type_ids[rows]
        ids = self.input_ids[rows] if input_ids is None else input_ids
        return Block(self.index[rows], ids, types, self.example_id[rows])

    def batch(self, device: torch.device) -> dict[str, Tensor]:
        """What the classifier reads, on its device. No attention mask: every token is attended."""
        batch = {"input_ids": self.input_ids.to(device)}
        if self.token_type_ids is not None:
            batch["token_type_ids"] = self.token_type_ids.to(device)
        return batch


class Rows:
    """Ragged container of N tokenised rows on the CPU: padding is dropped, wherever it stood.

    >>> ids = torch.tensor([[0, 7, 2, 1]])
    >>> rows = Rows.from_batch({"input_ids": ids, "attention_mask": ids != 1})
    >>> len(rows), rows.lengths.tolist()
    (1, [3])
    """

    def __init__(self, values: Mapping[str, Tensor], lengths: Tensor, example_id: Tensor) -> None:
        self.values = dict(values)  # each [sum of lengths], rows behind each other
        self.lengths = lengths
        self.example_id = example_id
        self.starts = lengths.cumsum(0) - lengths

    @classmethod
    def from_batch(cls, batch: Mapping[str, Tensor]) -> Rows:
        """Rows of a padded batch. Without `example_id` rows are named by their place in the batch."""
        ids = batch["input_ids"].cpu()
        attended = (
            torch.ones_like(ids).bool() if "attention_mask" not in batch else batch["attention_mask"].cpu().bool()
        )
        keys = [key for key in ("input_ids", "token_type_ids") if batch.get(key) is not None]
        values = {key: batch[key].cpu()[attended].long() for key in keys}
        example_id = batch["example_id"].cpu() if batch.get("example_id") is not None else torch.arange(len(ids))
        return cls(values, attended.sum(1), example_id)

    @classmethod
    def concatenate(cls, parts: Sequence[Rows]) -> Rows:
        """All rows of `parts`, in order."""
        keys = parts[0].values
        return cls(
            {key: torch.cat([part.values[key] for part in parts]) for key in keys},
            torch.cat([part.lengths for part in parts]),
            torch.cat([part.example_id for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def blocks(self) -> Iterator[Block]:
        """Rows of equal length together, longest first, so that memory runs out early if it does."""
        for length in self.lengths.unique().flip(0).tolist():
            index = (self.lengths == length).nonzero()[:, 0]
            places = self.starts[index, None] + torch.arange(length)
            values = {key: flat[places] for key, flat in self.values.items()}
            yield Block(index, values["input_ids"], values.get("token_type_ids"), self.example_id[index])


@dataclass(frozen=True)
class Evaluation:
    """What the classifier says about N rows.

    Attributes:
        logits [N, C]: float32, CPU.
        signals [N, L + 1, width]: float32, CPU: maximum over the tokens of each layer's hidden states; or None.
        n_forward: distinct inputs evaluated. n_tokens: tokens evaluated, padding (there is none) included.
    """

    logits: Tensor
    signals: Tensor | None
    n_forward: int
    n_tokens: int


def evaluate(
    classifier: Classifier, rows: Rows | Block, *, token_budget: int | None = None, signals: bool = False
) -> Evaluation:
    """Logits, and MaSF's signals if asked, of many rows.

    Args:
        token_budget: tokens in one pass; default: found by itself.
        signals: also take the hidden states' maxima (then the last layer is computed in full).

    Raises:
        FmmError: logits that are not finite (names the row), or one row alone does not fit in memory.
    """
    blocks = [rows] if isinstance(rows, Block) else list(rows.blocks())
    if isinstance(rows, Block):
        blocks = [replace(rows, index=torch.arange(len(rows)))] if len(rows) else []
    logits = torch.empty(len(rows), classifier.num_labels)
    maxima: Tensor | None = None
    n_forward = n_tokens = 0
    for block in blocks:
        distinct, inverse = _distinct(block)
        answer, signal = _evaluate_distinct(classifier, distinct, token_budget, signals)
        logits[block.index] = answer[inverse]
        if signal is not None:
            maxima = torch.empty(len(rows), *signal.shape[1:]) if maxima is None else maxima
            maxima[block.index] = signal[inverse]
        n_forward += len(distinct)
        n_tokens += distinct.input_ids.numel()
    return Evaluation(logits, maxima, n_forward, n_tokens)


def _distinct(block: Block) -> tuple[Block, Tensor]:
    """The block without repeats, and for each of its rows the place [n] in there."""
    parts = [block.input_ids] if block.token_type_ids is None else [block.input_ids, block.token_type_ids]
    keys = np.ascontiguousarray(torch.cat(parts, dim=1).to(torch.int32).numpy())
    keys = keys.view(np.dtype((np.void, keys.strides[0]))).ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return block.take(torch.from_numpy(first)), torch.from_numpy(inverse.ravel())


def _evaluate_distinct(
    classifier: Classifier, block: Block, token_budget: int | None, signals: bool
) -> tuple[Tensor, Tensor | None]:
    def work(part: slice) -> tuple[Tensor, Tensor | None]:
        batch = block.take(part).batch(classifier.device)
        if not signals:
            return classifier.logits(batch).cpu(), None
        logits, hidden = classifier.logits_and_hidden_states(batch)
        return logits.cpu(), signals_of(hidden)

    with classifier.explaining():
        parts = list(in_parts(classifier, len(block), block.input_ids.shape[1], work, token_budget))
    logits = torch.cat([logits for logits, _ in parts])
    check_finite(logits, block.example_id)
    found = [signal for _, signal in parts if signal is not None]
    assert len(found) == (len(parts) if signals else 0)
    return logits, torch.cat(found) if signals else None


def signals_of(hidden: Sequence[Tensor]) -> Tensor:
    """MaSF's signals [n, L + 1, width] of unpadded rows: the maximum over tokens of the states [n, T, width]."""
    return torch.stack([state.detach().amax(1).float() for state in hidden], dim=1).cpu()


def in_parts(
    classifier: Classifier,
    n_items: int,
    tokens_each: int,
    work: Callable[[slice], Answer],
    token_budget: int | None = None,
) -> Iterator[Answer]:
    """Do `work` on slices of `n_items` that keep to the token budget; halve and repeat when memory runs out.

    A budget found by itself is remembered by the classifier, one given by the caller is obeyed or refused.
    """
    budget = token_budget or classifier.token_budget or (CPU_TOKENS if classifier.device.type == "cpu" else GPU_TOKENS)
    size, start = max(1, budget // tokens_each), 0
    while start < n_items:
        try:
            answer = work(slice(start, min(start + size, n_items)))
        except (RuntimeError, MemoryError) as error:
            if not _out_of_memory(error):
                raise
            size = min(size, n_items - start)
            if size == 1:
                raise FmmError(
                    f"one input of {tokens_each} tokens does not fit in the memory of {classifier.device}; "
                    "shorten it (data.max_length) or choose a smaller model"
                ) from error
            size = size // 2
            classifier.token_budget = size * tokens_each
        else:
            yield answer
            start += size
            continue
        # Outside the handler, so that the failed pass's tensors are no longer held by the traceback.
        if classifier.device.type == "cuda":
            torch.cuda.empty_cache()


def _out_of_memory(error: BaseException) -> bool:
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    text = str(error).lower()
    return "out of memory" in text or "can't allocate memory" in text or "not enough memory" in text


def check_finite(logits: Tensor, example_id: Tensor) -> None:
    """Raise FmmError if a row of `logits` [n, C] holds NaN or infinity, naming the example."""
    bad = (~logits.isfinite()).any(dim=1).nonzero()[:, 0].tolist()
    if bad:
        values = ", ".join(f"{value:g}" for value in logits[bad[0]].tolist())
        raise FmmError(
            f"logits of example {int(example_id[bad[0]])} are not finite ({values}; {len(bad)} such inputs); "
            "train again with a lower learning rate, or use float32 (inference.dtype=float32)"
        )
