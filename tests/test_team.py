"""Several processes fit one model; one of them decides, tests, measures and records."""

import os
import shutil
import socket
import subprocess
import threading

import pytest
import torch
from safetensors.torch import load_file

from fmm import helper, team
from fmm.errors import FmmError
from fmm.tasks import common, pipeline, train

TINY = ("dataset=toy", "trainer=ddp_cpu2", "data.max_train_rows=48", "data.max_eval_rows=16", "data.max_test_rows=12")
TINY += ("model.hidden_size=16", "model.num_layers=1", "model.num_heads=2", "training.max_epochs=1", "ratios=[0,0.5,1]")
PIPELINE = ("task=pipeline", "measures=[rand]", "masf=none", "task.plain=true", "logger=none")


def helpers() -> list[str]:
    """Command lines of the helpers that this machine runs for this process or for nobody any more."""
    listed = subprocess.run(["ps", "-eo", "ppid,args"], capture_output=True, text=True, check=True).stdout
    lines = [line.split(maxsplit=1) for line in listed.splitlines() if "from fmm import helper" in line]
    return [arguments for parent, arguments in lines if parent in ("1", str(os.getpid()))]


def weights(run) -> dict[str, torch.Tensor]:
    return load_file(run.directory / "model" / "model.safetensors")


def same(left, right) -> bool:
    one, other = weights(left), weights(right)
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def alone(compose, tmp_path_factory):
    """A masked and a plain model, each trained by a command of its own on two processes: their folder and runs."""
    folder = tmp_path_factory.mktemp("alone")
    runs = {}
    for strategy in ("half_det", "none"):
        cfg = compose(*TINY, "logger=csv", f"masking={strategy}", f"output_dir={folder}")
        runs[strategy] = train.run(cfg)
        assert runs[strategy].results["devices"] == 2
    return folder, runs


@pytest.mark.parametrize(("done", "force", "fits"), [("half_det", False, 1), ("none", False, 1), ("both", True, 2)])
def test_a_pipeline_on_two_processes_fits_what_is_missing_as_a_command_of_its_own_would(
    done, force, fits, alone, compose, tmp_path, capfd, monkeypatch
):
    folder, runs = alone
    for strategy, run in runs.items():
        if done in (strategy, "both"):
            shutil.copytree(run.directory, tmp_path / run.directory.relative_to(folder))
    started = []
    start = team.come_together
    monkeypatch.setattr(team, "come_together", lambda *given: started.append(given) or start(*given))
    settings = (*TINY, *PIPELINE, f"output_dir={tmp_path}")
    ranks = dict(os.environ)
    assert pipeline.run(compose(*settings, f"force={force}")) is not None

    for strategy, run in runs.items():
        now = common.trained_model(compose(*TINY, f"masking={strategy}", f"output_dir={tmp_path}"))
        assert now.key == run.key and same(now.record, run)
        assert (now.record.created == run.created) == (not force and done in (strategy, "both"))
    assert len(started) == fits
    assert len(list(tmp_path.glob("racu/toy/*/record.json"))) == 1
    said = capfd.readouterr()
    assert said.out.count("== report") == said.out.count("== curves and MaSF") == 1
    assert said.err == ""
    assert os.environ == ranks and not torch.distributed.is_initialized() and not helpers()
    assert pipeline.run(compose(*settings)) is not None  # all is done by now
    assert len(started) == fits


def test_only_the_main_process_logs(alone):
    log = alone[1]["half_det"].directory / "logs" / "metrics.csv"
    assert len(log.read_text().splitlines()) == 2  # a header and the one epoch


