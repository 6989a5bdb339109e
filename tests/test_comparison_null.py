"""Claims about measures where there is nothing to find: random orders of rows on a model, through the tasks.

The random orders of a row are exchangeable, so that measures made of them are equal in truth.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fmm.comparison import LEVEL, compare
from fmm.curves import CURVE, ORDERS, Curve, from_table, with_orders
from fmm.data import toy
from fmm.records import read_parquet
from fmm.tasks import check, racu
from tests.conftest import save_tiny_model

ORDERS_OF_A_ROW, BASELINE, TRIALS, ROWS_OF_A_TRIAL = 10, 4, 200, 80


@pytest.fixture(scope="module")
def orders(compose: Any, tmp_path_factory: pytest.TempPathFactory) -> Curve:
    """Ten random orders of 200 rows on a model that answers them all right while they are unmasked.

    Its weights are random and half of its answers are each class: right is what it answers to the unmasked row.
    """
    output = tmp_path_factory.mktemp("null")
    model = save_tiny_model(output / "model", toy.generate(200, "words").texts, 64)
    given = [f"checkpoint={model}", f"output_dir={output}", "dataset=toy", "data.max_test_rows=200", "masf=none"]
    draws = [f"baseline.draws={ORDERS_OF_A_ROW}", "ratios=[0,0.2,0.5,0.8,1]"]
    record = racu.run(compose("task=racu", "measure=rand", "data.max_eval_rows=20", "logger=none", *draws, *given))
    assert record is not None
    table, more = read_parquet(Path(record.directory) / CURVE), read_parquet(Path(record.directory) / ORDERS)
    assert table is not None and more is not None
    curve = with_orders(from_table(table), more)
    assert curve.more is not None
    middle = np.median(curve.logits[:, 0], axis=0)
    right = (curve.logits[:, 0] - middle).argmax(axis=-1)
    curve = replace(curve, label=right, target=right, logits=curve.logits - middle, more=curve.more - middle)
    performance = curve.metric("accuracy")
    assert performance[0] == 1 and performance[-1] < 0.8  # there is something that orders could differ in
    return curve


def trial(rng: np.random.Generator, curve: Curve) -> dict[str, Curve]:
    """Some of the rows, the orders of each shuffled: the first are random masking's, each other is a measure's."""
    assert curve.more is not None
    rows = np.sort(rng.choice(len(curve.example_id), ROWS_OF_A_TRIAL, replace=False))
    chosen = curve.restrict(curve.example_id[rows])
    answers = np.concatenate([chosen.logits[None], chosen.more])
    places = rng.permuted(np.tile(np.arange(len(answers))[:, None], len(rows)), axis=0)
    shuffled = np.take_along_axis(answers, places[..., None, None], axis=0)
    measures = {f"m{k}": replace(chosen, logits=each, more=None) for k, each in enumerate(shuffled[BASELINE:])}
    return {"rand": replace(chosen, logits=shuffled[0], more=shuffled[1:BASELINE])} | measures


def at_most(level: float, trials: int) -> float:
    """Number of rejections that a test of this level exceeds in one of a thousand sets of trials."""
    return float(stats.binom.ppf(0.999, trials, level))


def test_equal_measures_are_told_apart_in_one_of_twenty_reports(orders: Curve) -> None:
    """Holm over all pairs of six measures, and over the six against random masking: no more than 5% of reports err."""
    rng, apart, beaten = np.random.default_rng(0), 0, 0
    for number in range(TRIALS):
        compared = compare([trial(rng, orders)], "accuracy", quantity="acu", replicates=150, seed=number)
        apart += any(pair.p_holm is not None and pair.p_holm < LEVEL for pair in compared.pairs)
        beaten += any(p is not None and p < LEVEL for p in compared.p_random.values())
    assert apart <= at_most(LEVEL, TRIALS) and beaten <= at_most(LEVEL, TRIALS)


def test_a_check_fails_random_masking_in_one_of_twenty_and_no_reversed_noise(orders: Curve) -> None:
    rng, failed, wrong = np.random.default_rng(1), 0, 0
    for _ in range(TRIALS):
        curves = trial(rng, orders)
        again = check._outcome("", curves["m0"], curves["rand"], "accuracy", "0 within the interval")
        reverse = check._outcome("", curves["m1"], curves["rand"], "accuracy", "negative")
        failed += again.passed is False
        wrong += reverse.passed is False
    assert failed <= at_most(LEVEL, TRIALS) and wrong <= at_most(LEVEL / 2, TRIALS)


def test_a_check_finds_an_order_that_is_not_random(orders: Curve) -> None:
    """Of each row the order that keeps the most right answers: no noise, and its opposite would be expected."""
    assert orders.more is not None
    answers = np.concatenate([orders.logits[None], orders.more])
    right = (answers.argmax(-1) == orders.label[:, None]).sum(-1)
    best = answers[right.argmax(0), np.arange(len(orders.label))]
    kept = replace(orders, logits=best, more=None)
    assert check._outcome("", kept, orders, "accuracy", "0 within the interval").passed is False
    assert check._outcome("", kept, orders, "accuracy", "negative").passed is True
    assert check._outcome("", kept, orders, "accuracy", "positive").passed is False
    one = kept.restrict(kept.example_id[:1]), orders.restrict(orders.example_id[:1])
    assert check._outcome("", *one, "accuracy", "negative").passed is None
