"""Datasets in the hub's layout: from a mirror, from a hub that is played here, and what goes wrong."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fmm.data import sources
from fmm.errors import FmmError
from tests.data_helpers import CONF, build, dataset_config, word_tokenizer, write_parquet

NAMES = ["boolq", "cb", "cola", "imdb", "mnli", "mrpc", "qnli", "qqp", "rte", "snli", "sst2"]
ALL = [*NAMES, "babi1", "babi2", "babi3", "mimic_anemia", "mimic_diabetes", "toy", "local"]


def mirror_of(name: str, folder: Path, rows: int = 30) -> Path:
    """A mirror with made-up rows of a dataset."""
    config = dataset_config(name)
    classes = len(config["labels"])
    for split in {split for split in config["splits"].values() if split}:
        columns: dict[str, list] = {
            config["text"]: [f"first {i} of {split}" for i in range(rows)],
            config["label"]: [i % classes for i in range(rows)],
        }
        if config["text_pair"]:
            columns[config["text_pair"]] = [f"second {i} of {split}" for i in range(rows)]
        if config["key"]:
            columns[config["key"]] = list(range(rows))
        place = folder / config["hub"]["id"] / config["hub"]["config"] / f"{split}-00000-of-00001.parquet"
        write_parquet(place, columns, list(config["labels"]))
    return folder


def test_every_dataset_has_its_configuration() -> None:
    assert sorted(path.stem for path in CONF.glob("*.yaml")) == sorted(ALL)
    epochs = {"boolq": 15, "cb": 50, "cola": 15, "rte": 30} | dict.fromkeys(("imdb", "mnli", "qqp", "snli", "sst2"), 10)
    for name in set(ALL) - {"toy", "local"}:
        config = dataset_config(name)
        assert config["epochs"] == epochs.get(name, 20) and config["checkpoint_metric"] in config["metrics"]
        assert config["convergence_threshold"] == (0.5 if name.startswith("babi") else None)


@pytest.mark.parametrize("name", NAMES)
def test_every_hub_dataset_reads_from_a_mirror(name: str, tmp_path: Path) -> None:
    config = dataset_config(name)
    dm = build(name, tmp_path / "cache", mirror=str(mirror_of(name, tmp_path)))
    info = dm.info
    assert info.text_fields == [config["text"], *([config["text_pair"]] if config["text_pair"] else [])]
    record = dm.record()
    assert record["split"] == "approximate" and "30 rows, the official one" in record["split_reasons"][0]
    if config["splits"]["validation"] is None:
        assert record["rows"] == {"train": 24, "validation": 6, "test": 30}
        ids = [*dm.raw("train").example_ids, *dm.raw("validation").example_ids]
        assert sorted(ids) == list(range(30))
    assert all(text.startswith("first") for text in dm.raw("test").texts)
    assert (dm.raw("test").pairs is None) == (config["text_pair"] is None)
    json.dumps(record)


def test_unlabelled_rows_are_dropped_and_the_others_keep_their_number(tmp_path: Path) -> None:
    mirror_of("snli", tmp_path)
    columns = {"premise": ["a", "b", "c"], "hypothesis": ["d", "e", "f"], "label": [2, -1, 0]}
    write_parquet(tmp_path / "stanfordnlp/snli/plain_text/test-00000-of-00001.parquet", columns)
    dm = build("snli", tmp_path / "cache", mirror=str(tmp_path))
    assert dm.raw("test").example_ids.tolist() == [0, 2] and dm.raw("test").labels.tolist() == [2, 0]
    assert dm.record()["unlabelled_dropped"] == {"train": 0, "validation": 0, "test": 1}


def test_random_split_is_stated(tmp_path: Path) -> None:
    mirror = str(mirror_of("rte", tmp_path))
    splits = [build("rte", tmp_path, mirror=mirror, split="random", split_seed=seed) for seed in (0, 1)]
    assert splits[0].record()["split"] == "random, seed 0"
    assert splits[0].raw("validation").class_counts(2) == [3, 3]
    assert splits[0].fingerprint != splits[1].fingerprint != build("rte", tmp_path, mirror=mirror).fingerprint


def test_imdb_takes_validation_from_the_list_of_digests(tmp_path: Path) -> None:
    mirror_of("imdb", tmp_path)
    digests = [hashlib.sha256(f"first {i} of train".encode()).hexdigest()[:16] for i in (3, 4, 11)]
    (tmp_path / "stanfordnlp/imdb/tfds_valid_sha256_16.txt").write_text("\n".join(digests))
    assert build("imdb", tmp_path, mirror=str(tmp_path)).raw("validation").example_ids.tolist() == [3, 4, 11]


def test_mirror_that_lacks_a_split(tmp_path: Path) -> None:
    mirror_of("qnli", tmp_path)
    (tmp_path / "nyu-mll/glue/qnli/validation-00000-of-00001.parquet").unlink()
    with pytest.raises(FmmError, match=r"lacks the split 'validation' of nyu-mll/glue \(qnli\); put it at"):
        build("qnli", tmp_path / "cache", mirror=str(tmp_path)).read()
    with pytest.raises(FmmError, match="is not a folder"):
        build("qnli", tmp_path / "cache", mirror=str(tmp_path / "nowhere")).read()


def test_mirror_with_other_columns_labels_or_bytes(tmp_path: Path) -> None:
    mirror_of("cola", tmp_path)
    train = tmp_path / "nyu-mll/glue/cola/train-00000-of-00001.parquet"
    write_parquet(train, {"text": ["a"], "label": [0]})
    with pytest.raises(FmmError, match="has no column 'sentence'; it has text, label"):
        build("cola", tmp_path, mirror=str(tmp_path)).read()
    write_parquet(train, {"sentence": ["a"], "label": [0]}, ["acceptable", "unacceptable"])
    with pytest.raises(FmmError, match="orders its labels"):
        build("cola", tmp_path, mirror=str(tmp_path)).read()
    write_parquet(train, {"sentence": ["a"], "label": [2]})
    with pytest.raises(FmmError, match="has label 2, but cola has labels 0 to 1"):
        build("cola", tmp_path, mirror=str(tmp_path)).read()
    train.write_bytes(b"PAR1 not parquet")
    with pytest.raises(FmmError, match="is not a readable Parquet file"):
        build("cola", tmp_path, mirror=str(tmp_path)).read()


def test_no_network_and_no_mirror_says_what_to_do_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    start = time.monotonic()
    with pytest.raises(FmmError, match=r"cannot reach nyu-mll/glue .* set data\.mirror=<folder>"):
        build("sst2", tmp_path).read()
    assert time.monotonic() - start < 10


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A hub whose `main` of SuperGLUE has a script, and whose refs/pr/16 has Parquet files at commit `beef`."""
    import datasets
    import huggingface_hub

    files = mirror_of("cb", tmp_path / "files") / "aps/super_glue"
    calls: list[str] = []
    revisions = {"main": "c0de", "refs/pr/16": "beef"}

    def dataset_info(self: Any, repo: str, *, revision: str, timeout: float) -> Any:
        calls.append(revision)
        return SimpleNamespace(sha=revisions[revision])

    def load_dataset_builder(repo: str, config: str, *, revision: str) -> Any:
        if revision == "c0de":
            raise RuntimeError("Dataset scripts are no longer supported, but found super_glue.py")
        urls = {
            s: [f"hf://datasets/{repo}@{revision}/{config}/{s}-00000-of-00001.parquet"] for s in ("train", "validation")
        }
        return SimpleNamespace(config=SimpleNamespace(data_files=urls))

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", dataset_info)
    monkeypatch.setattr(datasets, "load_dataset_builder", load_dataset_builder)
    monkeypatch.setattr(sources, "download", lambda repo, name, commit: files / name)
    return SimpleNamespace(calls=calls, revisions=revisions)


