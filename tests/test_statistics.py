"""Intervals against the authors' numbers and against simulation; the fast metrics against torchmetrics."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fmm import metrics
from fmm.errors import FmmError
from fmm.statistics import (
    confusion,
    holm,
    metric_from_confusion,
    metric_interval,
    papers_interval,
    rank_of,
    resample_rows,
    student_interval,
)

GOLDENS = json.loads((Path(__file__).parent / "goldens/racu.json").read_text())
COLUMNS = [(case, column) for case in GOLDENS["bootstrap_confint"] for column in case["columns"]]


@pytest.mark.parametrize(("case", "column"), COLUMNS, ids=lambda part: part if isinstance(part, str) else part["name"])
def test_bootstrap_over_seeds_equals_the_authors(case, column):
    found = papers_interval(case["data"][column], seed=case["seed"])
    expected = [case["result"][f"{column}_{name}"] for name in ("mean", "lower", "upper", "n")]
    assert list(found) == pytest.approx(expected, rel=1e-12)


def test_one_seed_has_no_student_interval():
    assert student_interval([0.4]) == (0.4, None, None, 1)
    assert student_interval([0.4, float("inf")]).lower is None
    assert student_interval([]).n == 0


def test_student_covers_where_the_papers_interval_does_not():
    rng, hits = np.random.default_rng(0), {"student": 0, "papers": 0}
    for values in rng.normal(0, 1, (200, 3)):
        for name, interval in (("student", student_interval(values)), ("papers", papers_interval(values))):
            hits[name] += interval.lower <= 0 <= interval.upper
    assert hits["student"] / 200 > 0.91
    assert hits["papers"] / 200 < 0.85


def test_holm_keeps_gaps_and_order():
    assert holm([0.02, np.nan, 0.01]).tolist() == pytest.approx([0.02, np.nan, 0.02], nan_ok=True)
    assert holm([0.6, 0.7]).tolist() == [1.0, 1.0]
    assert rank_of([[0.1, 0.9, 0.9]]).tolist() == [[3.0, 1.5, 1.5]]


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_fast_metrics_equal_torchmetrics(classes):
    rng = np.random.default_rng(classes)
    labels, logits = rng.integers(0, classes - 1, 80), rng.normal(size=(80, 4, classes)).astype(np.float32)
    logits[:, 3, 0] = 9  # a constant prediction; class `classes - 1` is never true
    counts = confusion(labels, logits.argmax(2), classes)
    for ratio in range(4):
        expected = metrics.compute(metrics.NAMES, torch.tensor(logits[:, ratio]), torch.tensor(labels))
        found = {name: float(metric_from_confusion(name, counts[ratio])) for name in metrics.NAMES}
        assert found == pytest.approx(expected, abs=1e-6)
    with pytest.raises(FmmError, match="unknown metric"):
        metric_from_confusion("f2", counts)


def test_weighted_confusion_is_the_confusion_of_the_resample():
    rng = np.random.default_rng(1)
    labels, predictions = rng.integers(0, 3, 40), rng.integers(0, 3, (40, 2))
    weights = resample_rows(40, 3, rng)
    assert weights.sum(axis=1).tolist() == [40, 40, 40]
    rows = np.repeat(np.arange(40), weights[1].astype(int))
    assert np.array_equal(confusion(labels, predictions, 3, weights)[1], confusion(labels[rows], predictions[rows], 3))


def test_bands_cover_the_population_metric():
    rng, hits = np.random.default_rng(2), 0
    for _ in range(200):
        labels = rng.integers(0, 2, 150)
        predictions = np.where(rng.random(150) < 0.8, labels, 1 - labels)[:, None]
        lower, upper = metric_interval(["accuracy"], labels, predictions, 2, replicates=400, seed=3)["accuracy"]
        hits += bool(lower[0] <= 0.8 <= upper[0])
    assert 0.90 <= hits / 200 <= 0.985
