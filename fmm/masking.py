"""Which tokens may be masked, training masks, masks of a given ratio, masks by rank.

Pure tensor functions. Shapes: B rows, T tokens. `sequence_id` [B, T] says to which text a token
belongs: 0 special token or padding, 1 first (masked) text, 2 second (auxiliary) text. It is stored
with the row by the tokenising code, never guessed from token ids.

Source: Faithfulness Measurable Masked Language Models, arXiv 2310.07819, sections 3.1 and 4.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from fmm.errors import FmmError, unknown

Strategy = Literal["half_det", "half_ran", "uniform", "none"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)

# Streams keep independent the draws that one (seed, example, position) makes for different ends.
STREAM_RATIO, STREAM_TOKEN, STREAM_ROW, STREAM_RANDOM_MEASURE, STREAM_FIXED, STREAM_MASF = range(6)

_GOLDEN_GAMMA = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB
_ALL_BITS = (1 << 64) - 1


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


def hashed_uniform(*keys: Tensor | int) -> Tensor:
    """Uniform [0, 1) float32 numbers that depend on `keys` alone, broadcast against each other.

    A counter-based generator (the SplitMix64 finaliser, chained over the keys): the draw for (seed,
    example, position) is the same in any batch, order, padding, process or device.

    >>> alone = hashed_uniform(0, torch.tensor([7]))
    >>> bool(alone == hashed_uniform(0, torch.tensor([3, 7]))[1])
    True
    """
    state: Tensor | int = 0
    for key in keys:
        if isinstance(state, int) and isinstance(key, int):
            state = _signed(_mix64(((state ^ key) + _GOLDEN_GAMMA) & _ALL_BITS) & _ALL_BITS)  # costs no tensor
        else:
            state = _mix64((state ^ key) + _GOLDEN_GAMMA)
    if isinstance(state, int):
        state = torch.tensor(state)
    return _shift_right(state, 40).to(torch.float32) * 2.0**-24


def _mix64(x: Any) -> Any:
    x = (x ^ _shift_right(x, 30)) * _MIX_1
    x = (x ^ _shift_right(x, 27)) * _MIX_2
    return x ^ _shift_right(x, 31)


def _shift_right(x: Any, bits: int) -> Any:
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(x: int) -> int:
    return x - (1 << 64) if x >> 63 else x


def rows_to_mask(strategy: str, batch_size: int, example_id: Tensor, draw: tuple[int, ...]) -> Tensor:
    """Which rows of a mini-batch the masking strategy masks. Returns bool [B].

    `half_det`: all but the first B // 2 rows; `half_ran`: a fair coin per row; `uniform`: all; `none`: none.
    """
    if strategy == "half_det":
        return torch.arange(batch_size, device=example_id.device) >= batch_size // 2
    if strategy == "half_ran":
        return hashed_uniform(*draw, STREAM_ROW, example_id) < 0.5
    if strategy in ("uniform", "none"):
        return torch.full((batch_size,), strategy == "uniform", device=example_id.device)
    raise unknown("masking strategy", strategy, STRATEGIES)


def mask_uniformly(
    input_ids: Tensor, maskable: Tensor, mask_id: int, example_id: Tensor, draw: tuple[int, ...], max_ratio: float = 1.0
) -> Tensor:
    """Mask each row at its own ratio r ~ U[0, max_ratio): every maskable token independently with probability r.

    `draw` holds the integers, such as (seed, epoch), that with `example_id` [B] decide the outcome.
    Returns new input ids [B, T].
    """
    ratio = hashed_uniform(*draw, STREAM_RATIO, example_id)[:, None] * max_ratio
    position = torch.arange(input_ids.shape[1], device=input_ids.device)
    chosen = hashed_uniform(*draw, STREAM_TOKEN, example_id[:, None], position) < ratio
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
    rows = rows_to_mask(strategy, input_ids.shape[0], example_id, (seed, epoch))
    masked = mask_uniformly(input_ids, maskable, mask_id, example_id, (seed, epoch), max_ratio)
    return torch.where(rows[:, None], masked, input_ids)


def mask_random_share(
    input_ids: Tensor, maskable: Tensor, mask_id: int, example_id: Tensor, *, ratio: float, seed: int
) -> Tensor:
    """Mask exactly `mask_count(ratio, n)` of a row's n maskable tokens, chosen at random. Returns input ids [B, T].

    The choice depends on (seed, example id) alone, and the tokens masked at one ratio stay masked at every larger one.
    """
    position = torch.arange(input_ids.shape[1], device=input_ids.device)
    scores = hashed_uniform(seed, STREAM_FIXED, example_id[:, None], position)
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
