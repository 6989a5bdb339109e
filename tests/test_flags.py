"""Hydra's flags and Hydra's keys: they work as in Hydra, or one sentence says why not."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from omegaconf import OmegaConf

REFUSED = [
    (["-x"], ["unknown flag '-x'", "--cfg"]),
    (["--multi", "seed=0,1"], ["unknown flag '--multi'", "did you mean --multirun"]),
    (["--multirun=3"], ["--multirun", "'3'", "--hydra-help"]),
    (["-h=3"], ["--help", "'3'"]),
    (["--cfg"], ["--cfg", "expected one argument"]),
    (["--cfg", "nope"], ["--cfg", "'nope'", "'job'"]),
    (["-c"], ["--cfg", "expected one argument"]),
    (["--info", "nope"], ["--info", "'nope'", "'defaults'"]),
    (["--config-name", "nope"], ["no nope.yaml in"]),
    (["--config-name"], ["--config-name", "expected one argument"]),
    (["--config-name="], ["--config-name has no value"]),
    (["--config-dir", "/nope/dir"], ["--config-dir=/nope/dir is no folder"]),
    (["--config-path", "/nope/dir"], ["no config.yaml in /nope/dir"]),
    (["--package", "training"], ["--package says how --cfg prints", "--cfg job"]),
    (["--resolve"], ["--resolve says how --cfg prints"]),
    (["--run", "--multirun", "seed=0,1"], ["--run and --multirun exclude one another"]),
    (["-m", "--cfg", "job"], ["--multirun and --cfg exclude"]),
    (["-mr"], ["exclude one another"]),
    (["--experimental-rerun"], ["--experimental-rerun", "expected one argument"]),
    (["--experimental-rerun", "/nope.pickle"], ["/nope.pickle is no file", "config.pickle"]),
    (["--experimental-rerun", "/"], ["is no file"]),
    (["--experimental-rerun", __file__], ["is no pickled job"]),
    (["--experimental-rerun", __file__, "seed=3"], ["leave seed=3 out"]),
    (["--shell-completion"], ["--shell-completion takes one of install=bash"]),
    (["-sc", "nope"], ["--shell-completion takes one of", "it has nope"]),
    (["-sc", "query=bash"], ["COMP_LINE"]),
    (["-"], ["'-' sets nothing"]),
    (["-5"], ["'-5' sets nothing"]),
    ([""], ["'' sets nothing"]),
    (["text=\udcff"], ["no UTF-8"]),
    (["hydra.verbose=[[]]"], ["hydra.verbose holds []"]),
    (["hydra.verbose={}"], ["hydra.verbose={} is not true, false or the name of a logger"]),
    (["hydra.verbose=null"], ["hydra.verbose=null"]),
    (["hydra=3"], ["hydra=3"]),
    (["hydra.foo=1"], ["hydra.foo"]),
    (["hydra/nope=1"], ["hydra/nope"]),
    (["hydra/sweeper=nope"], ["hydra/sweeper"]),
    (["hydra.job_logging.root.level=NOPE"], ["hydra.job_logging.root.level=NOPE", "NOPE"]),
    (["hydra.job.env_copy=[NOT_SET_ANYWHERE]"], ["NOT_SET_ANYWHERE"]),
    (["hydra.run.dir=${nope}"], ["hydra.run.dir", "nope"]),
    (["hydra.run.dir=/dev/null/x"], ["/dev/null/x"]),
    (["hydra.output_subdir=/dev/null/x"], ["/dev/null/x"]),
    (["hydra.searchpath=3"], ["hydra.searchpath=3 is no list"]),
    (["hydra.searchpath=[file:///nope/dir]"], ["file:///nope/dir, which is no folder"]),
    (["hydra.searchpath=[pkg://nope.nope]"], ["pkg://nope.nope, which is no folder"]),
    (["+hydra.callbacks.a._target_=nope.Nope"], ["nope.Nope"]),
    (["-m", "seed=0,1", "hydra.sweeper.max_batch_size=nope"], ["max_batch_size=nope is not a whole number"]),
    (["-m", "seed=0,1", "hydra.sweeper.max_batch_size=0"], ["max_batch_size=0 is too small"]),
]


@pytest.fixture
def tasks_run(monkeypatch):
    """Replace the tasks; the list holds the settings of every one that was started."""
    started = []
    monkeypatch.setattr("fmm.tasks.run_task", started.append)
    return started


@pytest.mark.parametrize("arguments, words", REFUSED, ids=lambda value: " ".join(map(ascii, value)))
def test_what_hydra_would_not_take_is_one_sentence(cli, tasks_run, arguments, words):
    done = cli(arguments)
    assert done.code == 1 and done.out == "" and not tasks_run
    assert done.err.startswith("error: ") and done.err.count("\n") == 1
    for word in words:
        assert word in done.err


@pytest.mark.parametrize(
    "arguments, printed",
    [
        (["--cfg", "job", "--resolve", "seed=7"], "seed: 7"),
        (["seed=7", "-c", "job", "dataset=rte"], "name: rte"),
        (["-cjob", "-p", "training"], "max_epochs:"),
        (["--cfg=hydra"], "sweep:"),
        (["--info", "searchpath"], "Config search path"),
        (["-i=defaults"], "Defaults List"),
        (["--version"], "Hydra 1."),
        (["--hydra-help"], "--shell-completion"),
        (["-sc", "install=bash"], "hydra_bash_completion"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_hydra_prints_it_prints(cli, tasks_run, arguments, printed):
    done = cli(arguments)
    assert (done.code, done.err) == (0, "") and printed in done.out and not tasks_run


@pytest.mark.parametrize(
    "arguments",
    [
        ["--run", "seed=3"],
        ["--config-name", "config.yaml"],
        ["--config-path", "{conf}"],
        ["hydra.verbose=false"],
        ["hydra.verbose=[fmm,hydra]"],
        ["hydra/job_logging=disabled"],
        ["hydra.run.dir=a folder", "hydra.job.chdir=true"],
        ["hydra.searchpath=[pkg://hydra.conf]"],
        ["hydra.job.name=mine"],
    ],
    ids=" ".join,
)
def test_what_hydra_takes_starts_the_task(cli, tasks_run, conf, arguments):
    done = cli([argument.format(conf=conf) for argument in arguments])
    assert (done.code, done.err) == (0, "") and len(tasks_run) == 1


@pytest.mark.parametrize("mode", ["-m", "hydra.mode=MULTIRUN", "+hydra.mode=MULTIRUN", "++hydra.mode=MULTIRUN"])
def test_a_sweep_may_be_asked_for_in_hydras_ways(cli, tasks_run, mode):
    assert cli([mode, "seed=0,1"]).code == 0
    assert [cfg.seed for cfg in tasks_run] == [0, 1]


def own_folder(place: Path) -> Path:
    """A folder of one's own with a dataset, an experiment and a main configuration on top of ours."""
    for group in ("dataset", "experiment"):
        (place / group).mkdir(parents=True)
    (place / "dataset" / "mine.yaml").write_text("defaults: [toy]\nname: mine\n")
    (place / "experiment" / "short.yaml").write_text("# @package _global_\nseed: 5\n")
    (place / "main.yaml").write_text("defaults: [config, _self_]\nseed: 6\n")
    return place


