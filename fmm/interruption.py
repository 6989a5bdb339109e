"""Signals that ask a process to stop: heard at once, or put off in a fit until the state of training is on disk."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]

TERMINATIONS = (signal.SIGTERM, signal.SIGHUP)  # `kill`, a scheduler or a container's stop; a terminal that closed
# All that ask a fit to stop; the last two warn of the end of a time slice, and belong to launchers.
SIGNALS = (signal.SIGINT, *TERMINATIONS, signal.SIGUSR1, signal.SIGUSR2)


class Terminated(KeyboardInterrupt):
    """A signal other than Ctrl-C asked this process to stop; whatever handles Ctrl-C handles it alike."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)

    def __str__(self) -> str:
        return f"terminated by {self.signal.name}"


def exit_status(interruption: KeyboardInterrupt) -> int:
    """The exit status of an interrupted process, as a shell gives it: 128 and the signal's number.

    >>> exit_status(KeyboardInterrupt()), exit_status(Terminated(signal.SIGTERM))
    (130, 143)
    """
    number = interruption.signal if isinstance(interruption, Terminated) else signal.SIGINT
    return 128 + int(number)


def said(interruption: KeyboardInterrupt) -> str:
    """What a person is told of an interruption.

    >>> said(KeyboardInterrupt()), said(Terminated(signal.SIGTERM))
    ('interrupted: the same command continues', 'terminated by SIGTERM: the same command continues')
    """
    cause = str(interruption) if isinstance(interruption, Terminated) else "interrupted"
    return f"{cause}: the same command continues"


@contextlib.contextmanager
def terminations() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise `Terminated`, as Ctrl-C raises KeyboardInterrupt.

    A signal that somebody handles or ignores (a launcher, nohup) stays theirs.
    """
    ours = [number for number in TERMINATIONS if signal.getsignal(number) == signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():  # handlers can be set there only
        ours = []
    for number in ours:
        signal.signal(number, _terminate)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated(number)


class SignalsPutOff:
    """Notes the first signal of each kind, and leaves it to `handle` to do what it would have done.

    A batch that is under way can thus be finished, and the state saved, before Ctrl-C, SIGTERM or a launcher's
    signal takes effect. A second signal of the same kind takes effect at once. Signals without a handler of Python's
    do what they always do. Used in a `with` statement; outside of the main thread it does nothing.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Handler] = {}
        self._noted: list[int] = []

    def __enter__(self) -> SignalsPutOff:
        if threading.current_thread() is not threading.main_thread():
            return self
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
        self.listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if kind is None or issubclass(kind, Exception):  # an error must not swallow what the process was told
            self.handle()

    def listen(self) -> None:
        """Note signals from now on: called again where a library has set handlers of its own."""
        for number in self._handlers:
            signal.signal(number, self._note)

    @property
    def noted(self) -> list[str]:
        """The names of the signals that came and were not handled yet."""
        return [signal.Signals(number).name for number in self._noted]

    def handle(self) -> None:
        """Do what the noted signals ask for: most often an exception is raised here."""
        while self._noted:
            number = self._noted.pop(0)
            self._handlers[number](number, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number in self._noted:
            self._noted.remove(number)
            self._handlers[number](number, frame)
        else:
            self._noted.append(number)
