"""The page of `--help`: tasks, groups with their choices, and keys with the values that they are declared to take."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from fmm.schema import SETTINGS, declared

EXAMPLES = """\
  python run.py task=train dataset=toy                       a masked model in a minute, offline
  python run.py task=racu dataset=toy measure=grad_l2        how faithful is this measure for it?
  python run.py task=explain dataset=toy text="the plot was not great ."
  python run.py -m task=racu dataset=sst2 measure=grad_l2,loo_sign seed=0,1,2
  python run.py task=report output_dir=outputs               which measure to trust, as a page"""

COMMENT = 26  # the column of what stands beside a key
WIDTH = 118


def page(conf: Path) -> str:
    """The page of help for the configuration folder `conf`."""
    groups = {folder.name: sorted(folder.glob("*.yaml")) for folder in sorted(conf.iterdir()) if folder.is_dir()}
    groups.pop("hydra", None)
    tasks = "\n".join(f"  {path.stem:<10}{first_comment(path)}" for path in groups.pop("task", []))
    choices = "\n".join(choices_text(name, paths) for name, paths in groups.items())
    main = keys_text(conf / "config.yaml")
    main_keys = {key for key, _ in with_full_keys(main)}
    lines = [line for key, text in with_full_keys(main) for line in described(key, text)]
    keys = textwrap.indent("\n".join(lines), "  ")
    others = "\n".join(f"  {key:<32}{SETTINGS[key].words()}" for key in SETTINGS if key not in main_keys)
    return f"""\
Faithfulness measurable masked language models: which explanation of your classifier can be trusted?

Usage: python run.py task=<task> <group>=<choice> <key>=<value> ...
       python run.py -m <key>=<value>,<value> ...        one job per combination, under multirun/

Tasks
{tasks}

Groups and their choices (conf/<group>/<choice>.yaml)
{choices}

Keys, their defaults and what they take (conf/config.yaml; nested ones are written training.batch_size=32)
{keys}

Keys inside the groups' choices, and what they take (some with a plus sign, as not every choice has them)
{others}

Flags: -m one job per combination; --cfg job prints the settings instead of running; FMM_DEBUG=1 shows tracebacks.

Examples
{EXAMPLES}"""


def choices_text(group: str, paths: Sequence[Path]) -> str:
    """A group with the names of its choices, wrapped."""
    names = ", ".join(path.stem for path in paths)
    return textwrap.fill(names, 110, initial_indent=f"  {group:<12}", subsequent_indent=" " * 14)


def first_comment(path: Path) -> str:
    """The first comment of a YAML file that describes it, or nothing."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") and not line.startswith("# @package"):
            return line.lstrip("# ")
    return ""


def keys_text(path: Path) -> str:
    """The keys of the main configuration file with their comments, without its defaults and Hydra's part."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"(?m)^(defaults|hydra):\n(?:[ \t]+.*\n|\n(?=[ \t]))*", "", text)
    return re.sub(r"\A(#.*\n)+", "", text).strip()


def with_full_keys(text: str) -> Iterator[tuple[str, str]]:
    """Each line of a YAML text with the full key that it sets, "" for none."""
    section = ""
    for line in text.splitlines():
        match = re.match(r"( *)(\w+):", line)
        if match is None:
            yield "", line
        elif match[1]:
            yield f"{section}.{match[2]}", line
        else:
            section = match[2]
            yield section, line


def described(key: str, line: str) -> list[str]:
    """A line of YAML with what its key takes put before its comment, on two lines where one is too long."""
    setting = declared(key)
    if setting is None:
        return [line]
    body, _, comment = line.partition(" #")
    comment = comment.strip()
    words = setting.words()
    start = f"{body.rstrip():<{COMMENT - 2}}  # "
    if words in comment:
        return [f"{start}{comment}"]
    first = f"{start}{words}"
    if not comment:
        return [first]
    if len(first) + len(comment) + 2 <= WIDTH:
        return [f"{first}; {comment}"]
    return [first, f"{'':<{COMMENT}}# {comment}"]
