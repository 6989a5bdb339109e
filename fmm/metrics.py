"""Classification metrics by torchmetrics, right for absent classes and constant predictions.

The metrics are those of the datasets of arXiv 2310.07819. Where the authors' Keras code has a quirk (a winning
logit of exactly 0 is no prediction, tied logits are two), the usual definition by argmax is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torchmetrics.functional.classification import (
    multiclass_accuracy,
    multiclass_f1_score,
    multiclass_matthews_corrcoef,
)

from fmm.errors import unknown
from fmm.schema import METRICS

NAMES = METRICS


def compute(names: Iterable[str], logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Metrics `names` of `logits` [N, C] against gold `labels` [N], each in [0, 1] (Matthews in [-1, 1]).

    Raises FmmError for a name that is not in `NAMES`.

    >>> compute(["accuracy"], torch.tensor([[2.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 0]))
    {'accuracy': 0.5}
    """
    predicted = logits.argmax(dim=1)
    return {name: _metric(name, predicted, labels, logits.shape[1]) for name in names}


def of_predictions(names: Iterable[str], predicted: Tensor, labels: Tensor, num_classes: int) -> dict[str, float]:
    """As `compute`, from predicted classes [N]."""
    return {name: _metric(name, predicted, labels, num_classes) for name in names}


def _metric(name: str, predicted: Tensor, labels: Tensor, num_classes: int) -> float:
    if name == "accuracy":
        return float(multiclass_accuracy(predicted, labels, num_classes, average="micro"))
    if name == "micro_f1":
        return float(multiclass_f1_score(predicted, labels, num_classes, average="micro"))
    if name == "macro_f1":
        # average="macro" drops a class that is neither true nor predicted; here, as with the authors, it counts as 0
        per_class = multiclass_f1_score(predicted, labels, num_classes, average="none")
        return float(per_class.mean())
    if name == "matthews":
        value = float(multiclass_matthews_corrcoef(predicted, labels, num_classes))
        constant = predicted.unique().numel() < 2 or labels.unique().numel() < 2
        return 0.0 if constant else value
    raise unknown("metric", name, NAMES)


def majority_baseline(
    names: Sequence[str], train_counts: Sequence[int], labels: Tensor
) -> tuple[int, dict[str, float]]:
    """The most frequent training class, and the metrics of always predicting it on `labels` [N]."""
    counts = torch.as_tensor(train_counts)
    majority = int(counts.argmax())
    predicted = torch.full_like(labels, majority)
    return majority, of_predictions(names, predicted, labels, len(counts))
