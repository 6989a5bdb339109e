"""MaSF: equal to the authors where it says so, and calibrated where it says that."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fmm import masf
from fmm.errors import FmmError

LEVEL = 0.05


@pytest.fixture(scope="module")
def golden():
    with np.load(Path(__file__).parent / "goldens/masf.npz") as data:
        return {name: torch.tensor(data[name]) for name in data.files}


@pytest.fixture(scope="module")
def authors(golden):
    return masf.fit(golden["fit_level1"].transpose(0, 1))


def test_levels_and_p_equal_the_authors(golden, authors):
    level2 = [masf.level2("authors", columns, golden["test_level1"][:, i]) for i, columns in enumerate(authors.columns)]
    assert torch.equal(torch.stack(level2, dim=1), golden["test_level2"])
    level3 = masf.fisher(authors.tails(golden["test_level1"]))
    torch.testing.assert_close(level3, golden["test_level3"], rtol=1e-5, atol=0)
    assert torch.equal(authors.score(golden["test_level1"]), golden["test_p"])
    assert torch.equal(authors.score(golden["fit_level1"]), golden["fit_p"])


def test_rows_are_scored_alike_in_any_company(golden, authors):
    calibrated = masf.fit(golden["fit_level1"].transpose(0, 1), "calibrated", torch.arange(256) % 2 == 0)
    for model in (authors, calibrated):
        whole = model.score(golden["test_level1"])
        for size in (1, 7):
            parts = [model.score(rows) for rows in golden["test_level1"].split(size)]
            assert torch.equal(torch.cat(parts), whole)


def test_summary_of_the_authors_p(golden):
    found = masf.summary(golden["test_p"], "authors", 256)
    assert found["below"] == {"0.001": 0.0, "0.005": 1 / 128, "0.01": 2 / 128, "0.05": 15 / 128, "0.1": 22 / 128}
    assert found["simes"] == pytest.approx(0.36666667)
    assert found["fisher"] == pytest.approx(1 - 0.9944364297, abs=1e-6)  # the authors print the CDF itself


def test_levels_below_one_in_n_plus_one_are_not_attainable():
    found = masf.summary(torch.full((10,), 1 / 151), "calibrated", 150)
    assert found["below"]["0.001"] is None and found["below"]["0.005"] is None
    assert found["below"]["0.01"] == 1.0 and found["n_calibration"] == 150
    assert masf.summary(torch.zeros(0), "calibrated", 150)["simes"] is None


@pytest.mark.parametrize("kind", masf.KINDS)
def test_few_fit_rows_beside_many_dimensions_cannot_reach_the_levels(kind):
    rng = np.random.default_rng(0)
    for rows, attainable in ((60, False), (4000, True)):
        fit_rows = torch.arange(rows) % 2 == 0
        model = masf.fit(signals(rng, rows, layers=2, dims=100 if rows == 60 else 4).transpose(0, 1), kind, fit_rows)
        p = model.score(signals(rng, 30, shift=100.0, layers=2, dims=100 if rows == 60 else 4))
        assert p.min() == pytest.approx(model.lowest_p)  # no row can be more extreme
        found = masf.summary(p, kind, len(model.fisher), model.lowest_p)
        assert (found["below"]["0.05"] is not None) is attainable


def signals(rng, rows, shift=0.0, layers=3, dims=16):
    """Correlated, skewed signals: a maximum over tokens looks like this. Returns [rows, layers, dims]."""
    common, own = rng.normal(size=(rows, layers, 2)), rng.normal(size=(rows, layers, dims))
    mixed = common @ np.linspace(-1, 1, 2 * dims).reshape(2, dims) + own + shift
    return torch.tensor(np.exp(0.3 * mixed), dtype=torch.float32)


def simulate(kind, repetitions, rng, shift=0.0, fit_rows=1200, rows=100):
    """Share of p < 0.05 and rejections of the two global tests over fresh fits and fresh test rows."""
    share, rejected = [], {"simes": 0, "fisher": 0}
    split = torch.arange(fit_rows) % 2 == 0
    for _ in range(repetitions):
        model = masf.fit(signals(rng, fit_rows).transpose(0, 1), kind, split)
        found = masf.summary(model.score(signals(rng, rows, shift)), kind, len(model.fisher))
        share.append(found["below"]["0.05"])
        for name in rejected:
            rejected[name] += found[name] < LEVEL
    return float(np.mean(share)), {name: count / repetitions for name, count in rejected.items()}


def test_calibrated_holds_its_level_under_the_null():
    share, rejected = simulate("calibrated", 300, np.random.default_rng(0))
    assert share == pytest.approx(0.05, abs=0.01)
    assert max(rejected.values()) <= 0.07


@pytest.mark.parametrize(("test", "shift"), [("fisher", 0.75), ("simes", 2.0)])
def test_calibrated_finds_a_shift(test, shift):
    """`shift` is in standard deviations of a dimension's own noise, in every dimension and layer."""
    _, rejected = simulate("calibrated", 40, np.random.default_rng(1), shift=shift)
    assert rejected[test] >= 0.9


def test_authors_reject_too_often_under_the_null():
    """The documented flaw of the default: share 0.085, global Simes 19%, Fisher 41% over 100 repetitions."""
    share, rejected = simulate("authors", 40, np.random.default_rng(2))
    assert 0.06 < share < 0.12 and rejected["fisher"] > 0.2


def test_choices_depend_on_seed_and_example_alone():
    ids = torch.arange(1000)
    half, fits = masf.masked_rows("half_det", ids, 0), masf.split_rows(ids, 0)
    assert 0.45 < half.float().mean() < 0.55 and 0.45 < fits.float().mean() < 0.55
    assert 0.2 < (half & fits).float().mean() < 0.3  # the two choices are independent
    assert torch.equal(masf.masked_rows("half_det", ids[500:], 0), half[500:])
    assert not masf.masked_rows("none", ids, 0).any() and masf.masked_rows("uniform", ids, 0).all()


def test_mistakes_are_sentences():
    layers = torch.randn(2, 6, 3)
    with pytest.raises(FmmError, match="unknown MaSF kind 'author'"):
        masf.fit(layers, "author")
    with pytest.raises(FmmError, match="at least 2 rows"):
        masf.fit(layers, "calibrated", torch.tensor([True] * 5 + [False]))
