"""Find the racu records of a report, read their curves and line them up by dataset, masking, seed and measure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

import numpy as np

from fmm import records
from fmm.curves import Curve, read_curve
from fmm.errors import FmmError
from fmm.records import Record
from fmm.report import consistency

BASELINE = "rand"
Curves = dict[int, dict[str, Curve]]


@dataclass
class Group:
    """All curves of one dataset and masking strategy on one set of rows.

    `curves[seed][measure]` and `runs[seed][measure]` (its record) hold the random baseline too; `models[seed]` is the
    train record, where there is one; `excluded` maps a seed that is left out to the reason.
    """

    dataset: str
    strategy: str
    metric: str
    curves: Curves
    runs: dict[int, dict[str, Record]]
    models: dict[int, Record]
    excluded: dict[int, str] = field(default_factory=dict)
    rows: str = ""  # which rows, where it is not all of them

    @property
    def name(self) -> str:
        """Dataset, masking strategy and, where it is not all of them, which rows."""
        return " · ".join(part for part in (self.dataset, self.strategy, self.rows) if part)

    @property
    def seeds(self) -> list[int]:
        """Seeds with curves."""
        return sorted(self.curves)

    @property
    def measures(self) -> list[str]:
        """Measures beside the random baseline."""
        return sorted({name for found in self.curves.values() for name in found} - {BASELINE})

    @property
    def n_rows(self) -> str:
        """Number of test rows of a curve, as text: "100", or "60 to 100" where seeds have different numbers."""
        found = [len(curves[BASELINE].example_id) for curves in self.curves.values()] or [0]
        return f"{min(found)} to {max(found)}" if min(found) < max(found) else str(min(found))

    def of(self, measure: str) -> Curves:
        """Curves of one measure and the baseline, of the seeds that have them."""
        pair = (measure, BASELINE)
        return {s: {name: found[name] for name in pair} for s, found in self.curves.items() if measure in found}


def load(
    output_dir: str | Path,
    datasets: Sequence[str] | None,
    where: Iterable[str] = (),
    allow: Iterable[str] = (),
    files: Iterable[str] = (),
) -> tuple[list[Group], list[Record]]:
    """Groups of the finished racu records under `output_dir` (of `datasets`, or of all), and the train
    records that differ from their models in seed and masking alone.

    `files` are sha256 sums: of models that fmm trained only those are taken whose data are these files; all datasets of
    a user's own share the name `local`.

    Raises FmmError where there is none, where records do not belong together, or where the random baseline is missing.
    """
    trained = records.load_all(output_dir, "train")
    models = {record.key: record for record in trained}
    every = records.load_all(output_dir, "racu")
    runs = [run for run in every if datasets is None or run.dataset in datasets]
    if own := set(files):
        runs = [run for run in runs if _data_files(models.get(consistency.model_key(run))) in (own, None)]
    runs = consistency.select(runs, models, where)
    absent = [name for name in datasets or ["toy"] if name not in {run.dataset for run in runs}]
    if (datasets and absent) or not runs:
        others = sorted({run.dataset for run in every} - {absent[0]})
        hint = f" (there are curves of {', '.join(others)})" if others else ""
        hint = ", or drop report.where" if list(where) else hint
        raise FmmError(
            f"there is no finished curve of {absent[0]} under {output_dir}; run python run.py task=racu "
            f"dataset={absent[0]} first{hint}"
        )
    consistency.check(runs, models, allow)
    cells = sorted({(run.dataset, consistency.strategy(run)) for run in runs})
    groups = [group for cell in cells for group in _groups(cell, runs, models)]
    used = [model for group in groups for model in group.models.values()]
    return groups, consistency.trained_alike(used, trained)


def _data_files(model: Record | None) -> set[str] | None:
    """sha256 sums of the files that a model was trained on; None for a model without a train record."""
    return None if model is None else set(model.results["data"].get("sha256", {}).values())


def _groups(cell: tuple[str, str], runs: Sequence[Record], models: Mapping[str, Record]) -> list[Group]:
    """One group of the measures that have the most rows and, where others have fewer, one of all on shared rows."""
    group = _collect(cell, [run for run in runs if (run.dataset, consistency.strategy(run)) == cell], models)
    full = {seed: _with_baselines_rows(found) for seed, found in group.curves.items()}
    shared = _on_shared_rows(group)
    whole = Group(*cell, group.metric, full, group.runs, group.models, group.excluded)
    if all(len(full[s][BASELINE].example_id) == len(shared[s][BASELINE].example_id) for s in full):
        return [whole]
    common = Group(*cell, group.metric, shared, group.runs, group.models, group.excluded)
    common.rows = f"the {common.n_rows} rows all measures have"
    return [whole, common]


def _collect(cell: tuple[str, str], runs: Sequence[Record], models: Mapping[str, Record]) -> Group:
    group = Group(*cell, str(runs[0].results["checkpoint_metric"]), {}, {}, {})
    for run in runs:
        seed, name, curve = consistency.seed(run), consistency.measure(run), read_curve(run.directory)
        kept = group.curves.setdefault(seed, {}).get(name)
        if kept is None or len(kept.example_id) < len(curve.example_id):
            group.curves[seed][name] = curve
            group.runs.setdefault(seed, {})[name] = run
        if consistency.model_key(run) in models:
            group.models[seed] = models[consistency.model_key(run)]
    _require_baseline(group)
    _leave_out_unconverged(group)
    return group


def _with_baselines_rows(found: dict[str, Curve]) -> dict[str, Curve]:
    rows = found[BASELINE].example_id
    return {name: curve.restrict(rows) for name, curve in found.items() if np.isin(rows, curve.example_id).all()}


def _on_shared_rows(group: Group) -> Curves:
    """Every curve on the rows that all curves of all seeds have; so a seed that lacks a measure keeps no more."""
    curves = [curve for found in group.curves.values() for curve in found.values()]
    if not curves:
        return {}
    rows = reduce(np.intersect1d, [curve.example_id for curve in curves])
    if len(rows) == 0:
        names = ", ".join(sorted({name for found in group.curves.values() for name in found}))
        raise FmmError(
            f"the curves of {names} on {group.name} share no example; use the same data.max_test_rows and "
            "data.split_seed for all"
        )
    return {s: {name: curve.restrict(rows) for name, curve in found.items()} for s, found in group.curves.items()}


def _require_baseline(group: Group) -> None:
    lacking = [seed for seed, found in group.curves.items() if BASELINE not in found]
    if lacking:
        raise FmmError(
            f"the curve of random masking is missing for {group.name}, seed {lacking[0]}; run python run.py task=racu "
            f"dataset={group.dataset} measure={BASELINE} seed={lacking[0]} first"
        )


def _leave_out_unconverged(group: Group) -> None:
    """Drop seeds whose unmasked metric is not above the dataset's convergence threshold (arXiv 2310.07819)."""
    for seed, model in group.models.items():
        threshold = model.results.get("convergence_threshold")
        unmasked = min(model.results["test_table"], key=lambda row: row["masking_ratio"])[group.metric]
        if threshold is not None and unmasked <= threshold and seed in group.curves:
            del group.curves[seed]
            group.excluded[seed] = f"unmasked {group.metric} {unmasked:.3f} is not above {threshold:g}"
