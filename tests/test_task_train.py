"""task=train from raw text to record, for every supported shape of encoder, and through interruptions."""

import csv
import json
import random
import re

import numpy as np
import pytest
import torch
from pytorch_lightning import Callback
from pytorch_lightning.plugins.io import TorchCheckpointIO
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from fmm.errors import FmmError
from fmm.models import tiny
from fmm.tasks import common, train
from tests.shapes import SHAPES, make_model

TOY = ("dataset=toy", "logger=none", "trainer=cpu", "data.max_train_rows=96", "data.max_eval_rows=32")
TOY += ("data.max_test_rows=40", "model.hidden_size=16", "model.num_layers=1", "model.num_heads=2")


@pytest.fixture
def toy(compose, tmp_path):
    """`toy("seed=1")` composes a small toy run in this test's folder."""
    return lambda *more: compose(*TOY, "training.max_epochs=3", f"output_dir={tmp_path}", *more)


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    """A user's own CSV of pairs with named labels, and a tokenizer for it."""
    folder = tmp_path_factory.mktemp("reviews")
    draw = random.Random(0)
    words = {"good": ["fine", "great", "lovely"], "bad": ["dull", "awful", "weak"], "so-so": ["plain", "usual", "flat"]}
    rows = [
        (f"the {draw.choice(words[label])} film of {draw.choice(['May', 'June'])}", f"seen {i} times", label)
        for i in range(30)
        for label in words
    ]
    with open(folder / "reviews.csv", "w", newline="") as file:
        csv.writer(file).writerows([("review", "note", "verdict"), *rows])
    texts = [text for row in rows for text in row[:2]]
    return folder / "reviews.csv", tiny.train_tokenizer(texts, vocab_size=320, max_length=32)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_encoder_goes_from_a_users_file_to_a_tested_model(shape, reviews, compose, tmp_path):
    path, tokenizer = reviews
    model = make_model(shape, vocab_size=len(tokenizer), max_position_embeddings=36)
    model.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    cfg = compose(
        "dataset=local", f"data.path={path}", "dataset.text=review", "dataset.text_pair=note", "dataset.label=verdict",
        f"model.name={tmp_path / 'base'}", "logger=none", "trainer=cpu", "training.max_epochs=1",
        f"output_dir={tmp_path}", "ratios=[1,0,0.5]",
    )  # fmt: skip
    record = train.run(cfg)
    assert [row["masking_ratio"] for row in record.results["test_table"]] == [0.0, 0.5, 1.0]
    assert all(0 <= row["accuracy"] <= 1 and row["n"] == 9 for row in record.results["test_table"])
    loaded = AutoModelForSequenceClassification.from_pretrained(record.directory / "model")
    assert sorted(loaded.config.id2label.values()) == ["bad", "good", "so-so"]
    AutoTokenizer.from_pretrained(record.directory / "model")
    assert common.trained_model(cfg).key == record.key


def test_record_has_the_evidence_and_the_same_command_finds_it(toy, capsys):
    record = train.run(toy())
    results = record.results
    assert len(results["history"]) == 3 and len(results["test_table"]) == 11
    best = max(results["history"], key=lambda row: row["val_accuracy"])
    assert results["best_epoch"] == best["epoch"]
    assert results["majority"]["accuracy"] == pytest.approx(0.5, abs=0.05)
    for name in (
        "random_masking.parquet",
        "random_masking.png",
        "train.log",
        "model/config.json",
        "model/tokenizer.json",
    ):
        assert (record.directory / name).exists()
    assert not (record.directory / "checkpoints").exists()
    created = record.created
    capsys.readouterr()
    again = train.run(toy())
    output = capsys.readouterr().out
    assert again.created == created and "done already" in output
    assert output.strip().splitlines()[-1] == f"record: {record.directory / 'record.json'}"


def test_best_epochs_weights_are_the_ones_saved(toy):
    """The saved model's accuracy on the unmasked validation rows is the best epoch's, not the last one's."""
    cfg = toy("selection=nomask", "training.learning_rate=0.01")
    record = train.run(cfg)
    data = common.datamodule(cfg)
    tokenizer = AutoTokenizer.from_pretrained(record.directory / "model")
    data.attach_tokenizer(tokenizer, 256)
    data.setup()
    batch = data.validation.batch(range(len(data.validation)))
    model = AutoModelForSequenceClassification.from_pretrained(record.directory / "model").eval()
    with torch.no_grad():
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    accuracy = (logits.argmax(1) == batch["labels"]).float().mean().item()
    assert accuracy == pytest.approx(max(row["val_accuracy"] for row in record.results["history"]))


class StopError(Exception):
    pass


class StopInEpoch(Callback):
    """Ends the process's training in the middle of an epoch, as a kill would."""

    def __init__(self, epoch):
        self.epoch = epoch

    def on_train_batch_end(self, trainer, module, *arguments):
        if trainer.current_epoch == self.epoch:
            raise StopError


def interrupted(cfg, epoch, monkeypatch):
    with monkeypatch.context() as patch:
        build = train.build_trainer
        patch.setattr(
            train, "build_trainer", lambda c, callbacks, **o: build(c, callbacks=[*callbacks, StopInEpoch(epoch)], **o)
        )
        with pytest.raises(StopError):
            train.run(cfg)


def without_times(record):
    history = [{k: v for k, v in row.items() if k != "seconds"} for row in record.results["history"]]
    return history, record.results["test_table"], record.results["best_epoch"]


