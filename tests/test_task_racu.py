"""task=racu, masf and check on a small random model: records, resuming, damage, refusals."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from fmm import records, tracking
from fmm.curves import curve_faithfulness, read_curve
from fmm.errors import FmmError
from fmm.tasks import check, curve_job, masf, pipeline, racu
from tests.conftest import save_tiny_model

ROWS = 12


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a random two-layer encoder that knows the toy data's words."""
    folder = tmp_path_factory.mktemp("model") / "model"
    return save_tiny_model(folder, ["a good and not so bad film with a fine plot"] * 8, 64)


@pytest.fixture
def settings(model, compose, tmp_path):
    def _settings(*overrides, task="racu", output=tmp_path / "out"):
        small = ["data.max_train_rows=20", "data.max_eval_rows=30", f"data.max_test_rows={ROWS}"]
        fixed = [f"task={task}", "dataset=toy", f"checkpoint={model}", f"output_dir={output}", *small]
        return compose(*fixed, "ratios=[0,0.3,0.6,1]", "logger=none", *overrides)

    return _settings


def test_a_record_holds_everything_and_is_found_again(settings, monkeypatch, capsys):
    record = racu.run(settings("measure=loo_sign"))
    assert "record: " in capsys.readouterr().out
    found = record.results
    assert found["n_examples"] == ROWS and len(found["curve"]) == 4 and found["n_forward"] > 4 * ROWS
    baseline = next(r for r in records.load_all(record.directory.parents[2], "racu") if r.key == found["baseline_key"])
    curves = read_curve(record.directory), read_curve(baseline.directory)
    assert curve_faithfulness(*curves, found["checkpoint_metric"]).acu == pytest.approx(found["acu"])
    assert np.allclose(curves[0].logits[:, [0, -1]], curves[1].logits[:, [0, -1]])
    assert set(curves[0].masf) == {"authors", "calibrated"} and len(found["masf"]["authors"]) == 4
    monkeypatch.setattr("fmm.tasks.subject.load_classifier", None)  # the second time no model is needed
    assert racu.run(settings("measure=loo_sign")).key == record.key


def test_every_curve_is_shown_with_its_own_measure_before_its_record(settings, monkeypatch):
    shown = []

    class Shown(tracking.Tracker):
        def curve(self, name, rows):
            assert not (self.directory / records.RECORD).exists()
            shown.append((self.directory.name.split("-")[0], self.cfg.measure.name, self.cfg.measures))

        def summary(self, values):
            shown.append(values)

    monkeypatch.setitem(tracking.TRACKERS, "none", Shown)
    summary = {"acu": 0.0, "racu": None, "racu_undefined": "no drop"}
    whole = racu.summarise
    monkeypatch.setattr(racu, "summarise", lambda *given: whole(*given) | summary)
    racu.run(settings("measures=[grad_l2,{name: int_grad_sign, steps: 2}]", "masf=none"))
    curves, values = shown[::2], shown[1::2]
    assert curves == [(name, name, None) for name in ("rand", "grad_l2", "int_grad_sign")]
    assert all(found.items() >= summary.items() and found["n_forward"] for found in values)


def test_an_interrupted_run_goes_on_to_the_same_bytes(settings, monkeypatch, tmp_path):
    monkeypatch.setattr(curve_job, "_ROWS", 4)
    whole = racu.run(settings("measure=grad_l2", output=tmp_path / "whole"))
    original, calls = curve_job.CurveJob.chunk, []

    def stops(self, rows):
        calls.append(rows)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return original(self, rows)

    monkeypatch.setattr(curve_job.CurveJob, "chunk", stops)
    with pytest.raises(KeyboardInterrupt):
        racu.run(settings("measure=grad_l2"))
    resumed = racu.run(settings("measure=grad_l2"))
    tables = [pq.read_table(record.directory / "curve.parquet") for record in (whole, resumed)]
    assert tables[0].equals(tables[1]) and len(calls) == 7
    for name in ("acu", "racu", "n_forward", "forward_equivalents", "masf"):
        assert whole.results[name] == resumed.results[name]


def test_a_truncated_parquet_is_computed_again_and_said(settings, capsys):
    record = racu.run(settings("measure=rand"))
    path = record.directory / "curve.parquet"
    before = pq.read_table(path)
    path.write_bytes(path.read_bytes()[:100])
    racu.run(settings("measure=rand"))
    assert "missing or damaged" in capsys.readouterr().out and pq.read_table(path).equals(before)


def test_predicted_targets_and_rand_against_itself(settings):
    record = racu.run(settings("measure=rand", "target=predicted", "masf=none"))
    curve = read_curve(record.directory)
    assert np.array_equal(curve.target, curve.predictions[:, 0]) and record.results["acu"] == 0
    assert curve.masf == {} and record.results["masf"] is None


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("ratios=[0,0.5]", "lack 1"),
        ("ratios=[0,2,1]", "outside"),
        ("target=great", "unknown target"),
        ("explain=second", "second text"),
        ("measures=[]", "names no measure"),
        ("measures=[gradl2]", "did you mean"),
        ("measures=[int_grad_abs,{name:int_grad_abs,steps:3}]", "twice with different"),
        ("target=1.0", "unknown target '1.0'"),
        ("target=2", "0 negative, 1 positive"),
    ],
)
def test_mistakes_are_sentences_before_any_work(settings, override, said):
    with pytest.raises(FmmError, match=said):
        racu.run(settings(override))


