"""The token cache: built once, keyed by content, mended when damaged."""

from __future__ import annotations

import logging
import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmm.data import cache
from fmm.errors import FmmError
from tests.data_helpers import build, small_toy, word_tokenizer


def prepared(folder: Path, **options: Any) -> Any:
    dm = build(small_toy(), folder, **options)
    dm.attach_tokenizer(word_tokenizer(), 64)
    dm.prepare_data()
    dm.setup()
    return dm


def prepare_in_process(folder: Path, queue: Any) -> None:
    messages: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    logging.getLogger("fmm").addHandler(Handler())
    logging.getLogger("fmm").setLevel(logging.INFO)
    dm = build(small_toy(), folder)
    dm.attach_tokenizer(word_tokenizer(), 64)
    dm.prepare_data()
    dm.setup()
    queue.put((sum("tokenising" in m for m in messages), sum("cache hit" in m for m in messages), len(dm.train)))


def test_four_processes_at_once_build_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    workers = [context.Process(target=prepare_in_process, args=(tmp_path, queue)) for _ in range(4)]
    for worker in workers:
        worker.start()
    results = [queue.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join()
    assert sum(built for built, _, _ in results) == 3  # each split once, by whichever came first
    assert all(rows == 200 for _, _, rows in results)
    assert all(built + hits == 3 for built, hits, _ in results)


def test_second_time_is_a_hit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = prepared(tmp_path)
    caplog.set_level(logging.INFO, "fmm")
    caplog.clear()
    second = prepared(tmp_path)
    assert "cache hit" in caplog.text and "tokenising" not in caplog.text
    assert first.cache_key == second.cache_key
    assert np.array_equal(first.train[7]["input_ids"], second.train[7]["input_ids"])


def damage_cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-8])


def damage_flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)


DAMAGES = [(d, "input_ids.npy") for d in (damage_cut, damage_flip, Path.unlink)]


@pytest.mark.parametrize(("damage", "name"), [*DAMAGES, (damage_cut, "meta.json"), (Path.unlink, "meta.json")])
def test_corrupt_cache_is_rebuilt_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Any, name: str
) -> None:
    before = prepared(tmp_path).train[3]
    damage(next(tmp_path.glob(f"toy/*/train/{name}")))
    after = prepared(tmp_path).train[3]
    assert "is corrupt" in caplog.text and "building it again" in caplog.text
    assert np.array_equal(before["input_ids"], after["input_ids"])
    caplog.clear()
    prepared(tmp_path)
    assert "is corrupt" not in caplog.text


def test_half_written_cache_is_never_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(cache.os, "replace", full)
        with pytest.raises(FmmError, match="No space left on device"):
            prepared(tmp_path)
    assert not list(tmp_path.glob("toy/*/train")) and not list(tmp_path.glob("toy/*/.train-*"))
    assert len(prepared(tmp_path).train) == 200


def test_key_follows_content(tmp_path: Path) -> None:
    base = prepared(tmp_path)
    other_tokenizer = build(small_toy(), tmp_path)
    other_tokenizer.attach_tokenizer(word_tokenizer("roberta"), 64)
    shorter = prepared(tmp_path, max_length=20)
    fewer = prepared(tmp_path, max_train_rows=50)
    other_choice = prepared(tmp_path, max_train_rows=50, split_seed=1)
    keys = [dm.cache_key for dm in (base, other_tokenizer, shorter, fewer, other_choice)]
    assert len(set(keys)) == 5
    assert base.fingerprint == shorter.fingerprint != fewer.fingerprint
    assert prepared(tmp_path, seed=3).cache_key == base.cache_key  # a run's seed changes no row


def test_record_states_limits_and_truncation(tmp_path: Path) -> None:
    dm = prepared(tmp_path, max_train_rows=50, max_eval_rows=10, max_test_rows=8, max_length=10)
    record = dm.record()
    assert record["rows"] == {"train": 50, "validation": 10, "test": 8}
    assert record["limits"] == {"max_train_rows": 50, "max_eval_rows": 10, "max_test_rows": 8}
    assert record["truncated"]["train"] == 50 and record["max_length"] == 10
    assert record["class_counts"]["train"] == np.bincount(dm.train.labels).tolist()
    assert dm.train.lengths.max() == 10


@pytest.mark.parametrize("limit", [0, -3])
def test_limit_without_rows(tmp_path: Path, limit: int) -> None:
    with pytest.raises(FmmError, match="leaves no row"):
        build(small_toy(), tmp_path, max_train_rows=limit).read()


def test_tokenizer_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FmmError, match="attach_tokenizer"):
        build(small_toy(), tmp_path).setup()
