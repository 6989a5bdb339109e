"""The random measure: the baseline of every faithfulness curve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from fmm.draws import Draw
from fmm.errors import FmmError
from fmm.measures.base import Explained, Measure
from fmm.models.classifier import Classifier


class Random(Measure):
    """U[0, 1) at every token, from (seed, order, example id, position) alone: any batch or process gives the same.

    `order` numbers the random orders of one row; the first, 0, is the measure `rand`.
    """

    order = 0
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"rand": {}}
    signed = False

    @classmethod
    def in_order(cls, order: int) -> Random:
        """The random measure of another order of each row."""
        measure = cls()
        measure.name, measure.order = "rand", order
        return measure

    def explain(
        self,
        classifier: Classifier,
        batch: Mapping[str, Tensor],
        target: Tensor,
        *,
        explain: str = "first",
        seed: int = 0,
        reference: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """As `Measure.explain`; raises FmmError for a batch that does not say which examples its rows are."""
        if batch.get("example_id") is None:
            raise FmmError("the batch has no 'example_id', which rand draws from; give each row its number in the data")
        return super().explain(classifier, batch, target, explain=explain, seed=seed, reference=reference)

    def score(self, classifier: Classifier, asked: Explained) -> tuple[Tensor, None]:
        position = torch.arange(asked.block.input_ids.shape[1])
        return Draw.RANDOM_MEASURE.uniform(asked.seed, self.order, asked.block.example_id[:, None], position), None