def test_interrupted_run_resumes_and_ends_as_an_uninterrupted_one(toy, tmp_path, monkeypatch, capsys):
    whole = train.run(toy(f"output_dir={tmp_path / 'whole'}"))
    interrupted(toy(), 1, monkeypatch)
    with pytest.raises(FmmError, match="no model has been trained"):
        common.trained_model(toy())
    capsys.readouterr()
    resumed = train.run(toy())
    assert "continuing an interrupted run" in capsys.readouterr().out
    assert without_times(resumed) == without_times(whole)
    weights = [(r.directory / "model" / "model.safetensors").read_bytes() for r in (whole, resumed)]
    assert weights[0] == weights[1]
    hint = rf"or give checkpoint={resumed.directory}, which differs in trainer\.processes alone \(None there, 8 here\)"
    with pytest.raises(FmmError, match=hint):
        common.trained_model(toy("trainer.devices=8"))


def test_checkpoint_loads_with_weights_only_and_a_damaged_one_is_said(toy, monkeypatch, capsys, tmp_path):
    interrupted(toy(), 1, monkeypatch)
    (last,) = tmp_path.glob("train/toy/*/checkpoints/last.ckpt")
    assert torch.load(last, weights_only=True)["epoch"] == 0
    last.write_bytes(last.read_bytes()[:-5000])
    train.run(toy())
    assert "is damaged" in capsys.readouterr().out


def test_other_test_rows_are_tested_without_training_again(toy, capsys):
    first = train.run(toy())
    capsys.readouterr()
    second = train.run(toy("data.max_test_rows=20"))
    assert second.key == first.key and second.results["test_table"][0]["n"] == 20
    assert "epoch 1/3" not in capsys.readouterr().out


def test_force_does_it_again_and_reaches_the_same_numbers(toy, capsys):
    first = train.run(toy())
    capsys.readouterr()
    second = train.run(toy("force=true"))
    assert "epoch 1/3" in capsys.readouterr().out and without_times(second) == without_times(first)


def test_dry_run_forecasts_and_leaves_no_record(toy, capsys, tmp_path):
    assert train.run(toy("dry_run=true")) is None
    line = capsys.readouterr().out
    assert "forecast: 9 steps of 32 rows" in line and "MB of disk" in line
    assert not list(tmp_path.glob("train/**/record.json"))


def test_seeds_and_strategies_are_runs_of_their_own(toy):
    cfgs = [toy(), toy("seed=1"), toy("masking=none"), toy("training.warmup=0.1"), toy("model.hidden_size=32")]
    keys = {common.train_run(cfg, "data").key for cfg in cfgs}
    assert len(keys) == len(cfgs)
    assert common.train_run(toy("trainer=auto", "logger=csv", "data.max_test_rows=3"), "data").key in keys


def test_options_of_the_trainer_that_change_weights_name_the_run(toy):
    settings = [
        common.train_settings(toy(*more), "data")
        for more in ((), ("trainer.accumulate_grad_batches=2",), ("trainer.gradient_clip_val=1.0",), ("trainer=auto",))
    ]
    assert settings[0] == settings[3] and "trainer" not in settings[0]
    assert [chosen["trainer"] for chosen in settings[1:3]] == [{"accumulate_grad_batches": 2}, {"gradient_clip_val": 1}]
    assert common.train_settings(toy("trainer=ddp_cpu2"), "data")["trainer"] == {"processes": 2}


def test_a_full_disk_is_a_sentence_and_leaves_no_half_checkpoint(toy, tmp_path, monkeypatch):
    def full(self, checkpoint, path, storage_options=None):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TorchCheckpointIO, "save_checkpoint", full)
    with pytest.raises(FmmError, match=r"could not write the checkpoint .*No space left"):
        train.run(toy("training.max_epochs=1"))
    assert not [*tmp_path.rglob("*.tmp"), *tmp_path.rglob("record.json")]


@pytest.mark.parametrize(
    "override",
    ["ratios=[]", "ratios=[0.5,1]", "ratios=[0,0,1]", "target=neutral", "dataset.metrics=[f1]", "trainer.precision=17"],
)
def test_settings_that_would_fail_after_training_are_refused_before(toy, override):
    with pytest.raises(FmmError):
        train.run(toy("dry_run=true", override))


def test_missing_model_prints_the_command(toy):
    with pytest.raises(FmmError, match=r"python run\.py task=train dataset=toy"):
        common.trained_model(toy())
    with pytest.raises(FmmError, match=r"task=train dataset=toy.* masking.strategy=none$"):
        common.trained_model(toy("masking.strategy=none"))


@pytest.mark.parametrize(
    "override", ["selection=all", "scheduler=cosine", "training.batch_size=0", "masking.max_ratio=2"]
)
def test_impossible_settings_are_refused_before_any_work(toy, override):
    with pytest.raises(FmmError, match=re.escape(override.split("=")[0].split(".")[-1])):
        train.run(toy(override))


def test_parquet_holds_what_the_table_is_derived_from(toy):
    import pyarrow.parquet as pq

    record = train.run(toy())
    table = pq.read_table(record.directory / "random_masking.parquet").to_pandas()
    for row in record.results["test_table"]:
        part = table[table["masking_ratio"] == row["masking_ratio"]]
        predicted = np.stack(part["logits"]).argmax(1)
        assert (predicted == part["label"]).mean() == pytest.approx(row["accuracy"])
        counts = np.floor(np.float32(row["masking_ratio"]) * part["n_maskable"].to_numpy(np.float32))
        assert (part["n_masked"] == counts).all()
    assert json.loads((record.directory / "record.json").read_text())["key"] == record.key
