"""Size and power of a calibrated MaSF against the number of rows that fit and calibrate it.

    python benchmarks/masf_power.py dataset=toy masking=half_det dataset.rows.validation=5000
    python benchmarks/masf_power.py dataset=sst2 checkpoint=<model> data.max_eval_rows=3000

Words as for `task=racu`; the model must have been trained. Validation rows, which are held out and of the training
distribution, are split by a permutation: 1,000 are judged, n of the others fit levels 1 and 2, n calibrate. All are
masked as the tasks do it. Prints, for each n, the share of the judged rows with p < 0.05 at each ratio, and the lowest
p-value that any row can have. A masked model's shares should be 0.05; a plain model's are the power.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from hydra import compose, initialize_config_dir
from torch import Tensor

from fmm import masf
from fmm.masking import mask_by_importance
from fmm.measures import rankable_tokens
from fmm.tasks import masf_fit, racu
from fmm.tasks.subject import Subject

CONF = Path(__file__).resolve().parents[1] / "conf"
SIZES = (25, 50, 100, 200, 400, 800, 1000)
JUDGED, CHUNK = 1000, 500
RATIOS = [step / 10 for step in range(11)]


def subject(words: list[str]) -> Subject:
    """The model and data of a command line."""
    with initialize_config_dir(str(CONF), version_base="1.3", job_name="run"):
        found = racu.check(compose("config", ["task=racu", "measure=rand", *words]))
    _ = found.classifier  # tokenises the data
    return found


def signals_at(model: Subject, ratio: float | None) -> Tensor:
    """Signals [N, L + 1, D] of all validation rows masked at random to `ratio`; None: masked as in training."""
    rows, parts = model.data.validation, []
    for places in np.array_split(np.arange(len(rows)), -(-len(rows) // CHUNK)):
        batch = rows.batch(places)
        if ratio is None:
            parts.append(masf_fit._signals(model, masf_fit._masked(model, batch)))
            continue
        scores = masf.calibration_scores(batch["example_id"], batch["input_ids"].shape[1], model.trained_seed)
        rankable = rankable_tokens(batch, "first")
        masked = mask_by_importance(batch["input_ids"], scores, rankable, model.classifier.mask_id, ratio)
        parts.append(masf_fit._signals(model, {**batch, "input_ids": masked}))
    return torch.cat(parts)


def main() -> None:
    model = subject(sys.argv[1:])
    largest = max(masf_fit._reference_ratios(model, RATIOS))
    n_rows = len(model.data.validation)
    order = torch.from_numpy(np.random.default_rng(0).permutation(n_rows))
    judged, others = order[:JUDGED], order[JUDGED:]
    sizes = [n for n in SIZES if 2 * n <= len(others)]
    trained = signals_at(model, None)
    fitted = {}
    for n in sizes:
        rows = others[: n + 2]  # levels 1 and 2 come from the first n; two more satisfy `fit`, and are not used
        fitted[n] = masf.fit([layer[rows] for layer in trained.unbind(1)], "calibrated", torch.arange(n + 2) < n)
    del trained
    shares: dict[int, list[float]] = {n: [] for n in sizes}
    lowest: dict[int, float] = dict.fromkeys(sizes, 0.0)
    references: dict[int, Tensor] = {}
    for ratio in RATIOS:
        signals = signals_at(model, ratio)
        for n in sizes:
            if ratio <= largest:
                references[n] = fitted[n].statistic(signals[others[n : 2 * n]]).sort().values
            at = masf.MasfByRatio(fitted[n], {ratio: references[n]}).at(ratio)
            shares[n].append(float((at.score(signals[judged]) < 0.05).double().mean()))
            lowest[n] = max(lowest[n], at.lowest_p)
    print(f"{model.cfg.dataset.name}, {model.strategy}, {JUDGED} rows judged: share with p < 0.05")
    print("   n  lowest p  " + "".join(f"{ratio:7.0%}" for ratio in RATIOS))
    for n in sizes:
        print(f"{n:4}  {lowest[n]:8.4f}  " + "".join(f"{share:7.3f}" for share in shares[n]))


if __name__ == "__main__":
    main()
