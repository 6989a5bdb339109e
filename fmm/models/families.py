"""What must be known of a family of models beyond that it has a mask token: which cannot be explained, and why."""

from __future__ import annotations

from typing import Any

import torch

from fmm.errors import FmmError

# Families of masked language models that no setting makes work, with the reason and what to do.
_REFUSED = {
    "perceiver": "reads bytes into latents and has no word embeddings, which the gradient measures need",
    "reformer": "passes gradients back in training mode only, with dropout, so that gradient measures would be random",
    "mra": "computes its attention on CUDA with a kernel of its own, and elsewhere silently leaves it out",
}


def check_family(config: Any, name: str) -> None:
    """Refuse a family that cannot be explained, and a configuration that its own family cannot run.

    Raises FmmError.
    """
    kind = config.model_type
    if kind in _REFUSED:
        raise FmmError(f"model {name!r} ({kind}) {_REFUSED[kind]}; choose another encoder, such as roberta-base")
    if kind == "xmod" and config.default_language is None:
        languages = ", ".join(config.languages)
        raise FmmError(
            f"model {name!r} (xmod) has adapters for {languages} and reads a text only in a chosen one; set "
            "default_language in its config.json"
        )


def replaced_embeddings(word_embeddings: torch.Tensor, output: Any) -> Any:
    """`word_embeddings` [B, T, D] in place of the `output` of a model's word-embedding layer.

    Longformer pads a text within the model, so that the layer's output is longer than T: its own padding is kept.
    I-BERT's layer returns its scaling factor too.
    """
    if isinstance(output, tuple):
        return (replaced_embeddings(word_embeddings, output[0]), *output[1:])
    length = word_embeddings.shape[1]
    return torch.cat([word_embeddings.to(output.dtype), output[:, length:]], dim=1)
