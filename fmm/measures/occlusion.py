"""Leave-one-out: mask one token at a time. Source: arXiv 2310.07819, section 4.1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from fmm.inference import evaluate
from fmm.measures.base import Explained, Measure
from fmm.models.classifier import Classifier


class LeaveOneOut(Measure):
    """f_c(x) − f_c(x with token t masked), or its magnitude; 0 for special, auxiliary and already masked tokens."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"loo_sign": {"signed": True}, "loo_abs": {"signed": False}}

    def __init__(self, signed: bool = True) -> None:
        self.signed = signed

    def score(self, classifier: Classifier, asked: Explained) -> tuple[Tensor, Tensor]:
        block = asked.block
        row, position = asked.candidates(classifier.mask_id).nonzero(as_tuple=True)
        copies = block.input_ids[row]
        copies[torch.arange(len(row)), position] = classifier.mask_id
        unknown = asked.unknown()
        everything = block.take(torch.cat([unknown, row]), torch.cat([block.input_ids[unknown], copies]))
        found, masked = evaluate(classifier, everything).logits.split([len(unknown), len(row)])
        reference = asked.completed(found)
        drop = _chosen(reference[row], asked.target[row]) - _chosen(masked, asked.target[row])
        scores = torch.zeros(block.input_ids.shape)
        scores[row, position] = drop if self.signed else drop.abs()
        return scores, reference


def _chosen(logits: Tensor, target: Tensor) -> Tensor:
    return logits.gather(1, target[:, None])[:, 0]
