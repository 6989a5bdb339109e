"""The hierarchical bootstrap: paired, refusing one seed, and covering the truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fmm.comparison import compare
from fmm.curves import Curve
from fmm.errors import FmmError

RATIOS = np.array([0.0, 0.5, 1.0])


def curve(labels, right):
    """A two-class curve whose predictions are right where `right` [N, R] says."""
    predictions = np.where(right, labels[:, None], 1 - labels[:, None])
    n = len(labels)
    logits = np.eye(2, dtype=np.float32)[predictions]
    ones = np.ones(n, np.int64)
    return Curve(RATIOS, np.arange(n), labels, labels, logits, np.zeros((n, 3), np.int64), ones, ones, {})


def seed_of_curves(rng, drops, labels, difficulty, spread):
    """Curves of `rand` and measures: accuracy 0.95, 0.8 - drop, 0.5; rows keep their difficulty over seeds."""
    made = {}
    for name, drop in {"rand": 0.0, **drops}.items():
        chance = np.array([0.95, 0.8 - drop - spread * rng.normal() * (drop > 0), 0.5])
        luck = 0.5 * difficulty[:, None] + 0.5 * rng.random((len(labels), 3))
        cut = np.where(chance < 0.5, np.sqrt(chance / 2), 1 - np.sqrt((1 - chance) / 2))  # luck: mean of two uniforms
        made[name] = curve(labels, luck < cut)
    return made


def experiment(rng, seeds, rows, drops, spread):
    labels, difficulty = rng.integers(0, 2, rows), rng.random(rows)
    return [seed_of_curves(rng, drops, labels, difficulty, spread) for _ in range(seeds)]


@pytest.mark.parametrize(("seeds", "spread"), [(3, 0.0), (3, 0.05), (5, 0.02)])
def test_interval_of_the_difference_covers(seeds, spread):
    rng, hits, trials = np.random.default_rng(seeds), 0, 150
    for _ in range(trials):
        found = compare(
            experiment(rng, seeds, 120, {"a": 0.25, "b": 0.15}, spread), "accuracy", quantity="acu", replicates=200
        )
        lower, upper = found.pairs[0].difference[1:3]
        hits += lower <= 0.05 <= upper  # half of 0.25 - 0.15: the trapezoid of one inner ratio
    assert 0.915 <= hits / trials <= 1.0


def test_interval_of_racu_covers():
    rng, hits, trials = np.random.default_rng(1), 0, 150
    for _ in range(trials):
        found = compare(experiment(rng, 3, 120, {"a": 0.25}, 0.02), "accuracy", replicates=200)
        lower, upper = found.estimates["a"][1:3]
        hits += lower <= 0.125 / 0.2625 <= upper  # areas of the curves of chances above
    assert 0.915 <= hits / trials <= 1.0


def test_a_draw_in_which_random_masking_hurts_nothing_does_not_explode():
    """With few rows the normaliser of some draws cancels to rounding errors, 1e-17; they must not make the interval."""
    rng, labels, ratios = np.random.default_rng(0), np.zeros(16, np.int64), np.linspace(0, 1, 11)
    seeds = []
    for _ in range(3):
        right = {"rand": rng.random((16, 11)) < np.linspace(0.9, 0.5, 11), "a": rng.random((16, 11)) < 0.4}
        seeds.append({name: replace(curve(labels, of), ratios=ratios) for name, of in right.items()})
    found = compare(seeds, "accuracy").estimates["a"]
    assert np.isfinite(found.mean) and found.upper - found.lower < 100


def test_a_clear_difference_is_found_and_ranked():
    rng = np.random.default_rng(0)
    found = compare(experiment(rng, 5, 400, {"good": 0.3, "bad": 0.02, "worse": 0.01}, 0.005), "accuracy")
    pair = next(p for p in found.pairs if {p.first, p.second} == {"bad", "good"})
    assert pair.p_holm < 0.05 and pair.difference.upper < 0
    best = next(rank for rank in found.ranks if rank.measure == "good")
    assert (best.rank, best.lower, best.upper) == (1, 1, 1)
    assert found.n_rows == 400 and found.estimates["good"].n == 5


def test_one_seed_gives_intervals_over_its_rows():
    found = compare(experiment(np.random.default_rng(0), 1, 200, {"a": 0.3, "b": 0.1}, 0), "accuracy", replicates=200)
    assert found.estimates["a"].n == 1 and found.estimates["a"].lower > 0
    assert found.pairs[0].p_holm is not None and found.ranks[0].upper is not None


def test_a_measure_against_itself_is_no_difference():
    seeds = experiment(np.random.default_rng(0), 3, 60, {"a": 0.2}, 0)
    for curves in seeds:
        curves["b"] = curves["a"]
    pair = compare(seeds, "accuracy", replicates=50).pairs[0]
    assert pair.difference[:3] == (0, 0, 0) and pair.p == 1


def test_missing_baseline_is_refused():
    seeds = experiment(np.random.default_rng(0), 2, 50, {"a": 0.2}, 0)
    del seeds[1]["rand"]
    with pytest.raises(FmmError, match="curve of rand"):
        compare(seeds, "accuracy")
