"""The command line: a helpful page, checks that speak in sentences, then Hydra and one task.

Nothing heavy is imported before the settings are known to be right.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
import traceback
from collections.abc import Sequence
from pathlib import Path

from fmm import team
from fmm.errors import FmmError, of_disk, unknown

EXAMPLES = """\
  python run.py task=train dataset=toy                       a masked model in a minute, offline
  python run.py task=racu dataset=toy measure=grad_l2        how faithful is this measure for it?
  python run.py task=explain dataset=toy text="the plot was not great ."
  python run.py -m task=racu dataset=sst2 measure=grad_l2,loo_sign seed=0,1,2
  python run.py task=report output_dir=outputs               which measure to trust, as a page"""

FLAGS = (
    "--cfg",
    "--info",
    "--config-dir",
    "--config-name",
    "--config-path",
    "--package",
    "--resolve",
    "--run",
    "--multirun",
)
VALUED = ("--cfg", "-c", "--config-dir", "-cd", "--config-name", "-cn", "--config-path", "-cp", "--package", "-p")
PASSED_ON = ("--hydra-help", "--version", "--shell-completion", "-sc", "--experimental-rerun", "--info", "-i")


def main(conf: Path, argv: Sequence[str] | None = None) -> int:
    """Run a command line, in one process whatever a launcher has started. Returns the exit status, as `single`."""
    try:
        here = team.place()
        return team.command(here, lambda: single(conf, argv)) if here.launched else single(conf, argv)
    except FmmError as error:  # of the launcher's settings
        return report(error)


def single(conf: Path, argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: this process's) with the configuration folder `conf`.

    Returns the exit status: 0, 1 for a mistake or a failed job, 130 for an interruption.
    A mistake is printed as one sentence; FMM_DEBUG=1 adds the traceback.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if any(argument in ("-h", "--help") for argument in arguments):
        print(help_page(conf))
        return 0
    try:
        return _run(conf, arguments)
    except FmmError as error:
        return report(error)
    except OSError as error:
        if (sentence := of_disk(error)) is None:
            raise
        return report(sentence)
    except KeyboardInterrupt:
        print("\ninterrupted: the same command continues", file=sys.stderr)
        return 130


def _run(conf: Path, arguments: list[str]) -> int:
    from fmm import grid, overrides, sweep
    from fmm.conf import Conf

    flags, settings = split_flags(arguments)
    settings = [overrides.quote(setting) for setting in settings]
    chosen = Conf(conf)
    if not any(flag.split("=")[0] in PASSED_ON for flag in flags):
        parsed = overrides.parse(settings)
        if is_multirun(flags, settings):
            grid.check_sweep(chosen, parsed)
            settings = sweep.with_directory(settings)
        else:
            overrides.check_single(chosen, parsed)
    return sweep.hydra_main(conf, [*flags, *settings])


def is_multirun(flags: Sequence[str], settings: Sequence[str]) -> bool:
    """Return whether the command line asks for one job per combination of values."""
    return "-m" in flags or "--multirun" in flags or "hydra.mode=MULTIRUN" in settings


def split_flags(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line into Hydra's flags (with their values) and the `key=value` settings."""
    flags: list[str] = []
    settings: list[str] = []
    words = iter(arguments)
    for word in words:
        if not word.startswith("-"):
            settings.append(word)
            continue
        name = word.split("=")[0]
        if name.startswith("--") and name not in (*FLAGS, *PASSED_ON):
            options = ("--multirun", "--help", "--cfg", "--config-dir")
            if "=" in word:
                raise FmmError(f"{word!r} starts with dashes; settings have none: {word.lstrip('-')}")
            raise unknown("flag", name, options)
        flags.append(word)
        if name in VALUED and "=" not in word:
            flags.append(next(words, ""))
    return flags, settings


def report(error: FmmError) -> int:
    """Print the sentence of a mistake, with the traceback at FMM_DEBUG=1; return the exit status."""
    if os.environ.get("FMM_DEBUG") == "1":
        traceback.print_exception(error)
    print(f"error: {error}", file=sys.stderr)
    return 1


def help_page(conf: Path) -> str:
    """Return the page of `--help`: tasks, groups with their choices, keys, flags and examples."""
    groups = {folder.name: sorted(folder.glob("*.yaml")) for folder in sorted(conf.iterdir()) if folder.is_dir()}
    groups.pop("hydra", None)
    tasks = "\n".join(f"  {path.stem:<10}{first_comment(path)}" for path in groups.pop("task", []))
    choices = "\n".join(
        textwrap.fill(
            ", ".join(path.stem for path in paths), 110, initial_indent=f"  {name:<12}", subsequent_indent=" " * 14
        )
        for name, paths in groups.items()
    )
    keys = textwrap.indent(keys_text(conf / "config.yaml"), "  ")
    return f"""\
Faithfulness measurable masked language models: which explanation of your classifier can be trusted?

Usage: python run.py task=<task> <group>=<choice> <key>=<value> ...
       python run.py -m <key>=<value>,<value> ...        one job per combination, under multirun/

Tasks
{tasks}

Groups and their choices (conf/<group>/<choice>.yaml)
{choices}

Keys and their defaults (conf/config.yaml; nested ones are written training.batch_size=32)
{keys}

Flags: -m one job per combination; --cfg job prints the settings instead of running; FMM_DEBUG=1 shows tracebacks.

Examples
{EXAMPLES}"""


def first_comment(path: Path) -> str:
    """Return the first comment of a YAML file that describes it, or nothing."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") and not line.startswith("# @package"):
            return line.lstrip("# ")
    return ""


def keys_text(path: Path) -> str:
    """Return the keys of the main configuration file with their comments, without its defaults and Hydra's part."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"(?m)^(defaults|hydra):\n(?:[ \t]+.*\n|\n(?=[ \t]))*", "", text)
    return re.sub(r"\A(#.*\n)+", "", text).strip()
