"""Reading the user's own files row by row, so that every complaint can name the row."""

from __future__ import annotations

import codecs
import contextlib
import csv
import json
import mmap
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from fmm.errors import FmmError, counted, first_line, unknown

EXTENSIONS = (".csv", ".tsv", ".jsonl", ".parquet")
_WIDE = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_DELIMITERS = "\t,;|"


@dataclass
class Reading:
    """How a file was read; the counts are whole once all its rows are.

    Attributes:
        rows, lines: rows of data and lines of the file; they differ by the header, blank lines and quoted line ends.
        encoding: of the characters, None for Parquet.
        delimiter: between the columns of CSV and TSV.
        quoting: `csv`, or `none` where quotes are characters of the texts; None for other files.
        empty_columns: columns at the end without a name and a value, left out.
    """

    rows: int = 0
    lines: int | None = None
    encoding: str | None = None
    delimiter: str | None = None
    quoting: str | None = None
    quotes: bool = False  # whether there are any
    empty_columns: int = 0

    def record(self) -> dict[str, Any]:
        """What a record says: all that the file has."""
        return {name: value for name, value in asdict(self).items() if value not in (None, 0) and name != "quotes"}

    def said(self, path: Path) -> str:
        """A line for the log."""
        parts = [counted(self.rows, "row")]
        if self.lines is not None:
            parts[0] += f" from {counted(self.lines, 'line')}"
        if self.quotes:
            parts.append("quotes are characters of the texts" if self.quoting == "none" else "quotes are CSV's")
        if self.encoding not in (None, "utf-8"):
            parts.append(str(self.encoding).upper())
        if self.delimiter is not None and self.delimiter != ("\t" if path.suffix.lower() == ".tsv" else ","):
            parts.append(f"columns parted by {_named(self.delimiter)}")
        if self.empty_columns:
            parts.append(f"{counted(self.empty_columns, 'empty column')} at the end left out")
        return f"{path}: {', '.join(parts)}"


@dataclass
class Table:
    """A file's column names and its rows, to be read once. Raises FmmError, naming the row, while iterating.

    Rows are counted from 1; the header of CSV and TSV is not a row.
    """

    columns: list[str]
    rows: Iterator[dict[str, Any]]
    reading: Reading = field(default_factory=Reading)


def read_table(path: Path, option: str, quoting: str | None = None) -> Table:
    """Open a CSV, TSV, JSONL or Parquet file. `option` is the key that named it.

    `quoting` is that of CSV and TSV: `csv`, `none` (quotes are characters of the texts), or None: CSV's in .csv, and in
    .tsv what the whole file bears out. Raises FmmError for a file of another kind.
    """
    suffix = path.suffix.lower()
    if not path.is_file():
        problem = "is a folder" if path.is_dir() else "is not there"
        raise FmmError(f"{option}={path} {problem}; give a file ({', '.join(EXTENSIONS)})")
    if suffix not in EXTENSIONS:
        raise FmmError(f"{option}={path}: {unknown('file type', suffix or path.name, EXTENSIONS)}")
    if path.stat().st_size == 0:
        raise FmmError(f"{option}={path} is empty; give a file with rows in it")
    if suffix == ".parquet":
        return _parquet(path)
    if suffix == ".jsonl":
        return _json_lines(path)
    return _delimited(path, "\t" if suffix == ".tsv" else ",", quoting)


def _encoding(path: Path) -> str:
    """The encoding of a text file by the mark at its start: UTF-8 without one. Raises FmmError for other bytes."""
    try:
        with path.open("rb") as file:
            start = file.read(4096)
    except OSError as error:
        raise FmmError(f"cannot read {path} ({error.strerror}); check its permissions") from error
    wide = next((name for mark, name in _WIDE.items() if start.startswith(mark)), None)
    if wide is None and b"\0" in start:
        raise FmmError(
            f"{path} holds zero bytes, so it is no text in UTF-8 (UTF-16 without a mark, or another kind of file); "
            "save it as UTF-8"
        )
    return wide or "utf-8"


def _lines(path: Path, encoding: str, reading: Reading | None = None) -> Iterator[str]:
    """Lines of a text file, byte order marks aside, with their ends; counted in `reading`."""
    source = _wide_lines(path, encoding) if encoding != "utf-8" else _utf8_lines(path)
    number = 0
    for number, line in enumerate(source, start=1):
        yield line.lstrip("\ufeff") if number == 1 else line
    if reading is not None:
        reading.lines = number


