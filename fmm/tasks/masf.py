"""`task=masf`: is masked text in-distribution for the trained model? Fit once, then p-values along the curves."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig

from fmm import records
from fmm.errors import FmmError
from fmm.records import Record
from fmm.tasks import racu
from fmm.tasks.common import container, quiet_transformers
from fmm.tasks.racu import BASELINE
from fmm.tracking import tracker

LEVEL = "0.05"


def run(cfg: DictConfig) -> Record | None:
    """MaSF of `rand` and the configured measures at every ratio, from the curves' own passes. Returns the record."""
    quiet_transformers()
    if cfg.masf == "none":
        raise FmmError("task=masf with masf=none does nothing; give masf=authors or masf=calibrated")
    subject = racu.check(cfg)
    if cfg.dry_run:
        print(racu.forecast(cfg, subject))
        return None
    names = [measure.name for measure in racu.measures(cfg)]
    curves = {curve.settings["measure"]["name"]: curve for curve in racu.curves(cfg, subject, with_baseline=True)}
    settings = {
        "model": subject.model_settings(),
        "dataset": cfg.dataset.name,
        "curves": {name: curve.key for name, curve in sorted(curves.items())},
        "ratios": container(cfg.ratios),
        "masf": cfg.masf,
        "seed": cfg.seed,
    }
    readable = f"{'-'.join(names)}-{subject.strategy or 'checkpoint'}-s{cfg.seed}"
    job = records.open_run(cfg.output_dir, "masf", cfg.dataset.name, readable, settings)
    with job.lock():
        if cfg.force:
            job.clear()
        record = job.record()
        if record is None:
            found = {name: curve.results["masf"] for name, curve in curves.items()}
            with tracker(cfg, job.directory) as track:
                track.curve("masf", flat_rows(found[BASELINE][cfg.masf]))
                read = {name: curves[BASELINE].results.get(name) for name in ("labels", "loading")}
                record = job.finish({"kind": cfg.masf, "n_examples": _rows(curves), "table": found, **read})
    print(text_table(record))
    print(f"record: {record.directory / records.RECORD}")
    return record


def _rows(curves: dict[str, Record]) -> int:
    return int(curves[BASELINE].results["n_examples"])


def flat_rows(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One flat row of numbers a ratio, for a logger; levels that no p-value can reach are left out."""
    return [
        {"masking_ratio": step["masking_ratio"], "simes": step["simes"], "fisher": step["fisher"]}
        | {f"share_below_{level}": share for level, share in step["below"].items() if share is not None}
        for step in steps
    ]


def text_table(record: Record) -> str:
    """Share of rows with p < 0.05 at each ratio, and how much that is above the unmasked rows' own share."""
    kind = record.results["kind"]
    first = record.results["table"][BASELINE][kind]
    lines = [
        f"MaSF ({kind}), share of {first[0]['n']} rows with p < {LEVEL} by n = {first[0]['n_calibration']} reference "
        "rows; ratio 0, the unmasked test rows, is the yardstick",
        "ratio          " + "".join(f"{step['masking_ratio']:7.0%}" for step in first),
    ]
    for name, table in record.results["table"].items():
        lines.append(f"{name:15}" + "".join(_cell(step["below"][LEVEL]) for step in table[kind]))
    if first[0]["below"][LEVEL] is None:
        lines.append(f"– no value can fall below {LEVEL} with so few validation rows beside the model's dimensions")
    if kind == "authors":
        lines.append("authors' values are no p-values: with nothing amiss 9-19% fall below 0.05; see masf=calibrated")
    return "\n".join(lines)


def _cell(share: float | None) -> str:
    return "      –" if share is None else f"{share:7.2f}"
