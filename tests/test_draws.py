"""Named draws: uniform, reproducible, and unrelated to one another whatever their keys are."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from scipy import stats

from fmm import masf
from fmm.draws import Draw, hashed_uniform
from fmm.masking import UniformMasking, mask_for_training, mask_uniformly

IDS = torch.arange(20_000)
SEEDS = (0, 1, 3, 5)
EPOCHS = (0, 1, 3, 5)
ORDERS = (0, 1, 4)
NUMPY = (Draw.BATCH_ORDER, Draw.DROPOUT, Draw.NEW_WEIGHTS, Draw.SPLIT, Draw.ROW_LIMIT)


def per_example() -> Iterator[tuple[str, torch.Tensor]]:
    """Each named draw of one number an example, at several seeds, epochs, orders and positions."""
    values = {"seed": SEEDS, "epoch": EPOCHS, "order": ORDERS, "position": (1, 5)}
    for draw in Draw:
        if draw in NUMPY:
            continue
        for keys in itertools.product(*(values.get(key, (IDS,)) for key in draw.keys)):
            shown = [key if isinstance(key, int) else "id" for key in keys]
            yield f"{draw.name}{shown}", draw.uniform(*keys)


def numpy_draws() -> Iterator[tuple[str, torch.Tensor]]:
    """Permutations of the rows by the draws that are not one number a key."""
    for draw in (Draw.BATCH_ORDER, Draw.SPLIT, Draw.ROW_LIMIT):
        for keys in itertools.product(SEEDS, repeat=len(draw.keys)):
            yield f"{draw.name}{keys}", torch.from_numpy(draw.generator(*keys).permutation(len(IDS)) / len(IDS))


@pytest.fixture(scope="module")
def draws() -> dict[str, torch.Tensor]:
    return dict(itertools.chain(per_example(), numpy_draws()))


def test_every_draw_is_covered(draws: dict[str, torch.Tensor]) -> None:
    named = {name.split("[")[0].split("(")[0] for name in draws}
    assert named == {draw.name for draw in Draw} - {"DROPOUT", "NEW_WEIGHTS"}


def test_no_two_draws_have_one_number() -> None:
    assert len({draw.number for draw in Draw}) == len(Draw)
    assert len(Draw.__members__) == len(list(Draw))  # an Enum makes an alias of a repeated value


def test_no_two_draws_are_correlated(draws: dict[str, torch.Tensor]) -> None:
    ranks = np.stack([stats.rankdata(values.double().numpy()) for values in draws.values()]).astype(np.float32)
    correlation = np.corrcoef(ranks)
    np.fill_diagonal(correlation, 0)
    first, second = np.unravel_index(np.abs(correlation).argmax(), correlation.shape)
    names = list(draws)
    # 20,000 independent ids: a standard error of 0.007; the largest of some ten thousand pairs is about 0.028
    assert np.abs(correlation).max() < 0.036, (names[first], names[second], correlation[first, second])


@pytest.mark.parametrize("draw", [draw for draw in Draw if draw not in NUMPY])
def test_pairs_that_used_to_collide_are_unrelated(draw: Draw) -> None:
    """The bar of 0.03 for each draw against every other, at the keys that a run uses together: seed 0, epoch 0."""
    zero = {"seed": 0, "epoch": 0, "order": 0, "position": 1, "example": IDS}
    one = draw.uniform(*(zero[key] for key in draw.keys))
    for other in Draw:
        if other is draw or other in NUMPY:
            continue
        for number in (0, 3, 5):
            keys = zero | {"epoch": number, "order": number}
            another = other.uniform(*(keys[key] for key in other.keys))
            assert abs(stats.spearmanr(one, another).statistic) < 0.03, (draw.name, other.name, number)


def test_every_draw_is_uniform(draws: dict[str, torch.Tensor]) -> None:
    p = np.array([stats.kstest(values.double().numpy(), "uniform").pvalue for values in draws.values()])
    assert p.min() > 0.05 / len(p) / 10
    assert all(float(values.min()) >= 0 and float(values.max()) < 1 for values in draws.values())


def test_positions_of_a_row_and_rows_of_a_position_are_independent() -> None:
    values = Draw.TRAINING_TOKEN.uniform(0, 0, torch.arange(200)[:, None], torch.arange(500))
    counts = torch.histc(values, 20, 0, 1)
    assert ((counts - 5000) ** 2 / 5000).sum() < 45.3  # chi-squared with 19 degrees of freedom, p = 0.0006
    flat = torch.stack([values.flatten(), values.roll(1, 0).flatten(), values.roll(1, 1).flatten()])
    assert (torch.corrcoef(flat) - torch.eye(3)).abs().max() < 0.015


def test_a_draw_wants_all_its_keys() -> None:
    with pytest.raises(ValueError, match="TRAINING_RATIO is drawn by seed, epoch, example"):
        Draw.TRAINING_RATIO.uniform(0, IDS)


def test_values_are_fixed_for_good() -> None:
    """Records name the seed alone, so that the same seed must give the same masks in a year."""
    assert Draw.TRAINING_RATIO.uniform(0, 0, torch.tensor([0, 1])).tolist() == [0.5650297999382019, 0.9098253846168518]
    assert hashed_uniform(0).item() == pytest.approx(0.8833, abs=1e-4)
    assert Draw.SPLIT.generator(0).permutation(5).tolist() == [1, 4, 3, 2, 0]


def test_masf_is_fitted_to_rows_masked_at_every_ratio() -> None:
    """Half of the rows are masked, at ratios uniform on [0, 1) and not those of a half chosen by the ratio itself."""
    n, width = 20_000, 200
    ids = torch.arange(n)
    tokens = torch.zeros(n, width, dtype=torch.long)
    masked = mask_uniformly(tokens, torch.ones(n, width, dtype=torch.bool), 1, ids, UniformMasking.of_masf(0))
    chosen = masf.masked_rows("half_det", ids, seed=0)
    share = masked.double().mean(dim=1).numpy()
    assert chosen.double().mean().item() == pytest.approx(0.5, abs=0.012)
    assert stats.kstest(share[chosen.numpy()], "uniform").statistic < 0.02
    assert abs(np.corrcoef(share, chosen.double().numpy())[0, 1]) < 0.03
    fits = masf.split_rows(ids, seed=0)
    assert abs(np.corrcoef(fits.double().numpy(), share)[0, 1]) < 0.03
    assert abs(np.corrcoef(fits.double().numpy(), chosen.double().numpy())[0, 1]) < 0.03


@pytest.mark.parametrize("epoch", [0, 3, 5])
def test_the_masked_half_of_training_is_masked_at_every_ratio(epoch: int) -> None:
    n, width = 20_000, 100
    tokens, maskable = torch.zeros(n, width, dtype=torch.long), torch.ones(n, width, dtype=torch.bool)
    masked = mask_for_training(tokens, maskable, 1, torch.arange(n), strategy="half_ran", seed=0, epoch=epoch)
    share = masked.double().mean(dim=1)
    touched = share[share > 0].numpy()
    assert len(touched) / n == pytest.approx(0.5, abs=0.02)
    assert stats.kstest(touched, "uniform").statistic < 0.02
