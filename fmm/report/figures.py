"""The report's pictures: for the page as SVG that follows its colours, on their own as PNG and PDF."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fmm.records import Record, atomic_path
from fmm.report.analyse import LEVEL, Analysis, mean_curve
from fmm.report.load import BASELINE
from fmm.report.preconditions import at_ratio

Draw = Callable[[Any], None]

BLUE, ORANGE, INK, FAINT = "#0072b2", "#d55e00", "#222222", "#b8b8b8"  # colour-blind safe (Okabe and Ito)
_VARIABLES = {BLUE: "var(--blue)", ORANGE: "var(--orange)", INK: "currentColor", FAINT: "var(--line)"}


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams.update(
        {
            "font.size": 9,
            "font.family": "sans-serif",
            "axes.edgecolor": FAINT,
            "axes.labelcolor": INK,
            "text.color": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "grid.color": FAINT,
            "grid.alpha": 0.5,
            "svg.fonttype": "none",
            "svg.hashsalt": "fmm",
            "legend.frameon": False,
        }
    )
    return pyplot


def svg(draw: Draw, title: str, size: tuple[float, float] = (4.2, 2.9)) -> str:
    """Draw on one pair of axes and return inline SVG with an accessible title, in the colours of the page."""
    figure = _figure(draw, size)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    _pyplot().close(figure)
    return _inline(buffer.getvalue(), title)


def _figure(draw: Draw, size: tuple[float, float]) -> Any:
    figure, axes = _pyplot().subplots(figsize=size, constrained_layout=True)
    draw(axes)
    return figure


def _inline(source: str, title: str) -> str:
    """Cut the XML header and metadata, name the picture for screen readers, and make ids unique to it."""
    body = source[source.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(
        r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", body, count=1), count=1
    )
    for color, variable in _VARIABLES.items():
        body = body.replace(color, variable)
    label = re.sub(r"\W+", "-", title)
    body = re.sub(r'id="([^"]+)"', rf'id="{label}-\1"', body)
    body = re.sub(r"(url\(#|href=\"#)", rf"\g<1>{label}-", body)
    named = title.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return body.replace("<svg", f'<svg role="img" aria-label="{named}"', 1)


def save(draw: Draw, directory: Path, name: str, size: tuple[float, float] = (4.2, 2.9)) -> None:
    """Write the picture as `<name>.png` (200 dpi) and `<name>.pdf`."""
    figure = _figure(draw, size)
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", name)
    for kind in ("png", "pdf"):
        metadata = {"CreationDate": None} if kind == "pdf" else None
        with atomic_path(directory / f"{safe}.{kind}") as temporary:
            figure.savefig(temporary, format=kind, dpi=200, metadata=metadata)
    _pyplot().close(figure)


def erasure(analysis: Analysis, measure: str) -> Draw:
    """Curve of a measure against random masking, with 95% bands and the area between them."""

    def draw(axes: Any) -> None:
        ratios = 100 * next(iter(analysis.group.curves.values()))[BASELINE].ratios
        lines = ((BASELINE, ORANGE, "--", "o", "random"), (measure, BLUE, "-", "s", measure))
        for name, color, style, marker, label in lines:
            mean, lower, upper = (100 * values for values in mean_curve(analysis.group, name))
            axes.fill_between(ratios, lower, upper, color=color, alpha=0.18, linewidth=0)
            axes.plot(ratios, mean, style, color=color, marker=marker, markersize=3.5, linewidth=1.6, label=label)
        axes.set(xlabel="masked (%)", ylabel=f"{analysis.group.metric} (%)", xlim=(0, 100))
        axes.grid(axis="y")
        axes.legend(loc="upper right", fontsize=8.5)

    return draw


def ranking(analysis: Analysis) -> Draw:
    """ACU of each measure with its interval over rows (and seeds), and one dot a seed where there are several."""

    def draw(axes: Any) -> None:
        results = analysis.results[::-1]
        for y, result in enumerate(results):
            values = analysis.comparison.per_seed.get(result.measure, []) if analysis.comparison else []
            values = values if len(values) > 1 else []
            axes.plot([100 * v for v in values], [y - 0.22] * len(values), "o", color=FAINT, markersize=3.5)
            low, high = result.acu_rows.lower, result.acu_rows.upper
            if low is not None and high is not None:
                axes.plot([100 * low, 100 * high], [y, y], color=BLUE, linewidth=2.4)
            axes.plot([100 * result.acu.mean], [y], "s", color=BLUE, markersize=6)
        axes.axvline(0, color=ORANGE, linestyle="--", linewidth=1.2)
        axes.set_yticks(range(len(results)), [result.measure for result in results])
        axes.set(xlabel="ACU (×100; 0 = random, more is better)", ylim=(-0.6, len(results) - 0.4))
        axes.grid(axis="x")

    return draw


def masf(analysis: Analysis) -> Draw:
    """Share of rows that MaSF flags, relative to ratio 0: random masking and the range of the measures."""

    def draw(axes: Any) -> None:
        ratios = 100 * analysis.masf[0].ratios
        axes.axhline(0, color=FAINT, linewidth=1)
        others = [shares.rise for shares in analysis.masf if shares.measure != BASELINE]
        if others:
            axes.fill_between(
                ratios, 100 * np.min(others, 0), 100 * np.max(others, 0), color=BLUE, alpha=0.2, linewidth=0
            )
            axes.plot(
                ratios, 100 * np.mean(others, 0), "-s", color=BLUE, markersize=3.5, label="mean and range of measures"
            )
        random = next(shares for shares in analysis.masf if shares.measure == BASELINE)
        axes.plot(ratios, 100 * random.rise, "--o", color=ORANGE, markersize=3.5, label="random")
        axes.set(xlabel="masked (%)", ylabel=f"rise of share with p < {LEVEL} (points)", xlim=(0, 100))
        axes.grid(axis="y")
        axes.legend(loc="upper left", fontsize=8.5)

    return draw


def random_masking(models: dict[str, list[Record]], metric: str) -> Draw:
    """Random masking of both texts: one line per masking strategy (mean over seeds), with class majority."""

    def draw(axes: Any) -> None:
        styles = [(BLUE, "-", "s"), (ORANGE, "--", "o"), (INK, ":", "^"), (FAINT, "-.", "D")]
        for (strategy, found), (color, style, marker) in zip(sorted(models.items()), styles):
            ratios = [row["masking_ratio"] for row in found[0].results["test_table"]]
            values = np.array([[at_ratio(model, ratio, metric) for ratio in ratios] for model in found])
            x = 100 * np.array(ratios)
            axes.plot(x, 100 * values.mean(0), style, color=color, marker=marker, markersize=3.5, label=strategy)
            axes.fill_between(x, 100 * values.min(0), 100 * values.max(0), color=color, alpha=0.15, linewidth=0)
        majority = 100 * next(iter(models.values()))[0].results["majority"][metric]
        axes.axhline(majority, color=INK, linewidth=1, linestyle=(0, (1, 2)), label="class majority")
        axes.set(xlabel="randomly masked, all texts (%)", ylabel=f"{metric} (%)", xlim=(0, 100))
        axes.grid(axis="y")
        axes.legend(loc="upper right", fontsize=8.5)

    return draw


def per_example(values: dict[str, np.ndarray]) -> Draw:
    """Box plots of per-example faithfulness, one measure a line."""

    def draw(axes: Any) -> None:
        names = list(values)[::-1]
        axes.boxplot(
            [values[name] for name in names],
            orientation="horizontal",
            showfliers=False,
            widths=0.55,
            whis=(5, 95),
            medianprops={"color": BLUE, "linewidth": 2.4},
            boxprops={"color": INK},
            whiskerprops={"color": FAINT},
            capprops={"color": FAINT},
        )
        axes.axvline(0, color=ORANGE, linestyle="--", linewidth=1.2)
        axes.set_yticks(range(1, len(names) + 1), names)
        axes.set(xlabel="ACU of the target's logit, row by row")
        axes.grid(axis="x")

    return draw
