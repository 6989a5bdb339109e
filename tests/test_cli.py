"""The command line: its page, its checks, and what it leaves behind."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fmm import pages
from fmm.conf import groups_of
from fmm.errors import FmmError
from fmm.schema import SETTINGS


@pytest.fixture
def tasks_run(monkeypatch):
    """Replace the tasks; the list holds the settings of every one that was started."""
    started = []
    monkeypatch.setattr("fmm.tasks.run_task", started.append)
    return started


def test_help_is_a_page_and_quick(run_cli):
    started = time.monotonic()
    done = run_cli("--help")
    assert time.monotonic() - started < 2
    assert done.code == 0
    for word in ("task=train", "Tasks", "pipeline", "mnli", "half_det", "training:", "max_epochs", "-m", "Examples"):
        assert word in done.out
    assert "hydra" not in done.out


def test_help_says_of_every_key_what_it_takes(conf):
    page = pages.page(conf)
    for key, setting in SETTINGS.items():
        name = key if f"  {key} " in page else key.rsplit(".", 1)[-1] + ":"
        lines = page.split(f" {name}")
        assert any(setting.words() in rest[:250] for rest in lines[1:]), key


@pytest.mark.parametrize("argument", ["--help", "dataset=mnil"])
def test_help_and_mistakes_do_not_import_torch(conf, argument):
    code = (
        "import sys; from pathlib import Path; from fmm.cli import main; "
        f"main(Path({str(conf)!r}), [{argument!r}]); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'pytorch_lightning', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=conf.parent).returncode == 0


MISTAKES = [
    (["dataset=mnil"], ["unknown dataset 'mnil'", "did you mean mnli"]),
    (["task=tran"], ["unknown task 'tran'", "train"]),
    (["masking=hlf_det"], ["unknown masking 'hlf_det'", "half_det"]),
    (["model=distilroberta-base"], ["unknown model", "model.name=distilroberta-base"]),
    (["traning.max_epochs=3"], ["unknown key 'traning.max_epochs'", "training.max_epochs"]),
    (["seeed=1"], ["unknown key 'seeed'", "did you mean seed "]),
    (["batch_size=4"], ["unknown key 'batch_size'", "training.batch_size"]),
    (["learning_rte=1"], ["unknown key 'learning_rte'", "training.learning_rate"]),
    (["datset=toy"], ["unknown key 'datset'", "dataset"]),
    (["~sed"], ["unknown key 'sed'", "seed"]),
    (["~dataset"], ["takes the choice of dataset away", "toy"]),
    (["model=null"], ["takes the choice of model away", "roberta_base"]),
    (["ratios=null"], ["ratios=null takes the value away", "a list such as"]),
    (["output_dir="], ["output_dir is empty"]),
    (["model.num_layers=0"], ["model.num_layers=0 is too small"]),
    (["data.split_seed=-1"], ["data.split_seed=-1 is too small"]),
    (["training=3"], ["training is a section", "training.max_epochs"]),
    (["seed=4294967296"], ["at most 4294967295"]),
    (["task=racu", "text=hello"], ["text=hello is not read by task=racu", "task=explain"]),
    (["explanation.file=mine.csv"], ["explanation.file=mine.csv is not read by task=train", "task=explain"]),
    (["checkpoint=mine"], ["checkpoint=mine is not read by task=train", "model.name="]),
    (["task=check", "report.margin=0.1"], ["report.margin=0.1 is not read by task=check", "report or pipeline"]),
    (["seed=abc"], ["seed=abc is not a whole number"]),
    (["seed=1.5"], ["seed=1.5 is not a whole number"]),
    (["training.batch_size=-1"], ["training.batch_size=-1 is too small", "at least 1"]),
    (["training.learning_rate=high"], ["training.learning_rate=high is not a number"]),
    (["training.warmup=2"], ["at most 1"]),
    (["force=maybe"], ["force=maybe is not true or false"]),
    (["data.max_train_rows=many"], ["data.max_train_rows=many is not a whole number"]),
    (["selection=bth"], ["unknown value of selection 'bth'", "both"]),
    (["ratios=0.5"], ["ratios=0.5 is not a list"]),
    (["ratios=[0,2]"], ["ratios=[0, 2] is too large"]),
    (["ratios=[0,half]"], ["ratios holds half"]),
    (["ratios=[0,"], ["'ratios=[0,' cannot be read"]),
    (["dataset", "toy"], ["'dataset' sets nothing", "dataset=<value>"]),
    (["--dataset=toy"], ["starts with dashes", "dataset=toy"]),
    (["--epochs", "3"], ["unknown flag '--epochs'"]),
    (["seed=0,1"], ["'seed=0,1' holds several values", "-m"]),
    (["-m", "seed=0,1", "traning.max_epochs=3"], ["unknown key 'traning.max_epochs'"]),
    (["-m", "seed=0,1", "hydra/launcher=nowhere"], ["is not installed", "pip install hydra-nowhere-launcher"]),
    (["measure=beam_0"], ["beam width 0 is too small"]),
    (["measure=loo_7"], ["unknown measure 'loo_7'", "loo_abs"]),
    (["-m", "dataset=mnil,mmli"], ["unknown dataset 'mnil'"]),
    (["~seed"], ["~seed takes seed away", "leave it out"]),
    (["~data.max_length"], ["write data.max_length=null"]),
    (["+trainer.limit_train_batches=5"], ["trainer.limit_train_batches is not an option here", "data.max_train_rows"]),
]


@pytest.mark.parametrize("arguments, words", MISTAKES, ids=lambda value: " ".join(value) if value else None)
def test_a_mistake_is_one_sentence_before_anything_starts(cli, tasks_run, tmp_path, arguments, words):
    done = cli(arguments)
    assert done.code == 1
    assert not tasks_run
    assert done.out == ""
    assert done.err.startswith("error: ") and done.err.count("\n") == 1
    for word in words:
        assert word in done.err
    assert list(tmp_path.iterdir()) == []


GOOD = [
    ["seed=3"],
    ["+note=mine"],
    ["++seed=3"],
    ["data.max_train_rows=100", "data.max_train_rows=null"],
    ["training.max_epochs=3", "training.learning_rate=1"],
    ["target=1"],
    ["target=predicted"],
    ["recursive=true"],
    ["measures=[grad_l2,loo_abs]"],
    ["model.name=distilroberta-base"],
    ["trainer.devices=2", "trainer=cpu"],
    ["+trainer.log_every_n_steps=5"],
    ["+trainer.gradient_clip_algorithm=norm"],
    ["experiment=quick"],
    ["experiment=paper", "dataset=mnli"],
    ["ratios=[0,0.5,1]"],
    ["data={num_workers: 2}"],
    ["hydra.verbose=true"],
]


@pytest.mark.parametrize("arguments", GOOD, ids=lambda value: " ".join(value))
def test_right_settings_start_one_task_and_leave_nothing_of_hydras(cli, tasks_run, tmp_path, arguments):
    done = cli(arguments)
    assert (done.code, done.err) == (0, "")
    assert len(tasks_run) == 1
    assert list(tmp_path.iterdir()) == []
    assert Path.cwd() == tmp_path


def test_a_family_with_a_number_takes_any_in_one_run_and_in_a_sweep(cli, tasks_run):
    assert cli(["measure=beam_7"]).code == 0
    assert cli(["-m", "measure=beam_3,loo_sign"]).code == 0
    assert [cfg.measure.name for cfg in tasks_run] == ["beam_7", "beam_3", "loo_sign"]


def test_free_text_and_paths_mean_themselves(cli, tasks_run):
    text = 'A great, great film (really): 100% "fun" [sic] {x} a=b c:\\d it\'s ${x} $5\\'
    assert cli(["task=explain", f"text={text}", "output_dir=runs/a=b (c)", "checkpoint=x/epoch=3.ckpt"]).code == 0
    cfg = tasks_run[0]
    assert cfg.text == text
    assert cfg.output_dir == "runs/a=b (c)"
    assert cfg.checkpoint == "x/epoch=3.ckpt"


def test_toy_brings_the_tiny_model_and_the_command_line_wins(compose):
    assert compose("dataset=toy").model.name == "tiny"
    assert compose("dataset=toy", "model=bert_base").model.name != "tiny"
    assert compose("dataset=mnli").model.name != "tiny"


def test_every_choice_of_every_group_composes(conf, compose):
    for group, options in groups_of(conf).items():
        for option in options:
            assert compose(f"{group}={option}")


def test_an_error_of_a_task_is_its_sentence(cli, monkeypatch):
    def fail(cfg):
        raise FmmError("the mirror lacks the split 'test'; give one that has it")

    monkeypatch.setattr("fmm.tasks.run_task", fail)
    done = cli([])
    assert done.code == 1
    assert done.err == "error: the mirror lacks the split 'test'; give one that has it\n"
    monkeypatch.setenv("FMM_DEBUG", "1")
    assert "Traceback" in cli([]).err


def test_an_unexpected_error_shows_its_traceback(cli, monkeypatch):
    monkeypatch.setattr("fmm.tasks.run_task", lambda cfg: 1 / 0)
    done = cli([])
    assert done.code == 1
    assert "ZeroDivisionError" in done.err


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_disk_that_refuses_is_a_sentence(cli, monkeypatch, number):
    def fail(cfg):
        raise OSError(number, os.strerror(number), "outputs/train.log")

    monkeypatch.setattr("fmm.tasks.run_task", fail)
    done = cli([])
    assert done.code == 1 and "Traceback" not in done.err
    assert done.err.startswith(f"error: cannot write outputs/train.log: {os.strerror(number)}; free space")


def test_a_disk_that_is_full_while_a_file_is_written_names_the_folder(cli, monkeypatch):
    def fail(cfg):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("fmm.tasks.run_task", fail)
    assert cli(["output_dir=mine"]).err.startswith("error: cannot write in mine: No space left on device; free space")


def test_an_interruption_says_how_to_continue(cli, monkeypatch):
    def interrupt(cfg):
        raise KeyboardInterrupt

    monkeypatch.setattr("fmm.tasks.run_task", interrupt)
    done = cli([])
    assert done.code == 130
    assert "the same command continues" in done.err


def test_cfg_prints_the_settings(cli, tasks_run):
    done = cli(["--cfg", "job", "seed=7"])
    assert done.code == 0
    assert "seed: 7" in done.out
    assert not tasks_run
