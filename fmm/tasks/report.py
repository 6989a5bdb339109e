"""`task=report`: which measure is faithful for these models, from records alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from fmm import records
from fmm.data.raw import SPLITS
from fmm.data.sources import sha256
from fmm.errors import FmmError
from fmm.records import Record
from fmm.report.load import Group, load
from fmm.report.settle import shell
from fmm.report.terminal import print_faithfulness
from fmm.report.verdict import Command
from fmm.report.write import Options, write


def _datasets(names: str | list[str] | None, chosen: str) -> list[str] | None:
    """The datasets of `report.datasets`: the chosen one for null; None for all."""
    if names == "all":
        return None
    if names is None:
        return [chosen]
    return [names] if isinstance(names, str) else names


def run(cfg: DictConfig) -> Record | None:
    """Read the finished curves, write the report, print its verdicts and where it is.

    Returns its record; None after `dry_run=true`.
    """
    asked = OmegaConf.to_container(cfg.report, resolve=True)
    assert isinstance(asked, dict)
    datasets = _datasets(asked["datasets"], str(cfg.dataset.name))
    options = Options(**{name: asked[name] for name in ("seeds", "margin", "tolerance", "resamples")})
    _check(options)
    own = [cfg.data[name] for name in ("path", *SPLITS) if cfg.data[name] is not None]
    files = [sha256(Path(str(path)).expanduser()) for path in own]
    groups, trained = load(cfg.output_dir, datasets, asked["where"], asked["allow"], files)
    job = _open(cfg, groups, trained, asked)
    if cfg.dry_run:
        work = "nothing to do" if job.done else f"{len(job.settings['curves'])} curves are read, no model is run"
        print(f"forecast: {work}; the page: {job.directory / 'report.html'}")
        return None
    with job.lock():
        if cfg.force:
            job.clear()
        record = job.record()
        record = record if record is not None else job.finish(write(job, groups, trained, options, _command(cfg)))
    for name, rows in record.results["tables"].items():
        if rows:
            print_faithfulness(name, rows)
    for verdict in record.results["verdicts"]:
        print(verdict["sentence"])
        for check in verdict["checks"]:
            print(f"  {check['status']:8} {check['question']} {check['detail']}")
        for step in verdict["next"]:
            print(f"  next     {step}")
    print(f"page: {record.directory / 'report.html'}")
    print(f"record: {record.directory / records.RECORD}")
    return record


def _command(cfg: DictConfig) -> Command | None:
    """How a pipeline says what to run on more rows: its own command line; None where the records say it."""
    if cfg.task.name != "pipeline" or not HydraConfig.initialized():
        return None
    given = [o for o in HydraConfig.get().overrides.task if not o.startswith(("data.max_test_rows=", "seed="))]

    def command(group: Group, rows: int) -> str:
        return shell(["python", "run.py", *given, f"seed={cfg.seed}", f"data.max_test_rows={rows}"])

    return command


def _check(options: Options) -> None:
    if not 100 <= options.resamples <= 100_000:
        raise FmmError(f"report.resamples={options.resamples} is outside 100 to 100000; 2000 is enough for two digits")
    for name in ("margin", "tolerance"):
        if not 0 <= getattr(options, name) < 1:
            raise FmmError(
                f"report.{name}={getattr(options, name)} is not a share; give a number from 0 up to 1, such as 0.02"
            )


def _open(cfg: DictConfig, groups: list[Group], trained: list[Record], asked: dict) -> records.Run:
    """The report's run, named by the curves and models that it is made from."""
    curves = sorted({run.key for group in groups for found in group.runs.values() for run in found.values()})
    names = sorted({group.dataset for group in groups})
    settings: dict[str, Any] = {"curves": curves, "models": sorted(record.key for record in trained), "report": asked}
    settings |= {"form": 2, "versions": {"fmm": records.versions().get("fmm")}}
    return records.open_run(cfg.output_dir, "report", names[0] if len(names) == 1 else "several", "report", settings)
