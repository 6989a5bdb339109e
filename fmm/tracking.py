"""Where the numbers of a run are shown while it runs: W&B, CSV files, or nowhere. The record never depends on it."""

from __future__ import annotations

import csv
import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from omegaconf import DictConfig, OmegaConf

from fmm import wandb_start
from fmm.errors import FmmError, first_line, unknown

Row = Mapping[str, Any]
RATIO = "masking_ratio"
_said: set[str] = set()


class Tracker:
    """Shows nothing; the others show the same things in their own way. Use it in a `with` statement.

    An exception inside the `with` marks the run as failed.
    """

    def __init__(self, cfg: DictConfig, directory: Path) -> None:
        self.cfg, self.directory = cfg, directory

    def lightning_logger(self) -> Any:
        """Return the logger for Lightning's Trainer, or None."""
        return None

    def epochs(self, rows: Sequence[Row]) -> None:
        """Show the rows of all epochs so far, where Lightning's logger does not."""

    def curve(self, name: str, rows: Sequence[Row]) -> None:
        """Show rows of numbers against their `masking_ratio`."""

    def summary(self, values: Row) -> None:
        """Show the final values of a run, such as ACU and RACU; None is left out."""

    def finish(self, exit_code: int = 0) -> None:
        """Close the run."""

    def __enter__(self) -> Tracker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish(exit_code=0 if kind is None else 1)


class CsvTracker(Tracker):
    """CSV files in the run's directory, under `logs/`: metrics by step, and a file for each curve."""

    @property
    def folder(self) -> Path:
        """Return the folder of the files, made if need be."""
        folder = self.directory / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def epochs(self, rows: Sequence[Row]) -> None:
        """Write `metrics.csv`, whole after every epoch: Lightning's own would forget those before an interruption."""
        self.curve("metrics", rows)

    def curve(self, name: str, rows: Sequence[Row]) -> None:
        """Write `<name>.csv`."""
        rows = [_plain(row) for row in rows]
        columns = list(dict.fromkeys(column for row in rows for column in row))
        path = self.folder / f"{name.replace('/', '_')}.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)

    def summary(self, values: Row) -> None:
        """Write `summary.json`."""
        text = json.dumps(_plain(values), indent=2)
        (self.folder / "summary.json").write_text(f"{text}\n", encoding="utf-8")


class WandbTracker(Tracker):
    """One W&B run for one run of ours. Its group is the sweep, its job type the task."""

    def __init__(self, cfg: DictConfig, directory: Path) -> None:
        super().__init__(cfg, directory)
        wandb = wandb_start.package()
        mode, reason = wandb_start.wandb_mode(str(cfg.logger.mode))
        if reason:
            runs = f"{directory.parents[2]}/*/*/*/wandb/offline-run-*"  # said once for all runs of this process
            _say_once(f"W&B works offline ({reason}); `wandb sync {runs}` uploads its runs later")
        directory.mkdir(parents=True, exist_ok=True)
        self._id_file = directory / "wandb_run_id.txt"
        try:
            with wandb_start.unattended():
                self.run = wandb.init(
                    project=cfg.logger.project,
                    entity=cfg.logger.entity,
                    dir=str(directory),
                    id=self._run_id(),
                    name=directory.name,
                    group=_sweep(),
                    job_type=directory.parent.parent.name,
                    tags=list(cfg.logger.tags),
                    config=OmegaConf.to_container(cfg, resolve=True),
                    mode=mode,
                    resume="allow" if mode == "online" else None,
                    reinit="finish_previous",
                    settings=wandb.Settings(silent=True, console="off"),
                )
        except wandb.Error as error:
            raise FmmError(
                f"W&B does not start in mode {mode!r} ({first_line(error)}); give logger.mode=offline, or logger=csv"
            ) from error
        self.run.define_metric("trainer/global_step", hidden=True)
        for metrics in ("train_*", "val_*", "epoch"):
            self.run.define_metric(metrics, step_metric="trainer/global_step")

    def _run_id(self) -> str:
        """Return the id of an interrupted run, so that it goes on as the same W&B run, or a new one."""
        if not self._id_file.exists():
            self._id_file.write_text(secrets.token_hex(4), encoding="utf-8")
        return self._id_file.read_text(encoding="utf-8").strip()

    def lightning_logger(self) -> Any:
        """Return Lightning's W&B logger, on this run."""
        from pytorch_lightning.loggers import WandbLogger

        return WandbLogger(experiment=self.run, save_dir=str(self.directory), project=self.cfg.logger.project)

    def curve(self, name: str, rows: Sequence[Row]) -> None:
        """Log every number of the rows against the masking ratio, and them all as a table with a line plot each."""
        import wandb

        self.run.define_metric(RATIO, hidden=True)
        self.run.define_metric(f"{name}/*", step_metric=RATIO)
        rows = [_plain(row) for row in rows]
        columns = list(dict.fromkeys(column for row in rows for column in row))
        for row in rows:
            self.run.log({RATIO: row[RATIO]} | {f"{name}/{key}": row[key] for key in row if key != RATIO})
        table = wandb.Table(columns=list(columns), data=[[row.get(column) for column in columns] for row in rows])
        plots = {
            f"{name}_plot/{column}": wandb.plot.line(table, RATIO, column, title=f"{name}: {column}")
            for column in columns
            if column != RATIO and all(isinstance(row.get(column), float) for row in rows)
        }
        self.run.log({f"{name}_table": table, **plots})

    def summary(self, values: Row) -> None:
        """Set the summary of the W&B run."""
        self.run.summary.update(_plain(values))

    def finish(self, exit_code: int = 0) -> None:
        """Finish the W&B run; only a run that went well forgets its id."""
        self.run.finish(exit_code=exit_code)
        if exit_code == 0:
            self._id_file.unlink(missing_ok=True)


TRACKERS: dict[str, type[Tracker]] = {"none": Tracker, "csv": CsvTracker, "wandb": WandbTracker}


def check(cfg: DictConfig) -> None:
    """Refuse a logger that is unknown, not installed or in no mode of its own, before any work. Raises FmmError."""
    name = str(cfg.logger.name)
    if name not in TRACKERS:
        raise unknown("logger", name, TRACKERS)
    if name == "wandb":
        wandb_start.check_mode(str(cfg.logger.mode))
        wandb_start.package()


def tracker(cfg: DictConfig, run_directory: Path | str) -> Tracker:
    """Return the tracker of `cfg.logger.name` for a run with this directory, `<output>/<task>/<dataset>/<run>`."""
    check(cfg)
    return TRACKERS[str(cfg.logger.name)](cfg, Path(run_directory))


def _sweep() -> str | None:
    from fmm.sweep import sweep_name

    return sweep_name()


def _say_once(sentence: str) -> None:
    kind = sentence.split("(")[0]
    if kind not in _said:
        _said.add(kind)
        print(sentence, flush=True)


def _plain(values: Row) -> dict[str, Any]:
    """Return values as Python's own kinds, without None; tensors and NumPy numbers are converted."""
    return {
        key: value.item() if hasattr(value, "item") else value for key, value in values.items() if value is not None
    }
