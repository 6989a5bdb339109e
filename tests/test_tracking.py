"""Trackers: what W&B is told, what CSV files hold, and that neither needs a network."""

from __future__ import annotations

import csv
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from fmm import tracking, wandb_start
from fmm.errors import FmmError

ROWS = [
    {"masking_ratio": 0.0, "accuracy": 0.9, "macro_f1": np.float64(0.8), "n": 10},
    {"masking_ratio": 1.0, "accuracy": 0.5, "macro_f1": np.float64(0.4), "n": 10},
]


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "racu" / "toy" / "tiny-loo_abs-1a2b3c"


class FakeRun:
    """Remembers what a W&B run is told."""

    def __init__(self):
        self.metrics, self.logged, self.summary, self.exit_codes = {}, [], {}, []

    def define_metric(self, name, step_metric=None, hidden=None):
        self.metrics[name] = step_metric

    def log(self, values):
        self.logged.append(values)

    def finish(self, exit_code=0):
        self.exit_codes.append(exit_code)


@pytest.fixture
def fake_wandb(monkeypatch):
    calls = []

    def init(**settings):
        calls.append(SimpleNamespace(settings=settings, run=FakeRun()))
        return calls[-1].run

    monkeypatch.setattr("wandb.init", init)
    return calls


def test_wandb_gets_one_run_with_its_job_type_and_curve(compose, fake_wandb, directory):
    with tracking.tracker(compose("task=racu", "logger=wandb", "seed=3"), directory) as tracker:
        tracker.curve("curve", ROWS)
        tracker.summary({"acu": np.float32(0.25), "racu": None, "racu_ci_low": 0.1})
    (call,) = fake_wandb
    assert call.settings["job_type"] == "racu"
    assert call.settings["group"] is None
    assert call.settings["dir"] == str(directory)
    assert call.settings["config"]["seed"] == 3
    assert call.run.metrics["curve/*"] == "masking_ratio"
    assert call.run.logged[0] == {"masking_ratio": 0.0, "curve/accuracy": 0.9, "curve/macro_f1": 0.8, "curve/n": 10}
    last = call.run.logged[-1]
    assert last["curve_table"].data == [[0.0, 0.9, 0.8, 10], [1.0, 0.5, 0.4, 10]]
    assert set(last) == {"curve_table", "curve_plot/accuracy", "curve_plot/macro_f1"}
    assert call.run.summary == {"acu": 0.25, "racu_ci_low": 0.1}
    assert call.run.exit_codes == [0]


def test_an_interrupted_run_goes_on_as_the_same_wandb_run(compose, fake_wandb, directory):
    cfg = compose("logger=wandb")
    with pytest.raises(RuntimeError), tracking.tracker(cfg, directory):
        raise RuntimeError
    for _ in range(2):
        tracking.tracker(cfg, directory).finish()
    first, second, third = (call.settings["id"] for call in fake_wandb)
    assert first == second != third
    assert fake_wandb[0].run.exit_codes == [1]


def test_wandb_works_without_network_and_key(compose, directory, capfd):
    with tracking.tracker(compose("logger=wandb"), directory) as tracker:
        tracker.curve("curve", ROWS)
        tracker.summary({"acu": 0.25})
    (run,) = (directory / "wandb").glob("offline-run-*")
    assert list(run.glob("*.wandb"))
    assert not (directory / "wandb_run_id.txt").exists()


def test_wandb_is_offline_without_key_or_network_and_says_so(monkeypatch, tmp_path):
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert wandb_start.wandb_mode("auto") == ("offline", "no API key; `wandb login` stores one")
    assert wandb_start.wandb_mode("online") == ("online", None)
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password made-up\n")

    def refuse(address, timeout):
        raise OSError

    monkeypatch.setattr("socket.create_connection", refuse)
    assert wandb_start.wandb_mode("auto") == ("offline", "api.wandb.ai cannot be reached")
    monkeypatch.setattr("socket.create_connection", lambda address, timeout: SimpleNamespace(close=lambda: None))
    assert wandb_start.wandb_mode("auto") == ("online", None)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert wandb_start.wandb_mode("auto") == ("disabled", None)


