"""Which rows make a batch.

Both samplers yield lists of row numbers and are `DistributedSampler`s, so that Lightning leaves them in place
whatever `use_distributed_sampler` says and calls `set_epoch`. Rank and world size are asked for when iterating.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import DataLoader, DistributedSampler

from fmm.data.cache import EncodedSplit
from fmm.draws import Draw
from fmm.errors import FmmError

POOL = 100  # batches whose rows are sorted together: larger means less padding and less mixing


class TrainingBatches(DistributedSampler):
    """Random batches of rows of similar length, decided by (seed, epoch) alone.

    Rows are shuffled, sorted by length within pools of `POOL` batches, cut into batches, the batches shuffled and the
    rows within each batch shuffled: half-masking looks at a row's place in its batch. Every rank draws the same
    batches and takes its share; the first ones repeat where the shares would be unequal.

    A run that goes on within an epoch sets `done`: that epoch, and how many of its batches each rank has had.
    """

    def __init__(self, lengths: np.ndarray, batch_size: int, seed: int) -> None:
        super().__init__(lengths, num_replicas=1, rank=0, seed=seed)  # type: ignore[arg-type]  # only its length is asked
        self.lengths, self.batch_size = lengths, batch_size
        self.done = (0, 0)

    def __len__(self) -> int:
        return -(-self._total() // _world()[1])

    def __iter__(self) -> Iterator[list[int]]:
        rank, world = _world()
        batches = training_batches(self.lengths, self.batch_size, self.seed, self.epoch)
        epoch, had = self.done
        first = had * world if epoch == self.epoch else 0
        return (batches[i % len(batches)] for i in range(first + rank, len(self) * world, world))

    def _total(self) -> int:
        return -(-len(self.lengths) // self.batch_size)


class EvaluationBatches(DistributedSampler):
    """Every row once, rows of similar length together, always in the same order. A rank takes every n-th batch.

    Where there are fewer batches than ranks they are cut smaller, as Lightning wants one for each.
    Raises FmmError where there are fewer rows than ranks.
    """

    def __init__(self, lengths: np.ndarray, batch_size: int) -> None:
        super().__init__(lengths, num_replicas=1, rank=0, shuffle=False)  # type: ignore[arg-type]  # only its length is asked
        self.order = np.argsort(-lengths, kind="stable").tolist()
        self.batch_size = batch_size

    def __len__(self) -> int:
        return len(self._share())

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._share())

    def _share(self) -> list[list[int]]:
        rank, world = _world()
        if len(self.order) < world:
            raise FmmError(
                f"{len(self.order)} validation rows cannot be shared by {world} processes; take fewer devices"
            )
        size = min(self.batch_size, len(self.order) // world)
        return [self.order[i : i + size] for i in range(0, len(self.order), size)][rank::world]


def training_batches(lengths: np.ndarray, batch_size: int, seed: int, epoch: int) -> list[list[int]]:
    """Row numbers of one epoch's batches, each row once; the last rows may make a smaller batch."""
    rng = Draw.BATCH_ORDER.generator(seed, epoch)
    order = rng.permutation(len(lengths))
    batches = []
    for start in range(0, len(order), POOL * batch_size):
        pool = order[start : start + POOL * batch_size]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [rng.permutation(pool[i : i + batch_size]).tolist() for i in range(0, len(pool), batch_size)]
    return [batches[i] for i in rng.permutation(len(batches))]


def padding_waste(lengths: np.ndarray, batches: list[list[int]]) -> float:
    """Share of a pass's tokens that is padding.

    >>> round(padding_waste(np.array([4, 2, 3]), [[0, 1], [2]]), 4)
    0.1818
    """
    padded = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    return 1 - float(lengths[np.concatenate(batches)].sum()) / padded


def make_loader(
    split: EncodedSplit, sampler: TrainingBatches | EvaluationBatches, num_workers: int, pin_memory: bool
) -> DataLoader:
    """A loader that yields the sampler's batches; the number of workers changes nothing but speed."""
    return DataLoader(
        split,  # type: ignore[arg-type]
        sampler=sampler,
        batch_size=None,
        num_workers=num_workers,
        persistent_workers=num_workers > 0,
        pin_memory=pin_memory,
        generator=torch.Generator(),  # its own, as starting the loader would else move dropout's random numbers on
    )


def _world() -> tuple[int, int]:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1
