"""Signals in and out of a fit: nothing is lost, and the same command reaches the same weights."""

from __future__ import annotations

import csv
import signal
import time

import pytest
import torch
from pytorch_lightning import Callback

from fmm import checkpoints
from fmm.interruption import SignalsPutOff, Terminated, terminations
from fmm.tasks import train

ROWS = ("dataset=toy", "logger=csv", "trainer=cpu", "data.max_train_rows=96", "data.max_eval_rows=48")
ROWS += ("data.max_test_rows=20", "ratios=[0,1]", "training.max_epochs=2", "training.batch_size=16")
TINY = ("model.hidden_size=16", "model.num_layers=1", "model.num_heads=2")


@pytest.fixture
def toy(compose, tmp_path):
    """`toy("seed=1")` composes a run of two epochs of 6 batches each, 3 batches of validation after each."""
    return lambda *more: compose(*ROWS, *TINY, f"output_dir={tmp_path / 'out'}", *more)


class Signal(Callback):
    """Sends a signal to this process in a batch of an epoch's training or validation."""

    def __init__(self, number, place, batch, epoch):
        self.number, self.place, self.batch, self.epoch = number, place, batch, epoch

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if (self.place, self.batch, trainer.current_epoch) == ("train", batch_idx, self.epoch):
            signal.raise_signal(self.number)

    def on_validation_batch_start(self, trainer, module, batch, batch_idx, *more):
        if (self.place, self.batch, trainer.current_epoch) == ("validation", batch_idx, self.epoch):
            signal.raise_signal(self.number)


def signalled(cfg, number, place, batch, monkeypatch, epoch=1):
    """Train until a signal stops it."""
    with monkeypatch.context() as patch:
        build = train.build_trainer
        patch.setattr(
            train,
            "build_trainer",
            lambda c, callbacks, **o: build(c, callbacks=[Signal(number, place, batch, epoch), *callbacks], **o),
        )
        with terminations():
            train.run(cfg)


def without_times(rows):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def left(record):
    """What a run leaves that must not depend on interruptions."""
    weights = (record.directory / "model" / "model.safetensors").read_bytes()
    with (record.directory / "logs" / "metrics.csv").open() as file:
        metrics = without_times(csv.DictReader(file))
    names = sorted(str(path.relative_to(record.directory)) for path in record.directory.rglob("*"))
    curve = (record.directory / "random_masking.parquet").read_bytes()
    return weights, metrics, without_times(record.results["history"]), curve, names


@pytest.fixture
def uninterrupted(compose, tmp_path):
    return lambda *more: left(train.run(compose(*ROWS, *TINY, f"output_dir={tmp_path / 'whole'}", *more)))


@pytest.mark.parametrize(
    "number, place, batch, saved",
    [
        (signal.SIGTERM, "train", 0, "in epoch 2, after batch 1 of 6"),
        (signal.SIGINT, "train", 3, "in epoch 2, after batch 4 of 6"),
        (signal.SIGTERM, "train", 5, "in epoch 2, after batch 6 of 6"),
        (signal.SIGHUP, "validation", 0, "in epoch 2, after batch 6 of 6"),
        (signal.SIGTERM, "validation", 2, "in epoch 2, after batch 6 of 6"),
    ],
)
def test_a_signal_in_a_fit_saves_its_state_and_the_same_command_ends_as_if_there_had_been_none(
    toy, uninterrupted, monkeypatch, capsys, number, place, batch, saved
):
    with pytest.raises(KeyboardInterrupt):
        signalled(toy(), number, place, batch, monkeypatch)
    assert f"{signal.Signals(number).name}: state saved at epoch 2" in capsys.readouterr().out
    record = train.run(toy())
    assert f"saved {saved}" in capsys.readouterr().out
    assert left(record) == uninterrupted()
    assert record.results["pieces"] == 2


@pytest.mark.parametrize("place, batch", [("train", 2), ("train", 5), ("validation", 1)])
def test_the_epochs_after_an_interrupted_one_are_as_they_would_have_been(toy, uninterrupted, monkeypatch, place, batch):
    """An epoch that was stopped in its validation has no batch left, and must not hand its dropout on to the next."""
    with pytest.raises(Terminated):
        signalled(toy(), signal.SIGTERM, place, batch, monkeypatch, epoch=0)
    assert left(train.run(toy())) == uninterrupted()


def test_gradients_that_accumulate_are_never_cut(toy, uninterrupted, monkeypatch, capsys):
    more = ("trainer.accumulate_grad_batches=2",)
    with pytest.raises(Terminated):
        signalled(toy(*more), signal.SIGTERM, "train", 2, monkeypatch)
    record = train.run(toy(*more))
    assert "saved in epoch 2, after batch 4 of 6" in capsys.readouterr().out
    assert left(record) == uninterrupted(*more)


