"""Compute of the last layer only what the classifier reads: the first token.

The classifiers of BERT, RoBERTa, ELECTRA, DistilBERT, DeBERTa and ModernBERT read one position of the last layer.
Keys and values need all positions there; queries, the output projection and the feed-forward half do not. That is
5/6 of the layer's matrix products (2/3 where only the feed-forward half is cut).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

LayerForward = Callable[..., Any]


def _attend(query: Tensor, key: Tensor, value: Tensor, heads: int, scale: float, mask: Tensor | None) -> Tensor:
    """Attention of the queries [B, 1, W] over keys and values [B, T, W]. Returns [B, 1, W]."""
    query, key, value = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (query, key, value))
    if mask is not None:
        mask = mask[:, :, :1, : key.shape[2]]
    context = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
    return context.transpose(1, 2).flatten(2)


def _bert(layer: Any) -> LayerForward:
    def forward(hidden: Tensor, attention_mask: Tensor | None = None, *args: Any, **kwargs: Any) -> Tensor:
        attention, first = layer.attention.self, hidden[:, :1]
        # RoBERTa-PreLayerNorm normalises before attention, the others in its output.
        source = layer.attention.LayerNorm(hidden) if hasattr(layer.attention, "LayerNorm") else hidden
        context = _attend(
            attention.query(source[:, :1]), attention.key(source), attention.value(source),
            attention.num_attention_heads, attention.scaling, attention_mask,
        )  # fmt: skip
        attended = layer.attention.output(context, first)
        return layer.output(layer.intermediate(attended), attended)

    return forward


def _distilbert(layer: Any) -> LayerForward:
    def forward(hidden: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> Tensor:
        attention, first = layer.attention, hidden[:, :1]
        context = _attend(
            attention.q_lin(first), attention.k_lin(hidden), attention.v_lin(hidden),
            attention.n_heads, attention.scaling, attention_mask,
        )  # fmt: skip
        attended = layer.sa_layer_norm(attention.out_lin(context) + first)
        return layer.output_layer_norm(layer.ffn(attended) + attended)

    return forward


def _deberta(layer: Any) -> LayerForward:
    def forward(hidden: Tensor, attention_mask: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, None]:
        attended = layer.attention(hidden, attention_mask, *args, **kwargs)[0][:, :1]
        return layer.output(layer.intermediate(attended), attended), None

    return forward


def _modernbert(layer: Any) -> LayerForward:
    def forward(hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        attended = hidden[:, :1] + layer.attn(layer.attn_norm(hidden), *args, **kwargs)[0][:, :1]
        return attended + layer.mlp(layer.mlp_norm(attended))

    return forward


SHORTCUTS: dict[str, Callable[[nn.Module], LayerForward]] = {
    "BertLayer": _bert,
    "RobertaLayer": _bert,
    "XLMRobertaLayer": _bert,
    "CamembertLayer": _bert,
    "RobertaPreLayerNormLayer": _bert,
    "ElectraLayer": _bert,
    "TransformerBlock": _distilbert,
    "DebertaLayer": _deberta,
    "DebertaV2Layer": _deberta,
    "ModernBertEncoderLayer": _modernbert,
}


class FirstTokenShortcut:
    """Run a model's last layer for the first token only, where that provably gives the model's own logits.

    The first use compares both ways on random inputs, padded ones too; a model that disagrees, or that is built in a
    way unknown here, computes its last layer in full.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model: Any = model
        layers = [module for module in model.modules() if type(module).__name__ in SHORTCUTS]
        self._layer: Any = layers[-1] if layers else None
        self._agrees: bool | None = None if layers else False

    @contextmanager
    def active(self, wanted: bool = True) -> Iterator[None]:
        """Within this block the last layer is cut down, if `wanted` and exact for this model."""
        if wanted and self._agrees is None:
            self._agrees = self._compare()
        if not (wanted and self._agrees):
            yield
            return
        with self._cut():
            yield

    @contextmanager
    def _cut(self) -> Iterator[None]:
        # An attribute of the instance hides the class's method and leaves copies and state dicts as they were.
        layer = self._layer
        layer.forward = SHORTCUTS[type(layer).__name__](layer)
        try:
            yield
        finally:
            del layer.forward

    def _compare(self) -> bool:
        weight = self._model.get_input_embeddings().weight
        noise = torch.Generator().manual_seed(0)
        ids = torch.randint(0, weight.shape[0], (4, 6), generator=noise)
        attended = torch.ones_like(ids)
        attended[0, 4:] = attended[1, 5:] = 0
        with torch.no_grad(), torch.autocast(weight.device.type, enabled=False):
            for inputs in ({"attention_mask": attended}, {}):
                inputs = {key: value.to(weight.device) for key, value in {"input_ids": ids, **inputs}.items()}
                full = self._model(**inputs).logits.float()
                try:
                    with self._cut():
                        cut = self._model(**inputs).logits.float()
                except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
                    return False
                tolerance = (1e-4 if weight.dtype == torch.float32 else 0.05) * max(1.0, full.abs().max().item())
                if full.shape != cut.shape or not bool(((full - cut).abs() <= tolerance).all()):
                    return False
        return True