def test_script_dataset_falls_back_to_the_next_revision(hub: Any, tmp_path: Path) -> None:
    record = build("cb", tmp_path / "cache").record()
    assert (record["revision"], record["commit"]) == ("refs/pr/16", "beef")
    assert hub.calls == ["main", "refs/pr/16"] and record["checksums"] == "none known"
    build("cb", tmp_path / "cache").read()
    assert len(hub.calls) == 2  # the commit is noted: the second time asks nobody


def test_script_dataset_without_parquet_anywhere(hub: Any, tmp_path: Path) -> None:
    config = dataset_config("cb")
    config["hub"]["revisions"] = ["main"]
    with pytest.raises(FmmError, match=r"main: Dataset scripts are no longer supported.*set data\.mirror"):
        build(config, tmp_path / "cache").read()


def test_checksums_of_the_hub_are_compared(hub: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = dataset_config("cb")
    config["hub"]["sha256"] = {"train": "0" * 64}
    assert build(config, tmp_path / "cache").record()["checksums"] == "differ: train"
    assert "not those this framework was checked with" in caplog.text
    found = build(config, tmp_path / "cache").record()["sha256"]["train"][0]
    config["hub"]["sha256"] = {"train": found}
    assert build(config, tmp_path / "cache").record()["checksums"] == "equal"


def test_rows_reach_the_model_in_the_papers_order(tmp_path: Path) -> None:
    mirror_of("boolq", tmp_path)
    columns = {"question": ["a b"] * 10, "passage": ["c d e"] * 10, "idx": list(range(10)), "label": [0, 1] * 5}
    write_parquet(tmp_path / "aps/super_glue/boolq/train-00000-of-00001.parquet", columns)
    dm = build("boolq", tmp_path / "cache", mirror=str(tmp_path))
    dm.attach_tokenizer(word_tokenizer(), 64)
    assert dm.train[0]["sequence_id"].tolist() == [0, 1, 1, 1, 0, 2, 2, 0]


def mirror_with(tmp_path: Path, split: str, **columns: Any) -> Path:
    """A mirror of CoLA in which columns of a split are replaced."""
    mirror = mirror_of("cola", tmp_path)
    path = tmp_path / f"nyu-mll/glue/cola/{split}-00000-of-00001.parquet"
    table = pq.read_table(path)
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, values)
    pq.write_table(table, path)
    return mirror


