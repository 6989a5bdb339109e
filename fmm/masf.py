"""MaSF: is a masked input in-distribution for this model?

Signal of a row: hidden states of the embedding output and of each of the L layers, their maximum over the tokens that
are not padding: z [L + 1, D]. Three levels make it one p-value: two-sided empirical CDF of each (layer, dimension);
Simes over dimensions, and its CDF; Fisher over layers, and its CDF. Source: arXiv 2310.07819, section 4.3.

Two kinds. `authors` equals the authors' code to the last bit. It looks rows up in the CDFs that they built themselves,
and a row beyond all fit rows gets p = 0: under the null 9-19% of its values lie below 0.05, so they are no p-values.
`calibrated` keeps the construction but fits levels 1 and 2 on some rows and reads the level-3 statistic against other
rows, masked at random to the very ratio of the rows that are judged: p = (r + 1) / (n + 1), r the number of them that
are at least as extreme. That is valid at each ratio, whatever the first two levels are worth (conformal p-values).

All statistics are float32, in the authors' order of operations. `layers` is anything that can be iterated, more than
once, into one [N, D] tensor a layer, such as a memory-mapped [L + 1, N, D] tensor: one layer is worked on at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from fmm.draws import Draw
from fmm.errors import FmmError, unknown

Kind = Literal["authors", "calibrated"]
KINDS: tuple[str, ...] = get_args(Kind)
LEVELS = (0.001, 0.005, 0.01, 0.05, 0.1)
CALIBRATION_ROWS = 1000  # at most
_COLUMNS, _ROWS = 32, 512  # worked on at once by a thread


@dataclass(frozen=True)
class Masf:
    """A fitted MaSF. All three are sorted along their last axis."""

    kind: Kind
    columns: Tensor  # [L + 1, D, N] level-1 signals of the fit rows
    simes: Tensor  # [L + 1, N] level-2 statistics of the fit rows
    fisher: Tensor  # [n] level-3 statistics of the rows that p-values are read against

    def score(self, signals: Tensor) -> Tensor:
        """p-values of rows with `signals` [M, L + 1, D]. Returns [M], float32 if `authors`."""
        return self.p_values(self.statistic(signals))

    @property
    def lowest_p(self) -> float:
        """The p-value of a row beyond all fit rows in every layer: no row can have a lower one.

        Far above 0 where the fit rows are few beside the D dimensions: most of them are then the most extreme row of
        some dimension in every layer, and tie with it.
        """
        smallest = 0.0 if self.kind == "authors" else float(1 / np.float32(self.simes.shape[1] + 1))
        return float(self.p_values(fisher(torch.full((1, len(self.simes)), smallest)))[0])

    def statistic(self, signals: Tensor) -> Tensor:
        """Level-3 statistic of rows with `signals` [M, L + 1, D]. Returns float32 [M]."""
        return fisher(self.tails(signals))

    def tails(self, signals: Tensor) -> Tensor:
        """Two-sided level-2 values of `signals` [M, L + 1, D], a column for each layer. Returns [M, L + 1]."""
        found = []
        for layer in range(len(self.columns)):
            statistic = level2(self.kind, self.columns[layer], signals[:, layer])
            found.append(_layer_tails(self.kind, self.simes[layer], statistic, member=False))
        return torch.stack(found, dim=1)

    def p_values(self, statistic: Tensor) -> Tensor:
        """p-values of level-3 statistics [M]: the share of reference rows that are at least as extreme."""
        n = len(self.fisher)
        below = torch.searchsorted(self.fisher, statistic.contiguous())
        if self.kind == "authors":
            return torch.from_numpy(1 - _shares(n))[below]
        return (n - below + 1).double() / (n + 1)


@dataclass(frozen=True)
class MasfByRatio:
    """A MaSF whose level-3 statistics are read against reference rows masked to the same ratio.

    Attributes:
        levels: the fitted MaSF; its own reference serves every ratio where `references` is empty.
        references: sorted level-3 statistics [n] of the reference rows, by masking ratio.
        max_ratio: largest ratio that reference rows are masked to: that of the model's training.
    """

    levels: Masf
    references: dict[float, Tensor]
    max_ratio: float = 1.0

    def at(self, ratio: float) -> Masf:
        """The MaSF that judges rows masked at `ratio`. Raises FmmError for a ratio without reference rows."""
        if not self.references:
            return self.levels
        wanted = min(float(ratio), self.max_ratio)
        if wanted not in self.references:
            known = ", ".join(f"{known:g}" for known in sorted(self.references))
            raise FmmError(f"MaSF has no reference rows masked at {wanted:g}; it has {known}")
        return replace(self.levels, fisher=self.references[wanted])


def fit(layers: Iterable[Tensor], kind: Kind = "authors", fit_rows: Tensor | None = None) -> Masf:
    """Fit MaSF to `layers`, [N, D] each. `calibrated` needs `fit_rows` bool [N]: the others calibrate."""
    if kind not in KINDS:
        raise unknown("MaSF kind", kind, KINDS)
    if kind == "calibrated" and (fit_rows is None or min(int(fit_rows.sum()), int((~fit_rows).sum())) < 2):
        raise FmmError("calibrated MaSF needs at least 2 rows to fit and 2 others to calibrate; give it more rows")
    columns, simes, tails = [], [], []
    for signals in layers:
        own = signals
        if kind == "calibrated":
            assert fit_rows is not None
            own = signals[fit_rows]
        ordered = _sorted_columns(own)
        statistic = level2(kind, ordered, own, member=True)
        reference = statistic.sort().values
        if kind == "calibrated":
            assert fit_rows is not None
            statistic = level2(kind, ordered, signals[~fit_rows])
        tails.append(_layer_tails(kind, reference, statistic, member=kind == "authors"))
        columns.append(ordered)
        simes.append(reference)
    return Masf(kind, _stacked(columns), torch.stack(simes), fisher(torch.stack(tails, dim=1)).sort().values)


def split_rows(example_id: Tensor, seed: int, most: int = CALIBRATION_ROWS) -> Tensor:
    """Which rows of a calibrated MaSF fit; the others, a half of them and at most `most`, calibrate. bool [N]."""
    order = Draw.MASF_SPLIT.uniform(seed, example_id).argsort(stable=True)
    fits = torch.ones(len(example_id), dtype=torch.bool)
    fits[order[: min(most, len(example_id) // 2)]] = False
    return fits


def masked_rows(strategy: str, example_id: Tensor, seed: int) -> Tensor:
    """Which rows are masked before fitting, as in this model's training: all, none or a half by (seed, example id).

    Training's `half_det` looks at a row's place in the batch; here the choice must not. Returns bool [N].
    """
    if strategy in ("half_det", "half_ran"):
        return Draw.MASF_ROW.uniform(seed, example_id) < 0.5
    if strategy in ("uniform", "none"):
        return torch.full_like(example_id, strategy == "uniform", dtype=torch.bool)
    raise unknown("masking strategy", strategy, ("half_det", "half_ran", "uniform", "none"))


def calibration_scores(example_id: Tensor, width: int, seed: int) -> Tensor:
    """The random order in which the tokens of calibration rows are masked: scores [N, width], higher first."""
    return Draw.MASF_CALIBRATION_TOKEN.uniform(seed, example_id[:, None], torch.arange(width))


def level2(kind: Kind, ordered: Tensor, signals: Tensor, *, member: bool = False) -> Tensor:
    """Simes statistic of one layer's `signals` [M, D] against sorted columns [D, N]. Returns [M].

    `member`: the rows are those that made the columns; a calibrated value then leaves the row itself out.
    """
    rows = signals.numpy()
    tails = np.empty(rows.shape, np.float32)

    def work(block: slice) -> None:
        tails[:, block] = _tails(kind, ordered[block].numpy(), np.ascontiguousarray(rows[:, block].T), member=member).T

    _in_threads(work, rows.shape[1], _COLUMNS)
    return simes(torch.from_numpy(tails))


def simes(p: Tensor) -> Tensor:
    """Simes' combination over the last axis: min_i sorted_i * (D / i), in float32 with D / i rounded first.

    Another order of operations breaks ties of the next CDF and moves p, by 0.04 in a trial. `p` [M, D] -> [M].
    """
    values, result = p.numpy(), np.empty(len(p), np.float32)
    d = values.shape[1]
    scale = np.float32(d) / np.arange(1, d + 1, dtype=np.float32)

    def work(block: slice) -> None:
        result[block] = (np.sort(values[block], axis=1) * scale).min(axis=1)

    _in_threads(work, len(values), _ROWS)
    return torch.from_numpy(result)


def fisher(p: Tensor) -> Tensor:
    """Fisher's combination over layers, float32: -2 sum log(p + 1e-8). `p` [M, L + 1] -> [M]."""
    return -2 * torch.log(p + 1e-8).sum(dim=-1)


