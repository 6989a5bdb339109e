"""Time and memory of a report's statistics: `python benchmarks/verdict.py [rows] [measures] [seeds] [metric]`.

Fabricated curves of two classes and eleven ratios, five random orders of the baseline, 2,000 resamples.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

from fmm.comparison import compare_sample, sample
from fmm.curves import Curve

RATIOS = np.linspace(0, 1, 11)


def curve(rng: np.random.Generator, labels: np.ndarray, drop: float, draws: int) -> Curve:
    """A curve whose accuracy falls from 0.95 to 0.5, by `drop` more in the middle."""
    chance = 0.95 - 0.45 * RATIOS - drop * np.sin(np.pi * RATIOS)
    n = len(labels)

    def logits() -> np.ndarray:
        right = rng.random((n, len(RATIOS)), dtype=np.float32) < chance
        answers = np.where(right, labels[:, None], 1 - labels[:, None])
        return np.eye(2, dtype=np.float32)[answers]

    ones = np.ones(n, np.int64)
    masked = np.zeros((n, 1), np.int64)
    more = np.stack([logits() for _ in range(draws - 1)]) if draws > 1 else None
    return Curve(RATIOS, np.arange(n), labels, labels, logits(), masked, ones, ones, {}, more)


def main() -> None:
    """Print seconds and the largest memory, before and after the statistics."""
    rows, measures, seeds = (int(text) for text in (sys.argv[1:] + ["100000", "12", "3"][len(sys.argv) - 1 :])[:3])
    metric = sys.argv[4] if len(sys.argv) > 4 else "accuracy"
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, rows)
    models = []
    for _ in range(seeds):
        curves = {f"m{k}": curve(rng, labels, 0.02 * k, 1) for k in range(measures)}
        models.append(curves | {"rand": curve(rng, labels, 0.0, 5)})
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    started = time.perf_counter()
    drawn = sample(models, metric)
    by_acu = compare_sample(drawn, metric, "acu")
    compare_sample(drawn, metric, "racu")
    for place in range(seeds):
        compare_sample(drawn.model(place), metric, "racu")
    seconds = time.perf_counter() - started
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    best = max(by_acu.estimates, key=lambda name: by_acu.estimates[name].mean)
    print(
        f"{metric}: {measures} measures x {rows:,} rows x {seeds} seeds: {seconds:.1f} s; curves {held:.2f} GB, ",
        end="",
    )
    print(f"largest memory {most:.2f} GB; best {best}, ACU {by_acu.estimates[best]}")


if __name__ == "__main__":
    main()
