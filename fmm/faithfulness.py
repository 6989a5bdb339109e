"""Area between curves: how much faster than random masking an importance measure destroys performance.

Pure functions of numbers. `R` masking ratios lie on the last axis; any axes may stand before it, so that a
thousand bootstrap replicates cost one call. Performance is in the unit of the metric (1.0 = perfect).

Sources: arXiv 2310.07819 (FMM), section 4.2 and appendix; arXiv 2110.08412 (R-ROAR), section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmm.errors import FmmError

Array = NDArray[np.float64]
NOTHING = 1e-12  # an area below this is rounding


class Faithfulness(NamedTuple):
    """ACU and RACU of one curve. `racu` is the plain quotient, whatever it is worth; `undefined` says why it is worth
    nothing (and None when RACU may be printed)."""

    acu: float
    racu: float
    undefined: str | None = None


def check_ratios(ratios: Sequence[float]) -> list[float]:
    """Masking ratios in rising order, each once. Raises FmmError unless all lie in [0, 1] and 0 and 1 are among them.

    >>> check_ratios([1, 0.5, 0])
    [0.0, 0.5, 1.0]
    """
    values = sorted({float(ratio) for ratio in ratios})
    if not values:
        raise FmmError("ratios=[] holds no masking ratio; give shares of tokens, such as ratios=[0,0.5,1]")
    outside = [value for value in values if not 0.0 <= value <= 1.0]
    if outside:
        raise FmmError(
            f"masking ratio {outside[0]:g} is outside [0, 1]; give shares of tokens, such as ratios=[0,0.5,1]"
        )
    missing = [end for end in (0, 1) if float(end) not in values]
    if missing:
        raise FmmError(
            f"the masking ratios {', '.join(f'{x:g}' for x in values)} lack {' and '.join(map(str, missing))}; the "
            "curve runs from the unmasked to the fully masked input, so give ratios=[0,...,1]"
        )
    return values


def acu(ratios: ArrayLike, metric: ArrayLike, baseline: ArrayLike) -> Array:
    """Area between the curves of random masking and of a measure: trapezoid of (baseline - metric) over the ratios.

    `ratios` [R] in any order, `metric` and `baseline` [..., R]. Returns [...] float64; positive is better than random.

    >>> float(acu([1.0, 0.0, 0.5], [0.3, 0.9, 0.3], [0.3, 0.9, 0.6]))
    0.15
    """
    (x, m, b) = _sorted_by_ratio(ratios, metric, baseline)
    return np.asarray(np.trapezoid(b - m, x, axis=-1))


def normaliser(ratios: ArrayLike, baseline: ArrayLike) -> Array:
    """Area between random masking and its own end point at the largest ratio: RACU's denominator. Returns [...]."""
    (x, b) = _sorted_by_ratio(ratios, baseline)
    return np.asarray(np.trapezoid(b - b[..., -1:], x, axis=-1))


def relative_acu(ratios: ArrayLike, metric: ArrayLike, baseline: ArrayLike, *, clip: bool = False) -> Array:
    """RACU: ACU over `normaliser`. Returns [...] float64, infinite or NaN where the normaliser is 0.

    FMM does not clip; `clip=True` cuts to [-1, 1] as R-ROAR does. Where the normaliser is not positive the number means
    nothing: see `undefined_reason`.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.divide(acu(ratios, metric, baseline), normaliser(ratios, baseline))
    return np.clip(value, -1.0, 1.0) if clip else value


def undefined_reason(ratios: ArrayLike, baseline: ArrayLike) -> str | None:
    """Why RACU is undefined for this one baseline curve [R], or None when it is defined."""
    area = float(normaliser(ratios, baseline))
    if not np.isfinite(area):
        return "the curve of random masking holds a value that is not a number"
    if area > NOTHING:
        return None
    kind = "zero" if area >= -NOTHING else "negative"
    return f"the normaliser is {kind} ({area:.3g}): random masking does not lower performance to its value at 100%"


def faithfulness(ratios: ArrayLike, metric: ArrayLike, baseline: ArrayLike, *, clip: bool = False) -> Faithfulness:
    """ACU and RACU of one measure's curve [R] against random masking's [R], with RACU's undefined cases named.

    >>> faithfulness([0, 1], [0.9, 0.5], [0.9, 0.9]).undefined[:22]
    'the normaliser is zero'
    """
    value = float(relative_acu(ratios, metric, baseline, clip=clip))
    return Faithfulness(float(acu(ratios, metric, baseline)), value, undefined_reason(ratios, baseline))


def example_acu(ratios: ArrayLike, target_logit: ArrayLike, baseline: ArrayLike) -> Array:
    """Per-example faithfulness: area between `rand`'s and the measure's curve of the explained logit, row by row.

    `target_logit` and `baseline` [N, R] are the same rows' logits of the target under the measure's masking and under
    random masking. Returns [N], in logits. It ranks a model's own explanations; no paper uses it.
    """
    return acu(ratios, target_logit, baseline)


def _sorted_by_ratio(ratios: ArrayLike, *curves: ArrayLike) -> tuple[Array, ...]:
    x = np.asarray(ratios, dtype=np.float64)
    order = np.argsort(x, kind="stable")
    return (x[order], *(np.asarray(curve, dtype=np.float64)[..., order] for curve in curves))
