"""What an importance measure is. Adding one: a subclass of `Measure` in a file here, and a YAML in conf/measure."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fmm.errors import FmmError, unknown
from fmm.inference import Block, Rows
from fmm.masking import maskable_tokens
from fmm.models.classifier import Classifier

TEXTS: dict[str, tuple[int, ...]] = {"first": (1,), "second": (2,), "both": (1, 2)}


@dataclass(frozen=True)
class Explained:
    """A block of n rows of one length T, and what is asked about them.

    Attributes:
        block: the rows. rankable [n, T]: tokens of the explained text. target [n]: the label whose logit is explained.
        seed: for measures that draw.
        reference [n, C]: the rows' logits where the caller has them, NaN in the rows where it has not; or None.
    """

    block: Block
    rankable: Tensor
    target: Tensor
    seed: int
    reference: Tensor | None = None

    def candidates(self, mask_id: int) -> Tensor:
        """Rankable tokens that are not masked already. Bool [n, T]."""
        return self.rankable & (self.block.input_ids != mask_id)

    def unknown(self) -> Tensor:
        """Places of the rows whose own logits nobody has yet."""
        everyone = torch.arange(len(self.block))
        return everyone if self.reference is None else everyone[self.reference.isnan().any(dim=1)]

    def completed(self, found: Tensor) -> Tensor:
        """All rows' logits [n, C], given those `found` of the unknown ones."""
        return found if self.reference is None else self.reference.index_copy(0, self.unknown(), found)


class Measure(ABC):
    """One importance measure, or a family of them that share a computation.

    Attributes:
        presets: names of the family's members, each with the arguments of the constructor that make it.
        pattern: for families with a number in the name, such as beam_7: its groups are (integer) arguments.
        name: the member's name.
        signed: True: negative scores speak against the target. False: none is negative, the larger the more important.
        recursive_default: whether a faithfulness curve explains anew after each masking step.
        passes_over_input: whether `score` sends just the rows as they are through `Classifier.logits_from_embeddings`,
            so that their logits and hidden states fall out.
    """

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    pattern: ClassVar[re.Pattern[str] | None] = None
    recursive_default: ClassVar[bool] = True
    passes_over_input: ClassVar[bool] = False
    name: str
    signed: bool

    @abstractmethod
    def score(self, classifier: Classifier, asked: Explained) -> tuple[Tensor, Tensor | None]:
        """Scores [n, T] of the block's tokens, and the unmasked rows' logits [n, C] where they fall out anyway."""

    def __call__(
        self,
        classifier: Classifier,
        batch: Mapping[str, Tensor],
        target: Tensor,
        *,
        explain: str = "first",
        seed: int = 0,
    ) -> Tensor:
        """Scores [B, T] in float32, 0 at padding, of the logits `target` [B] on a batch.

        Raises:
            FmmError: a target outside the labels, an unknown `explain`, logits that are not finite.
        """
        return self.explain(classifier, batch, target, explain=explain, seed=seed)[0]

    @torch.inference_mode(False)  # so that gradients work wherever the caller stands
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
        """As `__call__`, with the rows' logits [B, C] if the measure came by them.

        `reference` [B, C]: logits that the caller has already, NaN rows where it has not; they are not computed again.
        """
        ids = batch["input_ids"]
        rows = Rows.from_batch(batch)
        target = check_target(target, len(rows), classifier).cpu()
        attended = batch["attention_mask"].bool().cpu() if "attention_mask" in batch else torch.ones(ids.shape).bool()
        flat_rankable = rankable_tokens(batch, explain).cpu()[attended]
        flat = torch.zeros(int(rows.lengths.sum()))
        logits: Tensor | None = None
        for block in rows.blocks():
            places = rows.starts[block.index, None] + torch.arange(block.input_ids.shape[1])
            known = None if reference is None else reference[block.index].cpu()
            asked = Explained(block, flat_rankable[places], target[block.index], seed, known)
            scores, found = self.score(classifier, asked)
            flat[places] = scores.float().cpu()
            if found is not None:
                logits = torch.empty(len(rows), found.shape[1]) if logits is None else logits
                logits[block.index] = found.float().cpu()
        scores = torch.zeros(ids.shape)
        scores[attended] = flat
        return scores.to(ids.device), None if logits is None else logits.to(ids.device)


def rankable_tokens(batch: Mapping[str, Tensor], explain: str = "first") -> Tensor:
    """Tokens that an explanation ranks: those of the explained text. Bool [B, T].

    A batch without `sequence_id` raises FmmError: texts are never guessed from token ids.
    """
    if explain not in TEXTS:
        raise unknown("text to explain", explain, TEXTS)
    if "sequence_id" not in batch:
        raise FmmError(
            "the batch has no 'sequence_id' (which text a token belongs to); make batches with fmm.data.encode"
        )
    sequence_id = batch["sequence_id"]
    attended = batch.get("attention_mask", torch.ones_like(sequence_id))
    wanted = torch.tensor(TEXTS[explain], device=sequence_id.device)
    return maskable_tokens(attended, sequence_id) & torch.isin(sequence_id, wanted)


def check_target(target: Tensor, n_rows: int, classifier: Classifier) -> Tensor:
    """`target` [B] as int64. Raises FmmError where it is no label of the classifier."""
    target = torch.as_tensor(target).long()
    if target.shape != (n_rows,):
        raise FmmError(f"target has shape {tuple(target.shape)} for {n_rows} rows; give one label for each row")
    outside = target[(target < 0) | (target >= classifier.num_labels)]
    if len(outside):
        names = ", ".join(f"{label} {name}" for label, name in enumerate(classifier.label_names))
        raise FmmError(f"target {int(outside[0])} is not a label of this model; choose from {names}")
    return target
