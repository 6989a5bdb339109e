"""The public call: explain a batch and get scores that say what may be ranked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fmm import masking
from fmm.data.labels import target_label
from fmm.errors import FmmError
from fmm.inference import Rows, evaluate
from fmm.measures.base import rankable_tokens
from fmm.models.classifier import Classifier

if TYPE_CHECKING:
    from fmm.measures.base import Measure


@dataclass(frozen=True)
class Attribution:
    """An explanation of B rows of T tokens.

    Attributes:
        scores [B, T]: float32, larger is more important; 0 at padding. Special tokens and the text that is not
            explained may carry a value (gradient measures): it is not to be ranked.
        rankable [B, T]: tokens of the explained text.
        target [B]: the label whose logit was explained; predicted [B]: whether that is the model's prediction because
            it was asked for, or because the row has no gold label.
        logits [B, C]: of the batch as it stood.
        measure: the measure's name. signed: whether negative scores speak against the target.
    """

    scores: Tensor
    rankable: Tensor
    target: Tensor
    predicted: Tensor
    logits: Tensor
    measure: str
    signed: bool

    def ranks(self) -> Tensor:
        """Rank [B, T] of each token, 0 the most important, ties to the earlier; −1 where a token cannot be ranked."""
        return masking.ranks(self.scores, self.rankable).masked_fill(~self.rankable, -1)


def attribute(
    classifier: Classifier,
    batch: Mapping[str, Tensor],
    measure: str | Mapping[str, Any] | Measure = "loo_abs",
    *,
    target: str | int | Tensor = "gold",
    explain: str = "first",
    seed: int = 0,
) -> Attribution:
    """Which words decided this? Scores of every token of a batch for one logit.

    Args:
        classifier: from `fmm.load_classifier`.
        batch: `input_ids`, `attention_mask`, `sequence_id` [B, T] (0 special or padding, 1 first text, 2 second), and
            where there are any `token_type_ids` [B, T], `labels` [B] (−1 no gold label), `example_id` [B].
        measure: a name such as `loo_sign` or `beam_7`, or a mapping such as {"name": "int_grad_abs", "steps": 50}.
        target: `gold` (a row without gold label: `predicted`), `predicted`, the number of a class, the name of a label
            (the model's, or your data's by the classifier's `label_map`), or classes [B].
        explain: which text is ranked: `first`, `second` or `both`.
        seed: of the measures that draw.

    Raises:
        FmmError: unknown measure, option, text or target; logits that are not finite (names the example).
    """
    from fmm.measures import build

    chosen = build(measure)
    rankable = rankable_tokens(batch, explain)
    wanted = _wanted(classifier, batch, target)
    missing = wanted == -1
    logits: Tensor | None = None
    if missing.any():
        logits = evaluate(classifier, Rows.from_batch(batch)).logits.to(wanted.device)
        wanted = torch.where(missing, logits.argmax(dim=1), wanted)
    scores, found = chosen.explain(classifier, batch, wanted, explain=explain, seed=seed)
    if logits is None:
        logits = found if found is not None else evaluate(classifier, Rows.from_batch(batch)).logits
    device = batch["input_ids"].device
    return Attribution(scores, rankable, wanted, missing, logits.to(device), chosen.name, chosen.signed)


def _wanted(classifier: Classifier, batch: Mapping[str, Tensor], target: str | int | Tensor) -> Tensor:
    """The labels [B] to explain, −1 where it is the predicted one."""
    ids = batch["input_ids"]
    if isinstance(target, Tensor):
        return target.to(ids.device).long()
    if isinstance(target, Integral) and not isinstance(target, bool):  # numpy's whole numbers too
        target = int(target)
        if not 0 <= target < classifier.num_labels:
            names = ", ".join(f"{label} {name}" for label, name in enumerate(classifier.label_names))
            raise FmmError(f"target {target} is not a label of this model; choose from {names}")
        return torch.full((len(ids),), target, device=ids.device)
    if target == "gold":
        return (
            batch["labels"].to(ids.device).long() if batch.get("labels") is not None else ids.new_full((len(ids),), -1)
        )
    if target == "predicted":
        return ids.new_full((len(ids),), -1)
    name = target_label(target, classifier.label_names, classifier.label_map)
    return ids.new_full((len(ids),), classifier.label_names.index(name))
