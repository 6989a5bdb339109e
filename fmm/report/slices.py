"""Where a measure is faithful: by class, by length, and row by row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fmm.curves import Curve, curve_example_acu, curve_faithfulness
from fmm.report.load import BASELINE, Group
from fmm.report.tables import Column, Table, decimal, interval, percent, points, text, whole

_LENGTHS = ("short", "middle", "long")
MIN_ROWS = 5


def slice_table(group: Group, label_names: list[str]) -> Table:
    """ACU of each measure by gold class (in accuracy, which for one class is recall) and by thirds of length."""
    columns = [
        Column("slice", "slice", text, False),
        Column("metric", "metric", text, False),
        Column("rows", "rows", whole),
    ]
    columns += [Column(f"acu_{name}", name, points) for name in group.measures]
    any_curve = next(iter(group.curves.values()))[BASELINE]
    slices = [
        (f"class {label_names[c] if c < len(label_names) else c}", "accuracy", any_curve.reference == c)
        for c in np.unique(any_curve.reference)
    ]
    slices += [(name, group.metric, rows) for name, rows in length_thirds(any_curve)]
    rows = []
    for name, metric, chosen in slices:
        ids = any_curve.example_id[chosen]
        values = [_acu_on(group, measure, ids, metric) for measure in group.measures]
        rows.append([name, metric, len(ids), *values])
    return Table(
        "slices",
        f"ACU by class and by length, {group.name}",
        columns,
        rows,
        [
            f"Mean over seeds, ×100. – where fewer than {MIN_ROWS} rows. Length is the number of tokens that may be "
            "masked, cut in thirds."
        ],
    )


def length_thirds(curve: Curve) -> list[tuple[str, NDArray[np.bool_]]]:
    """Rows by thirds of the number of maskable tokens; rows of one length stay together. Empty thirds are left out."""
    first, second = np.quantile(curve.n_maskable, [1 / 3, 2 / 3], method="inverted_cdf")
    parts = (
        curve.n_maskable <= first,
        (curve.n_maskable > first) & (curve.n_maskable <= second),
        curve.n_maskable > second,
    )
    return [
        (f"{name} ({curve.n_maskable[rows].min()}–{curve.n_maskable[rows].max()} tokens)", rows)
        for name, rows in zip(_LENGTHS, parts)
        if rows.any()
    ]


def _acu_on(group: Group, measure: str, ids: NDArray[np.int64], metric: str) -> float | None:
    if len(ids) < MIN_ROWS:
        return None
    found = []
    for curves in group.of(measure).values():
        part, baseline = curves[measure].restrict(ids), curves[BASELINE].restrict(ids)
        if len(part.example_id):
            found.append(curve_faithfulness(part, baseline, metric).acu)
    return float(np.mean(found)) if found else None


def per_example(group: Group) -> dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Per measure the example ids [N] and the ACU of the target's logit against random masking of the same row [N].

    A row's value is its mean over the seeds that have it; it is in logits.
    """
    found = {}
    for measure in group.measures:
        parts = [curve_example_acu(c[measure], c[BASELINE]) for c in group.of(measure).values()]
        ids, at = np.unique(np.concatenate([p[0] for p in parts]), return_inverse=True)
        values = np.concatenate([p[1] for p in parts])
        found[measure] = ids, np.bincount(at, values) / np.bincount(at)
    return found


def per_example_summary(group: Group, values: dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]) -> Table:
    """How per-example faithfulness is spread: its mean, quantiles, and the share of rows that beat random masking."""
    columns = [
        Column("measure", "measure", text, False),
        Column("rows", "rows", whole),
        Column("mean", "mean", decimal),
        Column("p05", "5%", decimal),
        Column("median", "median", decimal),
        Column("p95", "95%", decimal),
        Column("better", "rows above 0 (%)", percent),
        Column("better_ci", "95% over rows", interval),
    ]
    rows = []
    for name, (_, found) in sorted(values.items(), key=lambda item: -item[1][1].mean()):
        share, n = float((found > 0).mean()), len(found)
        rows.append(
            [name, n, float(found.mean()), *np.quantile(found, [0.05, 0.5, 0.95]).tolist(), share, _wilson(share, n)]
        )
    note = "ACU of the explained logit against random masking of the same row, in logits, mean over seeds. In no paper."
    return Table("per_example", f"Faithfulness row by row, {group.name}", columns, rows, [note])


def _wilson(share: float, n: int, z: float = 1.96) -> tuple[float, float]:
    center, spread = share + z * z / (2 * n), z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return float((center - spread) / (1 + z * z / n)), float((center + spread) / (1 + z * z / n))
