"""Equal texts and the splits they are in, and quotes of tab-separated files."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmm.data.splits import grouped_parts, stratified_parts, text_groups
from fmm.errors import FmmError
from tests.data_helpers import build, dataset_config


def local(cache: Path, **options: Any) -> Any:
    return build(dataset_config("local"), cache, **options)


def write(path: Path, rows: list[tuple[str, str]]) -> str:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return str(path)


def test_coin_flips_on_repeated_texts_share_no_text_between_splits(tmp_path: Path) -> None:
    flips = np.random.default_rng(0).integers(0, 2, 240)
    rows = [(f"text {i % 40}", str(flip)) for i, flip in enumerate(flips)]
    dm = local(tmp_path, path=write(tmp_path / "f.csv", rows))
    texts = [set(dm.raw(split).texts) for split in ("train", "validation", "test")]
    assert sum(map(len, texts)) == len(set.union(*texts)) == 40
    assert dm.record()["texts_shared"] == {} and dm.record()["rows_repeated"] == {"path": 200}
    assert dm.record()["rows"] == {"train": 192, "validation": 24, "test": 24}


def test_different_texts_are_cut_as_rows_are() -> None:
    labels = np.random.default_rng(1).integers(0, 3, 200)
    for seed in range(3):
        parts = stratified_parts(labels, (0.8, 0.1, 0.1), seed)
        grouped = grouped_parts(labels, np.arange(200), (0.8, 0.1, 0.1), seed)
        assert all(np.array_equal(one, other) for one, other in zip(parts, grouped, strict=True))


def test_a_group_is_in_one_part_and_no_row_is_lost() -> None:
    rng = np.random.default_rng(2)
    for seed in range(20):
        labels, groups = rng.integers(0, 3, 90), rng.integers(0, 30, 90)
        parts = grouped_parts(labels, groups, (0.8, 0.1, 0.1), seed)
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(90))
        assert sum(len(np.unique(groups[part])) for part in parts) == len(np.unique(groups))


def test_pairs_are_equal_where_both_texts_are() -> None:
    assert text_groups(["a", "a", "A"], ["x", "y", " x"]).tolist() == [0, 1, 0]
    assert text_groups(["ab", "a"], ["c", "bc"]).tolist() == [0, 1]


def test_given_splits_that_share_texts_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [(f"text {i}", str(i % 2)) for i in range(20)]
    files = {
        "train": write(tmp_path / "a.csv", rows[:12]),
        "validation": write(tmp_path / "b.csv", rows[12:16]),
        "test": write(tmp_path / "c.csv", [*rows[16:], ("TEXT  3", "1"), ("text 13", "1")]),
    }
    assert local(tmp_path, **files).record()["texts_shared"] == {"train, test": 1, "validation, test": 1}
    assert "1 of 6 rows of test have a text that train has too" in caplog.text


def test_one_file_as_training_and_test_data_is_refused(tmp_path: Path) -> None:
    rows = [(f"text {i}", str(i % 2)) for i in range(20)]
    first, copy = (write(tmp_path / name, rows) for name in ("a.csv", "b.csv"))
    for test in (first, copy):
        with pytest.raises(FmmError, match=r"hold the same bytes.*data\.path=<file>"):
            local(tmp_path, train=first, test=test).read()


def texts_of(tmp_path: Path, content: str) -> list[str]:
    (tmp_path / "f.tsv").write_text(content, encoding="utf-8", newline="")
    dm = local(tmp_path, path=str(tmp_path / "f.tsv"))
    rows = [(i, text) for name in ("train", "validation", "test") for i, text in number(dm.raw(name))]
    return [text for _, text in sorted(rows)]


def number(split: Any) -> list[tuple[int, str]]:
    return list(zip(split.example_ids.tolist(), split.texts, strict=True))


def tsv(texts: list[str], header: str = "text\tlabel") -> str:
    return "\n".join([header, *(f"{text}\t{i % 2}" for i, text in enumerate(texts))]) + "\n"


@pytest.mark.parametrize("form", ['"open {}', 'shut {}"', '"{}" he said', '5" nail {}', '"{}"', 'a ""b"" {}'])
def test_stray_quotes_of_tab_separated_files_are_literal(tmp_path: Path, form: str) -> None:
    texts = [form.format(i) if i % 5 == 0 else f"text {i}" for i in range(40)]
    assert texts_of(tmp_path, tsv(texts)) == texts


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("form", ["a\tb {}", 'he said "{}"', "two\nlines {}"])
def test_quotes_of_a_whole_file_of_csv_are_csv(tmp_path: Path, quoting: Any, form: str) -> None:
    texts = [form.format(i) for i in range(40)]
    with (tmp_path / "f.tsv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t", quoting=quoting)
        writer.writerows([("text", "label"), *((text, str(i % 2)) for i, text in enumerate(texts))])
    content = (tmp_path / "f.tsv").read_bytes().decode()
    assert texts_of(tmp_path, content) == texts
