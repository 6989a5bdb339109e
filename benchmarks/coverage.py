"""Coverage of the intervals for one model: `python benchmarks/coverage.py [trials]`.

Prints the share of simulated test sets whose 95% interval holds the value of 400,000 rows: ACU, difference of two
measures, RACU's normaliser, and RACU where it is defined (the share of test sets where it is stands beside it).
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from fmm.comparison import compare_sample, normalisers, sample
from fmm.curves import Curve

RATIOS = np.linspace(0, 1, 5)
DRAWS = 5
CASES = {
    "good measures": {"start": 0.9, "end": 0.5, "drops": (0.2, 0.15)},
    "hardly any": {"start": 0.9, "end": 0.5, "drops": (0.02, 0.0)},
    "rare class": {"start": 0.95, "end": 0.6, "drops": (0.2, 0.1), "positives": 0.1},
    "99% right": {"start": 0.995, "end": 0.98, "drops": (0.01, 0.0)},
    "99.9% right": {"start": 0.999, "end": 0.995, "drops": (0.002, 0.0)},
}


def curve(rng: np.random.Generator, labels: NDArray[np.int64], rights: list[NDArray[np.bool_]]) -> Curve:
    """A curve of one order, or of several, that is right where `rights` say."""
    answers = [np.where(right, labels[:, None], 1 - labels[:, None]) for right in rights]
    logits = np.stack([np.eye(2, dtype=np.float32)[each] for each in answers])
    logits[0] *= rng.uniform(1, 2)  # no two measures have the same logits
    n = len(labels)
    ones = np.ones(n, np.int64)
    more = logits[1:] if len(logits) > 1 else None
    return Curve(RATIOS, np.arange(n), labels, labels, logits[0], np.zeros((n, 5), np.int64), ones, ones, {}, more)


def model(
    rng: np.random.Generator, n: int, start: float, end: float, drops: tuple[float, float], positives: float = 0.5
) -> dict[str, Curve]:
    """Curves of `rand` and two measures whose rows keep their difficulty."""
    labels, difficulty, ends = (rng.random(n) < positives).astype(np.int64), rng.random(n), rng.random((n, 2))

    def right(drop: float) -> NDArray[np.bool_]:
        luck = 0.5 * difficulty[:, None] + 0.5 * rng.random((n, 5))
        luck[:, [0, 4]] = 0.5 * difficulty[:, None] + 0.5 * ends
        chance = np.linspace(start, end, 5) - drop * np.array([0, 1, 1, 1, 0])
        return luck < np.where(chance < 0.5, np.sqrt(chance / 2), 1 - np.sqrt((1 - chance) / 2))

    measures = {name: curve(rng, labels, [right(drop)]) for name, drop in zip("ab", drops)}
    return {"rand": curve(rng, labels, [right(0) for _ in range(DRAWS)]), **measures}


def main() -> None:
    """Print a line per metric, case and number of rows."""
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    for metric in ("accuracy", "macro_f1", "matthews"):
        for name, case in CASES.items():
            truth = sample([model(np.random.default_rng(5), 400_000, **case)], metric, replicates=2)
            area, other, scale = (*truth.area[0], truth.scale[0])
            for n in (64, 200, 1000):
                rng, hits, defined = np.random.default_rng(n), np.zeros(4), 0
                for trial in range(trials):
                    found = sample([model(rng, n, **case)], metric, replicates=200, seed=trial)
                    by_acu, by_racu = (compare_sample(found, metric, quantity) for quantity in ("acu", "racu"))
                    pairs = [(by_acu.estimates["a"], area), (by_acu.pairs[0].difference, area - other)]
                    pairs.append((normalisers(found)[0].interval, scale))
                    hits[:3] += [ends.lower <= value <= ends.upper for ends, value in pairs]
                    if by_racu.undefined is None:
                        defined += 1
                        ends = by_racu.estimates["a"]
                        hits[3] += ends.lower is None or ends.lower <= area / scale <= ends.upper
                shares = [*(hits[:3] / trials), hits[3] / max(1, defined)]
                shown = "  ".join(f"{k} {v:.3f}" for k, v in zip(("ACU", "difference", "normaliser", "RACU"), shares))
                print(f"{metric:9} {name:13} n={n:5}  {shown} (defined in {defined / trials:.2f})", flush=True)


if __name__ == "__main__":
    main()
