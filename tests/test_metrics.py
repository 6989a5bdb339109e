"""Metrics against the authors' values and the closed forms of the majority baseline."""

import json
from pathlib import Path

import pytest
import torch
from sklearn.metrics import f1_score

from fmm import metrics
from fmm.errors import FmmError

CASES = json.loads((Path(__file__).parent / "goldens" / "metrics.json").read_text())
AUTHORS_NAME = {"accuracy": "accuracy", "macro_f1": "macro_f1", "micro_f1": "micro_f1", "matthews": "matthew"}


@pytest.mark.parametrize("case", [c for c in CASES if "QUIRK" not in c["name"]], ids=lambda c: c["name"])
def test_equals_the_authors(case):
    got = metrics.compute(metrics.NAMES, torch.tensor(case["logits"]), torch.tensor(case["labels"]))
    assert got == pytest.approx({k: case["result"][v] for k, v in AUTHORS_NAME.items()}, abs=1e-6)


@pytest.mark.parametrize("case", [c for c in CASES if "QUIRK" in c["name"]], ids=lambda c: c["name"])
def test_departs_from_the_authors_where_argmax_is_meant(case):
    logits, labels = torch.tensor(case["logits"]), torch.tensor(case["labels"])
    expected = f1_score(labels, logits.argmax(1), average="macro", labels=range(case["num_classes"]), zero_division=0)
    assert metrics.compute(["macro_f1"], logits, labels)["macro_f1"] == pytest.approx(expected, abs=1e-6)
    assert metrics.compute(["macro_f1"], logits, labels)["macro_f1"] != pytest.approx(case["result"]["macro_f1"])


def test_majority_on_cb():
    labels = torch.tensor([0] * 23 + [1] * 28 + [2] * 5)
    majority, values = metrics.majority_baseline(metrics.NAMES, [88, 100, 12], labels)
    assert majority == 1
    share = 28 / 56
    assert values["macro_f1"] == pytest.approx((1 / 3) * 2 * share / (1 + share), abs=1e-6)
    assert values["accuracy"] == values["micro_f1"] == pytest.approx(share)
    assert values["matthews"] == 0.0


def test_class_absent_from_both_sides_counts_as_zero():
    values = metrics.of_predictions(["macro_f1"], torch.tensor([0, 1]), torch.tensor([0, 1]), num_classes=4)
    assert values["macro_f1"] == 0.5


def test_unknown_metric_names_the_nearest():
    with pytest.raises(FmmError, match="did you mean accuracy"):
        metrics.compute(["acuracy"], torch.zeros(1, 2), torch.tensor([0]))
