"""The erasure curve as data: one row per (example, masking ratio). Everything in a table is derived from it.

`Curve` holds the columns of `curve.parquet` as arrays, examples in order of their id and ratios rising. N examples,
R ratios, C classes. No model is needed to compute performance, ACU, RACU, slices or intervals from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray

from fmm.errors import FmmError
from fmm.faithfulness import Faithfulness, example_acu, faithfulness
from fmm.statistics import confusion, metric_from_confusion

# A row per (example, masking ratio). Metrics, ACU and RACU are derived from it, never by running the model again.
SCHEMA = pa.schema(
    [
        ("example_id", pa.int64()),
        ("masking_ratio", pa.float64()),
        ("label", pa.int32()),  # -1: no gold label
        ("target", pa.int32()),  # the label whose logit is explained
        ("logits", pa.list_(pa.float32())),
        ("n_masked", pa.int32()),
        ("n_maskable", pa.int32()),
        ("n_tokens", pa.int32()),
        ("order", pa.list_(pa.int32())),  # token positions newly masked at this ratio, the most important first
        ("masf_authors", pa.float64()),  # MaSF's p-values; null where it was not asked for
        ("masf_calibrated", pa.float64()),
    ]
)


# Further random orders of the baseline at the ratios between the unmasked and the fully masked input.
ORDERS_SCHEMA = pa.schema(
    [
        ("example_id", pa.int64()),
        ("masking_ratio", pa.float64()),
        ("draw", pa.int32()),  # the number of the order; that of `curve.parquet` is 0
        ("logits", pa.list_(pa.float32())),
    ]
)
CURVE, ORDERS = "curve.parquet", "orders.parquet"
_CLASSES = b"classes"  # metadata of a table: the number of labels of the data, where the model has more classes


@dataclass(frozen=True)
class Curve:
    """One measure's erasure curve on one model.

    Random masking may hold several orders of each row: its performance and target's logit are their mean, while
    `logits`, `predictions` and `masf` are those of the first order.
    """

    ratios: NDArray[np.float64]  # [R]
    example_id: NDArray[np.int64]  # [N]
    label: NDArray[np.int64]  # [N], -1 where there is no gold label
    target: NDArray[np.int64]  # [N], the class whose logit is explained
    logits: NDArray[np.float32]  # [N, R, C]
    n_masked: NDArray[np.int64]  # [N, R]
    n_maskable: NDArray[np.int64]  # [N]
    n_tokens: NDArray[np.int64]  # [N]
    masf: dict[str, NDArray[np.float64]]  # "authors" | "calibrated" -> p [N, R]; absent where not computed
    more: NDArray[np.float32] | None = None  # [D - 1, N, R, C], logits of further random orders
    classes: int | None = None  # labels of the data, the first of the C; None: all C

    @property
    def predictions(self) -> NDArray[np.int64]:
        """Predicted class [N, R]."""
        return self.logits.argmax(axis=2)

    @property
    def draws(self) -> int:
        """Number of random orders D that the curve is the mean of; 1 for every measure but the baseline."""
        return 1 if self.more is None else 1 + len(self.more)

    @property
    def orders(self) -> list[NDArray[np.unsignedinteger]]:
        """Predicted class [N, R] of each of the `draws` orders."""
        small = np.uint8 if self.logits.shape[2] <= 256 else np.uint32
        further = [] if self.more is None else list(self.more)
        return [logits.argmax(axis=2).astype(small) for logits in [self.logits, *further]]

    @property
    def reference(self) -> NDArray[np.int64]:
        """The class performance is measured against [N]: the gold label, or the target of a row without one."""
        return np.where(self.label >= 0, self.label, self.target)

    @property
    def target_logit(self) -> NDArray[np.float32]:
        """Logit of the explained class [N, R], mean over the orders."""
        logits = self.logits if self.more is None else (self.logits + self.more.sum(axis=0)) / self.draws
        return np.take_along_axis(logits, self.target[:, None, None], axis=2)[:, :, 0]

    def metrics(self, names: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        """Performance at each ratio, mean over the orders: name -> [R]."""
        counts = [confusion(self.reference, order, self.logits.shape[2]) for order in self.orders]
        values = {}
        for name in names:
            of_orders = [metric_from_confusion(name, each, self.classes) for each in counts]
            values[name] = np.mean(of_orders, axis=0)
        return values

    def metric(self, name: str) -> NDArray[np.float64]:
        """Performance at each ratio by one metric [R]."""
        return self.metrics([name])[name]

    def select(self, rows: ArrayLike) -> Curve:
        """The curve of some of its examples: a boolean mask or positions along N."""
        rows = np.asarray(rows)
        names = ("example_id", "label", "target", "logits", "n_masked", "n_maskable", "n_tokens")
        masf = {kind: p[rows] for kind, p in self.masf.items()}
        more = None if self.more is None else self.more[:, rows]
        return replace(self, masf=masf, more=more, **{name: getattr(self, name)[rows] for name in names})

    def restrict(self, example_ids: ArrayLike) -> Curve:
        """The curve of the examples that have one of these ids."""
        return self.select(np.isin(self.example_id, np.asarray(example_ids)))


def same_rows(curve: Curve, other: Curve) -> tuple[Curve, Curve]:
    """Both curves on the examples that they share. Raises FmmError when they share none or their ratios differ."""
    if not np.array_equal(curve.ratios, other.ratios):
        raise FmmError(
            f"two curves have different masking ratios ({curve.ratios} and {other.ratios}); run both with one list"
        )
    common = np.intersect1d(curve.example_id, other.example_id)
    if not len(common):
        raise FmmError("two curves share no example; compare curves of the same rows")
    return curve.restrict(common), other.restrict(common)


def curve_faithfulness(curve: Curve, baseline: Curve, metric: str, *, clip: bool = False) -> Faithfulness:
    """ACU and RACU of a curve against random masking's, on the rows both have, by one metric."""
    curve, baseline = same_rows(curve, baseline)
    return faithfulness(curve.ratios, curve.metric(metric), baseline.metric(metric), clip=clip)


