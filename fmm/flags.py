"""Hydra's flags, read by Hydra's own parser before Hydra runs; what it would not take becomes one sentence."""

from __future__ import annotations

import os
import pickle
from argparse import ArgumentError, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra._internal.utils import get_args_parser
from omegaconf import DictConfig

from fmm.conf import Conf
from fmm.errors import FmmError, first_line, unknown

SWITCHES = ("run", "multirun", "shell_completion", "hydra_help", "resolve")
VALUED = ("cfg", "info", "package", "config_path", "config_name", "config_dir", "experimental_rerun")
COMMANDS = ("run", "multirun", "cfg", "info", "shell_completion")  # at most one of them
NEAR = ("--multirun", "--help", "--cfg", "--config-dir")  # the flags that are offered for an unknown one
LIST = "`python run.py --hydra-help` lists the flags"


@dataclass(frozen=True)
class Flags:
    """A command line, taken apart.

    Attributes:
        words: the flags for Hydra, one word each. settings: the `key=value` words, in order.
        multirun: whether each combination of values is a job. help: whether the page of help is asked for.
        runs: whether a task runs on the settings; else Hydra prints something, or runs an old job's settings again.
        conf: the configuration folders.
    """

    words: tuple[str, ...]
    settings: tuple[str, ...]
    multirun: bool
    help: bool
    runs: bool
    conf: Conf


def read(folder: Path, arguments: Sequence[str]) -> Flags:
    """Take a command line apart; `folder` is the configuration. Raises `FmmError` for flags that do not fit."""
    args = _parsed(arguments)
    switches = [name for name in SWITCHES if getattr(args, name)]
    valued = [name for name in VALUED if getattr(args, name) is not None]
    empty = next((name for name in valued if not str(getattr(args, name)).strip()), None)
    if empty is not None:
        raise FmmError(f"{_flag(empty)} has no value; give one, or leave it out")
    _check_together(args, [*switches, *valued])
    conf = _conf(folder, args)
    words = [_flag(name) for name in switches] + [f"{_flag(name)}={getattr(args, name)}" for name in valued]
    printed = args.cfg or args.info or args.hydra_help or args.shell_completion or args.experimental_rerun
    return Flags(tuple(words), tuple(args.overrides), args.multirun, args.help, not printed, conf)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _parsed(arguments: Sequence[str]) -> Namespace:
    parser = get_args_parser()
    parser.exit_on_error = False
    parser.allow_abbrev = False
    try:
        args, rest = parser.parse_known_intermixed_args(list(arguments))
    except ArgumentError as error:
        raise FmmError(f"{str(error).removeprefix('argument ')}; {LIST}") from error
    if not rest:
        return args
    word = rest[0]
    if word.startswith("--") and "=" in word:
        raise FmmError(f"{word!r} starts with dashes; settings have none: {word.lstrip('-')}")
    raise unknown("flag", word, NEAR)


def _check_together(args: Namespace, given: Sequence[str]) -> None:
    commands = [_flag(name) for name in COMMANDS if name in given]
    if len(commands) > 1:
        raise FmmError(f"{' and '.join(commands)} exclude one another; give one of them")
    for name in ("resolve", "package"):
        if name in given and args.cfg is None:
            raise FmmError(f"{_flag(name)} says how --cfg prints; add --cfg job, or leave {_flag(name)} out")
    if args.shell_completion:
        _check_completion(args.overrides)
    if args.experimental_rerun is not None:
        others = [*args.overrides, *(_flag(name) for name in given if name != "experimental_rerun")]
        _check_rerun(Path(args.experimental_rerun), others)


def _check_completion(settings: Sequence[str]) -> None:
    ways = [f"{way}={shell}" for way in ("install", "uninstall", "query") for shell in ("bash", "fish", "zsh")]
    if len(settings) != 1 or settings[0] not in ways:
        raise FmmError(f"--shell-completion takes one of {', '.join(ways)}; it has {' '.join(settings) or 'none'}")
    if settings[0].startswith("query") and "COMP_LINE" not in os.environ:
        raise FmmError(f"--shell-completion {settings[0]} answers a shell, which sets COMP_LINE; it is not set")


def _check_rerun(path: Path, others: Sequence[str]) -> None:
    if others:
        raise FmmError(f"--experimental-rerun takes all settings from its file; leave {' '.join(others)} out")
    if not path.is_file():
        raise FmmError(f"--experimental-rerun={path} is no file; give the config.pickle that a job of Hydra left")
    try:
        settings = pickle.loads(path.read_bytes())
    except Exception as error:  # a pickle can raise anything
        raise FmmError(
            f"--experimental-rerun={path} is no pickled job ({first_line(error)}); give the config.pickle of one"
        ) from error
    if not isinstance(settings, DictConfig) or "hydra" not in settings:
        raise FmmError(f"--experimental-rerun={path} holds no job of Hydra; give the config.pickle of one")


def _conf(folder: Path, args: Namespace) -> Conf:
    """The configuration folders; a folder of one's own is found from here, not from where the program lies."""
    if args.config_path is not None:
        folder = Path(args.config_path).absolute()
        args.config_path = str(folder)
    more: list[Path] = []
    if args.config_dir is not None:
        more = [Path(args.config_dir).absolute()]
        if not more[0].is_dir():
            raise FmmError(f"--config-dir={args.config_dir} is no folder; give one with groups as in conf/")
    name = str(args.config_name or "config").removesuffix(".yaml")
    if not any((place / f"{name}.yaml").is_file() for place in (folder, *more)):
        raise FmmError(f"there is no {name}.yaml in {folder}, which would be the main configuration; give another")
    return Conf(folder, name, tuple(more))
