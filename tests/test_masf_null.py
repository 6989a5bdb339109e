"""MaSF on held-out rows of the training distribution, through the real path: training, real masker, curve, p-values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fmm import masf
from fmm.curves import Curve, read_curve
from fmm.draws import Draw
from fmm.errors import FmmError
from fmm.masf import Masf, MasfByRatio
from fmm.masking import mask_by_importance
from fmm.measures import rankable_tokens
from fmm.tasks import masf_fit, racu, train
from fmm.tasks.subject import Subject

ROWS = ["dataset.rows.train=1500", "dataset.rows.validation=2000", "dataset.rows.test=3000"]
TRAINED = [*ROWS, "training.max_epochs=2", "logger=none", "dataset=toy", "selection=nomask", "baseline.draws=1"]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("masf")


@pytest.fixture(scope="module")
def random_curve(output: Path, compose: Any) -> Any:
    """p-values of randomly masked test rows of a model fine-tuned by a strategy: its record and curve."""

    def _random_curve(strategy: str, *overrides: str) -> tuple[Any, Curve]:
        given = [*TRAINED, f"output_dir={output}", f"masking.strategy={strategy}", "measure=rand", *overrides]
        train.run(compose("task=train", *given, "data.max_test_rows=20"))
        record = racu.run(compose("task=racu", *given))
        return record, read_curve(record.directory)

    return _random_curve


def shares(curve: Curve) -> np.ndarray:
    return (curve.masf["calibrated"] < 0.05).mean(axis=0)


def test_a_masked_models_p_values_hold_their_level_at_every_ratio(random_curve: Any) -> None:
    """3,000 rows, 1,000 calibration rows: a standard error of 0.008 at each ratio. Beyond 80% short texts tie, which
    counts against rejection."""
    record, curve = random_curve("half_det")
    rejected = shares(curve)
    assert len(rejected) == 11 and rejected.max() <= 0.07
    assert rejected[:9].min() >= 0.03
    step = record.results["masf"]["calibrated"][3]
    assert (step["n"], step["n_calibration"], step["n_fit"]) == (3000, 1000, 1000)
    assert step["below"]["0.05"] == pytest.approx(rejected[3])


def rejected_by(subject: Subject, drawn: Callable[[str, torch.Tensor, int], torch.Tensor], ratio: float) -> float:
    """Share of test rows, masked to `ratio`, that one MaSF rejects for all ratios; `drawn` masks its fit rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masf, "masked_rows", drawn)
        validation = subject.data.validation.batch(range(2000))
        signals = masf_fit._signals(subject, masf_fit._masked(subject, validation))
    rows = subject.data.test.batch(range(1000))
    scores = Draw.RANDOM_MEASURE.uniform(0, 0, rows["example_id"][:, None], torch.arange(rows["input_ids"].shape[1]))
    masked = mask_by_importance(
        rows["input_ids"], scores, rankable_tokens(rows, "first"), subject.classifier.mask_id, ratio
    )
    model = masf.fit(signals.unbind(1), "calibrated", torch.arange(2000) < 1000)
    return float((model.score(masf_fit._signals(subject, {**rows, "input_ids": masked})) < 0.05).double().mean())


def test_a_choice_of_rows_that_is_their_ratio_breaks_the_level(output: Path, random_curve: Any, compose: Any) -> None:
    """The test above can fail: where rows are masked whose ratio is below a half, as two draws that shared their keys
    once had it, MaSF sees no row masked further and rejects those that are."""

    def as_it_was(strategy: str, example_id: torch.Tensor, seed: int) -> torch.Tensor:
        return Draw.MASF_RATIO.uniform(seed, example_id) < 0.5

    random_curve("half_det", "data.max_test_rows=100")
    given = [*TRAINED, f"output_dir={output}", "masking.strategy=half_det", "measure=rand"]
    subject = racu.check(compose("task=racu", *given))
    _ = subject.classifier
    assert rejected_by(subject, as_it_was, 0.8) > 0.4
    assert rejected_by(subject, masf.masked_rows, 0.8) < 0.1


def test_a_plain_models_masked_rows_are_foreign_and_its_unmasked_ones_are_not(random_curve: Any) -> None:
    _, curve = random_curve("none", "data.max_test_rows=1000")
    rejected = shares(curve)
    assert 0.03 <= rejected[0] <= 0.07
    assert rejected[5] > 0.5 and rejected[-1] > 0.8


def test_a_model_trained_to_half_is_judged_by_half(random_curve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the ratio that it was trained to, its rows are read against those masked that far."""
    masked = []
    genuine = masf_fit.mask_by_importance

    def counting(ids: Any, scores: Any, rankable: Any, mask_id: int, ratio: float) -> Any:
        masked.append(ratio)
        return genuine(ids, scores, rankable, mask_id, ratio)

    monkeypatch.setattr(masf_fit, "mask_by_importance", counting)
    _, curve = random_curve("half_det", "masking.max_ratio=0.5", "data.max_test_rows=1000")
    assert sorted(set(masked)) == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    rejected = shares(curve)
    assert rejected[:6].max() <= 0.07 and rejected[-1] > rejected[5] + 0.1


def test_calibration_goes_on_where_it_was_killed(output: Path, random_curve: Any, compose: Any, capsys: Any) -> None:
    random_curve("half_det", "data.max_test_rows=100")
    folder = next(path for path in output.glob("cache/masf/*") if len(list(path.glob("calibrated-first-*"))) == 11)
    before = {path.name: path.read_bytes() for path in folder.glob("*.npy")}
    (folder / "calibrated-first-0.3.npy").unlink()
    (folder / "calibrated-first-0.7.npy").write_bytes(b"\x93NUMPY")
    capsys.readouterr()
    given = [*TRAINED, f"output_dir={output}", "masking.strategy=half_det", "measure=rand", "force=true"]
    given.append("data.max_test_rows=100")
    racu.run(compose("task=racu", *given))
    said = capsys.readouterr().out
    assert said.count("calibrating MaSF") == 2 and "is damaged; computing it again" in said
    assert {path.name: path.read_bytes() for path in folder.glob("*.npy")} == before


def test_a_ratio_without_reference_rows_is_a_sentence() -> None:
    levels = Masf("calibrated", torch.zeros(1, 1, 4), torch.zeros(1, 4), torch.zeros(0))
    model = MasfByRatio(levels, {0.0: torch.zeros(9), 0.5: torch.ones(9)}, 0.5)
    assert torch.equal(model.at(0.9).fisher, torch.ones(9)) and torch.equal(model.at(0.0).fisher, torch.zeros(9))
    with pytest.raises(FmmError, match=r"no reference rows masked at 0\.2; it has 0, 0\.5"):
        model.at(0.2)