def summary(p: Tensor, kind: Kind, n_reference: int, lowest_p: float | None = None) -> dict[str, Any]:
    """What a table says of the p-values [M] of one masking ratio.

    `below`: share of rows under each of `LEVELS`, None where no p-value can be: `lowest_p` is that of the fitted
    `Masf`, by default what `n_reference`, the number of rows that p-values are read against, allows. Global p-values
    `simes` and `fisher`; Fisher's is a survival function (the authors print the CDF, its opposite). Calibrated
    p-values share their calibration rows, for which it is corrected (Bates et al., Annals of Statistics 2023,
    theorem 3).
    """
    values = p.double()
    m = len(values)
    if lowest_p is None:
        lowest_p = 1 / (n_reference + 1) if kind == "calibrated" else 0.0
    below = {f"{t:g}": float((values < t).double().mean()) if m and lowest_p < t else None for t in LEVELS}
    found: dict[str, Any] = {
        "kind": kind,
        "n": m,
        "n_calibration": n_reference,
        "below": below,
        "simes": None,
        "fisher": None,
    }
    if m:
        scale = m / torch.arange(1, m + 1, dtype=torch.float64)
        found["simes"] = min(1.0, float((values.sort().values * scale).min()))
        statistic = float(-2 * torch.log(values + (1e-8 if kind == "authors" else 0.0)).sum())
        if kind == "calibrated":
            spread = (1 + m / n_reference) ** 0.5
            statistic = (statistic + 2 * m * (spread - 1)) / spread
        found["fisher"] = float(stats.chi2.sf(statistic, 2 * m))
    return found


