"""What all tests share: no network, few threads, and ways to compose settings and to run the command line."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from omegaconf import DictConfig

# Before anything imports torch, transformers or wandb.
os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MPLBACKEND": "Agg",
}
for name in ("FMM_DEBUG", "HYDRA_FULL_ERROR", "LOCAL_RANK"):
    os.environ.pop(name, None)

REPOSITORY = Path(__file__).resolve().parent.parent
CONF = REPOSITORY / "conf"


@pytest.fixture(autouse=True)
def levels_of_logging() -> Iterator[None]:
    """What is logged does not hang on the tests before: Hydra sets the root's level, and a handler may set ours."""
    before = {logger: logger.level for logger in _loggers()}
    yield
    for logger in _loggers():
        logger.setLevel(before.get(logger, logging.NOTSET))


def _loggers() -> list[logging.Logger]:
    known = logging.Logger.manager.loggerDict
    ours = [known[name] for name in known if name == "fmm" or name.startswith("fmm.")]
    return [logging.getLogger(), *(logger for logger in ours if isinstance(logger, logging.Logger))]


@dataclass
class Finished:
    """A command line that has ended."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def conf() -> Path:
    """The folder of the configuration."""
    return CONF


@pytest.fixture(scope="session")
def compose() -> Callable[..., DictConfig]:
    """`compose("task=racu", "seed=1")` returns the settings that the command line would give."""

    def _compose(*overrides: str) -> DictConfig:
        with initialize_config_dir(str(CONF), version_base="1.3", job_name="run"):
            return hydra_compose("config", list(overrides))

    return _compose


def save_tiny_model(folder: Path, texts: Sequence[str], max_length: int) -> Path:
    """Save a random two-layer encoder of two labels with a tokenizer trained on `texts`. Returns `folder`."""
    import torch
    from omegaconf import OmegaConf

    from fmm.models import tiny

    config = OmegaConf.to_container(OmegaConf.load(CONF / "model" / "tiny.yaml")) | {"max_length": max_length}
    tokenizer = tiny.train_tokenizer(texts, vocab_size=300, max_length=max_length)
    torch.manual_seed(3)
    tiny.build_model(config, ["negative", "positive"], len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def run_cli(tmp_path: Path) -> Callable[..., Finished]:
    """`run_cli("task=train", ...)` runs `python run.py` in an empty folder. It costs seconds: use it sparingly."""

    def _run(*arguments: str, timeout: float = 300, cwd: Path = tmp_path, **environment: str) -> Finished:
        done = subprocess.run(
            [sys.executable, str(REPOSITORY / "run.py"), *arguments],
            cwd=cwd,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    return _run


@pytest.fixture
def cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[[Sequence[str]], Finished]]:
    """`cli(["seed=1"])` runs the command line in this process, in an empty folder. Hydra's logging is undone."""
    from fmm.cli import main

    monkeypatch.chdir(tmp_path)
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)

    def _run(arguments: Sequence[str]) -> Finished:
        code = main(CONF, arguments)
        captured = capsys.readouterr()
        return Finished(code, captured.out, captured.err)

    yield _run
    root.setLevel(level)
    root.handlers[:] = handlers