CLASSES = [i % 2 for i in range(30)]


@pytest.mark.parametrize(
    "labels",
    [
        pa.array(CLASSES, pa.int8()),
        pa.array(CLASSES, pa.uint64()),
        pa.array([float(c) for c in CLASSES]),
        pa.array([bool(c) for c in CLASSES]),
        pa.array([str(c) for c in CLASSES]),
        pa.array([["unacceptable", "acceptable"][c] for c in CLASSES]),
        pa.array([["Unacceptable ", "ACCEPTABLE"][c] for c in CLASSES]).dictionary_encode(),
    ],
    ids=lambda labels: str(labels.type).split("<")[0],
)
def test_labels_may_be_names_or_numbers_of_any_type(tmp_path: Path, labels: Any) -> None:
    dm = build("cola", tmp_path / "cache", mirror=str(mirror_with(tmp_path, "train", label=labels)))
    rows = {int(i): int(n) for s in ("train", "validation") for i, n in zip(dm.raw(s).example_ids, dm.raw(s).labels)}
    assert [rows[i] for i in range(30)] == CLASSES


@pytest.mark.parametrize("missing", [None, float("nan"), -1.0])
def test_rows_without_a_label_are_dropped_and_counted(tmp_path: Path, missing: Any) -> None:
    labels = pa.array([missing if i < 4 else float(c) for i, c in enumerate(CLASSES)])
    dm = build("cola", tmp_path / "cache", mirror=str(mirror_with(tmp_path, "train", label=labels)))
    assert dm.record()["unlabelled_dropped"]["train"] == 4
    assert len(dm.raw("train")) + len(dm.raw("validation")) == 26


NO_LABELS = pa.nulls(30)
BAD_COLUMNS: list[tuple[str, str, Any, str]] = [
    ("train", "label", pa.array([0.5, *map(float, CLASSES[1:])]), r"has label 0\.5, .*1 row \(the first is row 1\)"),
    ("train", "label", pa.array([-2, *CLASSES[1:]]), "has label -2"),
    ("train", "label", pa.array(["good", *["acceptable"] * 29]), "unknown label 'good'.*1 row .the first is row 1"),
    ("train", "label", pa.array([[c] for c in CLASSES]), "where labels are numbers or names"),
    ("train", "label", pa.array([0] * 30), "all of one class"),
    ("validation", "label", NO_LABELS, "no row of the split 'validation' of cola has a label .30 rows."),
    ("validation", "label", pa.array([-1] * 30), "no row of the split 'validation' of cola has a label"),
    ("train", "label", NO_LABELS, "no row of the split 'train'"),
    ("train", "sentence", pa.array([["a"]] * 30), "has list.*in column 'sentence', not texts"),
    ("train", "sentence", pa.array([b"a"] * 30), "has binary in column 'sentence', not texts"),
    ("train", "sentence", pa.array(range(30)), "has int64 in column 'sentence', not texts"),
    (
        "train",
        "sentence",
        pa.array([None, *map(str, range(29))]),
        "no text in column 'sentence' in 1 row .the first is",
    ),
]


@pytest.mark.parametrize("split, column, values, message", BAD_COLUMNS)
def test_columns_that_cannot_be_used_are_a_sentence(
    tmp_path: Path, split: str, column: str, values: Any, message: str
) -> None:
    mirror = mirror_with(tmp_path, split, **{column: values})
    with pytest.raises(FmmError, match=message) as error:
        build("cola", tmp_path / "cache", mirror=str(mirror)).read()
    assert "\n" not in str(error.value)


def test_a_file_without_rows_is_a_sentence(tmp_path: Path) -> None:
    mirror = mirror_of("cola", tmp_path)
    path = tmp_path / "nyu-mll/glue/cola/train-00000-of-00001.parquet"
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    with pytest.raises(FmmError, match="has no rows"):
        build("cola", tmp_path / "cache", mirror=str(mirror)).read()


@pytest.mark.parametrize("note", [b"{", b"[]", b'{"info": 3}', b'{"info": {"features": null}}', b"null"])
def test_a_damaged_note_on_the_labels_is_said(tmp_path: Path, note: bytes, caplog: pytest.LogCaptureFixture) -> None:
    mirror = mirror_of("cola", tmp_path)
    path = tmp_path / "nyu-mll/glue/cola/train-00000-of-00001.parquet"
    pq.write_table(pq.read_table(path).replace_schema_metadata({"huggingface": note}), path)
    assert len(build("cola", tmp_path / "cache", mirror=str(mirror)).raw("train")) == 24
    assert "its note on the labels cannot be read" in caplog.text


def test_texts_that_official_splits_share_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts = pa.array([f"first {i} of {'train' if i < 3 else 'validation'}" for i in range(30)])
    dm = build("cola", tmp_path / "cache", mirror=str(mirror_with(tmp_path, "validation", sentence=texts)))
    shared = dm.record()["texts_shared"]
    assert sum(count for pair, count in shared.items() if pair.endswith("test")) == 3
    assert "have a text that" in caplog.text
