"""`task=racu`: the erasure curve of measures on the trained model, their ACU and RACU against random masking."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf

from fmm import masf, records
from fmm.curves import Curve, curve_faithfulness, from_table
from fmm.data.labels import target_label
from fmm.erasure import Eraser
from fmm.errors import FmmError, unknown
from fmm.faithfulness import check_ratios
from fmm.measures import Measure, build, build_all, options_of
from fmm.measures.base import TEXTS
from fmm.records import Record, Run
from fmm.tasks.common import container, quiet_transformers
from fmm.tasks.curve_job import CurveJob
from fmm.tasks.forecast import duration
from fmm.tasks.masf_fit import fitted
from fmm.tasks.subject import Subject
from fmm.tracking import Tracker, tracker

BASELINE = "rand"
_SUMMARY = ("acu", "racu", "racu_undefined", "n_examples", "seconds", "n_forward")


def run(cfg: DictConfig) -> Record | None:
    """Measure what the configuration names, `rand` first; print ACU and RACU. Returns the last measure's record."""
    quiet_transformers()
    subject = check(cfg)
    if cfg.dry_run:
        print(forecast(cfg, subject))
        return None
    found = curves(cfg, subject)
    print(f"record: {found[-1].directory / records.RECORD}")
    return found[-1]


def check(cfg: DictConfig) -> Subject:
    """Refuse what cannot work before anything is loaded. Returns the model and data."""
    check_values(cfg)
    subject = Subject.of(cfg)
    check_rows(cfg, subject.data)
    subject.check_target()
    return subject


def check_values(cfg: DictConfig) -> None:
    """Refuse values of which no curve could be made, whatever the data. Raises FmmError."""
    check_ratios(container(cfg.ratios))
    measures(cfg)
    if cfg.masf not in (*masf.KINDS, "none"):
        raise unknown("masf", str(cfg.masf), (*masf.KINDS, "none"))
    if cfg.explain not in TEXTS:
        raise unknown("explain", str(cfg.explain), TEXTS)


def check_rows(cfg: DictConfig, data: Any) -> None:
    """Refuse a target, a text or gold labels that the data have not. Raises FmmError."""
    info, rows = data.info, data.raw("test")
    if cfg.explain != "first" and len(info.text_fields) < 2:
        raise FmmError(f"explain={cfg.explain} needs a second text, which {info.name} has not; give explain=first")
    if cfg.checkpoint is None:
        target_label(container(cfg.target), info.label_names)
    unlabelled = int((rows.labels < 0).sum())
    if unlabelled and cfg.target != "predicted":
        raise FmmError(
            f"{unlabelled} of {len(rows)} test rows have no gold label; give target=predicted to explain them"
        )


def measures(cfg: DictConfig) -> list[Measure]:
    """The measures of the configuration, each once."""
    return build_all(container(cfg.measure if cfg.measures is None else cfg.measures))


def curves(cfg: DictConfig, subject: Subject, *, with_baseline: bool = False) -> list[Record]:
    """Records of the measures of the configuration, computed where they are not there; perhaps `rand`'s before them.

    Prints a line for each as soon as it is there.
    """
    baseline, found = curve(cfg, subject, build(BASELINE), None), []
    for measure in measures(cfg):
        found.append(baseline if measure.name == BASELINE else curve(cfg, subject, measure, baseline))
        print(line(found[-1]), flush=True)
    return [baseline, *found] if with_baseline else found


def settings(cfg: DictConfig, subject: Subject, measure: Measure) -> dict[str, Any]:
    """Everything that decides a curve; its digest names the run."""
    random = measure.name == BASELINE  # the same curve, recursive or not
    recursive = measure.recursive_default if cfg.recursive is None or random else bool(cfg.recursive)
    data = {"fingerprint": subject.data.fingerprint, "split": "test", "max_test_rows": cfg.data.max_test_rows}
    return {
        "model": subject.model_settings(),
        "dataset": cfg.dataset.name,
        "data": {**data, "max_length": cfg.data.max_length},
        "measure": {"name": measure.name, **options_of(measure)},
        "target": subject.target,
        "explain": cfg.explain,
        "ratios": check_ratios(container(cfg.ratios)),
        "recursive": recursive,
        "seed": cfg.seed,
        "masf": cfg.masf,
        "dtype": cfg.inference.dtype,
    }


def curve(cfg: DictConfig, subject: Subject, measure: Measure, baseline: Record | None) -> Record:
    """The record of one measure; `baseline` is `rand`'s, None for `rand` itself."""
    wanted = settings(cfg, subject, measure)
    readable = f"{measure.name}-{subject.strategy or 'checkpoint'}-s{cfg.seed}"
    job = records.open_run(cfg.output_dir, "racu", cfg.dataset.name, readable, wanted)
    with job.lock():
        if cfg.force:
            job.clear()
        record = job.record()
        if record is not None and records.read_parquet(job.directory / "curve.parquet") is not None:
            return record
        if record is not None:
            print(f"{job.directory / 'curve.parquet'} is missing or damaged; computing it again", flush=True)
            job.clear()
        with tracker(_shown(cfg, measure), job.directory) as track:
            return _compute(cfg, subject, measure, baseline, job, track)


