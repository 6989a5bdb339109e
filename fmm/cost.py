"""What a computation cost in passes through the classifier."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from fmm.models.classifier import Classifier


@dataclass
class Cost:
    """Forward passes of rows while `counting`: `forward` rows, `equivalents` of a plain pass (with gradients: 3),
    `tokens`, `seconds`; and `scored`, the distinct masked inputs of the curves."""

    forward: int = 0
    equivalents: int = 0
    tokens: int = 0
    scored: int = 0
    seconds: float = 0.0

    @contextmanager
    def counting(self, classifier: Classifier) -> Iterator[Cost]:
        """Count every forward pass of `classifier` within the block."""

        def count(module: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
            rows, tokens = kwargs["input_ids"].shape
            self.forward += rows
            self.equivalents += rows * (3 if torch.is_grad_enabled() else 1)
            self.tokens += rows * tokens

        started = time.perf_counter()
        handle = classifier.model.register_forward_pre_hook(count, with_kwargs=True)
        try:
            yield self
        finally:
            handle.remove()
            self.seconds += time.perf_counter() - started
