"""RACU of RoBERTa-base as the papers print it, in %, to stand beside a report's own numbers.

Sources: arXiv 2310.07819 (FMM; masked fine-tuning, recursive but for beam, sign and abs variants) and
arXiv 2110.08412 (R-ROAR; retraining at every ratio, clipped to [-100, 100]).
"""

from __future__ import annotations

_FMM: dict[str, dict[str, float]] = {
    "sst2": {"grad_l2": 40.4, "loo_abs": 54.9, "beam": 187.3, "inp_grad_abs": 23.5, "inp_grad_sign": -12.2},
    "babi2": {"grad_l2": 96.3, "loo_abs": 96.3, "beam": 139.2, "inp_grad_abs": 92.0, "inp_grad_sign": 65.7},
}
_RROAR_COLUMNS = ("grad_l2", "inp_grad_abs", "int_grad_abs")
_RROAR: dict[str, tuple[float, float, float]] = {
    "imdb": (25.4, 16.9, 35.1),
    "snli": (50.7, 41.0, 56.7),
    "sst2": (26.1, 18.6, 32.9),
    "babi1": (64.2, 52.1, 48.2),
    "babi2": (57.8, 48.1, 42.0),
    "babi3": (34.0, 22.4, -27.9),
    "mimic_anemia": (18.2, 8.8, 12.5),
    "mimic_diabetes": (57.9, 53.4, 26.1),
}


def published_racu(dataset: str, measure: str) -> dict[str, float]:
    """RACU as a fraction by paper ("FMM", "R-ROAR"), of those that print one for this dataset and measure.

    >>> published_racu("sst2", "grad_l2")
    {'FMM': 0.404, 'R-ROAR': 0.261}
    >>> published_racu("sst2", "beam_10")
    {'FMM': 1.873}
    """
    family = "beam" if measure.startswith("beam_") else measure
    found: dict[str, float] = {}
    if family in _FMM.get(dataset, {}):
        found["FMM"] = round(_FMM[dataset][family] / 100, 6)
    if measure in _RROAR_COLUMNS and dataset in _RROAR:
        found["R-ROAR"] = round(_RROAR[dataset][_RROAR_COLUMNS.index(measure)] / 100, 6)
    return found
