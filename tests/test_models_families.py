"""Every family of sequence classifiers with a masked language model that transformers has: it works, or is refused."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
)

from fmm import measures
from fmm.errors import FmmError
from fmm.inference import Rows, evaluate
from fmm.models import build
from fmm.models.classifier import Classifier

DOCS = Path(__file__).parents[1] / "docs" / "models.md"
ROWS = [[0, 11, 12, 13, 14, 15, 2], [0, 31, 32, 2, 21, 22, 2], [0, 41, 2], [0, 4, 17, 4, 18, 2, 4, 24, 2]]
SIZE = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "num_labels": 3,
    "max_position_embeddings": 40,
    "type_vocab_size": 2,
    "bos_token_id": 0,
    "cls_token_id": 0,
    "pad_token_id": 1,
    "sep_token_id": 2,
    "eos_token_id": 2,
}
OWN_SIZE: dict[str, dict[str, Any]] = {
    "distilbert": {"dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4},
    "xlm": {"emb_dim": 32, "n_layers": 2, "n_heads": 4},
    "flaubert": {"emb_dim": 32, "n_layers": 2, "n_heads": 4},
    "electra": {"embedding_size": 24},
    "albert": {"embedding_size": 24},
    "mobilebert": {"embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32},
    "longformer": {"attention_window": [4, 4]},
    "funnel": {"d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 48, "block_sizes": [1, 1]},
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
    "big_bird": {"attention_type": "original_full", "block_size": 4, "num_random_blocks": 1},
    "convbert": {"embedding_size": 32, "head_ratio": 2, "num_groups": 1},
    "nystromformer": {"num_landmarks": 4, "segment_means_seq_len": 4},
    "roformer": {"embedding_size": 32},
    "rembert": {"input_embedding_size": 16, "output_embedding_size": 16},
    "esm": {"mask_token_id": 4, "position_embedding_type": "rotary"},
    "luke": {"entity_vocab_size": 10, "entity_emb_size": 16},
    "roc_bert": {
        "pronunciation_vocab_size": 20,
        "shape_vocab_size": 20,
        "pronunciation_embed_dim": 8,
        "shape_embed_dim": 8,
    },
    "fnet": {"tpu_short_seq_length": 40},
    "squeezebert": {"embedding_size": 32},
}
REFUSED = {
    "bart": "has a decoder",
    "mbart": "has a decoder",
    "mvp": "has a decoder",
    "perceiver": "no word embeddings",
    "mra": "on CUDA with a kernel",
    "reformer": "in training mode only",
}
TOO_LARGE = {"modernvbert", "ultravbert"}  # of text and pictures: no small configuration
FAMILIES = sorted(set(MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES) & set(MODEL_FOR_MASKED_LM_MAPPING_NAMES))


@cache
def classifier_of(family: str) -> Classifier:
    fields = {**SIZE, **OWN_SIZE.get(family, {})}
    if family == "funnel":
        del fields["num_hidden_layers"]  # it has blocks
    config = CONFIG_MAPPING[family](**fields)
    build.check_config(config, family)
    torch.manual_seed(0)
    model = getattr(transformers, MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES[family])(config).eval()
    noise = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            centre = 1.0 if weight.ndim == 1 and name.endswith("weight") else 0.0
            weight.copy_(centre + 0.2 * torch.randn(weight.shape, generator=noise))
    return Classifier(model, mask_id=4, pad_id=1, max_length=30).requires_grad_(False)


def batch_of(rows: list[list[int]]) -> dict[str, torch.Tensor]:
    width = max(map(len, rows))
    ids = torch.tensor([row + [1] * (width - len(row)) for row in rows])
    attended = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    words = attended.bool() & (ids != 0) & (ids != 2)
    return {
        "input_ids": ids,
        "attention_mask": attended,
        "sequence_id": words.long(),
        "example_id": torch.arange(len(rows)),
        "labels": torch.arange(len(rows)) % 3,
    }


WORKING = [family for family in FAMILIES if family not in REFUSED and family not in TOO_LARGE]


@pytest.mark.parametrize("family", WORKING)
def test_a_row_is_the_same_in_any_company_and_as_the_model_alone_says(family: str) -> None:
    classifier = classifier_of(family)
    batch = batch_of(ROWS)
    together = evaluate(classifier, Rows.from_batch(batch), signals=True)
    assert together.signals is not None
    for place, row in enumerate(ROWS):
        alone = batch_of([row])
        with torch.no_grad():
            plain = classifier.model(input_ids=alone["input_ids"], attention_mask=alone["attention_mask"]).logits
        scale = max(1.0, float(plain.abs().max()))
        assert torch.allclose(together.logits[place], plain[0].float(), atol=1e-4 * scale)
        single = evaluate(classifier, Rows.from_batch(alone), signals=True)
        assert torch.allclose(together.signals[place], single.signals[0], atol=1e-4 * scale)
    assert len({tuple(row.tolist()) for row in together.logits}) == len(ROWS)


@pytest.mark.parametrize("family", WORKING)
@pytest.mark.parametrize("name", ["grad_l2", "int_grad_sign", "loo_sign", "beam_2"])
def test_measures_of_a_row_are_the_same_in_any_company(family: str, name: str) -> None:
    classifier, measure = classifier_of(family), measures.build(name)
    batch = batch_of(ROWS)
    scores, _ = measure.explain(classifier, batch, batch["labels"])
    assert (scores.abs().sum(dim=1) > 0).all()
    for place, row in enumerate(ROWS):
        alone, _ = measure.explain(classifier, batch_of([row]), batch["labels"][place : place + 1])
        scale = max(1.0, float(alone.abs().max()))
        assert torch.allclose(scores[place, : len(row)], alone[0], atol=1e-4 * scale)


@pytest.mark.parametrize("family", WORKING)
def test_every_family_learns_a_padded_batch(family: str) -> None:
    model = classifier_of(family).model
    batch = batch_of(ROWS)
    with torch.enable_grad():
        model.requires_grad_(True)
        inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
        torch.nn.functional.cross_entropy(model(**inputs).logits, batch["labels"]).backward()
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        model.requires_grad_(False)
        model.zero_grad(set_to_none=True)
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    assert sum(float(gradient.abs().sum()) for gradient in gradients) > 0


@pytest.mark.parametrize("family", REFUSED)
def test_what_cannot_work_is_refused_before_any_work(family: str) -> None:
    with pytest.raises(FmmError, match=REFUSED[family]):
        build.check_config(CONFIG_MAPPING[family](), family)


def test_xmod_without_a_language_is_refused() -> None:
    with pytest.raises(FmmError, match="set default_language in its config"):
        build.check_config(CONFIG_MAPPING["xmod"](languages=["en_XX", "de_DE"]), "xmod")


def test_the_table_in_docs_is_of_these_families() -> None:
    rows = re.findall(r"^\| ([\w-]+) \| (works|refused|not tried) ", DOCS.read_text("utf-8"), re.MULTILINE)
    expected = dict.fromkeys(WORKING, "works")
    expected |= dict.fromkeys(REFUSED, "refused") | dict.fromkeys(TOO_LARGE, "not tried")
    here = set(FAMILIES)  # another version of transformers may have others
    assert {family: what for family, what in rows if family in here} == {
        family: what for family, what in expected.items() if family in dict(rows)
    }
    assert len(set(dict(rows)) & here) >= 0.8 * len(expected)