def _layer_tails(kind: Kind, ordered: Tensor, values: Tensor, *, member: bool) -> Tensor:
    """`_tails` of one layer's level-2 statistics: `values` [M] in `ordered` [N]. Returns [M]."""
    return torch.from_numpy(_tails(kind, ordered.numpy()[None], values.numpy()[None], member=member)[0])


def _tails(kind: Kind, ordered: NDArray[np.float32], values: NDArray[np.float32], *, member: bool) -> Any:
    """Two-sided empirical CDF of `values` [K, M] in `ordered` [K, N]. Returns float32 [K, M].

    authors: min(F, 1 - F) with F the share strictly below. calibrated: the smaller of the two tails, ties counted in
    both, with one added to both counts so that no row is impossible; a member is left out of its own tails.
    """
    # sorted queries walk through the column instead of jumping about in it: four times faster
    order = np.argsort(values, axis=1)
    queries = np.take_along_axis(values, order, axis=1)
    n = ordered.shape[1]
    below = np.stack([np.searchsorted(column, row) for column, row in zip(ordered, queries)])
    if kind == "authors":
        share = _shares(n)
        tails = np.minimum(share, 1 - share).take(below)
    else:
        up_to = np.stack([np.searchsorted(column, row, side="right") for column, row in zip(ordered, queries)])
        extreme = np.minimum(up_to, n - below).astype(np.float32)
        tails = extreme / np.float32(n) if member else (extreme + 1) / np.float32(n + 1)
    result = np.empty_like(queries)
    np.put_along_axis(result, order, tails, axis=1)
    return result


def _shares(n: int) -> NDArray[np.float32]:
    """0 / n, 1 / n, ..., n / n: float32 quotients, as the authors compute them."""
    return np.arange(n + 1, dtype=np.float32) / np.float32(n)


def _sorted_columns(signals: Tensor) -> Tensor:
    """Columns of `signals` [N, D], each sorted. Returns [D, N]."""
    rows, result = signals.numpy(), np.empty((signals.shape[1], signals.shape[0]), np.float32)

    def work(block: slice) -> None:
        result[block] = rows[:, block].T
        result[block].sort(axis=1)  # numpy's vector sort is several times faster than torch's on a CPU

    _in_threads(work, len(result), _COLUMNS)
    return torch.from_numpy(result)


def _stacked(columns: list[Tensor]) -> Tensor:
    """As torch.stack, but freeing each layer once copied: at MNLI's size they are 3 GB."""
    result = torch.empty(len(columns), *columns[0].shape)
    for layer in range(len(columns)):
        result[layer] = columns[layer]
        columns[layer] = columns[layer].new_empty(0)
    return result


def _in_threads(work: Callable[[slice], None], size: int, step: int) -> None:
    """Run `work` on the blocks of range(size); numpy lets go of the interpreter lock in all that it does."""
    blocks = [slice(start, start + step) for start in range(0, size, step)]
    with ThreadPoolExecutor(max(1, torch.get_num_threads())) as pool:
        list(pool.map(work, blocks))
