"""How far an explanation is, and when it will be done."""

from __future__ import annotations

import sys
import time

from fmm.errors import counted


class Progress:
    """Rows done and time left: one line that is rewritten on a terminal, one line every ten seconds elsewhere."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.computed = total, 0, 0
        self.started = self.shown = time.monotonic()

    def skip(self, rows: int) -> None:
        """Count rows that were there already."""
        self.done += rows

    def advance(self, rows: int) -> None:
        """Count rows that have been computed, and show it."""
        self.done, self.computed = self.done + rows, self.computed + rows
        now = time.monotonic()
        if sys.stdout.isatty() or now - self.shown > 10:
            self.shown = now
            left = (now - self.started) / self.computed * (self.total - self.done)
            end = "\r" if sys.stdout.isatty() else "\n"
            print(f"explained {self.done}/{self.total} rows, {left:.0f} s left   ", end=end, flush=True)

    def finish(self) -> None:
        """Say how many rows there were."""
        again = self.done - self.computed
        kept = f", {again} of them found from an interrupted run" if again else ""
        print(f"explained {counted(self.done, 'row')}{kept} in {time.monotonic() - self.started:.1f} s", flush=True)
