"""MaSF on held-out rows of the training distribution, through the real path: training, real masker, curve, p-values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fmm.curves import Curve, read_curve
from fmm.errors import FmmError
from fmm.masf import Masf, MasfByRatio
from fmm.tasks import masf_fit, racu, train

ROWS = ["dataset.rows.train=1500", "dataset.rows.validation=1600", "dataset.rows.test=1000"]
TRAINED = [*ROWS, "training.max_epochs=2", "logger=none", "dataset=toy"]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("masf")


@pytest.fixture(scope="module")
def random_curve(output: Path, compose: Any) -> Any:
    """p-values of randomly masked test rows of a model fine-tuned by a strategy: its record and curve."""

    def _random_curve(strategy: str, *overrides: str) -> tuple[Any, Curve]:
        given = [*TRAINED, f"output_dir={output}", f"masking.strategy={strategy}", "measure=rand", *overrides]
        train.run(compose("task=train", *given))
        record = racu.run(compose("task=racu", *given))
        return record, read_curve(record.directory)

    return _random_curve


def shares(curve: Curve) -> np.ndarray:
    return (curve.masf["calibrated"] < 0.05).mean(axis=0)


def test_a_masked_models_p_values_hold_their_level_at_every_ratio(random_curve: Any) -> None:
    """1,000 rows, 800 calibration rows: a standard error of 0.010 at each ratio. With the masks' ratio drawn from the
    keys of the choice of rows, as it once was, the share rose to 0.9 at 80%."""
    record, curve = random_curve("half_det")
    found = shares(curve)
    assert len(found) == 11 and found.max() <= 0.08
    assert found[:9].min() >= 0.01 and 0.03 <= found[:9].mean() <= 0.07
    step = record.results["masf"]["calibrated"][3]
    assert (step["n"], step["n_calibration"], step["n_fit"]) == (1000, 800, 800)
    assert step["below"]["0.05"] == pytest.approx(found[3])


def test_a_plain_models_masked_rows_are_foreign_and_its_unmasked_ones_are_not(random_curve: Any) -> None:
    _, curve = random_curve("none")
    found = shares(curve)
    assert 0.02 <= found[0] <= 0.08
    assert found[5] > 0.5 and found[-1] > 0.8


def test_a_model_trained_to_half_is_judged_by_half(random_curve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the ratio that it was trained to, its rows are read against those masked that far."""
    masked = []
    genuine = masf_fit.mask_by_importance

    def counting(ids: Any, scores: Any, rankable: Any, mask_id: int, ratio: float) -> Any:
        masked.append(ratio)
        return genuine(ids, scores, rankable, mask_id, ratio)

    monkeypatch.setattr(masf_fit, "mask_by_importance", counting)
    _, curve = random_curve("half_det", "masking.max_ratio=0.5")
    assert sorted(set(masked)) == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    found = shares(curve)
    assert found[:6].max() <= 0.08 and found[-1] > found[5] + 0.1


def test_calibration_goes_on_where_it_was_killed(output: Path, random_curve: Any, compose: Any, capsys: Any) -> None:
    random_curve("half_det")
    folder = next(path for path in output.glob("cache/masf/*") if len(list(path.glob("calibrated-first-*"))) == 11)
    before = {path.name: path.read_bytes() for path in folder.glob("*.npy")}
    (folder / "calibrated-first-0.3.npy").unlink()
    (folder / "calibrated-first-0.7.npy").write_bytes(b"\x93NUMPY")
    capsys.readouterr()
    given = [*TRAINED, f"output_dir={output}", "masking.strategy=half_det", "measure=rand", "force=true"]
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
