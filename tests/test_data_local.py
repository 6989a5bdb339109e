"""The user's own files, and one sentence for everything that can be wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fmm.errors import FmmError
from tests.data_helpers import build, dataset_config

ROWS = [{"text": f'a "quoted", text\nof row {i}', "label": "good" if i % 3 else "bad"} for i in range(60)]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows in the format of the extension."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        import csv

        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0], delimiter="," if path.suffix == ".csv" else "\t")
            writer.writeheader()
            writer.writerows(rows)
    return path


def local(cache: Path, columns: dict[str, Any] | None = None, **options: Any) -> Any:
    return build(dataset_config("local") | (columns or {}), cache, **options)


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_one_file_of_any_kind_is_cut(tmp_path: Path, kind: str) -> None:
    dm = local(tmp_path, path=str(write(tmp_path / f"rows.{kind}", ROWS)))
    assert dm.info.label_names == ["bad", "good"]
    assert dm.info.metrics == ["accuracy", "macro_f1"] and dm.info.checkpoint_metric == "macro_f1"
    assert dm.record()["rows"] == {"train": 48, "validation": 6, "test": 6}
    assert dm.record()["class_counts"]["test"] == [2, 4]
    for split in ("train", "validation", "test"):
        rows = dm.raw(split)
        assert rows.texts == [ROWS[i]["text"] for i in rows.example_ids]
        assert [dm.info.label_names[label] for label in rows.labels] == [ROWS[i]["label"] for i in rows.example_ids]


def test_kinds_agree_and_the_seed_of_the_split_counts(tmp_path: Path) -> None:
    paths = [str(write(tmp_path / f"rows.{kind}", ROWS)) for kind in ("csv", "jsonl")]
    splits = [local(tmp_path, path=path).raw("test").example_ids.tolist() for path in paths]
    assert splits[0] == splits[1] != local(tmp_path, path=paths[0], split_seed=1).raw("test").example_ids.tolist()
    assert local(tmp_path, path=paths[0], seed=4).raw("test").example_ids.tolist() == splits[0]


def test_named_columns_pair_whole_numbers_and_ids(tmp_path: Path) -> None:
    rows = [{"claim": f"c {i}", "evidence": f"e {i}", "y": (0, 2, 10)[i % 3], "n": 1000 + i} for i in range(30)]
    columns = {"text": "claim", "text_pair": "evidence", "label": "y", "id": "n"}
    for kind in ("csv", "parquet"):
        dm = local(tmp_path, columns, path=str(write(tmp_path / f"rows.{kind}", rows)))
        assert dm.info.label_names == ["0", "2", "10"] and dm.info.text_fields == ["claim", "evidence"]
        test = dm.raw("test")
        assert test.pairs == [f"e {i - 1000}" for i in test.example_ids]


def test_one_file_per_split(tmp_path: Path) -> None:
    parts = {"train": ROWS[:40], "validation": ROWS[40:50], "test": ROWS[50:]}
    files = {name: str(write(tmp_path / f"{name}.csv", rows)) for name, rows in parts.items()}
    dm = local(tmp_path, **files)
    assert dm.record()["rows"] == {"train": 40, "validation": 10, "test": 10} and dm.record()["split"] == "official"
    del files["validation"]
    assert local(tmp_path, **files).record()["rows"] == {"train": 32, "validation": 8, "test": 10}


def test_fingerprint_follows_content_not_place(tmp_path: Path) -> None:
    first = write(tmp_path / "a.csv", ROWS)
    second = write(tmp_path / "b.csv", ROWS)
    assert local(tmp_path, path=str(first)).fingerprint == local(tmp_path, path=str(second)).fingerprint
    write(second, [*ROWS, ROWS[0]])
    assert local(tmp_path, path=str(first)).fingerprint != local(tmp_path, path=str(second)).fingerprint


GOOD = "text,label\na b,x\nc d,y\n"
BROKEN = {
    "missing column": (
        "f.csv",
        "texts,label\na,x\n",
        r"has no column 'text'; did you mean dataset\.text=texts\? \(it has",
    ),
    "empty text": ("f.csv", "text,label\na,x\n ,y\n", r"row 2 has an empty text in column 'text'"),
    "null text": ("f.jsonl", '{"text": "a", "label": 0}\n{"text": null, "label": 1}\n', "row 2 has an empty text"),
    "text is a number": ("f.jsonl", '{"text": 5, "label": 0}\n', "row 1 has 5 in column 'text', which is not a text"),
    "one class": ("f.csv", "text,label\na,x\nb,x\n", r"has one class only \('x' in column 'label'\)"),
    "label nan": ("f.csv", "text,label\na,0\nb,nan\nc,1\n", "row 2 has no label in column 'label'"),
    "labels in two cases": ("f.csv", "text,label\na,Yes\nb,yes\n", "labels 'Yes' and 'yes' .* differ in case only"),
    "no label": ("f.csv", "text,label\na,x\nb,\n", "row 2 has no label in column 'label'"),
    "regression": (
        "f.jsonl",
        '{"text": "a", "label": 0.5}\n',
        "row 1 has label 0.5; labels are whole numbers or names",
    ),
    "too many fields": ("f.csv", "text,label\na,x\nb,c,y\n", r"row 2 \(line 3\) has 3 fields where the header has 2"),
    "open quote": ("f.csv", 'text,label\na,x\n"b,y\n', r"row 2 \(line 3\) is broken"),
    "broken json": ("f.jsonl", '{"text": "a", "label": 0}\n{"text": \n', "row 2 is broken JSON"),
    "no object": ("f.jsonl", '{"text": "a", "label": 0}\n[1]\n', "row 2 is not a JSON object"),
    "broken first row": ("f.jsonl", "text\n", "row 1 is broken JSON"),
    "broken row after blank lines": (
        "f.jsonl",
        '\n\n{"text": "a", "label": 0}\n\n{"text"\n',
        r"row 2 \(line 5\) is broken",
    ),
    "endless nesting": ("f.jsonl", "[" * 100_000 + "\n", "row 1 is broken JSON"),
    "endless number": ("f.jsonl", '{"text": "a", "label": ' + "9" * 5000 + "}\n", "row 1 is broken JSON"),
    "other separator": ("f.csv", "text;label\na;x\n", "separates its columns by ';'"),
    "old line ends": ("f.csv", "text,label\ra,x\r", r"header \(line 1\) is broken"),
    "no header": ("f.csv", "\n \n", "has no column 'text'"),
    "numbers": ("f.csv", "text,label\na,0.1\nb,0.2\n", r"row 1 has label 0\.1; labels are whole .*another column"),
    "extension": ("f.txt", GOOD, r"unknown file type '\.txt'; .*\(choose from \.csv, \.jsonl, \.parquet, \.tsv\)"),
    "empty file": ("f.csv", "", "is empty"),
    "no rows": ("f.csv", "text,label\n", "has no rows"),
    "column twice": ("f.csv", "text,text\na,b\n", "names a column twice"),
    "too few rows": ("f.csv", GOOD, "has too few rows for a .* split"),
    "broken parquet": ("f.parquet", "PAR1", "is not a readable Parquet file"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files(tmp_path: Path, case: str) -> None:
    name, content, message = BROKEN[case]
    (tmp_path / name).write_text(content)
    with pytest.raises(FmmError, match=message) as error:
        local(tmp_path, path=str(tmp_path / name)).read()
    assert "\n" not in str(error.value)


def test_broken_parquet(tmp_path: Path) -> None:
    path = write(tmp_path / "f.parquet", ROWS)
    content = bytearray(path.read_bytes())
    content[20:120] = bytes(100)
    path.write_bytes(content)
    with pytest.raises(FmmError, match="is not a readable Parquet file"):
        local(tmp_path, path=str(path)).read()
    texts = pa.array(["a", "b"])
    pq.write_table(pa.Table.from_arrays([texts, texts], names=["text", "text"]), path)
    with pytest.raises(FmmError, match="names a column twice"):
        local(tmp_path, path=str(path)).read()
    pq.write_table(pa.table({"text": texts, "label": pa.array([b"x", b"y"])}), path)
    with pytest.raises(FmmError, match="row 1 has label b'x'; labels are whole numbers or names, not bytes"):
        local(tmp_path, path=str(path)).read()


def test_a_column_named_for_two_things(tmp_path: Path) -> None:
    path = write(tmp_path / "f.csv", ROWS)
    with pytest.raises(FmmError, match=r"dataset\.text and dataset\.label both name column 'text'"):
        local(tmp_path, {"label": "text"}, path=str(path)).read()


def test_not_utf8_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_bytes("text,label\na,x\ncafé,y\n".encode("latin-1"))
    with pytest.raises(FmmError, match="is not UTF-8: line 3 holds the byte 0xe9"):
        local(tmp_path, path=str(tmp_path / "f.csv")).read()


def test_byte_order_mark_is_no_part_of_the_header(tmp_path: Path) -> None:
    text = "text,label\n" + "".join(f"a {i},{i % 2}\n" for i in range(20))
    (tmp_path / "f.csv").write_text(text, encoding="utf-8-sig")
    assert local(tmp_path, path=str(tmp_path / "f.csv")).info.label_names == ["0", "1"]


def test_blank_lines_header_spaces_and_whole_numbers_with_a_fraction(tmp_path: Path) -> None:
    rows = "".join(f"a {i},{('10.0', '2')[i % 2]}\n" for i in range(20))
    (tmp_path / "f.csv").write_text(f"\n\ntext , label\n{rows}\n  \n\n")
    dm = local(tmp_path, path=str(tmp_path / "f.csv"))
    assert dm.info.label_names == ["2", "10"] and sum(dm.record()["rows"].values()) == 20


def test_unknown_label_in_test(tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", ROWS)
    test = write(tmp_path / "test.csv", [{"text": "a", "label": "good"}, {"text": "b", "label": "godo"}])
    with pytest.raises(FmmError, match=r"test\.csv row 2: unknown label 'godo'; did you mean good\?"):
        local(tmp_path, train=str(train), test=str(test)).read()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"give data\.path=<file>"),
        ({"path": "a.csv", "train": "b.csv"}, r"data\.path and data\.train are both given"),
        ({"train": "a.csv"}, r"lacks data\.test"),
        ({"path": "nowhere.csv"}, r"data\.path=nowhere\.csv is not there"),
        ({"path": "."}, r"data\.path=\. is a folder"),
        ({"train": "nowhere.csv", "test": "b.csv"}, r"data\.train=nowhere\.csv is not there"),
    ],
)
def test_files_that_are_not_given(tmp_path: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(FmmError, match=message):
        local(tmp_path, **options).read()


@pytest.mark.parametrize(
    ("ids", "message"), [(["1", "x"], "id 'x', which is not a whole number"), (["1", "1"], "twice")]
)
def test_ids(tmp_path: Path, ids: list[str], message: str) -> None:
    path = write(tmp_path / "f.csv", [{"text": "a", "label": str(i), "n": n} for i, n in enumerate(ids)])
    with pytest.raises(FmmError, match=message):
        local(tmp_path, {"id": "n"}, path=str(path)).read()


@pytest.mark.parametrize(
    ("dataset", "option"),
    [("toy", "path"), ("sst2", "train"), ("local", "id_list"), ("babi1", "test")],
)
def test_files_that_a_dataset_does_not_read_are_refused(tmp_path: Path, dataset: str, option: str) -> None:
    with pytest.raises(FmmError, match=rf"data\.{option}=mine\.csv is not read by dataset={dataset}"):
        build(dataset, tmp_path, **{option: "mine.csv"}).read()


@pytest.mark.parametrize(
    "reader", ["nonsense", "fmm.data.nowhere.read", "fmm.data.local.nothing", "fmm.data.local", "os.getcwd"]
)
def test_a_reader_that_is_not_there_is_a_sentence(tmp_path: Path, reader: str) -> None:
    with pytest.raises(FmmError, match=rf"dataset\.reader={reader} is no function"):
        build(dataset_config("local") | {"reader": reader}, tmp_path).read()
