"""One erasure curve on disk: chunk by chunk, each chunk a Parquet part, so that a killed run goes on where it was."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from fmm import records
from fmm.cost import Cost
from fmm.curves import SCHEMA, Curve
from fmm.erasure import Answers, Batch, Eraser, Erasure
from fmm.inference import Rows, evaluate
from fmm.masf import MasfByRatio
from fmm.tasks.forecast import duration
from fmm.tasks.subject import Subject

_ROWS, _SQUARES = 256, 2**23  # of a chunk; occlusion makes about T copies of a row of T tokens
_COST = b"fmm"


@dataclass(frozen=True)
class CurveJob:
    """What one curve needs beside the model.

    Attributes:
        masf: fitted MaSFs by kind; empty for none. baseline: the curve of `rand`, whose first and last step are
            everybody's; None where this is `rand` itself.
    """

    subject: Subject
    eraser: Eraser
    target: str
    masf: dict[str, MasfByRatio]
    baseline: Curve | None

    def compute(self, run: records.Run) -> tuple[pa.Table, dict[str, float]]:
        """The curve (columns of `curves.SCHEMA`) and what it cost. Parts that are there already are used."""
        folder = run.directory / "parts"
        folder.mkdir(parents=True, exist_ok=True)
        chunks, started, fresh = list(row_chunks(self.subject.data.test.lengths)), time.monotonic(), 0
        for place, rows in enumerate(chunks):
            path = folder / f"part-{place:05d}.parquet"
            if _part(path, self.subject.data.test.example_ids[rows]) is None:
                if path.exists():
                    print(f"{path} is damaged; computing it again", flush=True)
                records.write_parquet(path, self.chunk(rows))
                fresh += 1
                left = (time.monotonic() - started) / fresh * (len(chunks) - place - 1)
                if left > 20:
                    print(f"{self.eraser.measure.name}: chunk {place + 1} of {len(chunks)}, {duration(left)} left")
        tables = [pq.read_table(folder / f"part-{place:05d}.parquet") for place in range(len(chunks))]
        costs = [json.loads(table.schema.metadata[_COST]) for table in tables]
        total = {name: sum(cost[name] for cost in costs) for name in costs[0]}
        merged = pa.concat_tables([table.replace_schema_metadata(None) for table in tables])
        return merged.sort_by([("example_id", "ascending"), ("masking_ratio", "ascending")]), total

    def chunk(self, rows: np.ndarray) -> pa.Table:
        """The curves of some rows of the test split, with their cost as metadata."""
        table, cost = self._erase(rows)
        return table.replace_schema_metadata({_COST: json.dumps(asdict(cost)).encode()})

    def cost(self, rows: np.ndarray) -> Cost:
        """What the curves of some rows cost, for a forecast."""
        return self._erase(rows)[1]

    def _erase(self, rows: np.ndarray) -> tuple[pa.Table, Cost]:
        cost, classifier = Cost(), self.eraser.classifier
        batch = self.subject.data.test.batch(rows)
        with cost.counting(classifier):
            first, last = self._known(batch)
            if first is None and self.target == "predicted":
                found = evaluate(classifier, Rows.from_batch(batch), signals=self.eraser.signals)
                first = Answers(found.logits, found.signals)
            target = targets(self.target, batch, classifier.label_names, None if first is None else first.logits)
            erasure = self.eraser(batch, target, (first, last), cost)
            table = curve_table(erasure, batch, target, self._masf(erasure, batch), classifier.mask_id)
        return table, cost

    def _known(self, batch: Batch) -> tuple[Answers | None, Answers | None]:
        """Logits of the unmasked and fully masked rows, from the baseline's curve."""
        if self.baseline is None:
            return None, None
        logits = torch.from_numpy(self.baseline.logits[self._places(batch)])
        return Answers(logits[:, 0], None), Answers(logits[:, -1], None)

    def _places(self, batch: Batch) -> np.ndarray:
        assert self.baseline is not None
        return np.searchsorted(self.baseline.example_id, batch["example_id"].numpy())

    def _masf(self, erasure: Erasure, batch: Batch) -> dict[str, np.ndarray]:
        """p-values by kind [R, B]."""
        return {kind: self._p_values(kind, by_ratio, erasure, batch) for kind, by_ratio in self.masf.items()}

    def _p_values(self, kind: str, by_ratio: MasfByRatio, erasure: Erasure, batch: Batch) -> np.ndarray:
        p = np.empty((len(erasure.ratios), len(erasure.rankable)))
        for step, ratio in enumerate(erasure.ratios):
            if self.baseline is not None:
                p[step] = self.baseline.masf[kind][self._places(batch), step]
                if step in (0, len(p) - 1):
                    continue  # the same input, whatever the measure
            assert erasure.signals is not None
            # Rows of which nothing is masked yet are not evaluated again: they are the baseline's at this ratio too.
            evaluated = ~erasure.signals[step, :, 0, 0].isnan()
            p[step, evaluated.numpy()] = by_ratio.at(ratio).score(erasure.signals[step][evaluated]).numpy()
        return p


def targets(target: str, batch: Batch, names: list[str], unmasked: Tensor | None) -> Tensor:
    """The class [B] whose logit is explained: `gold`, `predicted`, for which `unmasked` [B, C] logits are needed, or
    one of `names`."""
    if target == "gold":
        return batch["labels"]
    if target == "predicted":
        assert unmasked is not None
        return unmasked.argmax(dim=1)
    return torch.full_like(batch["labels"], names.index(target))


def row_chunks(lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Places of the rows of each chunk: the longest first, so that memory runs out early if it does."""
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        room = max(1, min(_ROWS, _SQUARES // int(lengths[order[start]]) ** 2))
        yield np.sort(order[start : start + room])
        start += room


def curve_table(erasure: Erasure, batch: Batch, target: Tensor, masf: dict[str, np.ndarray], mask_id: int) -> pa.Table:
    """The rows of `curves.SCHEMA`, a ratio after the other."""
    steps, size = len(erasure.ratios), len(target)
    masked = ((erasure.input_ids == mask_id) & erasure.rankable).sum(dim=2)
    nothing = [None] * (steps * size)
    columns = {
        "example_id": batch["example_id"].tolist() * steps,
        "masking_ratio": np.repeat(erasure.ratios, size),
        "label": batch["labels"].tolist() * steps,
        "target": target.tolist() * steps,
        "logits": list(erasure.logits.flatten(0, 1).numpy()),
        "n_masked": masked.flatten().tolist(),
        "n_maskable": erasure.rankable.sum(dim=1).tolist() * steps,
        "n_tokens": batch["attention_mask"].sum(dim=1).tolist() * steps,
        "order": [positions for step in erasure.order for positions in step],
        "masf_authors": masf["authors"].ravel() if "authors" in masf else nothing,
        "masf_calibrated": masf["calibrated"].ravel() if "calibrated" in masf else nothing,
    }
    return pa.table(columns, schema=SCHEMA)


def _part(path: Path, example_ids: np.ndarray) -> pa.Table | None:
    """A finished part of exactly these rows, or None."""
    table = records.read_parquet(path)
    if table is None or _COST not in (table.schema.metadata or {}):
        return None
    return table if set(table["example_id"].to_pylist()) == set(example_ids.tolist()) else None
