"""A small encoder from scratch, with a tokenizer trained on the training split.

Pre-LayerNorm, as a post-LayerNorm encoder of this size does not train from scratch in a few epochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    PreTrainedTokenizerFast,
    RobertaPreLayerNormConfig,
    RobertaPreLayerNormForSequenceClassification,
)

from fmm.errors import FmmError

_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def train_tokenizer(texts: Iterable[str], *, vocab_size: int, max_length: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer, which loses no text; special ids as in RoBERTa (<s> 0, <pad> 1, </s> 2)."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=_SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True)
    names = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>"}
    names |= {"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=max_length, **names)


def build_model(config: Mapping[str, Any], label_names: Sequence[str], vocab_size: int) -> Any:
    """Build the encoder with random weights; `config` is conf/model/tiny.yaml.

    Raises FmmError where the heads cannot share the hidden size.
    """
    size, heads = config["hidden_size"], config["num_heads"]
    if size % heads:
        raise FmmError(f"model.hidden_size={size} is no multiple of model.num_heads={heads}; change one of them")
    return RobertaPreLayerNormForSequenceClassification(
        RobertaPreLayerNormConfig(
            vocab_size=vocab_size,
            hidden_size=config["hidden_size"],
            num_hidden_layers=config["num_layers"],
            num_attention_heads=config["num_heads"],
            intermediate_size=config["intermediate_size"],
            max_position_embeddings=config["max_length"] + 2,
            type_vocab_size=1,
            layer_norm_eps=1e-5,
            id2label=dict(enumerate(label_names)),
            label2id={name: i for i, name in enumerate(label_names)},
        )
    )
