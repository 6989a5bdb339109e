"""Reading the user's own files row by row, so that every complaint can name the row."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from fmm.errors import FmmError, first_line, unknown

EXTENSIONS = (".csv", ".tsv", ".jsonl", ".parquet")


def read_table(path: Path, option: str) -> tuple[list[str], Iterator[dict[str, Any]]]:
    """Column names and rows of a CSV, TSV, JSONL or Parquet file. Raises FmmError, naming the row, while iterating.

    Rows are counted from 1; the header of CSV and TSV is not a row. `option` is the key that named the file.
    """
    suffix = path.suffix.lower()
    if not path.is_file():
        found = "is a folder" if path.is_dir() else "is not there"
        raise FmmError(f"{option}={path} {found}; give a file ({', '.join(EXTENSIONS)})")
    if suffix not in EXTENSIONS:
        raise FmmError(f"{option}={path}: {unknown('file type', suffix or path.name, EXTENSIONS)}")
    if path.stat().st_size == 0:
        raise FmmError(f"{option}={path} is empty; give a file with rows in it")
    if suffix == ".parquet":
        return _parquet(path)
    if suffix == ".jsonl":
        return _json_lines(path)
    return _delimited(path, "\t" if suffix == ".tsv" else ",")


def _lines(path: Path) -> Iterator[str]:
    """Lines of a UTF-8 file, a byte order mark aside, with their ends."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise FmmError(
                    f"{path} is not UTF-8: line {number} holds the byte 0x{line[error.start]:02x}; save it as UTF-8"
                ) from error


def read_rows_without_header(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Numbered rows, from 1, of a CSV file without header. Raises FmmError when it is not UTF-8."""
    for number, row in enumerate(csv.reader(_lines(path)), start=1):
        if row:
            yield number, row


def _delimited(path: Path, delimiter: str) -> tuple[list[str], Iterator[dict[str, Any]]]:
    csv.field_size_limit(sys.maxsize)
    literal = delimiter == "\t" and _quotes_are_literal(path)
    quoting: Literal[0, 3] = csv.QUOTE_NONE if literal else csv.QUOTE_MINIMAL
    reader = csv.reader(_lines(path), delimiter=delimiter, strict=True, quoting=quoting)
    table = _filled_rows(reader, path)
    columns = [name.strip() for name in next(table, [])]
    _check_names(columns, path)
    other = next((d for d in ",;\t|" if len(columns) == 1 and d in columns[0]), None)
    if other:
        name = "tabs" if other == "\t" else repr(other)
        raise FmmError(
            f"{path} separates its columns by {name} (its header is {columns[0]!r}); "
            f"save {path.suffix} with {'tabs' if delimiter == chr(9) else 'commas'}"
        )

    def rows() -> Iterator[dict[str, Any]]:
        for number, values in enumerate(table, start=1):
            if len(values) != len(columns):
                raise FmmError(
                    f"{path} row {number} (line {reader.line_num}) has {len(values)} fields where the header has "
                    f"{len(columns)}; quote texts that hold a {'tab' if delimiter == chr(9) else 'comma'}"
                )
            yield dict(zip(columns, values))

    return columns, rows()


def _quotes_are_literal(path: Path) -> bool:
    """Whether quotes of a tab-separated file are characters of its texts, as they are unless the whole file is CSV's.

    Evidence is, first, under which reading every record has as many fields as the header. Where both are consistent,
    quotes are CSV's only if each field that holds one is a whole quoted field, and some quote within is doubled or
    the header is quoted.
    """
    width, consistent, whole, signs = 0, True, True, False
    for line in _lines(path):
        content = line.rstrip("\r\n")
        if not content.strip():
            continue
        fields = content.split("\t")
        header = not width
        width = width or len(fields)
        consistent &= len(fields) == width
        for value in fields if '"' in content else ():
            inner = value[1:-1]
            whole &= '"' not in value or _is_quoted(value)
            signs |= '"' in value and (header or '""' in inner)
    if consistent and not (whole and signs):
        return True
    return not _is_csv(path)


def _is_quoted(value: str) -> bool:
    ends = len(value) > 1 and value[0] == value[-1] == '"'
    return ends and '"' not in value[1:-1].replace('""', "")


def _is_csv(path: Path) -> bool:
    """Whether each record of a tab-separated file, read with CSV's quotes, has as many fields as the header."""
    width = 0
    try:
        for values in csv.reader(_lines(path), delimiter="\t", strict=True):
            if len(values) > 1 or any(value.strip() for value in values):
                width = width or len(values)
                if len(values) != width:
                    return False
    except csv.Error:
        return False
    return True


def _filled_rows(reader: Any, path: Path) -> Iterator[list[str]]:
    """The header and the rows, without blank lines. Raises FmmError for broken quotes, naming the row."""
    number = 0  # the header's
    try:
        for values in reader:
            if any(value.strip() for value in values) or len(values) > 1:
                yield values
                number += 1
    except csv.Error as error:
        place = f"row {number}" if number else "header"
        raise FmmError(
            f"{path} {place} (line {reader.line_num}) is broken ({error}); mend its quotes and line ends"
        ) from error


def _json_lines(path: Path) -> tuple[list[str], Iterator[dict[str, Any]]]:
    def rows() -> Iterator[dict[str, Any]]:
        number = 0
        for line_number, line in enumerate(_lines(path), start=1):
            if not line.strip():
                continue
            number += 1
            place = f"{path} row {number}" + (f" (line {line_number})" if line_number > number else "")
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:  # ValueError: a number of thousands of digits too
                reason = getattr(error, "msg", None) or first_line(error)
                raise FmmError(f"{place} is broken JSON ({reason}); write one object a line") from error
            if not isinstance(row, dict):
                raise FmmError(f"{place} is not a JSON object; write one object a line")
            yield row

    first = next(rows(), {})
    return list(first), rows()


def _parquet(path: Path) -> tuple[list[str], Iterator[dict[str, Any]]]:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error
    _check_names(file.schema_arrow.names, path)

    def rows() -> Iterator[dict[str, Any]]:
        try:
            for batch in file.iter_batches():
                yield from batch.to_pylist()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise error if isinstance(error, FmmError) else _damaged(path, error) from error

    return file.schema_arrow.names, rows()


def _damaged(path: Path, error: Exception) -> FmmError:
    return FmmError(f"{path} is not a readable Parquet file ({first_line(error)}); write it again")


def _check_names(columns: list[str], path: Path) -> None:
    if len(set(columns)) < len(columns):
        raise FmmError(f"{path} names a column twice in its header ({', '.join(columns)}); give each its own name")