def test_csv_leaves_a_file_for_the_curve_and_the_summary(compose, directory):
    with tracking.tracker(compose("logger=csv"), directory) as tracker:
        tracker.curve("curve", ROWS)
        tracker.summary({"acu": np.float32(0.25), "racu": None})
        tracker.epochs([{"epoch": 0, "val_accuracy": 0.5}, {"epoch": 1, "val_accuracy": 0.75}])
    with (directory / "logs" / "curve.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["accuracy"] for row in rows] == ["0.9", "0.5"]
    with (directory / "logs" / "metrics.csv").open() as file:
        assert [row["val_accuracy"] for row in csv.DictReader(file)] == ["0.5", "0.75"]
    assert json.loads((directory / "logs" / "summary.json").read_text()) == {"acu": 0.25}


def test_none_leaves_nothing(compose, directory):
    with tracking.tracker(compose("logger=none"), directory) as tracker:
        tracker.curve("curve", ROWS)
        assert tracker.lightning_logger() is None
    assert not directory.exists()


def test_an_unknown_tracker_is_a_sentence(compose, directory):
    with pytest.raises(FmmError, match="unknown logger 'wandbb'; did you mean wandb"):
        tracking.tracker(compose("logger.name=wandbb"), directory)


def test_wandb_that_does_not_start_is_a_sentence(compose, monkeypatch, directory):
    wandb = pytest.importorskip("wandb")

    def init(**settings):
        raise wandb.errors.UsageError("No API key configured.")

    monkeypatch.setattr("wandb.init", init)
    with pytest.raises(FmmError, match=r"does not start in mode .*No API key configured.*logger=csv"):
        tracking.tracker(compose("logger=wandb", "logger.mode=online"), directory)


def test_wandb_that_is_not_installed_is_a_sentence(compose, monkeypatch, directory):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(FmmError, match="pip install wandb"):
        tracking.tracker(compose("logger=wandb"), directory)


def test_a_logger_is_checked_before_any_work(compose, monkeypatch):
    from fmm.tasks import run_task

    missing, misspelt = compose("task=train", "logger=wandb"), compose("task=racu", "logger.name=wandbb")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with monkeypatch.context() as patched:
        patched.setattr("importlib.import_module", lambda name: pytest.fail(f"{name} was started"))
        with pytest.raises(FmmError, match="pip install wandb"):
            run_task(missing)
        with pytest.raises(FmmError, match="unknown logger 'wandbb'"):
            run_task(misspelt)


def test_a_mode_that_wandb_does_not_know_is_a_sentence(compose, monkeypatch, directory):
    with pytest.raises(FmmError, match=r"unknown logger\.mode 'ofline'; did you mean offline"):
        tracking.check(compose("logger=wandb", "logger.mode=ofline"))
    monkeypatch.setenv("WANDB_MODE", "onlin")
    with pytest.raises(FmmError, match="WANDB_MODE 'onlin'; did you mean online"):
        tracking.tracker(compose("logger=wandb"), directory)


def test_wandb_never_asks_at_a_terminal(compose, monkeypatch, directory):
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    asked = []
    monkeypatch.setattr("wandb.init", lambda **settings: asked.append(sys.stdin.isatty()) or FakeRun())
    tracking.tracker(compose("logger=wandb"), directory).finish()
    assert asked == [False]
    assert sys.stdin is terminal


def test_the_hint_names_the_offline_runs_of_all_jobs(compose, fake_wandb, monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setattr(tracking, "_said", set())
    for name in ("first", "second"):
        tracking.tracker(compose("logger=wandb"), tmp_path / "racu" / "toy" / name).finish()
    (line,) = capsys.readouterr().out.splitlines()
    assert f"`wandb sync {tmp_path}/*/*/*/wandb/offline-run-*`" in line