def test_two_interruptions_in_one_epoch_and_the_time_of_all_pieces_is_counted(toy, uninterrupted, monkeypatch):
    def slow(*arguments):
        time.sleep(0.2)

    monkeypatch.setattr(Signal, "on_train_batch_end", slow)
    for batch in (1, 3):
        with pytest.raises(Terminated):
            signalled(toy(), signal.SIGTERM, "train", batch, monkeypatch)
    record = train.run(toy())
    assert left(record) == uninterrupted()
    assert record.results["pieces"] == 3
    assert record.results["durations"]["fit"] > 0.2 * 8  # the 6 batches of the first epoch and 2 of the second
    assert record.results["history"][1]["seconds"] > 0.2 * 2
    assert record.seconds > record.results["durations"]["fit"]


def test_the_state_is_saved_every_so_many_minutes_and_a_kill_loses_no_more(toy, uninterrupted, monkeypatch, capsys):
    """A kill leaves no time for anything: an exception stands for it."""

    class KillError(Exception):
        pass

    class Kill(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if (trainer.current_epoch, batch_idx) == (1, 4):
                raise KillError

    with monkeypatch.context() as patch:
        build = train.build_trainer
        patch.setattr(train, "build_trainer", lambda c, callbacks, **o: build(c, callbacks=[Kill(), *callbacks], **o))
        with pytest.raises(KillError):
            train.run(toy("trainer.save_every_minutes=0"))
    record = train.run(toy())
    assert "saved in epoch 2, after batch 4 of 6" in capsys.readouterr().out
    assert left(record) == uninterrupted()


def test_nothing_is_saved_within_an_epoch_before_its_time(toy, monkeypatch):
    saved = []
    monkeypatch.setattr(
        checkpoints.SavesWithinEpoch, "on_save_checkpoint", lambda self, *a: saved.append(self._position)
    )
    train.run(toy("trainer.save_every_minutes=null"))
    assert saved and not any(saved)


def test_the_random_numbers_of_dropout_go_on_where_they_were():
    state = checkpoints._random_state(torch.device("cpu"))
    expected = torch.rand(3)
    checkpoints._set_random_state(torch.device("cpu"), state)
    assert torch.equal(torch.rand(3), expected)
    checkpoints._set_random_state(torch.device("cpu"), torch.zeros(16, dtype=torch.uint8))  # a GPU's: left alone


def test_a_signal_is_put_off_and_then_does_what_it_would_have_done():
    with pytest.raises(Terminated, match="terminated by SIGTERM"), terminations(), SignalsPutOff() as signals:
        signal.raise_signal(signal.SIGTERM)
        assert signals.noted == ["SIGTERM"]
        signals.handle()


def test_a_second_signal_takes_effect_at_once():
    reached = []
    with pytest.raises(KeyboardInterrupt), SignalsPutOff():
        signal.raise_signal(signal.SIGINT)
        reached.append(1)
        signal.raise_signal(signal.SIGINT)
        reached.append(2)
    assert reached == [1]


def test_a_signal_that_nobody_handled_in_time_is_handled_at_the_end():
    with pytest.raises(KeyboardInterrupt), SignalsPutOff():
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), SignalsPutOff():  # an error does not swallow it
        signal.raise_signal(signal.SIGINT)
        raise ValueError


def test_a_launchers_handler_of_its_own_signal_is_called_after_the_state_is_saved(toy, monkeypatch, capsys):
    """As submitit's: it requeues the job and exits with -1. SIGTERM it only notes, and training goes on."""

    def requeue(number, frame):
        print("requeued")
        raise SystemExit(-1)

    before = [signal.signal(signal.SIGUSR2, requeue), signal.signal(signal.SIGTERM, lambda *a: print("bypassed"))]
    try:
        with pytest.raises(SystemExit) as stop:
            signalled(toy(), signal.SIGUSR2, "train", 2, monkeypatch)
        assert stop.value.code == -1
        lines = capsys.readouterr().out.splitlines()
        assert lines.index("requeued") > lines.index("SIGUSR2: state saved at epoch 2, batch 3 of 6")
        signalled(toy("seed=1"), signal.SIGTERM, "train", 2, monkeypatch)
        lines = capsys.readouterr().out.splitlines()
        assert lines.index("bypassed") > lines.index("SIGTERM: state saved at epoch 2, batch 3 of 6")
        assert any(line.startswith("record: ") for line in lines)
    finally:
        signal.signal(signal.SIGUSR2, before[0])
        signal.signal(signal.SIGTERM, before[1])


def test_signals_that_are_ignored_stay_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
    try:
        with terminations(), SignalsPutOff() as signals:
            signal.raise_signal(signal.SIGHUP)
            assert signals.noted == []
    finally:
        signal.signal(signal.SIGHUP, before)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
