"""What a run leaves behind: named by its content, versioned, written atomically.

A run lives in `<output_dir>/<task>/<dataset>/<readable>-<key>/`, where `key` is a digest of the settings that
decide its result. `record.json` is written last, so its presence means that the run is done and whole;
everything else is written to a temporary file, flushed to disk and renamed.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import math
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import filelock
import pyarrow as pa
import pyarrow.parquet as pq

from fmm.errors import FmmError

SCHEMA = 1
RECORD = "record.json"
_VERSIONED = ("fmm", "torch", "transformers", "pytorch-lightning", "datasets", "torchmetrics", "numpy")


@dataclass(frozen=True)
class Record:
    """A finished run, as read from its `record.json`."""

    task: str
    dataset: str
    key: str
    directory: Path
    settings: dict[str, Any]
    results: dict[str, Any]
    versions: dict[str, str]
    created: str
    seconds: float


def plain(value: Any) -> Any:
    """Turn numpy scalars, paths and tuples into plain JSON values; NaN and infinities become None and strings."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


def content_key(settings: Mapping[str, Any]) -> str:
    """Twelve hex digits that name these settings, whatever the order of their keys.

    >>> content_key({"seed": 0, "lr": 0.1}) == content_key({"lr": 0.1, "seed": 0})
    True
    """
    text = json.dumps(plain(settings), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def versions() -> dict[str, str]:
    """Versions of fmm and of the libraries that a result depends on."""
    found = {}
    for name in _VERSIONED:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary neighbour of `path` to write; when the block succeeds it takes the place of `path`.

    Raises FmmError where the disk is full or the place cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def remove_drafts(directory: Path) -> None:
    """Remove what killed processes were writing in a directory that this process holds the lock of."""
    for draft in directory.rglob("*.tmp"):
        if draft.is_dir():
            shutil.rmtree(draft, ignore_errors=True)
        else:
            draft.unlink(missing_ok=True)


def _unwritable(path: Path, error: OSError) -> FmmError:
    return FmmError(f"could not write {path}: {error.strerror or error}; free space or choose another output_dir")


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n", "utf-8")


def write_text(path: Path, text: str) -> None:
    """Write a text file, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, "utf-8")


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a Parquet file, atomically."""
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def read_parquet(path: Path) -> pa.Table | None:
    """Read a Parquet file; None where it is missing or damaged, so that the caller computes it again."""
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException):
        return None


def read_record(directory: Path) -> Record | None:
    """Read the record of a finished run; None where there is none, or a damaged or older one."""
    try:
        data = json.loads((directory / RECORD).read_text("utf-8"))
        if data["schema"] != SCHEMA:
            return None
        names = ("task", "dataset", "key", "settings", "results", "versions", "created", "seconds")
        return Record(directory=directory, **{name: data[name] for name in names})
    except (OSError, ValueError, KeyError, TypeError):
        return None


@dataclass
class Run:
    """One run's directory: what it may find there, and how it writes."""

    task: str
    dataset: str
    key: str
    directory: Path
    settings: dict[str, Any]
    started: float = field(default_factory=time.monotonic)

    @property
    def done(self) -> bool:
        """Whether a whole record with this content is there."""
        return self.record() is not None

    def record(self) -> Record | None:
        """The finished record, or None."""
        record = read_record(self.directory)
        return record if record is not None and record.key == self.key else None

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold this run for one process; another that wants it waits, and then finds it done."""
        lock = filelock.FileLock(self.directory.parent / f".{self.directory.name}.lock")
        try:
            self.directory.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        except filelock.Timeout:
            print(f"waiting for another process that is at work on {self.directory}", flush=True)
            lock.acquire()
        except OSError as error:
            raise _unwritable(self.directory, error) from error
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            remove_drafts(self.directory)
            yield
        finally:
            with contextlib.suppress(OSError):
                self.directory.rmdir()  # empty where the run was refused
            lock.release()

    def clear(self) -> None:
        """Forget what is there, for `force=true`."""
        (self.directory / RECORD).unlink(missing_ok=True)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True, exist_ok=True)

    def write_json(self, name: str, value: Any) -> Path:
        """Write a JSON file beside the record. Returns its path."""
        write_json(self.directory / name, value)
        return self.directory / name

    def write_text(self, name: str, text: str) -> Path:
        """Write a text file beside the record. Returns its path."""
        write_text(self.directory / name, text)
        return self.directory / name

    def write_parquet(self, name: str, table: pa.Table) -> Path:
        """Write a Parquet file beside the record. Returns its path."""
        write_parquet(self.directory / name, table)
        return self.directory / name

    def finish(self, results: Mapping[str, Any], seconds: float | None = None) -> Record:
        """Write the record, which declares the run done. `seconds` defaults to the time since the run was opened."""
        record = {
            "schema": SCHEMA,
            "task": self.task,
            "dataset": self.dataset,
            "key": self.key,
            "settings": self.settings,
            "results": results,
            "versions": versions(),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - self.started if seconds is None else seconds, 3),
        }
        self.write_json(RECORD, record)
        finished = self.record()
        assert finished is not None
        return finished


def open_run(output_dir: str | Path, task: str, dataset: str, readable: str, settings: Mapping[str, Any]) -> Run:
    """Name a run by its settings (everything that changes the result) and return it, done or not."""
    own: dict[str, Any] = plain(settings)
    key = content_key({"task": task, "schema": SCHEMA, **own})
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", readable).strip("_")[:80]
    directory = Path(output_dir) / task / re.sub(r"[^A-Za-z0-9._-]+", "_", dataset) / f"{safe}-{key}"
    return Run(task, dataset, key, directory, own)


def load_all(output_dir: str | Path, task: str | None = None, dataset: str | None = None) -> list[Record]:
    """All finished records under `output_dir`, sorted by path; unfinished and damaged ones are passed over."""
    pattern = f"{task or '*'}/{dataset or '*'}/*/{RECORD}"
    found = [read_record(path.parent) for path in sorted(Path(output_dir).glob(pattern))]
    return [record for record in found if record is not None]
