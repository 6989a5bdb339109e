"""Batches: random, of similar lengths, and the same whoever asks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DistributedSampler

from fmm.data import loader
from fmm.data.loader import EvaluationBatches, TrainingBatches, padding_waste, training_batches
from fmm.errors import FmmError
from tests.data_helpers import build, small_toy, word_tokenizer

rng = np.random.default_rng(0)
SHORT = np.clip(rng.lognormal(2.2, 0.7, 5000).astype(int), 3, 66)  # lengths much as in SST2
LONG = np.clip(rng.lognormal(4.0, 0.55, 1992).astype(int), 20, 290)  # and in RTE


@pytest.mark.parametrize("lengths", [SHORT, LONG])
def test_each_row_once_and_little_padding(lengths: np.ndarray) -> None:
    batches = training_batches(lengths, 16, seed=0, epoch=0)
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    assert padding_waste(lengths, batches) < 0.06


def test_epochs_and_seeds_differ_and_repeat() -> None:
    first = training_batches(SHORT, 16, 0, 0)
    assert first == training_batches(SHORT, 16, 0, 0)
    together = {frozenset(batch) for batch in first}
    for other in (training_batches(SHORT, 16, 0, 1), training_batches(SHORT, 16, 1, 0)):
        assert len(together & {frozenset(batch) for batch in other}) < 5


def test_rows_stand_in_random_order_within_a_batch() -> None:
    halves = [LONG[b[len(b) // 2 :]].mean() - LONG[b[: len(b) // 2]].mean() for b in training_batches(LONG, 16, 0, 0)]
    spread = np.std(halves) / np.sqrt(len(halves))
    assert abs(np.mean(halves)) < 4 * spread


def test_ranks_share_an_epoch_equally(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = []
    for rank in range(4):
        monkeypatch.setattr(loader, "_world", lambda rank=rank: (rank, 4))
        sampler = TrainingBatches(SHORT, 16, seed=0)
        sampler.set_epoch(2)
        shares.append(list(sampler))
        assert len(sampler) == len(shares[-1])
    assert len({len(share) for share in shares}) == 1
    assert {row for share in shares for batch in share for row in batch} == set(range(len(SHORT)))


def test_fewer_batches_than_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "_world", lambda: (3, 4))
    assert len(list(TrainingBatches(SHORT[:10], 16, seed=0))) == 1


def test_evaluation_gives_each_rank_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning refuses a rank without batches: 5 rows in one batch of 16 are cut for 4 ranks."""
    rows = []
    for rank in range(4):
        monkeypatch.setattr(loader, "_world", lambda rank=rank: (rank, 4))
        share = list(EvaluationBatches(LONG[:5], 16))
        assert share and len(EvaluationBatches(LONG[:5], 16)) == len(share)
        rows += [row for batch in share for row in batch]
    assert sorted(rows) == list(range(5))
    with pytest.raises(FmmError, match="3 validation rows cannot be shared by 4 processes"):
        list(EvaluationBatches(LONG[:3], 16))


def test_evaluation_ranks_see_each_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []
    for rank in range(3):
        monkeypatch.setattr(loader, "_world", lambda rank=rank: (rank, 3))
        rows += [row for batch in EvaluationBatches(LONG, 16) for row in batch]
    assert sorted(rows) == list(range(len(LONG)))


def test_workers_change_nothing(tmp_path: Path) -> None:
    seen = []
    for workers in (0, 2):
        dm = build(small_toy(40), tmp_path, num_workers=workers, seed=5)
        dm.attach_tokenizer(word_tokenizer(), 64)
        seen.append([batch["example_id"].tolist() for batch in dm.train_dataloader()])
    assert seen[0] == seen[1]


def test_lightning_leaves_the_sampler_in_place(tmp_path: Path) -> None:
    dm = build(small_toy(40), tmp_path)
    dm.attach_tokenizer(word_tokenizer(), 64)
    for made in (dm.train_dataloader(), dm.val_dataloader()):
        assert isinstance(made.sampler, DistributedSampler) and hasattr(made.sampler, "set_epoch")


def test_batches_are_padded_key_by_key(tmp_path: Path) -> None:
    dm = build(small_toy(), tmp_path, batch_size=16)
    tokenizer = word_tokenizer()
    dm.attach_tokenizer(tokenizer, 64)
    assert dm.train.lengths.std() > 0
    for index in ([0, 1, 2, 3, 4], np.arange(16)):
        batch = dm.train.batch(index)
        attended = batch["attention_mask"].bool()
        assert torch.equal(attended.sum(1), torch.from_numpy(dm.train.lengths[index]))
        assert (batch["input_ids"][~attended] == tokenizer.pad_token_id).all()
        assert not (batch["input_ids"][attended] == tokenizer.pad_token_id).any()
        assert (batch["sequence_id"][~attended] == 0).all()
        assert (batch["token_type_ids"][~attended] == tokenizer.pad_token_type_id).all()
        assert batch["example_id"].dtype == batch["labels"].dtype == batch["input_ids"].dtype == torch.int64
        row = dm.train[int(index[1])]
        assert batch["input_ids"][1][attended[1]].tolist() == row["input_ids"].tolist()
        assert batch["labels"][1] == row["labels"]
