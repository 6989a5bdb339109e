"""Records: named by content, whole or absent."""

import json
import math

import pyarrow as pa
import pytest

from fmm import records
from fmm.errors import FmmError


def opened(tmp_path, **settings):
    return records.open_run(tmp_path, "train", "toy", "half det/s0", settings)


def test_same_settings_find_the_same_run(tmp_path):
    assert opened(tmp_path, a=1, b=[2]).directory == opened(tmp_path, b=[2], a=1).directory
    assert opened(tmp_path, a=1).key != opened(tmp_path, a=2).key
    assert " " not in opened(tmp_path, a=1).directory.name


def test_finished_run_is_found_and_read_back(tmp_path):
    run = opened(tmp_path, a=1)
    assert not run.done
    run.finish({"accuracy": 0.5, "nan": math.nan, "inf": math.inf})
    (record,) = records.load_all(tmp_path, "train")
    assert record.results == {"accuracy": 0.5, "nan": None, "inf": "Infinity"}
    assert record.settings == {"a": 1} and record.key == run.key and "torch" in record.versions


@pytest.mark.parametrize("text", ["", "{", '{"schema": 0}', "[]", "null"])
def test_damaged_record_is_not_taken_for_done(tmp_path, text):
    run = opened(tmp_path, a=1)
    run.finish({})
    (run.directory / records.RECORD).write_text(text)
    assert not run.done and records.load_all(tmp_path) == []


def test_record_of_other_content_is_not_taken_for_ours(tmp_path):
    run = opened(tmp_path, a=1)
    run.finish({})
    data = json.loads((run.directory / records.RECORD).read_text())
    (run.directory / records.RECORD).write_text(json.dumps({**data, "key": "other"}))
    assert not run.done


def test_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file.txt"
    records.write_text(path, "old")
    with pytest.raises(RuntimeError), records.atomic_path(path) as temporary:
        temporary.write_text("half of the n")
        raise RuntimeError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_full_disk_is_a_sentence(tmp_path):
    with pytest.raises(FmmError, match="could not write"), records.atomic_path(tmp_path / "x"):
        raise OSError(28, "No space left on device")


def test_truncated_parquet_reads_as_missing(tmp_path):
    path = tmp_path / "x.parquet"
    records.write_parquet(path, pa.table({"a": list(range(1000))}))
    assert records.read_parquet(path).num_rows == 1000
    path.write_bytes(path.read_bytes()[:-20])
    assert records.read_parquet(path) is None
    assert records.read_parquet(tmp_path / "none.parquet") is None


def test_place_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("in the way")
    run = records.open_run(tmp_path / "file", "train", "toy", "x", {})
    with pytest.raises(FmmError, match="choose another output_dir"), run.lock():
        pass
    with pytest.raises(FmmError, match="choose another output_dir"):
        run.write_text("a.txt", "a")


def test_what_killed_processes_were_writing_is_removed_by_the_next_run(tmp_path):
    run = records.open_run(tmp_path, "train", "toy", "tiny", {"seed": 0})
    half_model = run.directory / ".model.123.tmp"
    half_model.mkdir(parents=True)
    (half_model / "model.safetensors").write_bytes(b"half")
    (run.directory / "checkpoints").mkdir()
    (run.directory / "checkpoints" / "last.ckpt.tmp").write_bytes(b"half")
    (run.directory / "checkpoints" / "last.ckpt").write_bytes(b"whole")
    with run.lock():
        left = [path.name for path in run.directory.rglob("*") if path.is_file() or path.name.startswith(".")]
    assert left == ["last.ckpt"]
