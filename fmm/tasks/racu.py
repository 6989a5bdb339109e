"""`task=racu`: the erasure curve of measures on the trained model, their ACU and RACU against random masking."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf

from fmm import masf, records
from fmm.comparison import compare_sample, sample
from fmm.curves import CURVE, ORDERS, Curve, curve_faithfulness, from_table, with_classes, with_orders
from fmm.data.labels import target_label
from fmm.erasure import Eraser
from fmm.errors import FmmError, unknown
from fmm.faithfulness import check_ratios
from fmm.measures import Measure, build, build_all, options_of
from fmm.measures.base import TEXTS
from fmm.records import Record, Run
from fmm.tasks.common import container, quiet_transformers
from fmm.tasks.curve_job import CurveJob, split_orders
from fmm.tasks.forecast import duration
from fmm.tasks.masf_fit import fitted
from fmm.tasks.subject import Subject
from fmm.tracking import Tracker, tracker

BASELINE = "rand"
_SUMMARY = ("acu", "racu", "racu_undefined", "baseline_draws", "n_examples", "seconds", "n_forward")


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
        target_label(container(cfg.target), info.label_names, container(cfg.label_map))
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
        "baseline": {"draws": int(cfg.baseline.draws)},
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
        lost = _lost(record, cfg) if record is not None else None
        if record is not None and lost is None:
            return record
        if lost is not None:
            print(f"{lost} is missing or damaged; computing it again", flush=True)
            job.clear()
        with tracker(_shown(cfg, measure), job.directory) as track:
            return _compute(cfg, subject, measure, baseline, job, track)


def _lost(record: Record, cfg: DictConfig) -> Path | None:
    """A file of a finished curve that is not there or cannot be read."""
    several = _draws_of(cfg, record.settings["measure"]["name"]) > 1
    files = [record.directory / name for name in (CURVE, *([ORDERS] if several else []))]
    return next((path for path in files if records.read_parquet(path) is None), None)


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
    draws = int(cfg.baseline.draws)
    table, cost = CurveJob(subject, eraser, subject.target, fits, reference, _draws_of(cfg, measure.name)).compute(job)
    table, orders = split_orders(table)
    if orders is not None:
        job.write_parquet(ORDERS, orders)
    table = with_classes(table, len(subject.data.info.label_names))
    job.write_parquet(CURVE, table)
    found = from_table(table) if orders is None else with_orders(from_table(table), orders)
    results = summarise(found, found if reference is None else reference, subject.data.info)
    results |= {"baseline_draws": draws}
    kinds = {kind: _shares(found, kind, model) for kind, model in fits.items()}
    results |= {"baseline_key": job.key if baseline is None else baseline.key, "seconds": round(cost["seconds"], 3)}
    results |= {"n_forward": cost["forward"], "forward_equivalents": cost["equivalents"], "n_tokens": cost["tokens"]}
    track.curve("curve", results["curve"])  # before the record, which says that nothing is left to do
    track.summary({name: results[name] for name in _SUMMARY})
    results |= {"labels": subject.labels_record(), "loading": subject.classifier.loading}
    record = job.finish({**results, "n_scored": cost["scored"], "masf": kinds or None}, cost["seconds"])
    shutil.rmtree(job.directory / "parts", ignore_errors=True)
    return record


def summarise(curve: Curve, baseline: Curve, info: Any) -> dict[str, Any]:
    """What a record says of a curve: every metric at each ratio, ACU and RACU. Derived from the curves alone.

    The intervals are over the rows and random orders; RACU is undefined unless its normaliser's lies above 0.
    """
    performance = curve.metrics(info.metrics)
    found = curve_faithfulness(curve, baseline, info.checkpoint_metric)
    drawn = sample([{"measure": curve, BASELINE: baseline}], info.checkpoint_metric)
    by_acu, by_racu = (compare_sample(drawn, info.checkpoint_metric, quantity) for quantity in ("acu", "racu"))
    undefined = found.undefined or by_racu.undefined
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
        "acu_interval": by_acu.estimates["measure"][1:3],
        "racu": None if undefined else found.racu,
        "racu_interval": None if undefined else by_racu.estimates["measure"][1:3],
        "racu_undefined": undefined,
        "per_metric": per_metric,
    }


def line(record: Record) -> str:
    """One line for people: ACU and RACU of a record."""
    found, name = record.results, record.settings["measure"]["name"]
    racu = f"– ({found['racu_undefined']})"
    if found["racu"] is not None:
        racu = f"{found['racu']:.1%}{_ends(found.get('racu_interval'), '.1%')}"
    rows = f"{found['checkpoint_metric']}, n = {found['n_examples']}"
    return f"{name:14} ACU {found['acu']:+.4f}{_ends(found.get('acu_interval'), '+.4f')}  RACU {racu}  ({rows})"


def _ends(interval: Sequence[float | None] | None, form: str) -> str:
    """An interval for people; nothing where there is none."""
    if interval is None or None in interval:
        return ""
    return f" [{interval[0]:{form}}, {interval[1]:{form}}]"


def forecast(cfg: DictConfig, subject: Subject) -> str:
    """Forward passes and time of the curves, from those of three rows of typical lengths."""
    lengths = subject.data.test.lengths if subject.classifier else np.zeros(0)
    order = np.argsort(lengths, kind="stable")
    rows = order[[len(order) // 4, len(order) // 2, 3 * len(order) // 4]]
    said = []
    for measure in {m.name: m for m in [build(BASELINE), *measures(cfg)]}.values():
        eraser = _eraser(cfg, subject, measure, cfg.masf != "none")
        job = CurveJob(subject, eraser, subject.target, {}, None, _draws_of(cfg, measure.name))
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
    table, orders = (records.read_parquet(record.directory / name) for name in (CURVE, ORDERS))
    assert table is not None  # `curve` made sure
    return from_table(table) if orders is None else with_orders(from_table(table), orders)


def _draws_of(cfg: DictConfig, measure: str) -> int:
    """Random orders of each row: of the baseline alone, where there are ratios at which orders differ."""
    inner = [ratio for ratio in container(cfg.ratios) if 0 < ratio < 1]
    return int(cfg.baseline.draws) if measure == BASELINE and inner else 1


def _shares(curve: Curve, kind: str, by_ratio: masf.MasfByRatio) -> list[dict[str, Any]]:
    p = torch.from_numpy(curve.masf[kind].copy())
    rows = []
    for place, ratio in enumerate(curve.ratios.tolist()):
        model = by_ratio.at(ratio)
        shares = masf.summary(p[:, place], model.kind, len(model.fisher), model.lowest_p)
        rows.append({"masking_ratio": ratio, "n_fit": model.columns.shape[2], **shares})
    return rows
