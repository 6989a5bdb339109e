"""Gradient measures: of the one-hot input (grad_l2, grad_l1), and times the input (inp_grad_sign, inp_grad_abs).

With g = ∂f_c/∂e_t, e_t [D] the word embedding of token t and E [V, D] the table of all V. Source: arXiv 2310.07819,
section 4.1, and the authors' code.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from fmm.errors import FmmError
from fmm.inference import Block, check_finite, in_parts
from fmm.measures.base import Explained, Measure
from fmm.models.classifier import Classifier

L1_ELEMENTS = 2**22  # elements of E g held at once


def embedding_gradient(
    classifier: Classifier, block: Block, embeddings: Tensor, target: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradient [n, T, D] of the target logits with respect to `embeddings` [n, T, D], and the logits [n, C]."""
    leaf = embeddings.detach().clone().requires_grad_(True)
    logits = classifier.logits_from_embeddings(leaf, block.batch(classifier.device))
    check_finite(logits.detach(), block.example_id)
    chosen = logits.gather(1, target.to(logits.device)[:, None]).sum()
    return torch.autograd.grad(chosen, leaf)[0].float(), logits.detach()


class _InputGradient(Measure):
    """Shared by both families: one pass forward and backward over rows of equal length."""

    passes_over_input = True

    def score(self, classifier: Classifier, asked: Explained) -> tuple[Tensor, Tensor]:
        def work(part: slice) -> tuple[Tensor, Tensor]:
            block = asked.block.take(part)
            embeddings = classifier.embed(block.batch(classifier.device)["input_ids"])
            gradient, logits = embedding_gradient(classifier, block, embeddings, asked.target[part])
            # Sums over the vocabulary stay in float32 under a caller's autocast.
            with torch.no_grad(), torch.autocast(classifier.device.type, enabled=False):
                return self.reduce(classifier, gradient, embeddings.detach()).cpu(), logits.cpu()

        with classifier.explaining(gradients=True):
            parts = list(in_parts(classifier, len(asked.block), asked.block.input_ids.shape[1], work))
        return torch.cat([scores for scores, _ in parts]), torch.cat([logits for _, logits in parts])

    @abstractmethod
    def reduce(self, classifier: Classifier, gradient: Tensor, embeddings: Tensor) -> Tensor:
        """Scores [n, T] from the gradient and the word embeddings, both [n, T, D]."""


class GradientNorm(_InputGradient):
    """L1 or L2 norm over the vocabulary of E g, the gradient with respect to the one-hot input."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"grad_l2": {"norm": 2}, "grad_l1": {"norm": 1}}
    signed = False

    def __init__(self, norm: int = 2) -> None:
        if norm not in (1, 2):
            raise FmmError(f"norm {norm!r} of the gradient measure is not offered; choose 1 or 2")
        self.norm = norm

    def reduce(self, classifier: Classifier, gradient: Tensor, embeddings: Tensor) -> Tensor:
        if self.norm == 2:
            return torch.linalg.vector_norm(gradient @ classifier.vocabulary_root().T, dim=-1)
        # V pieces at a time: a tensor [n, T, V] would need gigabytes.
        flat = gradient.flatten(0, 1)
        total = flat.new_zeros(len(flat))
        for rows in classifier.word_embeddings.weight.split(max(1, L1_ELEMENTS // len(flat))):
            total += (flat @ rows.float().T).abs().sum(dim=1)
        return total.unflatten(0, gradient.shape[:2])


class InputTimesGradient(_InputGradient):
    """g · e_t, or its magnitude."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "inp_grad_sign": {"signed": True},
        "inp_grad_abs": {"signed": False},
    }

    def __init__(self, signed: bool = True) -> None:
        self.signed = signed

    def reduce(self, classifier: Classifier, gradient: Tensor, embeddings: Tensor) -> Tensor:
        product = (gradient * embeddings).sum(dim=-1)
        return product if self.signed else product.abs()
