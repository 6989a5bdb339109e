"""Output that never ends the work: what nobody reads any more, or cannot be shown as it is, is no error."""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from collections.abc import Iterator
from typing import TextIO

NAMES = ("stdout", "stderr")


class Outlet(io.FileIO):
    """A file descriptor of which the reader may go away (`| head`), or the disk fill up (`> log`).

    From then on what is written is dropped, also what libraries and child processes write to the same descriptor.
    """

    def write(self, data: object) -> int:
        """Write, or drop what cannot be written."""
        try:
            while (written := super().write(data)) is None:  # type: ignore[arg-type]
                select.select([], [self], [])  # a descriptor that does not wait for a slow reader
        except OSError as error:
            self._close_off(error)
            return memoryview(data).nbytes  # type: ignore[arg-type]
        return written

    def _close_off(self, error: OSError) -> None:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self.fileno())
        os.close(nothing)
        if not isinstance(error, BrokenPipeError) and self.fileno() == 1:
            print(
                f"warning: what is printed from here on is lost ({error.strerror}); the work goes on", file=sys.stderr
            )


@contextlib.contextmanager
def unbroken() -> Iterator[None]:
    """Let the standard streams drop what they cannot write, and escape what their encoding lacks."""
    before = {name: getattr(sys, name) for name in NAMES}
    mine: list[TextIO] = []
    for name, stream in before.items():
        if stream is None:  # closed from the start
            mine.append(open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif _of_a_descriptor(stream):
            mine.append(_wrapped(stream))
        else:
            continue
        setattr(sys, name, mine[-1])
    try:
        yield
    finally:
        for stream in mine:
            stream.flush()
        for name, stream in before.items():
            setattr(sys, name, stream)


def _of_a_descriptor(stream: object) -> bool:
    """Whether a stream is Python's own, not one that a test or a notebook put there, or one that is made here."""
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    return isinstance(stream, io.TextIOWrapper) and type(raw) is io.FileIO


def _wrapped(stream: TextIO) -> TextIO:
    stream.flush()
    assert isinstance(stream, io.TextIOWrapper)
    outlet = Outlet(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        outlet if stream.write_through else io.BufferedWriter(outlet),  # type: ignore[arg-type]
        encoding=stream.encoding,
        errors="backslashreplace" if stream.errors in ("strict", "surrogateescape") else stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
