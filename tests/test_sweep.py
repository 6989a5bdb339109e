"""Sweeps: directories of their own, jobs that fail alone, and refusals before anything starts."""

from __future__ import annotations

import errno
import re
import signal
import threading
from importlib.metadata import distributions
from pathlib import Path

import pytest

from fmm.sweep import new_directory, summarise, sweep_name

JOBLIB = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=1"]
INSTALLED = {str(package.metadata["Name"]).replace("_", "-").lower() for package in distributions()}
NEEDS_JOBLIB = pytest.mark.skipif("hydra-joblib-launcher" not in INSTALLED, reason="not installed")


@pytest.fixture
def jobs_run(monkeypatch):
    """Replace the tasks; those of `dataset=cola` raise, and `rte` with seed 1 is interrupted.

    `mrpc` is sent a SIGTERM, and `qqp` exits as submitit does after it has put a job back into the queue.

    The list holds (dataset, seed, sweep).
    """
    started = []

    def run(cfg):
        started.append((cfg.dataset.name, cfg.seed, sweep_name()))
        print(f"working on {cfg.dataset.name}")
        if cfg.dataset.name == "rte" and cfg.seed == 1:
            raise KeyboardInterrupt
        if cfg.dataset.name == "cola":
            raise RuntimeError("the disk is on fire")
        if cfg.dataset.name == "mrpc":
            signal.raise_signal(signal.SIGTERM)
        if cfg.dataset.name == "qqp":
            raise SystemExit(-1)

    monkeypatch.setattr("fmm.tasks.run_task", run)
    return started


def only_sweep(folder: Path) -> Path:
    (found,) = (folder / "multirun").iterdir()
    return found


def test_every_job_leaves_its_log_and_settings_in_one_sweep(cli, jobs_run, tmp_path):
    done = cli(["-m", "seed=0,2", "dataset=toy,rte"])
    assert done.code == 0
    sweep = only_sweep(tmp_path)
    assert jobs_run == [(name, seed, sweep.name) for seed in (0, 2) for name in ("toy", "rte")]
    assert sorted(path.name for path in sweep.iterdir() if path.is_dir()) == ["0", "1", "2", "3"]
    assert (sweep / "3" / "overrides.txt").read_text() == "seed=2\ndataset=rte\n"
    assert "working on rte" in (sweep / "3" / "job.log").read_text()
    assert "seed: 2" in (sweep / "3" / "config.yaml").read_text()
    assert not list(sweep.rglob("FAILED"))
    assert "4 of 4 jobs done" in done.out


def test_a_job_that_cannot_be_composed_fails_alone(cli, jobs_run, tmp_path):
    done = cli(["-m", "dataset=toy,broken,toy"])
    assert done.code == 1
    assert [name for name, *_ in jobs_run] == ["toy", "toy"]
    sweep = only_sweep(tmp_path)
    assert "unknown dataset 'broken'" in (sweep / "1" / "FAILED").read_text()
    log = (sweep / "1" / "job.log").read_text()
    assert "Traceback" in log and "unknown dataset 'broken'" in log
    for number in ("0", "2"):
        assert not (sweep / number / "FAILED").exists()
        assert "working on toy" in (sweep / number / "job.log").read_text()
    assert "2 of 3 jobs done" in done.out
    assert re.search(r"1  FAILED  dataset=broken\n.*unknown dataset", done.out)


def test_a_job_that_raises_fails_alone(cli, jobs_run, tmp_path):
    done = cli(["-m", "dataset=cola,toy", "seed=0,1"])
    assert done.code == 1
    assert len(jobs_run) == 4
    sweep = only_sweep(tmp_path)
    for number in ("0", "1"):
        assert "RuntimeError: the disk is on fire" in (sweep / number / "FAILED").read_text()
        assert "Traceback" in (sweep / number / "job.log").read_text()
    assert "2 of 4 jobs done" in done.out
    assert "2 of 4 jobs done" in (sweep / "summary.txt").read_text()


