"""Starting W&B: the package, its mode, and no questions at a terminal."""

from __future__ import annotations

import contextlib
import netrc
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fmm.errors import FmmError, first_line, unknown
from fmm.schema import LOGGER_MODES

MODES = tuple(mode for mode in LOGGER_MODES if mode != "auto")  # W&B's own


def check_mode(wanted: str) -> None:
    """Refuse a mode that W&B does not know, from the environment or the settings. Raises FmmError."""
    environment = os.environ.get("WANDB_MODE")
    if environment and environment not in MODES:
        raise unknown("value of the environment variable WANDB_MODE", environment, MODES)
    if wanted not in ("auto", *MODES):
        raise unknown("logger.mode", wanted, ("auto", *MODES))


def wandb_mode(wanted: str) -> tuple[str, str | None]:
    """Return W&B's mode and, where `auto` means offline, the reason."""
    if os.environ.get("WANDB_MODE"):
        return os.environ["WANDB_MODE"], None
    if wanted != "auto":
        return wanted, None
    url = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai"))
    host = url.hostname or ""
    if not os.environ.get("WANDB_API_KEY") and not _logged_in(host):
        return "offline", "no API key; `wandb login` stores one"
    try:
        socket.create_connection((host, url.port or 443), timeout=3).close()
    except OSError:
        return "offline", f"{host} cannot be reached"
    return "online", None


def package() -> Any:
    """The package, which is wanted by `logger=wandb` alone."""
    try:
        import wandb
    except ImportError as error:
        raise FmmError(
            f"logger=wandb cannot load the package wandb ({first_line(error)}); pip install wandb, or give logger=csv"
        ) from error
    return wandb


@contextlib.contextmanager
def unattended() -> Iterator[None]:
    """Standard input without a terminal: W&B asks for a missing key at one, and a job of a night waits for ever."""
    before = sys.stdin
    with open(os.devnull, encoding="utf-8") as nothing:
        sys.stdin = nothing
        try:
            yield
        finally:
            sys.stdin = before


def _logged_in(host: str) -> bool:
    """Return whether `wandb login` has been used for this host; it leaves an entry in the netrc file."""
    path = Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
    try:
        return host in netrc.netrc(path).hosts
    except (OSError, netrc.NetrcParseError):
        return False
