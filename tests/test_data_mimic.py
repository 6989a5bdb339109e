"""MIMIC from small files of the same schema."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any

import pytest

from fmm.data.mimic import normalise
from fmm.errors import FmmError
from tests.data_helpers import build

NOTES = [  # ROW_ID, SUBJECT_ID, HADM_ID, CHARTDATE, CHARTTIME, STORETIME, CATEGORY, DESCRIPTION, CGID, ISERROR, TEXT
    [1, 10, 100, "2101-01-05", "", "", "Discharge summary", "Addendum", "", "", "Later\nwords."],
    [2, 10, 100, "2101-01-09", "", "", "Discharge summary", "Report", "", "", "Second, quoted\n\nreport."],
    [3, 10, 100, "2101-01-02", "", "", "Discharge summary", "Report", "", "", "First report."],
    [4, 10, 100, "2101-01-01", "", "", "Nursing", "Report", "", "", "Not this one."],
    [5, 11, 101, "2101-01-01", "", "", "Discharge summary", "Report", "", "", "Patient [**Name 5**] of 12 mg/5ml."],
    [6, 12, 102, "2101-01-01", "", "", "Discharge summary", "Report", "", "", "Test one."],
    [7, 13, 103, "", "", "", "Discharge summary", "Report", "", "", "Without a date."],
    [8, 14, 104, "2101-01-01", "", "", "Discharge summary", "Report", "", "", "Not listed."],
]
NOTE_HEADER = ["ROW_ID", "SUBJECT_ID", "HADM_ID", "CHARTDATE", "CHARTTIME", "STORETIME"]
NOTE_HEADER += ["CATEGORY", "DESCRIPTION", "CGID", "ISERROR", "TEXT"]
DIAGNOSES = [  # ROW_ID, SUBJECT_ID, HADM_ID, SEQ_NUM, ICD9_CODE
    [1, 10, 100, 1, "2851"],
    [2, 10, 100, 2, "4019"],
    [3, 11, 101, 1, "2851"],
    [4, 11, 101, 2, "2851"],
    [5, 12, 102, 1, ""],
    [6, 12, 102, 2, "25000"],
    [7, 13, 103, 1, "2851"],
    [8, 14, 104, 1, "2851"],
]


def write(path: Path, header: list[str], rows: list[list[Any]]) -> Path:
    with (gzip.open if path.suffix == ".gz" else open)(path, "wt", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_MINIMAL).writerows([header, *rows])
    return path


@pytest.fixture(params=["csv", "csv.gz"])
def files(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    notes = write(tmp_path / f"NOTEEVENTS.{request.param}", NOTE_HEADER, NOTES)
    header = ["ROW_ID", "SUBJECT_ID", "HADM_ID", "SEQ_NUM", "ICD9_CODE"]
    diagnoses = write(tmp_path / f"DIAGNOSES_ICD.{request.param}", header, DIAGNOSES)
    ids = tmp_path / "ids.csv"
    ids.write_text("100,train\n101,validation\n102,test\n103,train\n")
    return {"noteevents": str(notes), "diagnoses": str(diagnoses), "id_list": str(ids)}


def test_joins_labels_and_texts(files: dict[str, str], tmp_path: Path) -> None:
    dm = build("mimic_anemia", tmp_path, **files)
    rows = {name: dm.raw(name) for name in ("train", "validation", "test")}
    assert [part.example_ids.tolist() for part in rows.values()] == [[100], [101], [102]]
    assert rows["train"].texts == ["first report. second, quoted report. later words."]
    assert rows["validation"].texts == ["patient <DE> of [DIGITS] [DIGITS] ."]
    assert rows["train"].labels.tolist() == [1]
    assert rows["validation"].labels.tolist() == [0]  # two matching codes cancel out
    record = dm.record()
    assert record["split"] == "approximate" and "rows per class" in record["split_reasons"][0]
    assert build("mimic_diabetes", tmp_path, **files).raw("test").labels.tolist() == [1]


def test_joined_table_is_kept_and_follows_its_sources(files: dict[str, str], tmp_path: Path) -> None:
    first = build("mimic_anemia", tmp_path, **files).fingerprint
    assert len(list(tmp_path.glob("mimic_anemia/*.parquet"))) == 1
    assert build("mimic_anemia", tmp_path, **files).fingerprint == first
    Path(files["id_list"]).write_text("100,validation\n101,train\n102,test\n")
    assert build("mimic_anemia", tmp_path, **files).fingerprint != first


@pytest.mark.parametrize("option", ["id_list", "noteevents", "diagnoses"])
def test_refused_without_its_files(files: dict[str, str], tmp_path: Path, option: str) -> None:
    with pytest.raises(FmmError, match=rf"needs your own MIMIC-III files; give data\.{option}="):
        build("mimic_anemia", tmp_path, **files | {option: None}).read()
    with pytest.raises(FmmError, match="is not a file"):
        build("mimic_anemia", tmp_path, **files | {option: str(tmp_path / "nothing.csv")}).read()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("100,train\nhadm,test\n", "row 2 is 'hadm,test'"),
        ("100,dev\n", "split in .* row 1 'dev'"),
        ("100,train\n", "leaves no admission with a note for validation"),
    ],
)
def test_broken_id_list(files: dict[str, str], tmp_path: Path, content: str, message: str) -> None:
    Path(files["id_list"]).write_text(content)
    with pytest.raises(FmmError, match=message):
        build("mimic_anemia", tmp_path, **files).read()


def test_another_table_is_refused(files: dict[str, str], tmp_path: Path) -> None:
    swapped = files | {"noteevents": files["diagnoses"]}
    with pytest.raises(FmmError, match="cannot be read as the MIMIC-III table with SUBJECT_ID"):
        build("mimic_anemia", tmp_path, **swapped).read()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[**First Name (Titles) **] Went\n\n Home", "<DE> went home"),
        ("a ----- b ... c, , d", "a - b . c, d"),
        ("5mg x2, 3.5 BP 120/80", "[DIGITS] [DIGITS] , [DIGITS] . [DIGITS] bp [DIGITS]"),
    ],
)
def test_normalised_text(text: str, expected: str) -> None:
    assert normalise(text) == expected
