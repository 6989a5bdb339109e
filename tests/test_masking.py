"""Masks against the authors' counts, against slow loops, and their independence of batch and padding."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fmm import masking
from fmm.draws import Draw
from fmm.errors import FmmError

GOLDEN = np.load(Path(__file__).parent / "goldens" / "random_masking.npz")
MASK, RATIOS = 4, [i / 10 for i in range(11)]


def golden_batch(group):
    ids = torch.from_numpy(GOLDEN[f"{group}_input_ids"]).long()
    sequence = torch.from_numpy(GOLDEN[f"{group}_sequence_identifier"]).long()
    return ids, masking.maskable_tokens(torch.from_numpy(GOLDEN[f"{group}_attention_mask"]), sequence)


def words(n, width=None):
    """One row of n words between special tokens, padded to `width`."""
    width = width or n + 2
    ids = torch.ones(1, width, dtype=torch.long)
    ids[0, : n + 2] = torch.tensor([0, *range(10, 10 + n), 2])
    maskable = torch.zeros(1, width, dtype=torch.bool)
    maskable[0, 1 : n + 1] = True
    return ids, maskable


@pytest.mark.parametrize("name", ["fixed_counts", "count_rule"])
def test_counts_equal_the_authors(name):
    lengths = {f"{name}_n1to60": torch.arange(1, 61), f"{name}_long": torch.from_numpy(GOLDEN[f"{name}_long_n"])}
    for key, n in lengths.items():
        got = torch.stack([masking.mask_count(ratio, n) for ratio in RATIOS], dim=1)
        assert torch.equal(got, torch.from_numpy(GOLDEN[key]).long())


def test_count_is_a_float32_product():
    assert masking.mask_count(0.7, torch.tensor([90])).item() == 63


@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan")])
def test_ratio_outside_its_range_is_refused(ratio):
    with pytest.raises(FmmError, match=r"outside \[0, 1\]"):
        masking.mask_count(ratio, torch.tensor([3]))


@pytest.mark.parametrize("group", ["pair", "edge"])
def test_everything_masked_equals_the_authors(group):
    ids, maskable = golden_batch(group)
    got = masking.mask_random_share(ids, maskable, MASK, torch.arange(len(ids)), ratio=1.0, seed=0)
    same = torch.ones(len(ids), dtype=torch.bool)
    if group == "edge":
        same[8] = False  # `<s>` written inside a text: a token of the text for us, a separator for the authors
    expected = torch.from_numpy(GOLDEN[f"fixed_100pct_{group}_input_ids"]).long()
    assert torch.equal(got[same], expected[same])


def test_random_share_masks_exactly_the_count_and_no_special_token():
    ids, maskable = golden_batch("pair")
    for ratio in RATIOS:
        got = masking.mask_random_share(ids, maskable, MASK, torch.arange(len(ids)), ratio=ratio, seed=3)
        chosen = masking.top_share(
            Draw.RANDOM_MASKING.uniform(3, torch.arange(len(ids))[:, None], torch.arange(ids.shape[1])),
            maskable,
            ratio,
        )
        assert torch.equal(chosen.sum(1), masking.mask_count(ratio, maskable.sum(1)))
        assert torch.equal(got != ids, chosen & (ids != MASK)) and not (chosen & ~maskable).any()


def test_already_masked_tokens_count_as_words():
    ids, maskable = words(10)
    ids[0, 1:6] = MASK
    new = [
        (masking.mask_random_share(ids, maskable, MASK, torch.tensor([e]), ratio=0.5, seed=0) == MASK).sum().item() - 5
        for e in range(4000)
    ]
    assert np.mean(new) == pytest.approx(2.5, abs=0.06)  # hypergeometric, as the authors' 2.499


def test_ties_go_to_the_earlier_position_as_with_the_authors():
    expected = torch.from_numpy(GOLDEN["ties_all_equal_50pct_input_ids"]).long()
    for n in range(1, 61):
        ids = torch.ones(1, 62, dtype=torch.long)
        ids[0, : n + 2] = torch.tensor([0, *[5] * n, 2])
        _, maskable = words(n, width=62)
        got = masking.mask_by_importance(ids, torch.zeros(1, 62), maskable, MASK, 0.5)
        assert torch.equal(got[0], expected[n - 1])


def test_mask_by_importance_against_a_loop():
    generator = torch.Generator().manual_seed(0)
    ids, maskable = golden_batch("pair")
    for _ in range(5):
        scores = torch.randint(0, 4, ids.shape, generator=generator).float()
        for ratio in (0.0, 0.3, 0.7, 1.0):
            got = masking.mask_by_importance(ids, scores, maskable, MASK, ratio)
            for row in range(len(ids)):
                candidates = [p for p in range(ids.shape[1]) if maskable[row, p]]
                candidates.sort(key=lambda p: (ids[row, p] != MASK, -scores[row, p], p))
                expected = ids[row].clone()
                expected[candidates[: int(np.float32(ratio) * np.float32(len(candidates)))]] = MASK
                assert torch.equal(got[row], expected)


@pytest.mark.parametrize("strategy", masking.STRATEGIES)
def test_training_masks_depend_on_the_example_and_not_on_the_batch(strategy):
    ids, maskable = golden_batch("pair")
    examples = torch.arange(len(ids)) + 7
    options = {"strategy": strategy, "seed": 1, "epoch": 2}
    whole = masking.mask_for_training(ids, maskable, MASK, examples, **options)
    rows = masking.rows_to_mask(strategy, len(ids), examples, 1, 2)
    assert torch.equal(whole[~rows], ids[~rows])
    if strategy != "none":
        wide = torch.nn.functional.pad(ids, (0, 9), value=1), torch.nn.functional.pad(maskable, (0, 9))
        picked = rows.nonzero().flatten().flip(0)
        draws = masking.UniformMasking.of_training(1, 2)
        alone = masking.mask_uniformly(wide[0][picked], wide[1][picked], MASK, examples[picked], draws)
        assert torch.equal(alone[:, : ids.shape[1]], whole[picked]) and (alone[:, ids.shape[1] :] == 1).all()
        again = masking.mask_for_training(ids, maskable, MASK, examples, **options | {"epoch": 3})
        assert not torch.equal(whole, again)


@pytest.mark.parametrize(("size", "masked"), [(1, [1]), (2, [0, 1]), (5, [0, 0, 1, 1, 1]), (16, [0] * 8 + [1] * 8)])
def test_half_det_masks_the_rows_that_the_authors_mask(size, masked):
    rows = masking.rows_to_mask("half_det", size, torch.arange(size), 0, 0)
    assert rows.int().tolist() == masked


def test_half_ran_is_a_fair_coin():
    rows = masking.rows_to_mask("half_ran", 20000, torch.arange(20000), 0, 0)
    assert rows.float().mean().item() == pytest.approx(0.5, abs=0.012)


@pytest.mark.parametrize("max_ratio", [0.0, 0.5, 1.0])
def test_number_of_masked_tokens_is_distributed_as_the_authors(max_ratio):
    n = 20000
    ids, maskable = words(30)
    ids, maskable = ids.repeat(n, 1), maskable.repeat(n, 1)
    draws = masking.UniformMasking.of_training(0, 0)
    masked = masking.mask_uniformly(ids, maskable, MASK, torch.arange(n), draws, max_ratio) == MASK
    counts = torch.bincount(masked.sum(1), minlength=31).double()
    expected = torch.from_numpy(GOLDEN[f"max_{max_ratio}_count_histogram_0to30"]).double()
    both = counts + expected
    statistic = ((counts - expected) ** 2 / both.clamp(min=1)).sum()
    assert statistic < 59.7  # chi-squared with 30 degrees of freedom, p = 0.001


def test_ranks_put_what_cannot_be_ranked_behind():
    scores = torch.tensor([[5.0, 1.0, float("inf"), 1.0]])
    rankable = torch.tensor([[False, True, True, True]])
    assert masking.ranks(scores, rankable).tolist() == [[3, 1, 0, 2]]


def test_unknown_strategy_names_the_nearest():
    with pytest.raises(FmmError, match="did you mean half_det"):
        masking.rows_to_mask("half-det", 2, torch.arange(2), 0, 0)
