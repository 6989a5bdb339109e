"""From finished curves to a verdict: which measure to trust for a model, how sure that is, and what to do next.

>>> import fmm
>>> fmm.report.verdicts("outputs", "toy")  # doctest: +SKIP
[Verdict(dataset='toy', strategy='half_det', measure='loo_sign', ...)]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fmm.report.verdict import Verdict
    from fmm.report.write import Options, Report

__all__ = ["read", "verdicts"]


def read(
    output_dir: str | Path,
    datasets: str | Sequence[str] | None = None,
    *,
    where: Iterable[str] = (),
    allow: Iterable[str] = (),
    options: Options | None = None,
) -> Report:
    """Analyses and verdicts of the finished curves under `output_dir`: those of `task=report`, nothing is written.

    `datasets` are names (None: all); `where` and `allow` are those of `report.where` and `report.allow`, `options` the
    other settings of a report. Raises FmmError where there are no curves or they do not belong together.
    """
    from fmm.report.load import load
    from fmm.report.write import build

    names = [datasets] if isinstance(datasets, str) else datasets
    groups, trained = load(output_dir, names, where, allow)
    return build(groups, trained, options)


def verdicts(
    output_dir: str | Path,
    datasets: str | Sequence[str] | None = None,
    *,
    where: Iterable[str] = (),
    allow: Iterable[str] = (),
    options: Options | None = None,
) -> list[Verdict]:
    """The verdicts alone; arguments as of `read`. `fmm.report.verdict.as_json` gives those of `verdict.json`."""
    return read(output_dir, datasets, where=where, allow=allow, options=options).verdicts