def test_a_sweeps_jobs_may_train_on_several_processes(cli, jobs_run):
    for trainer in ("trainer=ddp_cpu2", "trainer.devices=2"):
        assert cli(["-m", "seed=0,1", trainer]).code == 0
    assert len(jobs_run) == 4


def test_directories_stay_short_whatever_is_swept(cli, jobs_run, tmp_path):
    assert cli(["-m", "task=racu", "ratios=[0,0.5,1],[0,1]", "dataset=toy,rte", "checkpoint='a b/$HOME'"]).code == 0
    assert jobs_run
    for path in only_sweep(tmp_path).rglob("*"):
        assert re.fullmatch(r"[A-Za-z0-9_.-]{1,40}", path.name)


def test_sweeps_started_at_once_never_share_a_directory(tmp_path):
    found = []
    threads = [threading.Thread(target=lambda: found.append(new_directory(tmp_path))) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 32


def test_a_directory_of_ones_own_is_kept(cli, jobs_run, tmp_path):
    assert cli(["-m", "seed=0,1", "hydra.sweep.dir=mine"]).code == 0
    assert (tmp_path / "mine" / "1" / "job.log").exists()
    assert not (tmp_path / "multirun").exists()


def test_a_full_disk_ends_a_sweep_with_a_sentence(cli, jobs_run, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("omegaconf.OmegaConf.save", full)
    done = cli(["-m", "seed=0,1"])
    assert done.code == 1 and not jobs_run and "Traceback" not in done.err
    assert re.match(r"error: cannot write in multirun/\S+: No space left on device; free space", done.err)


def test_an_interrupted_sweep_says_what_is_done_and_what_is_not(cli, jobs_run, tmp_path):
    done = cli(["-m", "dataset=toy,rte,toy", "seed=1"])
    assert done.code == 130
    assert len(jobs_run) == 2
    sweep = only_sweep(tmp_path)
    assert (sweep / "1" / "FAILED").read_text() == "interrupted: the same command continues\n"
    for text in (done.out, (sweep / "summary.txt").read_text()):
        assert "1 of 3 jobs done" in text
        assert "it never started" in text


def test_a_failing_job_says_why_at_once(cli, jobs_run, tmp_path):
    done = cli(["-m", "dataset=cola,broken,toy"])
    assert done.code == 1
    before_the_summary = done.out.split("1 of 3 jobs done")[0]
    assert "job 0 failed: RuntimeError: the disk is on fire" in before_the_summary
    assert "job 1 failed: unknown dataset 'broken'" in before_the_summary


def test_sigterm_ends_a_sweep_and_a_single_run_with_143(cli, jobs_run, tmp_path):
    done = cli(["-m", "dataset=toy,mrpc,toy"])
    assert done.code == 143 and len(jobs_run) == 2
    assert "terminated by SIGTERM: the same command continues" in done.err
    assert (only_sweep(tmp_path) / "1" / "FAILED").read_text() == "terminated by SIGTERM: the same command continues\n"
    alone = cli(["dataset=mrpc"])
    assert alone.code == 143 and "Traceback" not in alone.err
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_job_that_submitit_put_back_into_the_queue_waits(cli, jobs_run, tmp_path, monkeypatch):
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    assert cli(["-m", "dataset=qqp", "hydra.sweep.dir=s"]).code == -1  # its exit status passes
    assert (tmp_path / "s" / "0" / "WAITING").exists() and not (tmp_path / "s" / "0" / "FAILED").exists()
    assert summarise(tmp_path / "s", [["dataset=qqp"]], [tmp_path / "s" / "0"]) == 1
    assert "waiting  dataset=qqp\n     put back into the queue" in (tmp_path / "s" / "summary.txt").read_text()
    monkeypatch.setattr("fmm.tasks.run_task", lambda cfg: print("going on"))
    assert cli(["-m", "dataset=qqp", "hydra.sweep.dir=s"]).code == 0
    assert not (tmp_path / "s" / "0" / "WAITING").exists()
    log = (tmp_path / "s" / "0" / "job.log").read_text()
    assert log.index("working on qqp") < log.index("put back into the queue") < log.index("going on")


def test_an_exit_elsewhere_is_a_failed_job_and_the_next_one_runs(cli, jobs_run):
    done = cli(["-m", "dataset=qqp,toy"])
    assert done.code == 1 and [name for name, *_ in jobs_run] == ["qqp", "toy"]
    assert "job 0 failed: SystemExit: -1" in done.out


@pytest.mark.parametrize(
    "subdir, names",
    [
        ("${hydra.job.override_dirname}", ["dataset=cola,seed=0", "dataset=toy,seed=0"]),
        ("run ${hydra.job.num}/x", ["run 0/x", "run 1/x"]),
        ("${dataset.name}_${seed}", ["cola_0", "toy_0"]),
        ("${hydra.job.num}_${now:%f}", None),
        ("job_${hydra.job.id}", ["job_0", "job_1"]),
        ('it\'s \\ "quoted" ${hydra.job.num}', None),
    ],
)
@pytest.mark.parametrize("launcher", [[], pytest.param(JOBLIB, marks=NEEDS_JOBLIB)], ids=["basic", "joblib"])
def test_jobs_may_be_named_otherwise_than_by_number(cli, jobs_run, tmp_path, subdir, names, launcher):
    quoted = subdir.replace('"', '\\"')
    done = cli(["-m", "dataset=cola,toy", "seed=0", "hydra.sweep.dir=s", f'hydra.sweep.subdir="{quoted}"', *launcher])
    assert done.code == 1 and "1 of 2 jobs done in s" in done.out and "never started" not in done.out
    (mark,) = (tmp_path / "s").rglob("FAILED")
    assert "the disk is on fire" in mark.read_text() and "on fire" in done.out.split("jobs done")[1]
    logs = sorted((tmp_path / "s").rglob("job.log"))
    assert len(logs) == 2
    if names is not None:
        assert [log.parent.relative_to(tmp_path / "s").as_posix() for log in logs] == names


@pytest.mark.parametrize(
    "subdir, words",
    [
        ("same", ["the jobs 0 and 1 one directory", "${hydra.job.num}"]),
        ("${task.name}/./", ["the jobs 0 and 1 one directory"]),
        ("${hydra.job.num}" + "x" * 255, ["job 0 a name that no disk takes", "exclude_keys"]),
        ("${nope}", ["nope"]),
    ],
)
def test_directories_that_cannot_be_a_jobs_own_are_refused_before_any_starts(cli, jobs_run, subdir, words):
    done = cli(["-m", "seed=0,1", "hydra.sweep.dir=s", f"hydra.sweep.subdir='{subdir}'"])
    assert done.code == 1 and not jobs_run and done.err.startswith("error: ") and done.err.count("\n") == 1
    for word in words:
        assert word in done.err


def test_the_directory_of_a_sweep_may_stand_in_a_configuration(cli, jobs_run, tmp_path):
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    text = "# @package _global_\nhydra: {sweep: {dir: kept, subdir: '${seed}'}}\n"
    (tmp_path / "mine" / "experiment" / "place.yaml").write_text(text)
    assert cli(["-m", "seed=3,5", "experiment=place", "--config-dir=mine"]).code == 0
    assert sorted(path.parent.name for path in (tmp_path / "kept").rglob("job.log")) == ["3", "5"]
    assert not (tmp_path / "multirun").exists()


def test_nothing_of_a_sweep_is_left_in_the_process(cli, jobs_run):
    assert cli(["-m", "dataset=toy", "hydra.sweep.dir=mine"]).code == 0
    assert jobs_run == [("toy", 0, "mine")]
    assert sweep_name() is None
