"""Output that nobody reads, that has no place, or that the terminal cannot show ends no work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import CONF, REPOSITORY

# A task that prints much, in letters beyond ASCII, and leaves a file at its end.
PROGRAM = f"""
import logging, sys
from pathlib import Path
import fmm.tasks
from fmm.cli import main

def run_task(cfg):
    for number in range(3000):
        print("número", number, "of much", cfg.seed, "…")
        logging.getLogger("fmm").info("logged %s", number)
        sys.stderr.write("aside ×\\n")
    Path(f"done_{{cfg.seed}}").touch()

fmm.tasks.run_task = run_task
sys.exit(main(Path({str(CONF)!r})))
"""


def shell(folder: Path, command: str, **environment: str) -> tuple[str, str]:
    """What a shell command with $PROGRAM in it prints in an empty folder; `status` is that of the program."""
    (folder / "program.py").write_text(PROGRAM)
    python = f"{sys.executable} {folder / 'program.py'}"
    variables = os.environ | {"PYTHONPATH": str(REPOSITORY), "PROGRAM": python} | environment
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=variables, capture_output=True, text=True, timeout=60
    )
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    "command, lines",
    [
        ("$PROGRAM --help | head -1; echo ${PIPESTATUS[0]}", 1),
        ("$PROGRAM seed=3 2>/dev/null | head -2; echo ${PIPESTATUS[0]}", 2),
        ("$PROGRAM seed=3 2>&1 | head -2; echo ${PIPESTATUS[0]}", 2),
        ("$PROGRAM -m seed=3 2>&1 | head -2; echo ${PIPESTATUS[0]}", 2),
        ("$PROGRAM seed=3 2>&1 >/dev/null | head -1; echo ${PIPESTATUS[0]}", 1),
        ("$PROGRAM seed=3 2>/dev/null | true; echo ${PIPESTATUS[0]}", 0),
        ("PYTHONUNBUFFERED=1 $PROGRAM seed=3 2>/dev/null | head -1; echo ${PIPESTATUS[0]}", 1),
        ("$PROGRAM seed=3 >&- 2>/dev/null; echo $?", 0),
        ("$PROGRAM seed=3 >&- 2>&- ; echo $?", 0),
    ],
)
def test_a_reader_that_goes_away_ends_nothing(tmp_path, command, lines):
    out, err = shell(tmp_path, command)
    *shown, status = out.splitlines()
    assert (err, status, len(shown)) == ("", "0", lines)
    assert "Traceback" not in out and "Error" not in out
    assert (tmp_path / "done_3").exists() or "--help" in command


def test_an_output_on_a_full_disk_is_said_and_the_work_is_done(tmp_path):
    out, err = shell(tmp_path, "$PROGRAM seed=3 2>err >/dev/full; echo $?; grep -v aside err")
    assert out.splitlines() == [
        "0",
        "warning: what is printed from here on is lost (No space left on device); the work goes on",
    ]
    assert err == "" and (tmp_path / "done_3").exists()


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    ],
)
def test_letters_that_the_terminal_lacks_are_escaped(tmp_path, environment):
    out, _ = shell(tmp_path, "$PROGRAM -m seed=3 2>/dev/null; echo $?", **environment)
    assert out.splitlines()[-1] == "0" and "\\u2026" in out and (tmp_path / "done_3").exists()
    log = next(tmp_path.rglob("job.log")).read_text(encoding="utf-8")
    assert "número 2999 of much 3 …" in log


def test_a_mistake_is_told_although_nobody_reads_the_output(tmp_path):
    out, err = shell(tmp_path, "$PROGRAM seeed=3 | true; echo ${PIPESTATUS[0]}")
    assert out == "1\n" and err.startswith("error: unknown key") and err.count("\n") == 1
