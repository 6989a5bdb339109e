"""Errors are sentences: what was wrong, its value, what to do."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR)


class FmmError(ValueError):
    """A mistake the user can mend. The message is one sentence, shown without a traceback."""


def first_line(error: BaseException) -> str:
    """What an error of a library says, cut to one line so that it fits into a sentence."""
    return next(iter(str(error).strip().splitlines()), "")[:200] or type(error).__name__


def counted(n: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "seed"), counted(1200, "row")
    ('1 seed', '1,200 rows')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def of_disk(error: BaseException, folder: object = None) -> FmmError | None:
    """The sentence for a disk that is full or will not be written to; None for any other error.

    `folder` is where the work wrote, as an error in the middle of writing does not know its file.
    Whatever was being written then has its name only once it is whole, so the same command continues.
    """
    if not isinstance(error, OSError) or error.errno not in _DISK:
        return None
    where = f" in {folder}" if folder else ""
    if error.filename:
        where = f" {error.filename}"
    return FmmError(
        f"cannot write{where}: {error.strerror}; free space or mend permissions there, or give another output_dir, and "
        "run the same command again"
    )


def nearest(name: str, options: Iterable[str], limit: int = 3, cutoff: float = 0.5) -> list[str]:
    """Return up to `limit` of `options` that look most like `name`, best first.

    >>> nearest("mnil", ["mnli", "snli", "rte"])
    ['mnli', 'snli']
    """
    return difflib.get_close_matches(name, list(options), n=limit, cutoff=cutoff)


def unknown(kind: str, name: str, options: Iterable[str]) -> FmmError:
    """Build the error for a name that is not among `options`, naming the nearest ones.

    >>> str(unknown("dataset", "mnil", ["mnli", "rte"]))
    "unknown dataset 'mnil'; did you mean mnli? (choose from mnli, rte)"
    """
    options = sorted(options)
    close = nearest(name, options)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return FmmError(f"unknown {kind} {name!r}{hint} (choose from {', '.join(options)})")
