"""Integrated gradients, in the authors' form and in the textbook's.

Source: Sundararajan et al., arXiv 1703.01365; the authors' form: arXiv 2310.07819, section 4.1, and their code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from fmm.inference import in_parts
from fmm.measures.base import Explained, Measure
from fmm.measures.gradient import embedding_gradient
from fmm.models.classifier import Classifier
from fmm.schema import INTEGRATION_BASELINE, INTEGRATION_STEPS, INTEGRATION_VARIANT


class IntegratedGradient(Measure):
    """Mean gradient on the straight line from a baseline b to the word embeddings e, times the input.

    Args:
        signed: keep the sign.
        variant: `authors`: mean over s = 1/n … n/n of s · (g at b + s (e − b)) · e. They differentiate with respect to
            the unscaled embedding, hence the factor s, and multiply by e. `textbook`: no factor, times e − b, midpoints
            (k − ½)/n; this form alone satisfies completeness (its sum tends to f(x) − f(b)).
        baseline: b at every position: the embedding of the padding token, of the mask token, or zero. With `mask`,
            tokens that are masked already get exactly 0.
        steps: n.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "int_grad_sign": {"signed": True},
        "int_grad_abs": {"signed": False},
    }

    def __init__(self, signed: bool = True, variant: str = "authors", baseline: str = "pad", steps: int = 20) -> None:
        INTEGRATION_VARIANT.check("variant of integrated gradients", variant)
        INTEGRATION_BASELINE.check("baseline of integrated gradients", baseline)
        INTEGRATION_STEPS.check("steps", steps, " ")
        self.signed, self.variant, self.baseline, self.steps = signed, variant, baseline, steps

    def score(self, classifier: Classifier, asked: Explained) -> tuple[Tensor, None]:
        block, n = asked.block, self.steps
        steps = torch.arange(1, n + 1, device=classifier.device)
        points = steps / n if self.variant == "authors" else (steps - 0.5) / n
        factors = points if self.variant == "authors" else torch.ones_like(points)

        with classifier.explaining(gradients=True):
            with torch.no_grad():
                embeddings = classifier.embed(block.input_ids.to(classifier.device))
                difference = embeddings - self._baseline(classifier)
            total = torch.zeros_like(embeddings)

            # All points of all rows in one queue: (row 0, point 0), (row 0, point 1), …
            def work(part: slice) -> None:
                item = torch.arange(len(block) * n)[part]
                row, point = item // n, item % n
                places = row.to(classifier.device)
                shift = (1 - points[point]).view(-1, 1, 1) * difference[places]
                gradient, _ = embedding_gradient(
                    classifier, block.take(row), embeddings[places] - shift, asked.target[row]
                )
                total.index_add_(0, places, gradient * factors[point].view(-1, 1, 1))

            for _ in in_parts(classifier, len(block) * n, block.input_ids.shape[1], work):
                pass
            with torch.no_grad():
                times = embeddings if self.variant == "authors" else difference
                scores = (total / n * times).sum(dim=-1).cpu()
        if self.baseline == "mask":
            scores = scores.masked_fill(block.input_ids == classifier.mask_id, 0.0)
        return scores if self.signed else scores.abs(), None

    def _baseline(self, classifier: Classifier) -> Tensor:
        weight = classifier.word_embeddings.weight
        if self.baseline == "zero":
            return torch.zeros_like(weight[0]).float()
        token: int = classifier.pad_id if self.baseline == "pad" else classifier.mask_id
        return weight[token].float()
