"""Which tokens may be masked, training masks, masks of a given ratio, masks by rank.

Pure tensor functions. Shapes: B rows, T tokens. `sequence_id` [B, T] says to which text a token
belongs: 0 special token or padding, 1 first (masked) text, 2 second (auxiliary) text. It is stored
with the row by the tokenising code, never guessed from token ids.

Source: Faithfulness Measurable Masked Language Models, arXiv 2310.07819, sections 3.1 and 4.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from fmm.draws import Draw
from fmm.errors import FmmError, unknown

Strategy = Literal["half_det", "half_ran", "uniform", "none"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)


class UniformMasking(NamedTuple):
    """The draws of one uniform masking: of a row's ratio, of its tokens, and the keys before the example's."""

    ratio: Draw
    token: Draw
    keys: tuple[int, ...]

    @classmethod
    def of_training(cls, seed: int, epoch: int) -> UniformMasking:
        """Masks of one epoch of masked fine-tuning."""
        return cls(Draw.TRAINING_RATIO, Draw.TRAINING_TOKEN, (seed, epoch))

    @classmethod
    def of_selection(cls, seed: int) -> UniformMasking:
        """Masks of the validation rows that select the best epoch: frozen, the same in all epochs."""
        return cls(Draw.SELECTION_RATIO, Draw.SELECTION_TOKEN, (seed,))

    @classmethod
    def of_masf(cls, seed: int) -> UniformMasking:
        """Masks of the rows that MaSF is fitted to."""
        return cls(Draw.MASF_RATIO, Draw.MASF_TOKEN, (seed,))


def maskable_tokens(attention_mask: Tensor, sequence_id: Tensor) -> Tensor:
    """Tokens that masking may touch: attended and part of a text. Returns bool [B, T].

    Mask and unknown tokens of a text count: a masked token is still a position of the text.

    >>> maskable_tokens(torch.tensor([[1, 1, 1, 0]]), torch.tensor([[0, 1, 1, 0]]))
    tensor([[False,  True,  True, False]])
    """
    return attention_mask.bool() & (sequence_id > 0)


def mask_count(ratio: float, n: Tensor) -> Tensor:
    """Number of tokens masked at `ratio` of `n`: floor(float32(ratio) * float32(n)), a float32 product.

    The float32 product is the authors' rule; 0.7 of 90 is 63, where double precision gives 62.

    >>> mask_count(0.7, torch.tensor([90, 10]))
    tensor([63,  7])
    """
    if not 0.0 <= ratio <= 1.0:
        raise FmmError(f"masking ratio {ratio} is outside [0, 1]; give a share of tokens, such as 0.5")
    product = torch.tensor(ratio, dtype=torch.float32, device=n.device) * n.to(torch.float32)
    return product.floor().to(torch.int64)


def rows_to_mask(strategy: str, batch_size: int, example_id: Tensor, seed: int, epoch: int) -> Tensor:
    """Which rows of a mini-batch the masking strategy masks in training. Returns bool [B].

    `half_det`: all but the first B // 2 rows; `half_ran`: a fair coin per row; `uniform`: all; `none`: none.
    """
    if strategy == "half_det":
        return torch.arange(batch_size, device=example_id.device) >= batch_size // 2
    if strategy == "half_ran":
        return Draw.TRAINING_ROW.uniform(seed, epoch, example_id) < 0.5
    if strategy in ("uniform", "none"):
        return torch.full((batch_size,), strategy == "uniform", device=example_id.device)
    raise unknown("masking strategy", strategy, STRATEGIES)


def mask_uniformly(
    input_ids: Tensor,
    maskable: Tensor,
    mask_id: int,
    example_id: Tensor,
    draws: UniformMasking,
    max_ratio: float = 1.0,
) -> Tensor:
    """Mask each row at its own ratio r ~ U[0, max_ratio): every maskable token independently with probability r.

    `draws` and `example_id` [B] decide the outcome. Returns new input ids [B, T].
    """
    ratio = draws.ratio.uniform(*draws.keys, example_id)[:, None] * max_ratio
    position = torch.arange(input_ids.shape[1], device=input_ids.device)
    chosen = draws.token.uniform(*draws.keys, example_id[:, None], position) < ratio
    return input_ids.masked_fill(chosen & maskable, mask_id)


def mask_for_training(
    input_ids: Tensor,
    maskable: Tensor,
    mask_id: int,
    example_id: Tensor,
    *,
    strategy: str,
    seed: int,
    epoch: int,
    max_ratio: float = 1.0,
) -> Tensor:
    """Masked fine-tuning's view of a mini-batch (arXiv 2310.07819, section 3.1). Returns input ids [B, T].

    Both texts are masked. The draw depends on (seed, epoch, example id) and not on the batch;
    only `half_det` looks at a row's place in the batch, so rows must stand in random order.
    """
    rows = rows_to_mask(strategy, input_ids.shape[0], example_id, seed, epoch)
    draws = UniformMasking.of_training(seed, epoch)
    masked = mask_uniformly(input_ids, maskable, mask_id, example_id, draws, max_ratio)
    return torch.where(rows[:, None], masked, input_ids)


def mask_random_share(
    input_ids: Tensor, maskable: Tensor, mask_id: int, example_id: Tensor, *, ratio: float, seed: int
) -> Tensor:
    """Mask exactly `mask_count(ratio, n)` of a row's n maskable tokens, chosen at random. Returns input ids [B, T].

    The choice depends on (seed, example id) alone, and the tokens masked at one ratio stay masked at every larger one.
    """
    position = torch.arange(input_ids.shape[1], device=input_ids.device)
    scores = Draw.RANDOM_MASKING.uniform(seed, example_id[:, None], position)
    return input_ids.masked_fill(top_share(scores, maskable, ratio), mask_id)


def top_share(scores: Tensor, rankable: Tensor, ratio: float) -> Tensor:
    """The `mask_count(ratio, n)` highest-scored of each row's n rankable tokens. Returns bool [B, T].

    Ties go to the earlier position.
    """
    count = mask_count(ratio, rankable.sum(dim=1))
    return rankable & (ranks(scores, rankable) < count[:, None])


def ranks(scores: Tensor, rankable: Tensor) -> Tensor:
    """Rank of each rankable token by descending score, 0 first, ties to the earlier position. Returns int64 [B, T].

    Tokens that are not rankable get ranks behind all rankable ones.

    >>> ranks(torch.tensor([[9.0, 1.0, 3.0, 3.0]]), torch.tensor([[False, True, True, True]]))
    tensor([[3, 2, 0, 1]])
    """
    order = scores.argsort(dim=1, descending=True, stable=True)
    behind = (~rankable).gather(1, order).to(torch.uint8).argsort(dim=1, stable=True)
    order = order.gather(1, behind)
    positions = torch.arange(scores.shape[1], device=scores.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, positions)


def mask_by_importance(input_ids: Tensor, scores: Tensor, rankable: Tensor, mask_id: int, ratio: float) -> Tensor:
    """Mask the `mask_count(ratio, n)` most important of the n rankable tokens. Returns input ids [B, T].

    Tokens that are masked already rank first, so that the masked sets of rising ratios are nested.
    Source: arXiv 2310.07819, section 4.2; `rankable` is usually the first text.
    """
    already = rankable & (input_ids == mask_id)
    scores = scores.to(torch.float32).masked_fill(already, float("inf"))
    return input_ids.masked_fill(top_share(scores, rankable, ratio), mask_id)
