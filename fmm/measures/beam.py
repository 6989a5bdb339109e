"""Beam search for the masking order with the largest summed drop. Source: arXiv 2310.07819, section 4.1.

A departure from the authors' code, which interleaves the importances of rows that share their number of maskable
tokens when a batch has more than one row: here every row equals their batch-of-one result in any batch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fmm.inference import Block, evaluate
from fmm.measures.base import Explained, Measure
from fmm.models.classifier import Classifier
from fmm.schema import BEAM_WIDTH


@dataclass
class Search:
    """State of one row's search. The beams are sorted, best first.

    Attributes:
        positions [m]: the tokens that may be masked. reference: f_c of the unmasked row.
        masked [w, m]: which of them each of the w beams has masked, with summed drops `score` [w].
        order [w, i]: indices into `positions`, in order of masking.
        n_evaluated: distinct masked inputs asked for so far, the unmasked one not among them.
    """

    positions: Tensor
    reference: Tensor
    masked: Tensor
    score: Tensor
    order: Tensor
    n_evaluated: int = 0

    def candidates(self) -> tuple[Tensor, Tensor, Tensor]:
        """Every beam with one more token masked: beam [c], token [c], masked [c, m].

        A set of tokens reached twice is kept once, first come: from the better beam.
        """
        beam, token = (~self.masked).nonzero(as_tuple=True)
        masked = self.masked[beam]
        masked[torch.arange(len(beam)), token] = True
        if len(self.masked) > 1:
            keys = np.packbits(masked.numpy(), axis=1)
            _, first = np.unique(keys.view(np.dtype((np.void, keys.shape[1]))), return_index=True)
            kept = torch.from_numpy(np.sort(first))
            beam, token, masked = beam[kept], token[kept], masked[kept]
        return beam, token, masked

    def keep(self, width: int, beam: Tensor, token: Tensor, masked: Tensor, logit: Tensor) -> None:
        """Go on with the best `width` candidates; ties to the earlier one."""
        score = self.score[beam] + (self.reference - logit)
        best = score.argsort(descending=True, stable=True)[:width]
        self.order = torch.cat([self.order[beam[best]], token[best, None]], dim=1)
        self.masked, self.score = masked[best], score[best]
        self.n_evaluated += len(score)

    def importance(self, length: int) -> Tensor:
        """n, n − 1, …, 1 in the best beam's order of masking, 0 elsewhere. Float32 [length]."""
        ranked = self.positions[self.order[0]]
        return torch.zeros(length).index_put_((ranked,), torch.arange(len(ranked), 0, -1).float())


class Beam(Measure):
    """Importance n − rank in the masking order that maximises Σ_i [f_c(x) − f_c(x masked at the first i tokens)].

    Special, auxiliary and already masked tokens get 0; n counts the others.

    Args:
        width: beams that live on at each step (k).
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {f"beam_{width}": {"width": width} for width in (10, 20, 50)}
    pattern = re.compile(r"beam_(?P<width>[0-9]+)")
    signed = False  # places in an order: none speaks against the target, and a sum of them says nothing
    recursive_default = False

    def __init__(self, width: int = 10) -> None:
        BEAM_WIDTH.check("beam width", width, " ")
        self.width = width

    def score(self, classifier: Classifier, asked: Explained) -> tuple[Tensor, Tensor]:
        unknown = asked.unknown()
        reference = asked.completed(evaluate(classifier, asked.block.take(unknown)).logits)
        scores = torch.zeros(asked.block.input_ids.shape)
        for row, search in enumerate(self.search(classifier, asked, reference)):
            scores[row] = search.importance(scores.shape[1])
        return scores, reference

    def search(self, classifier: Classifier, asked: Explained, reference: Tensor) -> list[Search]:
        """Search every row, all rows step by step together so that batches are full. `reference` [n, C]: logits."""
        searches = [
            _start(may.nonzero()[:, 0], logits[label])
            for may, logits, label in zip(asked.candidates(classifier.mask_id), reference, asked.target)
        ]
        for step in range(max((len(search.positions) for search in searches), default=0)):
            alive = [row for row, search in enumerate(searches) if step < len(search.positions)]
            found = {row: searches[row].candidates() for row in alive}
            copies = _masked_copies(asked.block, searches, found, classifier.mask_id)
            logits = evaluate(classifier, copies).logits.split([len(found[row][0]) for row in alive])
            for row, answer in zip(alive, logits):
                searches[row].keep(self.width, *found[row], answer[:, asked.target[row]])
        return searches


def _start(positions: Tensor, reference: Tensor) -> Search:
    nothing = torch.zeros(1, len(positions), dtype=torch.bool)
    return Search(positions, reference, nothing, torch.zeros(1), torch.empty(1, 0, dtype=torch.int64))


def _masked_copies(
    block: Block, searches: list[Search], found: dict[int, tuple[Tensor, Tensor, Tensor]], mask_id: int
) -> Block:
    rows, ids = [], []
    for row, (_, _, masked) in found.items():
        copies = block.input_ids[row].repeat(len(masked), 1)
        positions = searches[row].positions
        copies[:, positions] = copies[:, positions].masked_fill(masked, mask_id)
        rows.append(torch.full((len(masked),), row))
        ids.append(copies)
    return block.take(torch.cat(rows), torch.cat(ids))
