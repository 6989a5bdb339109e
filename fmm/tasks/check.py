"""`task=check`: does the measuring itself work? Curves whose outcome is known beforehand, on the trained model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from fmm import records
from fmm.comparison import row_interval
from fmm.curves import Curve, from_table, read_curve
from fmm.data import encode
from fmm.erasure import Eraser
from fmm.errors import FmmError
from fmm.explain.evidence import overlaps
from fmm.measures import Measure, build
from fmm.measures.base import Explained
from fmm.models.classifier import Classifier
from fmm.records import Record
from fmm.tasks import masf as masf_task
from fmm.tasks import racu
from fmm.tasks.common import quiet_transformers
from fmm.tasks.curve_job import CurveJob, row_chunks
from fmm.tasks.subject import Subject
from fmm.tracking import tracker


class Reversed(Measure):
    """The opposite ranking of another measure."""

    def __init__(self, measure: Measure) -> None:
        self.measure, self.signed, self.name = measure, True, f"reversed {measure.name}"

    def score(self, classifier: Classifier, asked: Explained) -> tuple[Tensor, Tensor | None]:
        scores, logits = self.measure.score(classifier, asked)
        return -scores, logits


class Evidence(Measure):
    """Known evidence: 1 at the tokens that decide the label, 0 elsewhere."""

    signed, name, recursive_default = True, "true evidence", False

    def __init__(self, tokens: Mapping[int, list[int]]) -> None:
        self.tokens = tokens  # by example id

    def score(self, classifier: Classifier, asked: Explained) -> tuple[Tensor, None]:
        scores = torch.zeros(asked.block.input_ids.shape)
        for row, example in enumerate(asked.block.example_id.tolist()):
            scores[row, self.tokens[example]] = 1
        return scores, None


@dataclass(frozen=True)
class Outcome:
    """What one check found: the ACU with its 95% interval over rows, and what was expected of it.

    `passed` is None where nothing was expected, and where the rows do not settle it.
    """

    name: str
    acu: float
    lower: float
    upper: float
    expected: str
    passed: bool | None


def run(cfg: DictConfig) -> Record | None:
    """Run every check that the model and data allow, print them, and leave their record.

    Returns it; None after `dry_run=true`.
    """
    quiet_transformers()
    subject = racu.check(cfg)
    if cfg.dry_run:
        print(f"{racu.forecast(cfg, subject)}; reversed, and random a second time, they take as much again")
        return None
    chosen = racu.measures(cfg)
    curves = {r.settings["measure"]["name"]: r for r in racu.curves(cfg, subject, with_baseline=True)}
    baseline = read_curve(curves[racu.BASELINE].directory)
    metric = subject.data.info.checkpoint_metric
    outcomes = [_outcome(m.name, read_curve(curves[m.name].directory), baseline, metric, "") for m in chosen]
    again = _curve(cfg, subject, build(racu.BASELINE), cfg.seed + 1)
    outcomes.append(_outcome("rand, another seed", again, baseline, metric, "0 within the interval"))
    for measure in chosen:
        if measure.name != racu.BASELINE:
            found = _curve(cfg, subject, Reversed(measure), cfg.seed)
            outcomes.append(_outcome(f"reversed {measure.name}", found, baseline, metric, "negative"))
    if subject.data.raw("test").evidence is not None:
        truth = _curve(cfg, subject, Evidence(_evidence_tokens(subject)), cfg.seed)
        outcomes.append(_outcome("true evidence", truth, baseline, metric, "positive"))
    results = {"metric": metric, "n_examples": len(baseline.example_id), "outcomes": [vars(o) for o in outcomes]}
    results["masf"] = _side_by_side(cfg) if cfg.masf != "none" else None
    keys = {name: record.key for name, record in sorted(curves.items())}
    settings = {"curves": keys, "seed": cfg.seed, "masf": results["masf"] and sorted(results["masf"])}
    job = records.open_run(cfg.output_dir, "check", cfg.dataset.name, f"{chosen[0].name}-s{cfg.seed}", settings)
    with job.lock(), tracker(cfg, job.directory) as track:
        track.summary({f"acu/{o.name}": o.acu for o in outcomes} | {"n_examples": results["n_examples"]})
        record = job.finish(results)
    print(_text(outcomes, results))
    print(f"record: {record.directory / records.RECORD}")
    return record


def _curve(cfg: DictConfig, subject: Subject, measure: Measure, seed: int) -> Curve:
    eraser = Eraser(subject.classifier, measure, list(cfg.ratios), None, cfg.explain, seed)
    job = CurveJob(subject, eraser, cfg.target, {}, None)
    tables = [job.chunk(rows).replace_schema_metadata(None) for rows in row_chunks(subject.data.test.lengths)]
    return from_table(pa.concat_tables(tables))


def _outcome(name: str, curve: Curve, baseline: Curve, metric: str, expected: str) -> Outcome:
    acu, lower, upper = row_interval(curve, baseline, metric)
    return Outcome(name, acu, lower, upper, expected, _held(expected, lower, upper))


def _held(expected: str, lower: float, upper: float) -> bool | None:
    """Whether an interval over rows bears out what was expected; None where it leaves that open.

    The sign of an ACU alone would not do: the reverse of a measure that is no better than random has either.
    """
    if not expected or np.isnan([lower, upper]).any():
        return None
    if expected == "0 within the interval":
        return lower <= 0 <= upper
    if lower <= 0 <= upper:
        return None
    return (upper < 0) == (expected == "negative")


def _evidence_tokens(subject: Subject) -> dict[int, list[int]]:
    """Token positions that overlap the evidence, by example id."""
    raw, data = subject.data.raw("test"), subject.data
    classifier = subject.classifier
    limit = int(subject.cfg.data.max_length or classifier.max_length)
    rows = encode(data.tokenizer, raw.texts, raw.pairs, min(limit, classifier.max_length), offsets=True)
    assert rows.offsets is not None and raw.evidence is not None
    found = {}
    for place, example in enumerate(raw.example_ids.tolist()):
        tokens = zip(rows.offsets[place], rows.sequence_id[place])
        found[example] = [
            position
            for position, ((start, end), text) in enumerate(tokens)
            if text == 1 and overlaps(start, end, raw.evidence[place])
        ]
    return found


def _side_by_side(cfg: DictConfig) -> dict[str, list[dict[str, Any]]]:
    """MaSF of random masking for the masked and the plain model of the same data, where both are trained."""
    found = {}
    for strategy in dict.fromkeys([str(cfg.masking.strategy), "none"]):
        other = OmegaConf.merge(cfg, {"masking": {"strategy": strategy}, "measures": [racu.BASELINE], "measure": None})
        assert isinstance(other, DictConfig)
        try:
            record = racu.curves(other, racu.check(other), with_baseline=True)[0]
        except FmmError as error:
            print(f"MaSF of masking={strategy} is left out: {error}")
            continue
        found[strategy] = masf_task.flat_rows(record.results["masf"][cfg.masf])
        if cfg.checkpoint is not None:
            break
    return found


def _text(outcomes: list[Outcome], results: dict[str, Any]) -> str:
    lines = [f"{'check':24}{'ACU':>9}   95% over {results['n_examples']} rows   expected"]
    verdict = {True: "holds", False: "FAILS", None: "open: more rows would tell"}
    for o in sorted(outcomes, key=lambda o: -o.acu):
        said = f"{o.expected} {verdict[o.passed]}" if o.expected else ""
        lines.append(f"{o.name:24}{o.acu:+9.4f}   [{o.lower:+.4f}, {o.upper:+.4f}]   {said}".rstrip())
    for strategy, steps in (results["masf"] or {}).items():
        shares = [step.get("share_below_0.05") for step in steps]
        if None in shares:
            lines.append(f"MaSF masking={strategy}: – (no value can fall below 0.05 with so few validation rows)")
            continue
        rise = "  ".join(f"{s['masking_ratio']:.0%} {share - shares[0]:+.2f}" for s, share in zip(steps, shares))
        lines.append(f"MaSF masking={strategy}: share below 0.05 at ratio 0 {shares[0]:.2f}, more than that at {rise}")
    return "\n".join(lines)