def _shown(cfg: DictConfig, measure: Measure) -> DictConfig:
    """The configuration as a logger shows it: with the measure of this very curve, be it the baseline's."""
    shown = cfg.copy()
    OmegaConf.update(shown, "measure", {"name": measure.name, **options_of(measure)}, merge=False)
    shown.measures = None
    return shown


def _compute(
    cfg: DictConfig, subject: Subject, measure: Measure, baseline: Record | None, job: Run, track: Tracker
) -> Record:
    ratios = check_ratios(container(cfg.ratios))
    fits = {} if cfg.masf == "none" else fitted(subject, ratios, str(cfg.explain))
    reference = None if baseline is None else _read(baseline)
    eraser = _eraser(cfg, subject, measure, bool(fits))
    table, cost = CurveJob(subject, eraser, subject.target, fits, reference).compute(job)
    job.write_parquet("curve.parquet", table)
    found = from_table(table)
    results = summarise(found, found if reference is None else reference, subject.data.info)
    kinds = {kind: _shares(found, kind, model) for kind, model in fits.items()}
    results |= {"baseline_key": job.key if baseline is None else baseline.key, "seconds": round(cost["seconds"], 3)}
    results |= {"n_forward": cost["forward"], "forward_equivalents": cost["equivalents"], "n_tokens": cost["tokens"]}
    track.curve("curve", results["curve"])  # before the record, which says that nothing is left to do
    track.summary({name: results[name] for name in _SUMMARY})
    record = job.finish({**results, "n_scored": cost["scored"], "masf": kinds or None}, cost["seconds"])
    shutil.rmtree(job.directory / "parts", ignore_errors=True)
    return record


def summarise(curve: Curve, baseline: Curve, info: Any) -> dict[str, Any]:
    """What a record says of a curve: every metric at each ratio, ACU and RACU. Derived from the curves alone."""
    performance = curve.metrics(info.metrics)
    found = curve_faithfulness(curve, baseline, info.checkpoint_metric)
    per_metric = {name: curve_faithfulness(curve, baseline, name)._asdict() for name in info.metrics}
    rows = [
        {"masking_ratio": float(ratio), **{name: float(values[i]) for name, values in performance.items()}}
        for i, ratio in enumerate(curve.ratios)
    ]
    return {
        "n_examples": len(curve.example_id),
        "metrics": list(info.metrics),
        "checkpoint_metric": info.checkpoint_metric,
        "curve": rows,
        "acu": found.acu,
        "racu": None if found.undefined else found.racu,
        "racu_undefined": found.undefined,
        "per_metric": per_metric,
    }


def line(record: Record) -> str:
    """One line for people: ACU and RACU of a record."""
    found, name = record.results, record.settings["measure"]["name"]
    racu = f"{found['racu']:.1%}" if found["racu"] is not None else f"– ({found['racu_undefined']})"
    return f"{name:14} ACU {found['acu']:+.4f}  RACU {racu}  ({found['checkpoint_metric']}, n = {found['n_examples']})"


def forecast(cfg: DictConfig, subject: Subject) -> str:
    """Forward passes and time of the curves, from those of three rows of typical lengths."""
    lengths = subject.data.test.lengths if subject.classifier else np.zeros(0)
    order = np.argsort(lengths, kind="stable")
    rows = order[[len(order) // 4, len(order) // 2, 3 * len(order) // 4]]
    said = []
    for measure in {m.name: m for m in [build(BASELINE), *measures(cfg)]}.values():
        job = CurveJob(subject, _eraser(cfg, subject, measure, cfg.masf != "none"), subject.target, {}, None)
        cost = job.cost(rows)
        scale = len(order) / len(rows)
        said.append(
            f"{measure.name}: {cost.forward * scale:,.0f} forward passes, about {duration(cost.seconds * scale)}"
        )
    return f"forecast for {len(order)} test rows: " + "; ".join(said)


def _eraser(cfg: DictConfig, subject: Subject, measure: Measure, signals: bool) -> Eraser:
    wanted, budget = settings(cfg, subject, measure), cfg.inference.token_budget
    if budget is not None:
        subject.classifier.token_budget = int(budget)
    return Eraser(
        subject.classifier, measure, wanted["ratios"], wanted["recursive"], cfg.explain, cfg.seed, signals, budget
    )  # fmt: skip


def _read(record: Record) -> Curve:
    table = records.read_parquet(record.directory / "curve.parquet")
    assert table is not None  # `curve` made sure
    return from_table(table)


def _shares(curve: Curve, kind: str, by_ratio: masf.MasfByRatio) -> list[dict[str, Any]]:
    p = torch.from_numpy(curve.masf[kind].copy())
    rows = []
    for place, ratio in enumerate(curve.ratios.tolist()):
        model = by_ratio.at(ratio)
        shares = masf.summary(p[:, place], model.kind, len(model.fisher), model.lowest_p)
        rows.append({"masking_ratio": ratio, "n_fit": model.columns.shape[2], **shares})
    return rows