def curve_example_acu(curve: Curve, baseline: Curve) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Per-example faithfulness, in logits of the target. Returns (example ids [N], ACU [N])."""
    curve, baseline = same_rows(curve, baseline)
    return curve.example_id, example_acu(curve.ratios, curve.target_logit, baseline.target_logit)


def from_table(table: pa.Table) -> Curve:
    """Read a curve from the columns of `SCHEMA`, in any order of rows.

    Raises FmmError unless each example has exactly one row at each ratio.
    """
    columns = {name: np.asarray(table[name]) for name in ("example_id", "masking_ratio", "label", "target", "n_masked")}
    sizes = {name: np.asarray(table[name]) for name in ("n_maskable", "n_tokens")}
    order = np.lexsort((columns["masking_ratio"], columns["example_id"]))
    ratios, ids = np.unique(columns["masking_ratio"]), np.unique(columns["example_id"])
    shape = (len(ids), len(ratios))
    grid = np.broadcast_to(ratios, shape).ravel()
    if len(order) != grid.size or not np.array_equal(columns["masking_ratio"][order], grid):
        raise FmmError(f"the curve has {len(order)} rows for {shape[0]} examples and {shape[1]} ratios; run it again")
    logits = table["logits"].combine_chunks()
    flat = np.asarray(logits.flatten(), dtype=np.float32).reshape(len(order), -1)[order]
    first = {name: values[order].reshape(shape)[:, 0].astype(np.int64) for name, values in (columns | sizes).items()}
    masf = {kind: table[f"masf_{kind}"] for kind in ("authors", "calibrated") if f"masf_{kind}" in table.column_names}
    present = {kind: np.asarray(p, dtype=np.float64) for kind, p in masf.items() if p.null_count == 0}
    return Curve(
        ratios, ids, first["label"], first["target"], flat.reshape(*shape, -1),
        columns["n_masked"][order].reshape(shape).astype(np.int64), first["n_maskable"], first["n_tokens"],
        {kind: p[order].reshape(shape) for kind, p in present.items()}, classes=_classes(table),
    )  # fmt: skip


def with_classes(table: pa.Table, classes: int) -> pa.Table:
    """The table with the number of labels of the data, over which macro averages are taken, as metadata."""
    return table.replace_schema_metadata({_CLASSES: str(classes).encode()})


def _classes(table: pa.Table) -> int | None:
    written = (table.schema.metadata or {}).get(_CLASSES)
    return None if written is None else int(written)


def with_orders(curve: Curve, table: pa.Table) -> Curve:
    """The curve of random masking with the further orders of `ORDERS_SCHEMA`. Raises FmmError where some lack."""
    draw, example, at, given = (np.asarray(table[name]) for name in ("draw", "example_id", "masking_ratio", "logits"))
    order = np.lexsort((at, example, draw))
    draws, inner = np.unique(draw), np.unique(at)
    shape = (len(draws), len(curve.example_id), len(inner))
    expected = np.broadcast_to(inner, shape).ravel()
    same_ratios = np.array_equal(inner, curve.ratios[1:-1])
    if not same_ratios or len(order) != expected.size or not np.array_equal(np.unique(example), curve.example_id):
        raise FmmError(
            f"the further random orders have {len(order)} rows for {shape} draws, rows and ratios; run again"
        )
    logits = np.stack(list(given))[order].astype(np.float32)
    more = np.broadcast_to(curve.logits, (len(draws), *curve.logits.shape)).copy()
    more[:, :, 1:-1] = logits.reshape(*shape, -1)
    return replace(curve, more=more)


def read_curve(directory: Path) -> Curve:
    """The curve of a finished run, of random masking with all its orders.

    Raises FmmError where its Parquet is missing or damaged.
    """
    try:
        curve = from_table(pq.read_table(directory / CURVE))
        orders = directory / ORDERS
        return with_orders(curve, pq.read_table(orders)) if orders.exists() else curve
    except (OSError, pa.ArrowException) as error:
        raise FmmError(f"{directory / CURVE} cannot be read ({error}); run its task again") from error
