"""What the evaluations tell a logger, and what they say of a model of ours that is damaged."""

from __future__ import annotations

import pytest

from fmm import records, tracking
from fmm.data.matching import Matching
from fmm.errors import FmmError
from fmm.tasks import check, explain
from fmm.tasks.common import TrainedModel
from fmm.tasks.subject import Subject
from tests.conftest import save_tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a random two-layer encoder."""
    return save_tiny_model(tmp_path_factory.mktemp("model") / "model", ["a good and not so bad film"] * 8, 64)


@pytest.fixture
def settings(model, compose, tmp_path):
    def _settings(task, *overrides):
        small = ["data.max_train_rows=20", "data.max_eval_rows=30", "data.max_test_rows=6", "ratios=[0,1]"]
        fixed = [f"task={task}", "dataset=toy", f"checkpoint={model}", f"output_dir={tmp_path / 'out'}", *small]
        return compose(*fixed, "logger=none", "masf=none", "measure=grad_l2", *overrides)

    return _settings


@pytest.fixture
def shown(monkeypatch):
    """The summaries that trackers get, as (folder, values)."""
    found = []

    class Shown(tracking.Tracker):
        def summary(self, values):
            assert not (self.directory / records.RECORD).exists()
            found.append((self.directory, values))

    monkeypatch.setitem(tracking.TRACKERS, "none", Shown)
    return found


def test_an_explanation_is_shown_once(settings, shown):
    for _ in range(2):
        record = explain.run(settings("explain", "text=a good film"))
    ((directory, values),) = shown
    assert directory == record.directory
    assert values == {"accuracy": None, "n_examples": 1, "n_labelled": 0, "predicted_targets": 1}


def test_a_check_is_shown_with_the_acu_of_its_outcomes(settings, shown):
    record = check.run(settings("check"))
    directory, values = shown[-1]
    assert directory == record.directory
    assert values["n_examples"] == 6
    assert values["acu/reversed grad_l2"] == next(
        outcome["acu"] for outcome in record.results["outcomes"] if outcome["name"] == "reversed grad_l2"
    )


def test_a_damaged_model_of_ours_is_to_be_trained_again(compose, tmp_path):
    damaged = save_tiny_model(tmp_path / "model", ["a good film"] * 8, 64)
    (damaged / "model.safetensors").write_bytes(b"torn")
    matching = Matching(["negative", "positive"], ["negative", "positive"], [0, 1])
    ours = Subject(compose("dataset=toy"), None, TrainedModel(damaged, "0" * 12, None), matching)
    with pytest.raises(FmmError, match=r"could not be loaded .*task=train dataset=toy .*force=true$"):
        _ = ours.classifier
    checkpoint = compose("dataset=toy", f"checkpoint={damaged}")
    given = Subject(checkpoint, None, TrainedModel(damaged, "0" * 12, None), matching)
    with pytest.raises(FmmError, match="give the folder of a trained classifier"):
        _ = given.classifier
