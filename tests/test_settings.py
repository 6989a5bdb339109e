"""Every key of the configuration: declared, its own value accepted, values of a wrong kind refused in one sentence."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from fmm import measures, overrides
from fmm.conf import Conf, groups_of
from fmm.errors import FmmError
from fmm.schema import SETTINGS, TRAINER_RESERVED, check_value, declared
from fmm.settings import check_settings, resolved, settled
from tests.conftest import CONF

GROUPS = groups_of(CONF)


def every_composition() -> list[tuple[str, ...]]:
    return [(f"{group}={option}",) for group, options in GROUPS.items() for option in options]


@pytest.fixture(scope="module")
def conf() -> Conf:
    return Conf(CONF)


@pytest.mark.parametrize("chosen", every_composition(), ids=" ".join)
def test_every_key_of_every_choice_is_declared_and_takes_its_own_value(conf, chosen):
    flat = resolved(conf.compose(chosen))
    undeclared = [key for key in flat if declared(key) is None]
    assert not undeclared, f"declare {', '.join(undeclared)} in fmm/schema.py: kind, bounds or choices"
    check_settings(flat, conf.measures)


def test_every_declaration_is_of_a_key_or_of_an_argument_of_lightning(conf):
    keys = {key for chosen in every_composition() for key in resolved(conf.compose(chosen))}
    for declaration in SETTINGS:
        start = declaration.removesuffix("*")
        used = any(key == declaration or (start != declaration and key.startswith(start)) for key in keys)
        assert used or declaration.startswith("trainer."), f"{declaration} is no key of conf/"


def test_every_argument_of_lightnings_trainer_is_declared_or_reserved():
    from pytorch_lightning import Trainer

    names = [name for name in inspect.signature(Trainer).parameters if name != "self"]
    missing = [name for name in names if name not in TRAINER_RESERVED and f"trainer.{name}" not in SETTINGS]
    assert not missing


def test_every_measure_declares_the_options_of_its_class(conf):
    for name, options in conf.measures.items():
        family = type(measures.build(name))
        fixed = family.presets.get(name, {})
        accepted = [option for option in inspect.signature(family).parameters if option not in fixed]
        assert set(options) == set(accepted), name


WRONG = [
    "true",
    "abc",
    "-7",
    "0",
    "1.5",
    "1e400",
    "nan",
    "inf",
    "-inf",
    "null",
    "''",
    "[]",
    "[a]",
    "{}",
    "{a: 1}",
    "[[1]]",
]
VALUES = [override.value() for override in overrides.parse([f"key={value}" for value in WRONG])]


@pytest.mark.parametrize("key", sorted(key for key in SETTINGS if "*" not in key))
def test_values_are_taken_or_refused_in_one_sentence(key):
    for given in VALUES:
        take_or_refuse(key, SETTINGS[key], given)


def take_or_refuse(key, setting, given):
    """No value raises anything but FmmError, and what is taken is of the kind declared."""
    try:
        check_value(key, given)
    except FmmError as error:
        assert key in str(error) and "\n" not in str(error)
        return
    kinds = [kind for kind in (setting, setting.other, setting.other and setting.other.other) if kind]
    assert (given is None and setting.null) or any(kind.is_kind(given) or kind.choices for kind in kinds)
    if isinstance(given, int | float) and setting.kind in (int, float):
        assert setting.low <= given <= setting.high


@pytest.mark.parametrize("key", sorted(key for key in SETTINGS if "*" not in key))
def test_a_map_or_a_list_is_not_taken_for_one_value(conf, key):
    setting = SETTINGS[key]
    kinds = {kind.kind for kind in (setting, setting.other, setting.other and setting.other.other) if kind}
    for value, kind in (({"a": 1}, dict), ({}, dict), ([{"a": [1]}], list)):
        nested: Any = value
        for name in reversed(key.split(".")):
            nested = {name: nested}
        flat = resolved(OmegaConf.create(nested))
        if kind not in kinds or not value:
            with pytest.raises(FmmError, match=re.escape(key)) as caught:
                check_settings(flat, conf.measures)
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("line", ["seed={a: 1}", "++seed={a: 1}", "training={batch_size: {a: 1}}", "seed={}"])
def test_a_map_for_one_value_is_refused_on_the_command_line(conf, line):
    with pytest.raises(FmmError, match="is not a whole number"):
        overrides.check_single(conf, overrides.parse([line]))


@pytest.mark.parametrize(
    "line",
    [
        "seed=${nope}",
        "seed=${seed}",
        "output_dir=${oc.env:NOPE_NOT_SET}",
        "+note=${nope}",
        "training={}",
        "+training.batch_szie=3",
        "++training.batch_size=0",
        "+dataset.labells=[a,b]",
        "dataset=[toy,rte]",
        "+dataset=toy",
        "+seed=3",
        "dataset.labels=[a,a]",
        "dataset.labels=[a,b,c]",
        "dataset.checkpoint_metric=matthews",
        "measures=[]",
        "measures=[beam_99999999]",
        "measures=[{name: int_grad_abs, steps: 1.5}]",
        "measures=[{name: loo_abs, steps: 3}]",
        "measures=[{steps: 3}]",
        "measure.steps=3",
        "+measure.steps=3",
        "measure=beam_010",
        "measure=beam_" + "9" * 5000,
        "model.hidden_size=65",
        "output_dir=/dev/null/x",
        "output_dir=" + "x" * 300,
        "ratios=[0,0]",
        "trainer.deterministic=perhaps",
        "trainer.devices=0.5",
        "task.name=trian",
    ],
)
def test_bad_settings_are_refused_before_hydra(conf, line):
    with pytest.raises(FmmError) as caught:
        overrides.check_single(conf, overrides.parse([overrides.quote(line)]))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


@pytest.mark.parametrize(
    "line",
    [
        "+note=mine",
        "seed=${training.batch_size}",
        "output_dir=runs/${hydra:job.name}",
        "output_dir=${oc.env:HOME}/runs",
        "training={max_epochs: 3}",
        "measures=[beam_7,{name: int_grad_abs, steps: 50}]",
        "++seed=3",
        "experiment=[quick,paper]",
        "dataset.labels=[bad,good]",
        "dataset.text=1.50",
        "trainer.deterministic=warn",
        "trainer.devices=[0,1]",
        "trainer.gradient_clip_val=1",
        "trainer.precision=32",
        "report.datasets=all",
        "target=True",
        "label_map={0: bad, 1.5: good}",
        "output_dir=with a space/ünïcode",
    ],
)
def test_right_settings_pass(conf, line):
    task = ["task=report"] if line.startswith("report") else []
    overrides.check_single(conf, overrides.parse([overrides.quote(part) for part in [*task, line]]))


def test_words_of_ones_own_stay_as_they_are_typed(conf):
    (override,) = overrides.parse([overrides.quote("dataset.text=1.50")])
    assert override.value() == "1.50"


def test_a_tilde_is_the_home_folder(conf, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert settled(conf.compose(["output_dir='~/runs'"])).output_dir == str(tmp_path / "runs")


def test_a_key_of_a_section_that_nothing_reads_is_refused_in_a_file_too(conf):
    cfg = OmegaConf.create(OmegaConf.to_container(conf.compose([])))
    cfg.training.batch_szie = 3
    with pytest.raises(FmmError, match=r"did you mean training\.batch_size"):
        settled(cfg)


def test_python_has_the_bounds_of_the_command_line():
    for measure in ("beam_99999999", {"name": "int_grad_abs", "steps": 1.5}, {"name": "int_grad_abs", "steps": True}):
        with pytest.raises(FmmError):
            measures.build(measure)


@pytest.mark.parametrize(
    "line", ["seed=range(0,0)", "dataset=glob(zz*)", "seed=range(0,10,0)", "seed=range(0,10000000)"]
)
def test_a_sweep_of_no_job_or_too_many_is_refused(cli, line):
    done = cli(["-m", line])
    assert done.code == 1 and done.err.startswith("error: ") and done.err.count("\n") == 1
    assert not Path("multirun").exists()
