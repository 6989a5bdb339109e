"""The Trainer of each choice of `trainer=`, and what is refused."""

from __future__ import annotations

import signal

import pytest
import torch
from pytorch_lightning import Trainer
from pytorch_lightning.demos.boring_classes import BoringModel

from fmm.errors import FmmError
from fmm.trainer import build_trainer, check_trainer, interruptible, resolved_precision, trainer_options


def settings(compose, *overrides):
    return dict(compose(*overrides).trainer)


def test_gradients_are_possible_in_test_steps_and_samplers_are_left_alone(compose):
    trainer = build_trainer(compose("trainer=cpu"), callbacks=[], logger=None, max_epochs=2)
    assert trainer.max_epochs == 2
    assert trainer.loggers == []
    assert trainer.test_loop.inference_mode is False
    assert trainer._accelerator_connector.use_distributed_sampler is False
    assert trainer.precision == "32-true"


def test_auto_is_full_precision_on_a_cpu(compose, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    options = trainer_options(settings(compose, "trainer=auto"))
    assert (options["accelerator"], options["precision"]) == ("cpu", "32-true")
    assert options["enable_progress_bar"] is False


@pytest.mark.parametrize("has_bf16, expected", [(True, "bf16-mixed"), (False, "16-mixed")])
def test_auto_is_mixed_precision_on_a_gpu(compose, monkeypatch, has_bf16, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bf16)
    options = trainer_options(settings(compose, "trainer=auto"))
    assert (options["accelerator"], options["precision"]) == ("gpu", expected)


def test_half_precision_on_a_cpu_is_refused():
    with pytest.raises(FmmError, match="16-mixed needs a GPU"):
        resolved_precision("16-mixed", "cpu")
    assert resolved_precision("bf16-mixed", "cpu") == "bf16-mixed"


@pytest.mark.parametrize("choice", ["gpu", "ddp"])
def test_a_gpu_that_is_not_there_is_a_sentence(compose, monkeypatch, choice):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(FmmError, match="sees no GPU; take trainer=cpu"):
        trainer_options(settings(compose, f"trainer={choice}"))


@pytest.mark.parametrize(
    "override, message",
    [
        ("+trainer.gradient_clip_algoritm=norm", "unknown option of trainer .*gradient_clip_algorithm"),
        ("+trainer.fast_dev_run=true", "set experiment=quick instead"),
        ("+trainer.max_epochs=3", "set training.max_epochs instead"),
        ("+trainer.inference_mode=true", "fmm sets it itself"),
        ("trainer.strategy=ddp_spawn", "take trainer.strategy=ddp"),
    ],
)
def test_options_that_cannot_be_are_refused(compose, override, message):
    with pytest.raises(FmmError, match=message):
        trainer_options(settings(compose, "trainer=cpu", override))


def test_options_of_lightning_can_be_added(compose):
    assert trainer_options(settings(compose, "trainer=cpu", "+trainer.benchmark=true"))["benchmark"] is True


@pytest.mark.parametrize("override", ["trainer.precision=17", "trainer.devices=0", "+trainer.gradient_clip_val=a"])
def test_what_lightning_refuses_is_a_sentence(compose, override):
    with pytest.raises(FmmError, match="Lightning refuses these options of trainer"):
        check_trainer(compose("trainer=cpu", override.lstrip("+")))


def test_control_c_in_a_fit_is_an_interruption_and_the_next_is_heard():
    """Lightning itself makes of it SystemExit(1), with SIGINT ignored afterwards."""
    model = BoringModel()
    model.training_step = lambda batch, batch_idx: signal.raise_signal(signal.SIGINT)
    before = signal.getsignal(signal.SIGINT)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    with pytest.raises(KeyboardInterrupt), interruptible():
        Trainer(accelerator="cpu", devices=1, max_epochs=1, limit_val_batches=0, **quiet).fit(model)
    assert signal.getsignal(signal.SIGINT) is before


def test_an_exit_that_nobody_asked_for_stays_one():
    with pytest.raises(SystemExit), interruptible():
        raise SystemExit(3)
