"""One model, its rows alone: coverage, tests under the null, ranks, blocks against the slow way, several orders."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fmm import metrics
from fmm.comparison import compare, compare_sample, normalisers, sample
from fmm.curves import Curve
from fmm.faithfulness import acu, normaliser
from fmm.resampling import performance
from fmm.statistics import resample_rows

RATIOS = np.array([0.0, 0.25, 0.5, 0.75, 1.0])


def logits_of(labels, right):
    return np.eye(2, dtype=np.float32)[np.where(right, labels[:, None], 1 - labels[:, None])]


def curve(labels, right, more=()):
    n = len(labels)
    ones = np.ones(n, np.int64)
    further = np.stack([logits_of(labels, each) for each in more]) if len(more) else None
    masked = np.zeros((n, len(RATIOS)), np.int64)
    return Curve(RATIOS, np.arange(n), labels, labels, logits_of(labels, right), masked, ones, ones, {}, further)


def model(rng, n, drops, *, start=0.9, end=0.5, positives=0.5, draws=1):
    """Curves of `rand` and measures whose chance to be right falls by `drops` more at the inner ratios."""
    labels, difficulty = (rng.random(n) < positives).astype(int), rng.random(n)
    ends = rng.random((n, 2))
    chance = np.linspace(start, end, len(RATIOS))

    def path(drop):
        luck = 0.5 * difficulty[:, None] + 0.5 * rng.random((n, len(RATIOS)))
        luck[:, [0, -1]] = 0.5 * difficulty[:, None] + 0.5 * ends
        wanted = chance - drop * np.array([0, 1, 1, 1, 0])
        return luck < np.where(wanted < 0.5, np.sqrt(wanted / 2), 1 - np.sqrt((1 - wanted) / 2))

    curves = {"rand": curve(labels, path(0), [path(0) for _ in range(draws - 1)])}
    return curves | {name: curve(labels, path(drop)) for name, drop in drops.items()}


CASES = {
    "plain": {"drops": {"a": 0.2, "b": 0.15}},
    "rare class": {"drops": {"a": 0.2, "b": 0.1}, "positives": 0.1, "start": 0.95, "end": 0.6},
    "nearly always right": {"drops": {"a": 0.01, "b": 0.0}, "start": 0.995, "end": 0.98},
}


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1", "matthews"])
@pytest.mark.parametrize("case", CASES)
def test_intervals_over_rows_cover(metric, case):
    truth = sample([model(np.random.default_rng(5), 200_000, **CASES[case])], metric, replicates=2)
    area, other, scale = (*truth.area[0], truth.scale[0])
    hits, trials = {"acu": 0, "difference": 0, "normaliser": 0, "racu": 0}, 40
    for n in (64, 200, 1000):
        rng = np.random.default_rng(n)
        for trial in range(trials):
            found = sample([model(rng, n, draws=2, **CASES[case])], metric, replicates=150, seed=trial)
            by_acu, by_racu = (compare_sample(found, metric, quantity) for quantity in ("acu", "racu"))
            hits["acu"] += covers(by_acu.estimates["a"], area)
            hits["difference"] += covers(by_acu.pairs[0].difference, area - other)
            hits["normaliser"] += covers(normalisers(found)[0].interval, scale)
            hits["racu"] += by_racu.undefined is not None or covers(by_racu.estimates["a"], area / scale)
    assert min(hits.values()) / (3 * trials) >= 0.9


def covers(interval, truth):
    return interval.lower is None or interval.lower <= truth <= interval.upper


def test_p_values_of_equal_measures_are_uniform_and_agree_with_intervals():
    """Measures that differ by nothing but their draw: a 5% test rejects in 5%, and where the interval leaves 0 out."""
    rng, found = np.random.default_rng(0), []
    for trial in range(300):
        pair = compare(
            [model(rng, 100, {"a": 0.1, "b": 0.1})], "accuracy", quantity="acu", replicates=150, seed=trial
        ).pairs[0]
        assert (pair.p < 0.05) == (not pair.difference.lower <= 0 <= pair.difference.upper)
        found.append(pair.p)
    for level in (0.05, 0.25, 0.5, 0.75):
        assert abs(np.mean(np.array(found) < level) - level) < 3.5 * np.sqrt(level * (1 - level) / 300)


def test_the_best_of_many_that_are_no_better_than_random_is_rarely_taken_for_better():
    rng, taken, open_ranks = np.random.default_rng(1), 0, 0
    for trial in range(100):
        names = [f"m{i}" for i in range(8)]
        found = compare(
            [model(rng, 80, dict.fromkeys(names, 0.0))], "accuracy", quantity="acu", replicates=150, seed=trial
        )
        taken += any(found.p_random[name] < 0.05 and found.estimates[name].mean > 0 for name in names)
        open_ranks += all((rank.lower, rank.upper) == (1, 8) for rank in found.ranks)
    assert taken <= 8 and open_ranks >= 90


def test_clear_differences_are_ranked_and_told_apart():
    found = compare([model(np.random.default_rng(0), 600, {"good": 0.35, "bad": 0.05, "worse": 0.04})], "accuracy")
    ranks = {rank.measure: (rank.rank, rank.lower, rank.upper) for rank in found.ranks}
    assert ranks["good"] == (1, 1, 1) and ranks["worse"][1:] == (2, 3)
    assert found.told_apart("good") == {"bad", "worse"} and found.told_apart("bad") == {"good"}


@pytest.mark.parametrize("metric", metrics.NAMES)
def test_blocks_give_the_numbers_of_the_slow_way(metric, monkeypatch):
    """All resamples and rows in blocks of a few against one resample at a time, and one row set with one draw."""
    monkeypatch.setattr("fmm.resampling._CELLS", 400)
    monkeypatch.setattr("fmm.resampling._DRAWN", 120)
    monkeypatch.setattr("fmm.resampling._FEATURES", 700)
    rng = np.random.default_rng(3)
    models = [list(model(rng, 50, {"a": 0.2, "b": 0.1}, draws=3).values()) for _ in range(2)]
    models = [[*curves[1:], curves[0]] for curves in models]
    weights = resample_rows(50, 20, np.random.default_rng(7)).astype(int)
    for curves, (exact, drawn) in zip(models, performance(models, metric, 20, 7)):
        assert np.allclose(exact, [each.metric(metric) for each in curves])
        for times, values in zip(weights, drawn):
            rows = np.repeat(np.arange(50), times)
            assert np.allclose(values, [each.select(rows).metric(metric) for each in curves])


def test_further_orders_enter_the_mean_and_narrow_the_interval():
    curves = model(np.random.default_rng(0), 300, {"a": 0.1}, draws=6)
    baseline = curves["rand"]
    orders = [replace(baseline, logits=each, more=None) for each in [baseline.logits, *baseline.more]]
    means = [acu(RATIOS, curves["a"].metric("accuracy"), order.metric("accuracy")) for order in orders]
    several = sample([curves], "accuracy")
    alone = sample([curves | {"rand": orders[0]}], "accuracy")
    assert several.area[0, 0] == pytest.approx(np.mean(means))
    assert several.scale[0] == pytest.approx(np.mean([normaliser(RATIOS, o.metric("accuracy")) for o in orders]))
    assert several.area_drawn.std() < 0.9 * alone.area_drawn.std()
    assert baseline.draws == 6 and baseline.restrict(np.arange(10)).more.shape[:2] == (5, 10)


def test_all_rows_alike_is_no_certainty():
    """60 rows that agree leave room for 1 in 20 that does not."""
    labels = np.zeros(60, np.int64)
    right = np.tile([True, True, True, True, False], (60, 1))
    found = compare(
        [{"rand": curve(labels, right), "a": curve(labels, right & (RATIOS == 0))}], "accuracy", quantity="acu"
    )
    ends = found.estimates["a"]
    assert ends.mean == pytest.approx(0.75) and 0.69 < ends.lower < 0.735


@pytest.mark.parametrize("rows", [1, 2])
def test_one_row_has_no_interval_and_two_have_a_wide_one(rows):
    found = compare([model(np.random.default_rng(0), rows, {"a": 0.2, "b": 0.1})], "accuracy", quantity="acu")
    ends = found.estimates["a"]
    assert (ends.lower is None) == (rows == 1)
    assert all(p is None or p > 0.05 for p in found.p_random.values())