def test_unlabelled_rows_need_predicted_targets(settings, monkeypatch):
    cfg = settings("measure=rand")
    subject = racu.check(cfg)
    labels = subject.data.raw("test").labels.copy()
    labels[0] = -1
    monkeypatch.setattr("fmm.tasks.subject.Subject.of", lambda cfg: subject)
    subject.data.raw("test").labels = labels
    with pytest.raises(FmmError, match="1 of 12 test rows have no gold label"):
        racu.check(cfg)


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", None])
def test_a_damaged_masf_is_fitted_again(settings, capsys, damage):
    record = racu.run(settings("measure=rand"))
    (part,) = record.directory.parents[2].glob("cache/masf/*/authors-simes.npy")
    part.unlink() if damage is None else part.write_bytes(damage)
    again = racu.run(settings("measure=rand", "force=true"))
    assert "is damaged; fitting it again" in capsys.readouterr().out
    assert again.results["masf"] == record.results["masf"]


def test_forecast_names_every_curve(settings, capsys):
    assert racu.run(settings("measure=grad_l2", "dry_run=true")) is None
    out = capsys.readouterr().out
    assert "forecast for 12 test rows: rand: " in out and "grad_l2: " in out
    assert check.run(settings("measure=grad_l2", "dry_run=true", task="check")) is None
    assert "forecast for 12 test rows: rand: " in capsys.readouterr().out


def test_masf_task_prints_ratio_zero_and_the_warning(settings, capsys):
    record = masf.run(settings("measure=grad_l2", task="masf"))
    out = capsys.readouterr().out
    assert "ratio 0" in out and "no p-values" in out
    assert set(record.results["table"]) == {"rand", "grad_l2"}
    assert masf.run(settings("measure=grad_l2", task="masf")).created == record.created


def test_check_ranks_evidence_beside_the_measures(settings, capsys):
    record = check.run(settings("measure=loo_abs", task="check"))
    names = [outcome["name"] for outcome in record.results["outcomes"]]
    assert names == ["loo_abs", "rand, another seed", "reversed loo_abs", "true evidence"]
    assert "true evidence" in capsys.readouterr().out


def test_a_label_by_number_and_by_name_is_one_run(settings):
    first = racu.run(settings("measure=grad_l2", "target=1", "masf=none"))
    assert racu.run(settings("measure=grad_l2", "target=Positive", "masf=none")).key == first.key
    assert first.settings["target"] == "positive"


def test_without_masf_only_test_rows_are_tokenised(settings, tmp_path):
    racu.run(settings("measure=rand", "masf=none"))
    assert {path.parent.name for path in (tmp_path / "out").glob("cache/toy/*/*/input_ids.npy")} == {"test"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("measures=[grad_l3]", "grad_l3"),
        ("target=neutral", "unknown target 'neutral'"),
        ("explain=second", "explain=second needs a second text"),
        ("ratios=[0,0.5]", "lack 1"),
    ],
)
def test_a_pipeline_refuses_before_it_trains_what_its_curves_could_not_do(settings, monkeypatch, wrong, message):
    monkeypatch.setattr("fmm.tasks.pipeline.train.run", None)
    with pytest.raises(FmmError, match=message):
        pipeline.run(settings(wrong, "checkpoint=null", task="pipeline"))


def test_the_baseline_is_the_mean_of_several_orders_and_says_so(settings):
    """Each further order costs the passes of the inner ratios alone; the first is what one order gives."""
    several = racu.run(settings("measures=[rand,grad_l2]", "masf=none"))
    alone = racu.run(settings("measures=[rand,grad_l2]", "masf=none", "baseline.draws=1"))
    rand, one = (
        next(
            r for r in records.load_all(record.directory.parents[2], "racu") if r.key == record.results["baseline_key"]
        )
        for record in (several, alone)
    )
    curve, first = read_curve(rand.directory), read_curve(one.directory)
    assert (curve.draws, first.draws) == (5, 1) and np.array_equal(curve.logits, first.logits)
    assert not (one.directory / "orders.parquet").exists()
    assert several.settings["baseline"] == {"draws": 5} and several.results["baseline_draws"] == 5
    assert several.key != alone.key
    assert rand.results["n_forward"] - one.results["n_forward"] <= 4 * 2 * ROWS  # two inner ratios
    assert np.array_equal(curve.more[:, :, [0, -1]], np.broadcast_to(first.logits[:, [0, -1]], (4, ROWS, 2, 2)))
    assert len({order.tobytes() for order in curve.more}) == 4
    means = np.mean([(order == curve.reference[:, None]).mean(0) for order in curve.orders], axis=0)
    assert np.allclose([row["accuracy"] for row in rand.results["curve"]], means)
    assert several.results["acu"] == pytest.approx(
        curve_faithfulness(read_curve(several.directory), curve, "accuracy").acu
    )


def test_an_order_does_not_depend_on_the_chunks(settings, monkeypatch, tmp_path):
    whole = racu.run(settings("measure=rand", "masf=none", output=tmp_path / "whole"))
    monkeypatch.setattr(curve_job, "_ROWS", 5)
    parts = racu.run(settings("measure=rand", "masf=none"))
    assert np.allclose(read_curve(whole.directory).more, read_curve(parts.directory).more, atol=1e-5)


def test_lost_orders_are_computed_again(settings, capsys):
    record = racu.run(settings("measure=rand", "masf=none"))
    (record.directory / "orders.parquet").write_bytes(b"")
    racu.run(settings("measure=rand", "masf=none"))
    assert "orders.parquet is missing or damaged" in capsys.readouterr().out


def test_racu_within_the_noise_of_rows_and_orders_is_undefined_in_the_record(settings):
    """Twelve rows and an untrained model: what random masking changes is chance."""
    record = racu.run(settings("measure=grad_l2", "masf=none"))
    assert record.results["racu"] is None and "normaliser" in record.results["racu_undefined"]
    assert record.results["acu_interval"][0] <= record.results["acu"] <= record.results["acu_interval"][1]
