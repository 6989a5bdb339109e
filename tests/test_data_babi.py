"""bAbI from its text files, in a folder and in the archive."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from fmm.data.babi import parse
from fmm.errors import FmmError
from tests.data_helpers import build, dataset_config

STORY = (
    "1 Mary moved to the bathroom.\n"
    "2 John went to the hallway.\n"
    "3 Where is Mary? \tbathroom\t1\n"
    "4 Daniel went back to the hallway.\n"
    "5 Where is Daniel? \thallway\t4\n"
    "1 Sandra travelled to the office.\n"
    "2 Where is Sandra? \toffice\t1\n"
)
LABELS = dataset_config("babi1")["labels"]
FILES = dataset_config("babi1")["files"]


def unpacked(folder: Path) -> Path:
    place = folder / "tasks_1-20_v1-2" / "en-10k"
    place.mkdir(parents=True)
    for name in FILES.values():
        (place / name).write_text(STORY * 10)
    return folder / "tasks_1-20_v1-2"


def test_paragraphs_questions_answers_and_evidence() -> None:
    rows = parse(STORY, LABELS, Path("here"))
    first = "Mary moved to the bathroom. John went to the hallway."
    assert rows.texts == [first, f"{first} Daniel went back to the hallway.", "Sandra travelled to the office."]
    assert rows.pairs == ["Where is Mary?", "Where is Daniel?", "Where is Sandra?"]
    assert [LABELS[i] for i in rows.labels] == ["bathroom", "hallway", "office"]
    assert rows.evidence is not None
    assert [text[a:b] for text, [(a, b)] in zip(rows.texts, rows.evidence)] == [
        "Mary moved to the bathroom.",
        "Daniel went back to the hallway.",
        "Sandra travelled to the office.",
    ]


def test_folder_and_archive_give_the_same_rows(tmp_path: Path) -> None:
    folder = unpacked(tmp_path)
    archive = tmp_path / "mirror/facebook/babi_qa/data/tasks_1-20_v1-2.tar.gz"
    archive.parent.mkdir(parents=True)
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder, "tasks_1-20_v1-2")
    made = [
        build("babi1", tmp_path, path=str(folder)),
        build("babi1", tmp_path, path=str(folder / "en-10k")),
        build("babi1", tmp_path, path=str(archive)),
        build("babi1", tmp_path, mirror=str(tmp_path / "mirror")),
        build("babi1", tmp_path, mirror=str(tmp_path)),
    ]
    assert len({dm.fingerprint for dm in made}) == 1
    record = made[0].record()
    assert record["rows"] == {"train": 24, "validation": 6, "test": 30}
    assert record["split"] == "approximate" and record["checksums"] == "differ: train, test"


def test_archive_that_lacks_the_task(tmp_path: Path) -> None:
    folder = unpacked(tmp_path)
    with pytest.raises(FmmError, match=r"lacks en-10k/qa3_three"):
        build("babi3", tmp_path, path=str(folder)).read()
    broken = tmp_path / "broken.tar.gz"
    broken.write_bytes(b"no archive")
    with pytest.raises(FmmError, match="is no readable archive"):
        build("babi1", tmp_path, path=str(broken)).read()
    with pytest.raises(FmmError, match="lacks bAbI; put the archive at"):
        build("babi1", tmp_path, mirror=str(tmp_path / "en")).read()


def test_broken_line_is_named() -> None:
    with pytest.raises(FmmError, match="line 2 is no bAbI line"):
        parse("1 a b.\nx y z.\n", LABELS, Path("here"))
    with pytest.raises(FmmError, match="the answer 'garage'"):
        parse("1 a b.\n2 Where? \tgarage\t1\n", LABELS, Path("here"))


def test_neither_hub_nor_host(tmp_path: Path) -> None:
    config = dataset_config("babi1") | {"url": "http://127.0.0.1:9/babi.tar.gz"}
    with pytest.raises(FmmError, match=r"cannot reach facebook/babi_qa .*original host .* does not answer either"):
        build(config, tmp_path).read()
