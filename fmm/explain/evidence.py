"""Where a measure looks, against words known to decide the label (toy reviews, bAbI's supporting facts)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fmm.report.tables import Column, Table, interval, percent, text, whole

Spans = Sequence[tuple[int, int]]


def overlaps(start: int, end: int, spans: Spans) -> bool:
    """Whether characters start..end touch one of `spans`.

    >>> overlaps(0, 3, [(3, 5)]), overlaps(2, 4, [(3, 5)])
    (False, True)
    """
    return any(start < b and a < end for a, b in spans)


def evidence_table(tokens: pa.Table, evidence: Sequence[Spans]) -> Table:
    """Per measure how often its top tokens are evidence. `tokens` as from `fmm.explain.work`, `evidence` by row.

    Columns: the first token is evidence; share of evidence among the k first, k being the number of evidence tokens;
    and what a random ranking reaches. Rows without evidence in the model's input are left out.
    """
    ranked = tokens.filter(pc.and_(pc.is_valid(tokens["rank"]), pc.equal(tokens["text"], "first")))
    found: dict[str, dict[int, list[tuple[int, bool]]]] = {}
    columns = (ranked[name].to_pylist() for name in ("measure", "row", "rank", "start", "end"))
    for measure, row, rank, start, end in zip(*columns):
        hit = overlaps(start, end, evidence[row])
        found.setdefault(measure, {}).setdefault(row, []).append((rank, hit))
    names = [
        Column("measure", "measure", text, False),
        Column("rows", "rows", whole),
        Column("first", "first token is evidence (%)", percent),
        Column("first_ci", "95% over rows", interval),
        Column("top_k", "evidence among the first k (%)", percent),
        Column("chance", "at random (%)", percent),
    ]
    rows = sorted((_row(name, list(by_row.values())) for name, by_row in found.items()), key=lambda row: -(row[4] or 0))
    note = "k is the number of evidence tokens of the row; tokens of the first text."
    return Table("evidence", "Do the top tokens hold the known evidence?", names, rows, [note])


def _row(measure: str, by_row: list[list[tuple[int, bool]]]) -> list[Any]:
    first, top, chance = [], [], []
    for tokens in by_row:
        hits = np.array([hit for _, hit in sorted(tokens)])
        k = int(hits.sum())
        if k:
            first.append(float(hits[0]))
            top.append(float(hits[:k].mean()))
            chance.append(k / len(hits))
    if not first:
        return [measure, 0, None, None, None, None]
    mean, half = float(np.mean(first)), 1.96 * float(np.std(first)) / len(first) ** 0.5
    return [
        measure,
        len(first),
        mean,
        (max(0.0, mean - half), min(1.0, mean + half)),
        float(np.mean(top)),
        float(np.mean(chance)),
    ]