@pytest.mark.parametrize("way", ["--config-dir={}", "hydra.searchpath=['file://{}']"])
def test_a_folder_of_ones_own_adds_choices_in_a_run_and_in_a_sweep(cli, tasks_run, tmp_path, way):
    option = way.format(own_folder(tmp_path / "my conf"))
    assert cli([option, "dataset=mine", "experiment=short"]).err == ""
    assert cli([option, "-m", "dataset=mine,toy", "seed=0"]).err == ""
    assert [(cfg.dataset.name, cfg.seed) for cfg in tasks_run] == [("mine", 5), ("mine", 0), ("toy", 0)]
    assert "unknown dataset 'mnie'; did you mean mnli or mine" in cli([option, "dataset=mnie"]).err


def test_a_main_configuration_of_ones_own(cli, tasks_run, tmp_path):
    own_folder(tmp_path)
    assert cli(["--config-dir", ".", "--config-name", "main"]).err == ""
    assert cli(["--config-dir", ".", "--config-name", "main", "-m", "dataset=mine,toy"]).err == ""
    assert [cfg.seed for cfg in tasks_run] == [6, 6, 6]
    assert "unknown key 'seeed'" in cli(["--config-dir", ".", "--config-name", "main", "seeed=1"]).err


def test_a_pickled_job_of_hydra_runs_again(cli, tasks_run, tmp_path):
    callback = "+hydra.callbacks.p._target_=hydra.experimental.callbacks.PickleJobInfoCallback"
    assert cli([callback, "hydra.output_subdir=kept", "seed=9"]).code == 0
    (saved,) = tmp_path.rglob("config.pickle")
    with pytest.warns(UserWarning, match="other command line args are ignored"):
        assert cli(["--experimental-rerun", str(saved)]).code == 0
    assert [cfg.seed for cfg in tasks_run] == [9, 9]
    saved.write_bytes(pickle.dumps(OmegaConf.create({"seed": 1})))
    assert "holds no job of Hydra" in cli(["--experimental-rerun", str(saved)]).err
