"""Size and power of MaSF for a trained model, on held-out rows of its training distribution.

    python benchmarks/masf_power.py dataset=sst2 checkpoint=<model> data.max_eval_rows=2000
    python benchmarks/masf_power.py --splits 5 dataset=toy masking=half_det dataset.rows.validation=5000

Words as for `task=racu`; the model must have been trained. Rows are judged that are of the training distribution but
were not trained on: training rows that `data.max_train_rows` left out and whose text is in no row of training or
validation; where there are none, some of the validation rows. All are masked at random as the measure `rand` does it.

First table: the MaSF that the tasks fit to this model's validation rows, of both kinds. Second (`--splits`): what they
would fit if there were only n validation rows, mean and largest share over several choices of these rows: half of them
calibrate, at most 1,000, and the others fit. Printed is the share of the judged rows with p < 0.05 at each ratio, nan
where too few rows fit for any value to be below it. A masked model's shares should be 0.05; a plain model's are the
power.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from torch import Tensor

from fmm import masf
from fmm.data.cache import EncodedSplit, encode_split
from fmm.data.raw import RawSplit
from fmm.draws import Draw
from fmm.masf import Masf, MasfByRatio
from fmm.masking import mask_by_importance
from fmm.measures import rankable_tokens
from fmm.tasks import masf_fit, racu
from fmm.tasks.common import datamodule
from fmm.tasks.subject import Subject

CONF = Path(__file__).resolve().parents[1] / "conf"
SIZES = (100, 200, 400, 700, 1000, 2000, 3000, 5000, 8000, 12000)
RATIOS = [step / 10 for step in range(11)]
LEVEL = 0.05
CHUNK = 500
ORDER = 0  # of the random measure: that of `rand` itself

Line = tuple[str, list[float]]  # what judges, and its share of rows below the level at each of RATIOS


def subject(words: Sequence[str]) -> Subject:
    """The model and data of a command line."""
    with initialize_config_dir(str(CONF), version_base="1.3", job_name="run"):
        model = racu.check(compose("config", ["task=racu", "measure=rand", *words]))
    _ = model.classifier  # attaches its tokenizer to the data
    return model


def held_out(model: Subject, most: int) -> EncodedSplit | None:
    """At most `most` training rows that the model was not trained on; None where it was trained on all of them."""
    record = model.trained.record
    limit = None if record is None else record.settings["data"]["max_train_rows"]
    drawn, all_rows = (_training(model, rows) for rows in (limit, None))
    if len(drawn) == len(all_rows):
        return None
    known = {*_texts(drawn), *_texts(model.data.raw("validation"))}
    ids = set(drawn.example_ids.tolist())
    free = [
        place
        for place, (text, example) in enumerate(zip(_texts(all_rows), all_rows.example_ids.tolist()))
        if example not in ids and text not in known
    ]
    undrawn = len(all_rows) - len(drawn)
    print(f"{undrawn:,} training rows were not drawn; {undrawn - len(free)} of them have a text that is in use")
    chosen = np.random.default_rng(0).permutation(free)[:most]
    length = min(int(model.cfg.data.max_length or model.classifier.max_length), model.classifier.max_length)
    arrays = encode_split(all_rows.take(np.sort(chosen)), model.data.tokenizer, length)
    return EncodedSplit(arrays, model.data.tokenizer)


def _training(model: Subject, limit: int | None) -> RawSplit:
    cfg = OmegaConf.merge(model.cfg, {"data": {"max_train_rows": limit}})
    return datamodule(cfg).raw("train")


def _texts(rows: RawSplit) -> list[tuple[str, str]]:
    return list(zip(rows.texts, rows.pairs or [""] * len(rows)))


def signals_of(model: Subject, rows: EncodedSplit, ratio: float | None) -> Tensor:
    """Signals [N, L + 1, D] of rows masked at random to `ratio`; None: masked as in training."""
    parts = []
    for places in np.array_split(np.arange(len(rows)), -(-len(rows) // CHUNK)):
        batch = rows.batch(places)
        if ratio is None:
            parts.append(masf_fit._signals(model, masf_fit._masked(model, batch)))
            continue
        position = torch.arange(batch["input_ids"].shape[1])
        scores = Draw.RANDOM_MEASURE.uniform(model.trained_seed, ORDER, batch["example_id"][:, None], position)
        rankable = rankable_tokens(batch, "first")
        masked = mask_by_importance(batch["input_ids"], scores, rankable, model.classifier.mask_id, ratio)
        parts.append(masf_fit._signals(model, {**batch, "input_ids": masked}))
    return torch.cat(parts)


def share(model: Masf, signals: Tensor) -> float:
    """Share of rows with p < 0.05; NaN where no row can have such a value."""
    if model.lowest_p >= LEVEL:
        return float("nan")
    return float((model.score(signals) < LEVEL).double().mean())


class SizeTable:
    """Shares of judged rows by number of rows, choice of rows and ratio."""

    def __init__(self, model: Subject, rows: EncodedSplit, n_judged: int, splits: int) -> None:
        """`n_judged` of the validation rows are judged themselves; 0 where other rows are."""
        self.largest = max(masf_fit._reference_ratios(model, RATIOS))
        self.n_judged, self.rows = n_judged, rows
        self.orders = [torch.from_numpy(np.random.default_rng(k).permutation(len(rows))) for k in range(splits)]
        sizes = [n for n in SIZES if n <= len(rows) - n_judged]
        trained = signals_of(model, rows, None)
        self.fitted = {(n, k): self._fit(trained, n, k) for n in sizes for k in range(splits)}
        self.shares: dict[tuple[int, int], list[float]] = {key: [] for key in self.fitted}
        self.references: dict[tuple[int, int], Tensor] = {}

    def _chosen(self, n: int, k: int) -> tuple[Tensor, Tensor]:
        rows = self.orders[k][self.n_judged :][:n]
        fits = masf.split_rows(rows, k)
        return rows[fits], rows[~fits]

    def _fit(self, trained: Tensor, n: int, k: int) -> Masf:
        fits, calibrates = self._chosen(n, k)
        rows = torch.cat([fits, calibrates[:2]])  # `fit` wants two rows more; what they calibrate is not used
        chosen = torch.arange(len(rows)) < len(fits)
        return masf.fit([layer[rows] for layer in trained.unbind(1)], "calibrated", chosen)

    def add(self, model: Subject, ratio: float, judged: Tensor | None) -> None:
        """Judge rows of one ratio: `judged`, or else some of the validation rows."""
        calibrates = ratio <= self.largest
        if calibrates or judged is None:
            signals = signals_of(model, self.rows, ratio)
        for (n, k), levels in self.fitted.items():
            if calibrates:
                self.references[n, k] = levels.statistic(signals[self._chosen(n, k)[1]]).sort().values
            at = MasfByRatio(levels, {ratio: self.references[n, k]}).at(ratio)
            self.shares[n, k].append(share(at, signals[self.orders[k][: self.n_judged]] if judged is None else judged))

    def lines(self) -> Iterator[Line]:
        """Mean and largest share over the choices of rows, for each n."""
        for n in sorted({n for n, _ in self.shares}):
            shares = np.array([values for (size, _), values in self.shares.items() if size == n])
            yield f"n={n}, mean", shares.mean(axis=0).tolist()
            yield f"n={n}, largest", shares.max(axis=0).tolist()


def as_the_tasks_fit(model: Subject, judged: Sequence[Tensor]) -> Iterator[Line]:
    """Shares of judged rows, at each ratio, by the MaSFs of this model's own cache, fitted as any curve's."""
    for kind, by_ratio in masf_fit.fitted(model, RATIOS, "first").items():
        shares = [share(by_ratio.at(ratio), signals) for ratio, signals in zip(RATIOS, judged)]
        first = by_ratio.at(0.0)
        yield f"{kind}, {first.columns.shape[2]} fit, {len(first.fisher)} calibrate", shares


def report(title: str, lines: Sequence[Line], path: str | None) -> None:
    """Print a table, and add its lines to a CSV file."""
    print(f"{title}: share with p < {LEVEL}")
    print(" " * 36 + "".join(f"{ratio:7.0%}" for ratio in RATIOS))
    for name, shares in lines:
        print(f"{name:36}" + "".join(f"{value:7.3f}" for value in shares), flush=True)
    if path is None:
        return
    new = not Path(path).exists()
    with open(path, "a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(["rows", "masf", *(f"{ratio:.0%}" for ratio in RATIOS)])
        for name, shares in lines:
            writer.writerow([title, name, *(f"{value:.3f}" for value in shares)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judged", type=int, default=1000, help="rows that are judged")
    parser.add_argument("--splits", type=int, default=0, help="choices of validation rows; 0: no second table")
    parser.add_argument("--csv", help="file that the lines are added to")
    options, words = parser.parse_known_args()
    model = subject(words)
    rows = held_out(model, options.judged)
    n_judged = options.judged if rows is None else len(rows)
    title = f"{model.cfg.dataset.name} {model.strategy} s{model.trained_seed}, {n_judged} held-out rows"
    judged: list[Tensor] | list[None] = [None] * len(RATIOS)
    if rows is None:
        print("the model was trained on all training rows: validation rows are judged, and only by the second table")
    else:
        judged = [signals_of(model, rows, ratio) for ratio in RATIOS]
        report(title, list(as_the_tasks_fit(model, judged)), options.csv)
    if options.splits:
        table = SizeTable(model, model.data.validation, n_judged if rows is None else 0, options.splits)
        for ratio, signals in zip(RATIOS, judged):
            table.add(model, ratio, signals)
        report(f"{title}, {options.splits} choices", list(table.lines()), options.csv)


if __name__ == "__main__":
    main()
