"""The classification head that training starts from: a trained one in the data's order of labels, or a new one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForSequenceClassification

from fmm.data.labels import proposed_map
from fmm.data.matching import match_labels
from fmm.errors import FmmError


def arranged_head(model: Any, own_names: Sequence[str], label_names: Sequence[str], name: str) -> tuple[Any, str]:
    """A classifier whose outputs stand in the order of `label_names`, and what was done with its head in a sentence.

    `own_names` are the labels that the checkpoint was trained on, as many as `label_names`. Where they are the same
    names the head's rows are put in the data's order; where they are others the head is drawn anew, as it was trained
    to tell other classes apart; where they say nothing (LABEL_0, ...) the data's order is assumed.
    """
    shown = ", ".join(label_names)
    try:
        matching = match_labels(own_names, label_names, name)
    except FmmError:
        proposal = proposed_map(label_names, own_names)
        return with_new_head(model), (
            f"{name} is a classifier of {', '.join(own_names)} and the data's labels are {shown}: its head is not "
            f"used, a new one is trained (to keep it, say what is what by {proposal})"
        )
    order = matching.classes
    if order == list(range(len(order))):
        said = matching.said(name)
        return model, said[0] if said else f"the classification head of {name} is kept: its labels are the data's"
    if _put_in_order(model, order):
        return model, f"the head of {name} is kept, its outputs put from the order {', '.join(own_names)} into {shown}"
    return with_new_head(model), f"the head of {name} cannot be put in the order {shown}: a new one is trained"


def with_new_head(model: Any) -> Any:
    """The same encoder under a classification head that is drawn anew."""
    fresh = AutoModelForSequenceClassification.from_config(model.config)
    state = {key: weight for key, weight in model.base_model.state_dict().items() if "pooler" not in key.split(".")}
    fresh.base_model.load_state_dict(state, strict=False)
    return fresh.to(next(model.parameters()).dtype)


def _put_in_order(model: Any, order: Sequence[int]) -> bool:
    """Permute the rows of the last linear layer. False, with the model as it was, where that permutes no logits."""
    inside = set(model.base_model.modules())
    linear = [module for module in model.modules() if isinstance(module, nn.Linear) and module not in inside]
    outputs = [module for module in linear if module.out_features == len(order)]
    if not outputs:
        return False
    last = outputs[-1]
    before = _trial_logits(model)
    kept = {key: weight.clone() for key, weight in last.state_dict().items()}
    with torch.no_grad():
        for weight in last.parameters():
            weight.copy_(weight[list(order)].clone())
    if torch.allclose(_trial_logits(model), before[:, list(order)], atol=1e-5):
        return True
    last.load_state_dict(kept)
    return False


def _trial_logits(model: Any) -> torch.Tensor:
    ids = torch.arange(5, 13).remainder(model.get_input_embeddings().num_embeddings)[None]
    training = model.training
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=ids).logits.float()
    model.train(training)
    return logits
