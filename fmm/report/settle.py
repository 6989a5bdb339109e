"""How many rows or seeds would answer what these leave open, and the command that gets them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from fmm.comparison import Estimate
from fmm.errors import counted
from fmm.records import Record

_POWER = float(stats.norm.ppf(0.8))  # what four of five repetitions of the experiment would settle
_MOST_ROWS, _MOST_SEEDS = 1_000_000, 100
FEW_ROWS, SOME_HUNDRED = 10, 400  # of so few rows not even the spread is known


def rows_to_settle(n_rows: int, error: float, gap: float, quantile: float = 1.96) -> int | None:
    """Rows at which an interval of `quantile` standard errors, now `error` each, would most likely fall within `gap`.

    The effect is taken to stay as it is observed. Rounded up to two digits; None above a million.

    >>> rows_to_settle(64, 0.05, 0.05)
    510
    """
    if not gap > 0 or not error > 0:
        return None
    needed = n_rows * ((quantile + _POWER) * error / gap) ** 2
    return round_up(needed) if needed <= _MOST_ROWS else None


def round_up(number: float) -> int:
    """The next number of two digits and zeros.

    >>> round_up(433.2), round_up(7.1)
    (440, 8)
    """
    step = 10 ** max(0, math.floor(math.log10(max(number, 1))) - 1)
    return math.ceil(number / step) * step


def seeds_to_settle(found: Estimate, gap: float) -> int | None:
    """Seeds at which the interval would most likely be shorter than `gap` on the same rows; None above a hundred."""
    for seeds in range(found.n + 1, _MOST_SEEDS + 1):
        between = found.between * found.n / seeds
        total = between + found.within
        parts = between**2 / (seeds - 1) + found.within**2 / max(1, found.n_rows - 1)
        quantile = float(stats.t.ppf(0.975, total**2 / parts)) if parts > 0 else 1.96
        if (quantile + _POWER) * math.sqrt(total) <= gap:
            return seeds
    return None


def needed(found: Estimate, gap: float, quantile: float = 1.96) -> tuple[str, int | None]:
    """What would settle a question whose answer lies `gap` from the estimate: a sentence, and the rows it names."""
    if found.error is None or found.n_rows < FEW_ROWS:
        return f"{counted(found.n_rows, 'row')} cannot tell; take some hundred", SOME_HUNDRED
    if not np.isfinite(gap) or gap <= 0:
        return "at the observed effect no number of rows would settle it", None
    if found.n > 1:
        seeds = seeds_to_settle(found, gap)
        if seeds is not None and found.between > 0:
            return f"about {seeds} seeds would settle it; you have {found.n}", None
        rows = rows_to_settle(found.n_rows, math.sqrt(found.within), gap, quantile)
        if rows is None or found.between > found.within:
            return "neither more seeds (up to 100) nor more rows alone would settle it", None
        return f"about {rows} rows would settle it; you have {found.n_rows}", rows
    rows = rows_to_settle(found.n_rows, found.error, gap, quantile)
    if rows is None:
        return "the observed effect is too small to settle with a million rows", None
    return f"about {rows} rows would settle it; you have {found.n_rows}", rows


def shell(words: Sequence[str]) -> str:
    """A command line, words with special characters in quotes."""
    return " ".join(f"'{word}'" if set(word) & set(' [](){}$"') else word for word in words)


def curves_command(run: Record, model: Record | None, measures: Sequence[str], rows: int) -> str:
    """The command that makes the curves of a model again on more rows, from their records alone."""
    settings = run.settings
    model_words = [f"checkpoint={model.directory if model else '<the model>'}"]
    words = ["python", "run.py", "task=racu", f"dataset={run.dataset}", *model_words, f"seed={settings['seed']}"]
    words += [f"data.max_test_rows={rows}", f"measures=[{','.join(measures)}]"]
    words += _changed(settings)
    where = f'report.where=["data.max_test_rows={rows}"]'
    report = shell(["python", "run.py", "task=report", f"dataset={run.dataset}", where])
    return f"{shell(words)} && {report}"


def _changed(settings: Mapping[str, Any]) -> list[str]:
    """Settings of a curve that are worth a word, as an older or newer default may differ."""
    words = [f"masf={settings['masf']}"] if "masf" in settings else []
    words += [
        f"{name}={settings[name]}"
        for name in ("target", "explain")
        if settings.get(name) not in (None, "gold", "first")
    ]
    draws = settings.get("baseline", {}).get("draws", 1)
    return [*words, f"baseline.draws={draws}"]
