"""Tiny random models of every supported shape, and a batch of awkward rows for them."""

from functools import cache

import torch
import transformers as hf

from fmm.models.classifier import Classifier

LIMIT, VOCABULARY, LABELS = 10, 60, 3
PAD, CLS, SEP, MASK, WORD = 1, 0, 2, 4, 10

_SIZE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "num_labels": LABELS,
    "pad_token_id": PAD,
    "max_position_embeddings": LIMIT,
}
_RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 8}
_MODERN = {"cls_token_id": CLS, "sep_token_id": SEP, "bos_token_id": CLS, "eos_token_id": SEP}
SHAPES = {
    "bert": (hf.BertConfig, hf.BertForSequenceClassification, {}),
    "roberta": (hf.RobertaConfig, hf.RobertaForSequenceClassification, {"max_position_embeddings": LIMIT + 2}),
    "preln": (
        hf.RobertaPreLayerNormConfig,
        hf.RobertaPreLayerNormForSequenceClassification,
        {"max_position_embeddings": LIMIT + 2},
    ),
    "distilbert": (
        hf.DistilBertConfig,
        hf.DistilBertForSequenceClassification,
        {"dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4},
    ),
    "deberta": (hf.DebertaConfig, hf.DebertaForSequenceClassification, {**_RELATIVE, "type_vocab_size": 2}),
    "deberta_v2": (
        hf.DebertaV2Config,
        hf.DebertaV2ForSequenceClassification,
        {**_RELATIVE, "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_buckets": 4},
    ),
    "electra": (hf.ElectraConfig, hf.ElectraForSequenceClassification, {"embedding_size": 24}),
    "modernbert": (
        hf.ModernBertConfig,
        hf.ModernBertForSequenceClassification,
        {**_MODERN, "local_attention": 6, "global_attn_every_n_layers": 2},
    ),
}
WITH_TOKEN_TYPES = {"bert", "electra", "deberta"}


def make_model(shape: str, **changes: object) -> torch.nn.Module:
    """A seeded random model. Weights are large, so that attention and positions matter."""
    config_class, model_class, fields = SHAPES[shape]
    torch.manual_seed(5)
    model = model_class(config_class(**{**_SIZE, **fields, **changes})).eval()
    noise = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            scale = 0.5 if "embed" in name.lower() else 0.25
            centre = 1.0 if weight.ndim == 1 and name.endswith("weight") else 0.0
            weight.copy_(centre + scale * torch.randn(weight.shape, generator=noise))
    return model


@cache
def classifier_of(shape: str) -> Classifier:
    """The classifier of this shape, made once. Tests leave it as they found it."""
    return Classifier(make_model(shape), mask_id=MASK, pad_id=PAD, max_length=LIMIT).requires_grad_(False)


_A, _B = [11, 12, 13, 14, 15, 16], [21, 22, 23]
ROWS: dict[str, tuple[list[int], list[int] | None]] = {
    "plain": (_A, None),
    "pair": ([31, 32, 33, 34], _B),
    "one token": ([41], None),
    "empty": ([], None),
    "all masked": ([MASK] * 3, None),
    "some masked": ([MASK, 17, 18, MASK, 19], [MASK, 24]),
    "at the limit": (list(range(30, 30 + LIMIT - 2)), None),
    "repeated": (_A, None),
    "empty first": ([], _B),
    "specials in the text": ([51, CLS, 52, SEP, 53, PAD, 54], None),
    "one word over": ([33] * 5, None),
}


def make_batch(shape: str, names: list[str] | None = None, *, left: int = 0, right: int = 0) -> dict[str, torch.Tensor]:
    """These rows of `ROWS` (default: all) as a batch, with more padding on the `left` and `right` if asked."""
    names = list(ROWS) if names is None else names
    tokens, texts = [], []
    for name in names:
        first, second = ROWS[name]
        tokens.append([CLS, *first, SEP, *([*second, SEP] if second is not None else [])])
        texts.append([0, *[1] * len(first), 0, *([*[2] * len(second), 0] if second is not None else [])])
    width = max(map(len, tokens))

    def pad(rows: list[list[int]], value: int) -> torch.Tensor:
        return torch.tensor([[value] * left + row + [value] * (width - len(row) + right) for row in rows])

    batch = {
        "input_ids": pad(tokens, PAD),
        "attention_mask": pad([[1] * len(row) for row in tokens], 0),
        "sequence_id": pad(texts, 0),
        "labels": torch.tensor([list(ROWS).index(name) % LABELS for name in names]),
        "example_id": torch.tensor([100 + list(ROWS).index(name) for name in names]),
    }
    if shape in WITH_TOKEN_TYPES:
        starts = [len(ROWS[name][0]) + 2 for name in names]
        batch["token_type_ids"] = pad([[int(i >= s) for i in range(len(row))] for s, row in zip(starts, tokens)], 0)
    return batch
