"""Faithfulness measurable masked language models: know which explanation of your classifier to trust.

>>> import fmm
>>> "loo_sign" in fmm.measures.available()
True
"""

from importlib import import_module
from typing import Any

# Loaded on first use: `import fmm` and the command line's --help need neither torch nor transformers.
_LAZY = {
    "Attribution": "fmm.measures",
    "attribute": "fmm.measures",
    "Classifier": "fmm.models.classifier",
    "load_classifier": "fmm.models.classifier",
}
__all__ = ["Attribution", "Classifier", "attribute", "load_classifier"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in ("measures", "report"):
        return import_module(f"fmm.{name}")
    raise AttributeError(f"module 'fmm' has no attribute {name!r}")