def test_a_helper_that_fails_is_heard(compose, tmp_path, monkeypatch):
    cfg = compose(*TINY, "logger=none", f"output_dir={tmp_path}")
    monkeypatch.setattr(team, "_START", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(FmmError, match=r"a process of this fit was ended by SIGKILL .* the same command continues"):
        train.run(cfg)
    assert not helpers()


@pytest.mark.parametrize(("other", "sentence"), [("run b", "run a in the first, run b in another"), (None, None)])
def test_processes_that_disagree_on_what_they_fit_are_stopped(other, sentence, compose):
    fit = team.Fit(compose(*TINY), team.Place(starts=False), 2, 2)
    store = helper.Joined(fit.address).store
    store.set("identity1", other or "run a")
    store.add("ready", 1)
    store.add("left", 1)
    if sentence is None:
        with fit.led("run a"):
            pass
        return
    with pytest.raises(FmmError, match=sentence), fit.led("run a"):
        raise AssertionError("nothing is fitted")


@pytest.mark.parametrize("error", [FmmError("no such file"), KeyError("x")])
def test_what_goes_wrong_in_a_helper_is_said_by_the_main_process(error, compose, monkeypatch):
    fit = team.Fit(compose(*TINY), team.Place(starts=False), 2, 2)

    def fails(cfg, join):
        raise error

    monkeypatch.setattr(train, "take_part", fails)
    assert not helper.Joined(fit.address).run()
    with pytest.raises(FmmError if isinstance(error, FmmError) else RuntimeError, match=r"no such file|KeyError"):
        fit._gather("run a")


ALONE = ({}, {"LOCAL_RANK": "0"}, {"RANK": "0", "WORLD_SIZE": "1"}, {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"})
SLURM = {"SLURM_NTASKS": "2", "SLURM_PROCID": "1"}


@pytest.mark.parametrize("environment", [*ALONE, SLURM | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}])
def test_a_single_process_is_the_main_one_whatever_a_launcher_left_around(environment):
    assert team.place(environment) == team.Place()


@pytest.mark.parametrize(
    ("environment", "main", "starts"),
    [
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, False, False),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_PORT": "1"}, True, False),
        (SLURM, False, False),
        (SLURM | {"SLURM_PROCID": "0"}, True, False),
        ({"LOCAL_RANK": "1", "MASTER_PORT": "1"}, False, False),
        ({"NODE_RANK": "0", "MASTER_PORT": "1"}, True, True),
        ({"NODE_RANK": "1", "MASTER_PORT": "1"}, False, True),
    ],
)
def test_of_launched_processes_the_first_is_the_main_one(environment, main, starts):
    here = team.place(environment)
    assert (here.main, here.launched, here.starts) == (main, True, starts)


def test_launched_processes_hear_of_each_fit_and_of_the_end(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("MASTER_PORT", str(port))
    first = team.CommandStore(team.Place(launched=True, starts=False, others=1))
    other = team.CommandStore(team.Place(main=False, launched=True, starts=False))
    for address in ("127.0.0.1:1", "127.0.0.1:2"):
        first.announce(address)
        assert other.next() == address
    ended = threading.Thread(target=first.end, args=(143,))
    ended.start()
    assert other.next() == 143
    ended.join(timeout=10)
    assert not ended.is_alive()


def test_a_rank_without_an_address_is_refused():
    with pytest.raises(FmmError, match=r"LOCAL_RANK=1 .* MASTER_ADDR and MASTER_PORT do not say"):
        team.place({"LOCAL_RANK": "1"})


@pytest.mark.parametrize(
    ("override", "others", "sentence"),
    [("trainer.devices=2", 2, "3 processes were started, but .* ask for 2"), ("+trainer.num_nodes=2", 0, "NODE_RANK")],
)
def test_as_many_processes_train_as_were_started(override, others, sentence, compose, monkeypatch):
    monkeypatch.setattr(team, "place", lambda: team.Place(launched=bool(others), starts=False, others=others))
    monkeypatch.setattr(team.CommandStore, "current", object())
    with pytest.raises(FmmError, match=sentence), team.lead(compose("trainer=ddp_cpu2", override), "run a"):
        raise AssertionError("nothing is fitted")


def test_devices_are_counted_alike_however_they_are_written(compose):
    keys = [
        common.train_settings(compose("dataset=toy", "trainer=cpu", f"trainer.devices={devices}"), "data").get(
            "trainer"
        )
        for devices in ("2", "[0,1]", "'0,1'", "1", "auto")
    ]
    assert keys == [{"processes": 2}] * 3 + [None] * 2  # auto is one process on a CPU
