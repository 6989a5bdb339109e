"""The command line: a helpful page, checks that speak in sentences, then Hydra and one task.

Nothing heavy is imported before the settings are known to be right.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from fmm import interruption, output, pages, team
from fmm.errors import FmmError, of_disk


def main(conf: Path, argv: Sequence[str] | None = None) -> int:
    """Run a command line, in one process whatever a launcher has started. Returns the exit status, as `single`."""
    try:
        here = team.place()
        return team.command(here, lambda: single(conf, argv)) if here.launched else single(conf, argv)
    except FmmError as error:  # of the launcher's settings
        return report(error)


def single(conf: Path, argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: this process's) with the configuration folder `conf`.

    Returns the exit status: 0, 1 for a mistake or a failed job, 130 for Ctrl-C, 143 for SIGTERM.
    A mistake is printed as one sentence; FMM_DEBUG=1 adds the traceback. A reader that goes away (`| head`) ends
    nothing: the rest is not printed, the work is done, and the status is that of the work.
    """
    with output.unbroken():
        return _guarded(conf, list(sys.argv[1:] if argv is None else argv))


def _guarded(conf: Path, arguments: list[str]) -> int:
    try:
        with interruption.terminations():
            return _run(conf, arguments)
    except FmmError as error:
        return report(error)
    except OSError as error:
        if (sentence := of_disk(error)) is None:
            raise
        return report(sentence)
    except KeyboardInterrupt as error:
        print(f"\n{interruption.said(error)}", file=sys.stderr)
        return interruption.exit_status(error)


def _run(conf: Path, arguments: list[str]) -> int:
    if any(argument in ("-h", "--help") for argument in arguments):
        print(pages.page(conf))
        return 0
    if (odd := next((word for word in arguments if not _is_text(word)), None)) is not None:
        raise FmmError(f"{odd!a} holds bytes that are no UTF-8 text; give it in UTF-8")
    import hydra

    from fmm import flags, grid, overrides, places, sweep

    if "--version" in arguments:
        print(f"Hydra {hydra.__version__}")
        return 0
    line = flags.read(conf, arguments)
    if line.help:
        print(pages.page(conf))
        return 0
    settings = [overrides.quote(setting) for setting in line.settings]
    with sweep.hydras_errors(settings):
        if line.runs:
            parsed = overrides.parse(settings)
            chosen = overrides.with_searchpath(line.conf, parsed)
            if line.multirun or any(setting.lstrip("+") == "hydra.mode=MULTIRUN" for setting in settings):
                grid.check_sweep(chosen, parsed)
                if not places.named_sweep(chosen, parsed):
                    settings.append(f"{sweep.SWEEP_KEY}={sweep.new_directory(Path('multirun'))}")
            else:
                overrides.check_single(chosen, parsed)
        return sweep.hydra_main(conf, [*line.words, *settings])


def _is_text(word: str) -> bool:
    """Whether a word could be decoded: what could not stands in it as half surrogates, which no file takes."""
    return not any("\ud800" <= character <= "\udfff" for character in word)


def report(error: FmmError) -> int:
    """Print the sentence of a mistake, with the traceback at FMM_DEBUG=1; return the exit status."""
    if os.environ.get("FMM_DEBUG") == "1":
        traceback.print_exception(error)
    print(f"error: {error}", file=sys.stderr)
    return 1
