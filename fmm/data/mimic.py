"""Reader of MIMIC-III discharge summaries, from the user's own NOTEEVENTS and DIAGNOSES_ICD files.

Source: ecoroar/dataset/mimic at AndreasMadsen/faithfulness-measurable-models 8a941dcd, joined and normalised alike.
Nothing is downloaded: the files need a PhysioNet account, and the list of admissions is the user's.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from fmm.data.cache import locked
from fmm.data.hub import kind_of_split
from fmm.data.raw import SPLITS, DatasetInfo, RawData, raw_split
from fmm.data.sources import sha256
from fmm.data.tables import read_rows_without_header
from fmm.errors import FmmError, first_line, unknown
from fmm.records import write_parquet

VERSION = 1  # of the joined table; raise it when what is read from the same files changes

# keys of `data` that name files which are read here
OPTIONS = {"id_list": "<csv of admission id, split>", "noteevents": "<NOTEEVENTS.csv[.gz]>"}
OPTIONS["diagnoses"] = "<DIAGNOSES_ICD.csv[.gz]>"
NOTE_COLUMNS = ["SUBJECT_ID", "HADM_ID", "CATEGORY", "CHARTDATE", "DESCRIPTION", "TEXT"]
DIAGNOSIS_COLUMNS = ["SUBJECT_ID", "HADM_ID", "ICD9_CODE"]
DESCRIPTIONS = {"Report": 0, "Addendum": 1}

Admission = tuple[int, int]


def read(dataset: Mapping[str, Any], data: Mapping[str, Any], *, split: str, cache_dir: Path) -> RawData:
    """Join notes and diagnoses of the listed admissions; the joined table is kept beside the token cache."""
    files = _files(dataset["name"], data)
    table = _joined(dataset, files, cache_dir)
    splits = {}
    for name in SPLITS:
        part = table.filter(pc.equal(table["split"], name))
        if part.num_rows == 0:
            raise FmmError(f"data.id_list={files['id_list']} leaves no admission with a note for {name}; check its ids")
        splits[name] = raw_split(part["text"], None, part["label"].to_numpy(), part["hadm_id"].to_numpy())
    kind = kind_of_split("authors", dataset, splits, [])
    digest = table.schema.metadata[b"identity"].decode()
    origin = {"source": "mimic-iii", "revision": None, "id_list_sha256": sha256(files["id_list"])}
    return RawData(DatasetInfo.from_config(dataset), splits, origin | kind | {"identity": digest})


def normalise(text: str) -> str:
    """Lower-case, and replace what hides people and numbers: `<DE>`, `[DIGITS]`, repeated signs once.

    >>> normalise("Seen on [**2101-1-1**] -----  BP 120/80, stable.")
    'seen on <DE> - bp [DIGITS] , stable.'
    """
    text = re.sub(r"\[\*\*.*?\*\*\]", " <DE> ", text.lower(), flags=re.DOTALL)
    text = re.sub(r"([^a-zA-Z0-9])(?:\s*\1)+", r"\1 ", text)
    text = re.sub(r"[^\s.,?]*\d[^\s.,?]*", " [DIGITS] ", text)
    return re.sub(r"\s+", " ", text).strip()


def _files(name: str, data: Mapping[str, Any]) -> dict[str, Path]:
    files = {}
    for option, what in OPTIONS.items():
        if not data.get(option):
            raise FmmError(f"dataset={name} needs your own MIMIC-III files; give data.{option}={what}")
        files[option] = Path(str(data[option])).expanduser()
        if not files[option].is_file():
            raise FmmError(f"data.{option}={files[option]} is not a file; give {what}")
    return files


def _joined(dataset: Mapping[str, Any], files: Mapping[str, Path], cache_dir: Path) -> pa.Table:
    # Sizes and times stand for the content of the large files, whose hashing would take minutes.
    stats = [(path.stat().st_size, path.stat().st_mtime_ns) for path in (files["noteevents"], files["diagnoses"])]
    parts = [stats, sha256(files["id_list"]), dataset["code"], VERSION]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    target = cache_dir / dataset["name"] / f"{key}.parquet"
    with locked(target):
        if target.is_file():
            return pq.read_table(target)
        table = _join(files, dataset["code"])
        write_parquet(target, table)
    return table


def _join(files: Mapping[str, Path], code: str) -> pa.Table:
    wanted = _id_list(files["id_list"])
    labels = _labels(files["diagnoses"], wanted, code)
    texts = _texts(files["noteevents"], labels)
    admissions = sorted(texts, key=lambda admission: (admission[1], admission[0]))
    columns: dict[str, list] = {
        "hadm_id": [hadm for _, hadm in admissions],
        "split": [wanted[hadm] for _, hadm in admissions],
        "label": [int(labels[admission]) for admission in admissions],
        "text": [texts[admission] for admission in admissions],
    }
    identity = hashlib.sha256(json.dumps(columns).encode()).hexdigest()
    return pa.table(columns).replace_schema_metadata({"identity": identity})


def _id_list(path: Path) -> dict[int, str]:
    wanted: dict[int, str] = {}
    for number, row in read_rows_without_header(path):
        if len(row) != 2 or not row[0].strip().isdigit():
            raise FmmError(
                f"{path} row {number} is {','.join(row)!r}; write admission id and split, as in 100001,train"
            )
        if row[1].strip() not in SPLITS:
            raise unknown(f"split in {path} row {number}", row[1].strip(), SPLITS)
        wanted[int(row[0])] = row[1].strip()
    return wanted


def _labels(path: Path, wanted: Mapping[int, str], code: str) -> dict[Admission, bool]:
    labels: dict[Admission, bool] = {}
    for batch in _batches(path, DIAGNOSIS_COLUMNS):
        for subject, hadm, icd in zip(*(batch[column].to_pylist() for column in DIAGNOSIS_COLUMNS)):
            if int(hadm) in wanted:
                matches = f"{icd[:3]}.{icd[3:]}".startswith(code)
                # Exclusive or, as with the authors: two matching codes in one admission cancel out.
                admission = (int(subject), int(hadm))
                labels[admission] = labels.get(admission, False) != matches
    return labels


def _texts(path: Path, labels: Mapping[Admission, bool]) -> dict[Admission, str]:
    notes: dict[Admission, list[tuple[int, str, str]]] = defaultdict(list)
    for batch in _batches(path, NOTE_COLUMNS):
        batch = batch.filter(pc.equal(batch["CATEGORY"], "Discharge summary"))
        for subject, hadm, _, date, description, text in zip(*(batch[c].to_pylist() for c in NOTE_COLUMNS)):
            admission = (int(subject), int(hadm))
            if admission in labels:
                notes[admission].append((DESCRIPTIONS.get(description, len(DESCRIPTIONS)), date, text))
    joined = {}
    for admission, found in notes.items():
        order = sorted((kind, date, place) for place, (kind, date, _) in enumerate(found))
        joined[admission] = normalise(" ".join(found[place][2] for _, _, place in order).strip())
    return joined


def _batches(path: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Rows of a MIMIC table as strings, without those that lack one of `columns`; streams .csv and .csv.gz."""
    convert = pacsv.ConvertOptions(
        include_columns=columns,
        column_types={column: pa.string() for column in columns},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=True,
    )
    try:
        reader = pacsv.open_csv(
            path, parse_options=pacsv.ParseOptions(newlines_in_values=True), convert_options=convert
        )
        for batch in reader:
            missing = np.zeros(batch.num_rows, dtype=bool)
            for column in columns:
                missing |= batch[column].is_null().to_numpy(zero_copy_only=False)
            yield batch.filter(pa.array(~missing))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FmmError(
            f"{path} cannot be read as the MIMIC-III table with {', '.join(columns)} ({first_line(error)})"
        ) from error
