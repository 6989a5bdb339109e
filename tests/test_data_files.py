"""Users' files as table programs and people write them: read right, or refused in one sentence that names the rows."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import normalizers

from fmm.data.columns import rows_of
from fmm.data.tables import read_table
from fmm.errors import FmmError
from fmm.explain.source import of_file
from tests.data_helpers import build, dataset_config, word_tokenizer

TEXTS = [f"text {i}" for i in range(12)]
LABELS = [str(i % 2) for i in range(12)]
COLUMNS = {"text": "text", "label": "label"}


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def lines(header: str = "text,label", delimiter: str = ",", tail: str = "", end: str = "\n") -> str:
    rows = [f"{text}{delimiter}{label}{tail}" for text, label in zip(TEXTS, LABELS)]
    return end.join([header, *rows]) + end


def read(path: Path, quoting: str | None = None, needs_labels: bool = True) -> Any:
    table = read_table(path, "data.path", quoting)
    return rows_of(table, path, COLUMNS, checked=quoting is None, needs_labels=needs_labels)


def data(cache: Path, **options: Any) -> Any:
    return build(dataset_config("local"), cache, **options)


SOUND: dict[str, tuple[str, str | bytes]] = {
    "excel's line": ("f.csv", "sep=;\n" + lines("text;label", ";")),
    "excel's line in capitals, quoted, windows' ends": ("f.csv", '"SEP=;"\r\n' + lines("text;label", ";", end="\r\n")),
    "excel's line of tabs": ("f.csv", "sep=\t\n" + lines("text\tlabel", "\t")),
    "a byte order mark": ("f.csv", b"\xef\xbb\xbf" + lines().encode()),
    "two byte order marks": ("f.csv", b"\xef\xbb\xbf\xef\xbb\xbf" + lines().encode()),
    "a mark and excel's line": ("f.csv", b"\xef\xbb\xbf" + ("sep=;\n" + lines("text;label", ";")).encode()),
    "utf-16": ("f.csv", lines().encode("utf-16")),
    "utf-16 of the other end": ("f.tsv", b"\xfe\xff" + lines("text\tlabel", "\t", end="\r\n").encode("utf-16-be")),
    "trailing empty columns": ("f.csv", lines("text,label,,", tail=",,")),
    "trailing empty columns in the header alone": ("f.csv", lines("text,label,,", tail=",,")),
    "trailing commas in the rows alone": ("f.csv", lines(tail=",")),
    "an index without a name": ("f.csv", ",text,label\n" + "".join(f"{i},{t},{i % 2}\n" for i, t in enumerate(TEXTS))),
    "blank lines": ("f.csv", "\n" + lines().replace("\n", "\n\n")),
    "a first object without a label": (
        "f.jsonl",
        '{"more": 1, "text": "text 0", "label": "0"}\n'
        + "".join(json.dumps({"label": label, "text": text}) + "\n" for label, text in list(zip(LABELS, TEXTS))[1:]),
    ),
    "objects of a utf-16 file": (
        "f.jsonl",
        "".join(json.dumps({"label": n, "text": t}) + "\n" for n, t in zip(LABELS, TEXTS)).encode("utf-16"),
    ),
}


@pytest.mark.parametrize("name, content", SOUND.values(), ids=SOUND)
def test_files_as_programs_write_them_are_read(tmp_path: Path, name: str, content: str | bytes) -> None:
    rows = read(write(tmp_path / name, content))
    assert rows.texts == TEXTS and rows.labels == LABELS
    assert rows.reading.rows == 12


def test_a_first_row_may_lack_a_key(tmp_path: Path) -> None:
    rows = [{"text": "a", "id": 1}, {"text": "b", "label": "x", "id": 2}]
    path = write(tmp_path / "f.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert read(path, needs_labels=False).spelling.values == [None, "x"]
    with pytest.raises(FmmError, match="row 1 has no label in column 'label'"):
        read(path)


def test_words_that_programs_take_for_nothing_are_texts(tmp_path: Path) -> None:
    words = ["nan", "None", "NA", "null", "N/A", "NaN", "-", "0", "1.0", "true"]
    path = write(tmp_path / "f.csv", "text,label\n" + "".join(f"{word},{i % 2}\n" for i, word in enumerate(words)))
    assert read(path).texts == words


REFUSED: dict[str, tuple[str, str | bytes, str]] = {
    "rows of another delimiter": (
        "f.csv",
        "text,label\n" + lines("", ";").lstrip(),
        "row 1 .* has ';' where the header has commas",
    ),
    "a header of another delimiter": ("f.csv", lines("text;label"), "separates its columns by ';'"),
    "utf-16 without a mark": ("f.csv", lines().encode("utf-16-le"), "holds zero bytes.*save it as UTF-8"),
    "a binary file": ("f.csv", b"PK\x03\x04\0\0\0\0", "holds zero bytes"),
    "a zero character": ("f.jsonl", '{"text": "a\\u0000b", "label": "x"}\n', r"row 1 has a zero character"),
    "half a character in a label": ("f.jsonl", '{"text": "a", "label": "x\\ud800"}\n', "row 1 has half a character"),
    "a key twice": ("f.jsonl", '{"text": "a", "text": "b", "label": "x"}\n', "row 1 has the key 'text' twice"),
    "a key twice further in": ("f.jsonl", '{"text": "a", "label": "x", "m": {"k": 1, "k": 2}}\n', "the key 'k' twice"),
    "a header alone": ("f.csv", "text,label\n", "has no rows"),
    "no line at all": ("f.csv", "\n\n", "has no|no rows"),
    "quantities": ("f.csv", "text,label\na,1.5\nb,2\nc,0.5\n", r"has label 1\.5.*2 rows like it"),
    "a swallowed row": (
        "f.csv",
        'text,label\nplain,1\n"open text,1\nother text,0\nmore" text",0\n'.replace('more" text"', 'more text"'),
        "row 2 holds what looks like a row of its own in its text",
    ),
    "packed": ("f.csv.gz", gzip.compress(lines().encode()), "unknown file type"),
    "a sheet": ("f.xlsx", b"PK\x03\x04", "unknown file type"),
}


@pytest.mark.parametrize("name, content, message", REFUSED.values(), ids=REFUSED)
def test_files_that_cannot_be_read_are_a_sentence(tmp_path: Path, name: str, content: Any, message: str) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(FmmError, match=message) as error:
        data(tmp_path, path=str(path)).read()
    assert "\n" not in str(error.value)


def test_all_bad_rows_are_told_at_once(tmp_path: Path) -> None:
    rows = [*zip(TEXTS, LABELS), ("", "0"), ("  ", "1"), ("a", ""), ("", "1")]
    path = write(tmp_path / "f.csv", "text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    with pytest.raises(FmmError, match="row 13 has an empty text in column 'text'") as error:
        read(path)
    assert str(error.value).endswith("(3 rows with an empty text in 'text': 13, 14, 16; 1 row without a label: 15)")
    many = "text,label\n" + "".join(f",{i % 2}\n" for i in range(30))
    with pytest.raises(FmmError, match=r"30 rows with an empty text in 'text': 1, 2, 3, 4, 5, 6, 7, 8, …\)"):
        read(write(tmp_path / "g.csv", many))
    wide = "text,label\na,0\nb,c,0\nd,1\ne,f,1\n"
    with pytest.raises(
        FmmError, match=r"row 2 .* has 3 fields where the header has 2.*\(1 other row of the wrong width"
    ):
        read(write(tmp_path / "h.csv", wide))


def test_a_text_of_several_lines_is_no_swallowed_row(tmp_path: Path) -> None:
    poems = ["roses, red\nviolets, blue\nand so, on", "a\nb\nc", "1,2\n3,4\n5,6"]
    with (tmp_path / "f.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *((poem, str(i % 2)) for i, poem in enumerate(poems * 4))])
    assert read(tmp_path / "f.csv").texts == poems * 4
    content = 'text,label\nplain,1\n"a list:\nyes,1\nno,0\nend",0\n'
    path = write(tmp_path / "g.csv", content)
    with pytest.raises(FmmError, match=r"data\.quoting=csv"):
        read(path)
    assert read(path, quoting="csv").texts[1] == "a list:\nyes,1\nno,0\nend"


@pytest.mark.parametrize("quoting, expected", [(None, '"a" b'), ("none", '"a" b'), ("csv", None)])
def test_quoting_is_chosen_by_evidence_or_by_the_user(
    tmp_path: Path, quoting: str | None, expected: str | None
) -> None:
    path = write(tmp_path / "f.tsv", 'text\tlabel\n"a" b\t0\nc\t1\n')
    if expected is None:
        with pytest.raises(FmmError, match="broken"):
            read(path, quoting=quoting)
        return
    rows = read(path, quoting=quoting)
    assert rows.texts[0] == expected
    assert rows.reading.quoting == "none"


def test_how_a_file_was_read_is_in_log_and_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    rows = [(f'he said "{text}', label) for text, label in zip(TEXTS, LABELS)]
    path = write(tmp_path / "f.tsv", "text\tlabel\n\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    reading = data(tmp_path, path=str(path)).record()["reading"]["path"]
    assert reading == {"rows": 12, "lines": 14, "encoding": "utf-8", "delimiter": "\t", "quoting": "none"}
    assert "f.tsv: 12 rows from 14 lines, quotes are characters of the texts" in caplog.text
    source = of_file(path, {}, {})
    assert source.reading == reading and source.texts == [text for text, _ in rows]
    forced = data(tmp_path, path=str(path), quoting="none").record()
    assert forced["reading"]["path"] == reading


def test_a_file_is_read_alike_for_training_and_for_explaining(tmp_path: Path) -> None:
    for number, (name, content) in enumerate(SOUND.values()):
        path = write(tmp_path / f"{number}{name}", content)
        source = of_file(path, {}, {})
        assert (source.texts, source.labels) == (TEXTS, LABELS)
    for number, (name, content, message) in enumerate(REFUSED.values()):
        if "rows like it" in message:  # quantities are no labels of any model; the model says so
            continue
        path = write(tmp_path / f"r{number}{name}", content)
        with pytest.raises(FmmError, match=message):
            of_file(path, {}, {})


def test_rows_whose_two_texts_are_the_same_are_counted(tmp_path: Path, capsys: Any) -> None:
    rows = [f"{text},{text if i < 3 else 'other'},{i % 2}" for i, text in enumerate(TEXTS)]
    path = write(tmp_path / "f.csv", "\n".join(["text,second,label", *rows]) + "\n")
    config = dataset_config("local") | {"text_pair": "second"}
    module = build(config, tmp_path, path=str(path))
    assert module.record()["reading"]["path"]["equal_pairs"] == 3
    assert "both texts are the same in 3 rows" in capsys.readouterr().out


def test_texts_without_a_token_are_counted(tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace("\u200d", "")
    texts = ["\u200d\u200d" if i % 4 == 0 else f"good {i}" for i in range(40)]
    texts = [text + "\u200d" * (i // 4) if i % 4 == 0 else text for i, text in enumerate(texts)]
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"text": texts, "label": [i % 2 for i in range(40)]}), path)
    module = data(tmp_path, path=str(path))
    module.attach_tokenizer(tokenizer, 16)
    assert sum(module.record()["without_tokens"].values()) == 10


def test_a_class_too_small_for_every_split_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    content = lines() + "another,rare\n"
    module = data(tmp_path, path=str(write(tmp_path / "f.csv", content)))
    assert module.record()["rare_classes"] == {"rare": 1}
    assert "too few rows to be in every split: 'rare' (1 row)" in caplog.text


def test_reading_twice_is_not_needed_where_there_are_no_quotes(tmp_path: Path, monkeypatch: Any) -> None:
    def never(*arguments: Any) -> bool:
        raise AssertionError

    monkeypatch.setattr("fmm.data.tables._quotes_are_literal", never)
    table = read_table(write(tmp_path / "f.tsv", lines("text\tlabel", "\t")), "data.path")
    assert len(list(table.rows)) == 12 and table.reading.quoting == "csv"