def _utf8_lines(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield line.decode()
            except UnicodeDecodeError as error:
                raise FmmError(
                    f"{path} is not UTF-8: line {number} holds the byte 0x{line[error.start]:02x}; save it as UTF-8"
                ) from error


def _wide_lines(path: Path, encoding: str) -> Iterator[str]:
    try:
        with path.open(encoding=encoding, newline="") as file:
            yield from file
    except UnicodeError as error:
        raise FmmError(f"{path} is not {encoding.upper()}, as its mark says ({error}); save it as UTF-8") from error


def read_rows_without_header(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Numbered rows, from 1, of a CSV file without header. Raises FmmError when it is not UTF-8."""
    for number, row in enumerate(csv.reader(_lines(path, "utf-8")), start=1):
        if row:
            yield number, row


def _delimited(path: Path, delimiter: str, quoting: str | None) -> Table:
    csv.field_size_limit(sys.maxsize)
    reading = Reading(encoding=_encoding(path))
    skipped, delimiter = _excels_line(path, reading, delimiter)
    reading.delimiter, reading.quotes = delimiter, _has_quotes(path, reading)
    if quoting is None:
        literal = delimiter == "\t" and reading.quotes and _quotes_are_literal(path, reading, skipped)
        quoting = "none" if literal else "csv"
    reading.quoting = quoting
    style: Literal[0, 3] = csv.QUOTE_NONE if quoting == "none" else csv.QUOTE_MINIMAL
    lines = islice(_lines(path, str(reading.encoding), reading), skipped, None)
    reader = csv.reader(lines, delimiter=delimiter, strict=True, quoting=style)
    records = _filled_records(reader, path, skipped)
    header = [name.strip() for name in next(records, (0, []))[1]]
    width = len(header)
    while width > 1 and not header[width - 1]:
        width -= 1
    columns, reading.empty_columns = header[:width], len(header) - width
    _check_names(columns, path)
    _check_delimiter(columns, delimiter, path)

    def rows() -> Iterator[dict[str, Any]]:
        for number, (line, values) in enumerate(records, start=1):
            if len(values) > width and not any(value.strip() for value in values[width:]):
                reading.empty_columns = max(reading.empty_columns, len(values) - width)
                values = values[:width]
            if len(values) != width:
                sentence = _wrong_width(values, columns, delimiter, f"{path} row {number} (line {line})")
                raise FmmError(sentence + _and_others(records, width))
            reading.rows = number
            yield dict(zip(columns, values))

    return Table(columns, rows(), reading)


def _excels_line(path: Path, reading: Reading, delimiter: str) -> tuple[int, str]:
    """Lines to skip, and the delimiter: Excel writes `sep=;` above the header."""
    first = next(_lines(path, str(reading.encoding)), "")
    named = re.fullmatch(r'"?sep=(.)"?', first.rstrip("\r\n"), re.IGNORECASE)
    return (1, named.group(1)) if named else (0, delimiter)


def _has_quotes(path: Path, reading: Reading) -> bool:
    """Whether there is a quote in the file: without one, there is no question what quotes mean."""
    if reading.encoding != "utf-8":
        return any('"' in line for line in _lines(path, str(reading.encoding)))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(b'"') >= 0


def _check_delimiter(columns: list[str], delimiter: str, path: Path) -> None:
    other = next((d for d in ",;\t|" if len(columns) == 1 and d != delimiter and d in columns[0]), None)
    if other is not None:
        raise FmmError(
            f"{path} separates its columns by {_named(other)} (its header is {columns[0]!r}); "
            f"save {path.suffix} with {_named(delimiter)}"
        )


def _named(delimiter: str) -> str:
    return {"\t": "tabs", ",": "commas"}.get(delimiter, repr(delimiter))


def _and_others(records: Iterator[tuple[int, list[str]]], width: int) -> str:
    """How many of the rows that follow a row of the wrong width are like it."""
    others = 0
    with contextlib.suppress(FmmError):
        others = sum(len(values) != width for _, values in records)
    return f" ({counted(others, 'other row')} of the wrong width below it)" if others else ""


def _wrong_width(values: list[str], columns: list[str], delimiter: str, place: str) -> str:
    """The sentence for a row of more or fewer fields than the header."""
    for other in _DELIMITERS.replace(delimiter, ""):
        if len(values) == 1 and values[0].count(other) == len(columns) - 1 > 0:
            return f"{place} has {_named(other)} where the header has {_named(delimiter)}; use one of them in all lines"
    hint = "complete or drop it"
    if len(values) > len(columns):
        hint = f"quote texts that hold {_named(delimiter)}"
    return f"{place} has {len(values)} fields where the header has {len(columns)}; {hint}"


def _quotes_are_literal(path: Path, reading: Reading, skipped: int) -> bool:
    """Whether quotes of a tab-separated file are characters of its texts, as they are unless the whole file is CSV's.

    Evidence is, first, under which reading every record has as many fields as the header. Where both are consistent,
    quotes are CSV's only if each field that holds one is a whole quoted field, and some quote within is doubled or
    the header is quoted.
    """
    width, consistent, whole, signs = 0, True, True, False
    for line in islice(_lines(path, str(reading.encoding)), skipped, None):
        if line.isspace():
            continue
        tabs = line.count("\t")
        header = not width
        width = width or tabs + 1
        consistent &= tabs + 1 == width
        if '"' not in line:
            continue
        quoted = [value for value in line.rstrip("\r\n").split("\t") if '"' in value]
        whole &= all(map(_is_quoted, quoted))
        signs |= header or any('""' in value[1:-1] for value in quoted)
    if consistent and not (whole and signs):
        return True
    return not _is_csv(path, reading, skipped)


def _is_quoted(value: str) -> bool:
    ends = len(value) > 1 and value[0] == value[-1] == '"'
    return ends and '"' not in value[1:-1].replace('""', "")


def _is_csv(path: Path, reading: Reading, skipped: int) -> bool:
    """Whether each record of a tab-separated file, read with CSV's quotes, has as many fields as the header."""
    width = 0
    lines = islice(_lines(path, str(reading.encoding)), skipped, None)
    try:
        for values in csv.reader(lines, delimiter="\t", strict=True):
            if _is_filled(values):
                width = width or len(values)
                if len(values) != width:
                    return False
    except csv.Error:
        return False
    return True


def _is_filled(values: list[str]) -> bool:
    """Whether a record is none of a blank line."""
    return len(values) > 1 or any(value.strip() for value in values)


def _filled_records(reader: Any, path: Path, skipped: int) -> Iterator[tuple[int, list[str]]]:
    """The header and the rows with the number of their last line, without blank lines.

    Raises FmmError for broken quotes, naming the row.
    """
    number = 0  # the header's
    try:
        for values in reader:
            if _is_filled(values):
                yield reader.line_num + skipped, values
                number += 1
    except csv.Error as error:
        place = f"row {number}" if number else "header"
        raise FmmError(
            f"{path} {place} (line {reader.line_num + skipped}) is broken ({error}); mend its quotes and line ends"
        ) from error


def _json_lines(path: Path) -> Table:
    reading = Reading(encoding=_encoding(path))
    # A key may be missing in some rows, the first too: only all rows together know the columns.
    rows = list(_json_rows(path, reading))
    columns = list(dict.fromkeys(name for row in rows for name in row))
    reading.rows = len(rows)
    return Table(columns, iter(rows), reading)


def _json_rows(path: Path, reading: Reading) -> Iterator[dict[str, Any]]:
    decode = json.JSONDecoder(object_pairs_hook=_object).decode
    number = 0
    for line_number, line in enumerate(_lines(path, str(reading.encoding), reading), start=1):
        if not line.strip():
            continue
        number += 1
        place = f"{path} row {number}" + (f" (line {line_number})" if line_number > number else "")
        try:
            row = decode(line)
        except _RepeatedKeyError as error:
            raise FmmError(f"{place} has the key {error} twice; give each key once") from error
        except (ValueError, RecursionError) as error:  # ValueError: a number of thousands of digits too
            reason = getattr(error, "msg", None) or first_line(error)
            raise FmmError(f"{place} is broken JSON ({reason}); write one object a line") from error
        if not isinstance(row, dict):
            raise FmmError(f"{place} is not a JSON object; write one object a line")
        yield row


class _RepeatedKeyError(Exception):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise _RepeatedKeyError(repr(next(name for name in names if names.count(name) > 1)))
    return row


def _parquet(path: Path) -> Table:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error
    _check_names(file.schema_arrow.names, path)
    reading = Reading()

    def rows() -> Iterator[dict[str, Any]]:
        try:
            for batch in file.iter_batches():
                reading.rows += len(batch)
                yield from batch.to_pylist()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise error if isinstance(error, FmmError) else _damaged(path, error) from error

    return Table(list(file.schema_arrow.names), rows(), reading)


def _damaged(path: Path, error: Exception) -> FmmError:
    return FmmError(f"{path} is not a readable Parquet file ({first_line(error)}); write it again")


def _check_names(columns: list[str], path: Path) -> None:
    named = [name for name in columns if name]  # pandas leaves the column of its index without a name
    if len(set(named)) < len(named):
        raise FmmError(f"{path} names a column twice in its header ({', '.join(columns)}); give each its own name")
