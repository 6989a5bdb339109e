"""Runs and sweeps: Hydra in, one task out. A sweep's jobs leave their log, their settings and, if they fail, a mark."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fmm import interruption, output
from fmm.errors import FmmError, first_line, of_disk
from fmm.settings import settled

SWEEP_KEY = "hydra.sweep.dir"
FAILED, WAITING = "FAILED", "WAITING"  # the marks of a job that is not done, with the reason in a line
REQUEUED = "put back into the queue; it goes on when the scheduler starts it again"
PLUGINS = str(Path(__file__).parent / "plugins")  # Hydra finds plugins in the namespace `hydra_plugins` only
log = logging.getLogger(__name__)


def hydra_main(conf: Path, arguments: Sequence[str]) -> int:
    """Let Hydra run the command line; return the exit status. Nothing of it is left in this process."""
    if PLUGINS not in sys.path:
        sys.path.append(PLUGINS)
    from hydra_plugins.fmm_sweeper import Sweeper

    Plugins.instance().register(Sweeper)
    before, configured = sys.argv, HydraConfig.instance().cfg
    sys.argv = [before[0], *arguments]
    try:
        hydra.main(version_base="1.3", config_path=str(conf), config_name="config")(run_job)()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    finally:
        sys.argv = before
        HydraConfig.instance().cfg = configured  # a later run in this process is none of this sweep's jobs
    return 0


@contextlib.contextmanager
def hydras_errors(settings: Sequence[str]) -> Iterator[None]:
    """Make one sentence of what Hydra itself stops at, with the settings of Hydra's; a task's errors end elsewhere."""
    mine = [setting for setting in settings if setting.lstrip("+~").startswith("hydra")]
    key = "HYDRA_FULL_ERROR"  # without it Hydra prints its errors and exits by itself
    before = os.environ.get(key)
    os.environ[key] = "1"
    try:
        yield
    except FmmError:
        raise
    except Exception as error:
        if of_disk(error) or not (mine or isinstance(error, HydraException | OmegaConfBaseException)):
            raise
        cause = error.__cause__ or error
        said = f"{type(cause).__name__}: {first_line(cause)}"
        raise FmmError(f"Hydra stops at {' '.join(mine) or 'these settings'} ({said}); mend or leave it out") from error
    finally:
        os.environ.pop(key)
        if before is not None:
            os.environ[key] = before


def run_job(cfg: DictConfig) -> None:
    """Run the task of a configuration: alone, or as a job of a sweep in its own directory."""
    from fmm.cli import report
    from fmm.tasks import run_task

    settings = HydraConfig.get()
    if settings.mode == RunMode.MULTIRUN:
        job = job_directory(Path(settings.runtime.output_dir), list(settings.overrides.task), cfg)
        with output.unbroken(), job:  # a parallel launcher's process has streams of its own
            run_task(settled(cfg))
        return
    try:
        run_task(settled(cfg))
    except FmmError as error:
        raise SystemExit(report(error)) from error
    except Exception as error:
        if (sentence := of_disk(error, cfg.output_dir)) is not None:
            raise SystemExit(report(sentence)) from error
        traceback.print_exc()
        raise SystemExit(1) from error


def new_directory(parent: Path) -> Path:
    """Create and return a directory that no other process has: the time and four random letters."""
    while True:
        path = parent / f"{time.strftime('%Y-%m-%d_%H-%M-%S')}_{secrets.token_hex(2)}"
        with contextlib.suppress(FileExistsError):
            path.mkdir(parents=True)
            return path


def sweep_name() -> str | None:
    """Return the name of the sweep this job belongs to, the same for all its jobs; None outside of sweeps."""
    if not HydraConfig.initialized() or HydraConfig.get().mode != RunMode.MULTIRUN:
        return None
    return Path(HydraConfig.get().sweep.dir).name


class Tee:
    """A text stream that also writes to a second one."""

    def __init__(self, stream: TextIO, copy: TextIO) -> None:
        self.stream, self.copy = stream, copy

    def write(self, text: str) -> int:
        """Write to both streams."""
        self.copy.write(text)
        return self.stream.write(text)

    def flush(self) -> None:
        """Flush both streams."""
        self.copy.flush()
        self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextlib.contextmanager
def job_directory(directory: Path, arguments: Sequence[str], cfg: DictConfig) -> Iterator[None]:
    """Keep what a job prints and logs in `directory`/job.log; an exception leaves its traceback there and FAILED.

    A job that its launcher puts back into the queue leaves WAITING, and the launcher's SystemExit passes.
    """
    directory.mkdir(parents=True, exist_ok=True)
    # Written first and removed at the end, so that a killed job is not taken for a done one.
    mark_failed(directory, FmmError("it did not finish: it still runs, or was killed"))
    (directory / WAITING).unlink(missing_ok=True)
    (directory / "overrides.txt").write_text("".join(f"{argument}\n" for argument in arguments), encoding="utf-8")
    (directory / "config.yaml").write_text(OmegaConf.to_yaml(cfg), encoding="utf-8")
    with (directory / "job.log").open(
        "a", encoding="utf-8", errors="backslashreplace", buffering=1
    ) as file:  # a requeued job keeps its log
        file.write(f"== started {time.strftime('%Y-%m-%d %H:%M:%S')}\n")
        handler = logging.StreamHandler(file)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logging.getLogger().addHandler(handler)
        try:
            with contextlib.redirect_stdout(Tee(sys.stdout, file)), contextlib.redirect_stderr(Tee(sys.stderr, file)):
                yield
            (directory / FAILED).unlink()
        except BaseException as error:
            if _requeued(error):
                file.write(f"{REQUEUED}\n")
                (directory / WAITING).write_text(f"{REQUEUED}\n", encoding="utf-8")
                (directory / FAILED).unlink()
                raise
            traceback.print_exception(error, file=file)
            shown = of_disk(error, cfg.get("output_dir")) or error
            mark_failed(directory, shown)
            log.error("job %s failed: %s", directory.name, why(shown))
            if isinstance(error, SystemExit):  # must not end the sweep
                raise RuntimeError(f"the job exited with {error.code}") from error
            raise
        finally:
            logging.getLogger().removeHandler(handler)


def _requeued(error: BaseException) -> bool:
    """Whether this is how submitit leaves a job that it has put back into the queue."""
    return isinstance(error, SystemExit) and "SUBMITIT_EXECUTOR" in os.environ


def mark_failed(directory: Path, error: BaseException) -> None:
    """Write the mark of a failed job: one line that says why."""
    (directory / FAILED).write_text(f"{why(error)}\n", encoding="utf-8")


def why(error: BaseException) -> str:
    """Return in one line what an error says."""
    if isinstance(error, KeyboardInterrupt):
        return interruption.said(error)
    if isinstance(error, FmmError):
        return str(error)
    reason = f"{type(error).__name__}: {first_line(error)}"
    # submitit's own: the time is up, and may not be given again
    return f"{reason}: the same command continues" if type(error).__module__.startswith("submitit.") else reason


def _undone(directory: Path) -> tuple[str, str] | None:
    """The state of a job that is not done, and why; None for one that is done."""
    for name, state in ((FAILED, "FAILED"), (WAITING, "waiting")):
        if (directory / name).exists():
            return state, (directory / name).read_text(encoding="utf-8").strip()
    if not (directory / "job.log").exists():
        return "FAILED", "it never started"
    return None


def summarise(directory: Path, jobs: Sequence[Sequence[str]], places: Sequence[Path]) -> int:
    """Print what became of every job of a sweep, leave it as summary.txt, and return how many are not done.

    `directory` is that of the sweep, `places` holds each job's.
    """
    lines = []
    for number, (job, place) in enumerate(zip(jobs, places, strict=True)):
        undone = _undone(place)
        if undone is not None:
            state, reason = undone
            lines.append(f"  {number}  {state}  {' '.join(job)}\n     {reason}")
    done = f"{len(jobs) - len(lines)} of {len(jobs)} jobs done in {directory}"
    text = "\n".join([done, *lines])
    (directory / "summary.txt").write_text(text + "\n", encoding="utf-8")
    log.info(text)
    return len(lines)
