"""Every random draw of the project, by name.

A draw is a number that depends on its name and its keys alone, such as (seed, epoch, example id, position): it is the
same in any batch, order, padding, process or device. Two draws of different names never share keys, whatever their
seeds, epochs and ids are, as the name comes first and fixes how many keys follow.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor

_GOLDEN_GAMMA = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB
_ALL_BITS = (1 << 64) - 1


class Draw(Enum):
    """A purpose of random numbers and the keys that decide them: its number is unique and stays for good.

    A new draw takes a number that no other ever had, as records computed with the old ones must stay reproducible.
    """

    # masked fine-tuning (arXiv 2310.07819, section 3.1)
    TRAINING_ROW = (1, ("seed", "epoch", "example"))
    TRAINING_RATIO = (2, ("seed", "epoch", "example"))
    TRAINING_TOKEN = (3, ("seed", "epoch", "example", "position"))
    BATCH_ORDER = (4, ("seed", "epoch"))
    DROPOUT = (5, ("seed", "epoch", "rank"))
    NEW_WEIGHTS = (6, ("seed",))
    # the masked copy of the validation rows that selects the best epoch
    SELECTION_RATIO = (10, ("seed", "example"))
    SELECTION_TOKEN = (11, ("seed", "example", "position"))
    # the random-masking test and the random order of erasure curves
    RANDOM_MASKING = (20, ("seed", "example", "position"))
    RANDOM_MEASURE = (21, ("seed", "order", "example", "position"))
    # MaSF (section 4.3): rows masked as in training, rows that fit or calibrate, masks of calibration rows
    MASF_ROW = (30, ("seed", "example"))
    MASF_RATIO = (31, ("seed", "example"))
    MASF_TOKEN = (32, ("seed", "example", "position"))
    MASF_SPLIT = (33, ("seed", "example"))
    MASF_CALIBRATION_TOKEN = (34, ("seed", "example", "position"))
    # data: which rows random splits and row limits choose
    SPLIT = (40, ("seed",))
    ROW_LIMIT = (41, ("seed",))

    def __init__(self, number: int, keys: tuple[str, ...]) -> None:
        self.number = number
        self.keys = keys

    def uniform(self, *keys: Tensor | int) -> Tensor:
        """Uniform [0, 1) float32 numbers, a multiple of 2**-24, for whole-number keys broadcast against each other.

        >>> alone = Draw.TRAINING_RATIO.uniform(0, 5, torch.tensor([7]))
        >>> bool(alone == Draw.TRAINING_RATIO.uniform(0, 5, torch.tensor([3, 7]))[1])
        True
        """
        return hashed_uniform(self.number, *self._checked(keys))

    def generator(self, *keys: int) -> np.random.Generator:
        """A numpy generator for draws that are not one number a key, such as permutations."""
        return np.random.default_rng((self.number, *self._checked(keys)))

    def torch_seed(self, *keys: int) -> int:
        """A seed of torch's global generator, in [0, 2**63)."""
        words = np.random.SeedSequence((self.number, *self._checked(keys))).generate_state(1, np.uint64)
        return int(words[0] >> np.uint64(1))

    def _checked(self, keys: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(keys) != len(self.keys):
            raise ValueError(f"{self.name} is drawn by {', '.join(self.keys)}, not by {len(keys)} keys")
        return keys


def hashed_uniform(*keys: Tensor | int) -> Tensor:
    """Uniform [0, 1) float32 numbers that depend on `keys` alone, broadcast against each other.

    A counter-based generator: the SplitMix64 finaliser, chained over the keys. Draws go through `Draw`, so that no
    two purposes share keys.
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
