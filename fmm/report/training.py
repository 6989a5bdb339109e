"""The picture of a trained model under random masking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fmm.records import atomic_path


def draw_random_masking(path: Path, table: list[dict[str, Any]], results: dict[str, Any]) -> None:
    """Draw every metric of the random-masking test against the masking ratio, with the class-majority baseline."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(5.2, 3.4), constrained_layout=True)
    ratios = [100 * row["masking_ratio"] for row in table]
    for color, name in zip(("#0072B2", "#E69F00", "#009E73", "#CC79A7"), results["metrics"]):
        axes.plot(ratios, [row[name] for row in table], marker="o", markersize=3.5, color=color, label=name)
        baseline = results["majority"][name]
        axes.axhline(baseline, linestyle="--", linewidth=1, color=color, label=f"{name}, class majority")
    axes.set(xlabel="randomly masked tokens (%)", ylabel=f"test metric ({table[0]['n']} rows)")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8, frameon=False)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=160, format="png")
    plt.close(figure)
