"""The classifier's small interface, the same on every shape of model."""

import copy

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaForMaskedLM

import fmm
from fmm.errors import FmmError
from fmm.models.classifier import Classifier
from tests.shapes import MASK, PAD, SHAPES, classifier_of, make_batch, make_model


def full_logits(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    wanted = ("input_ids", "attention_mask", "token_type_ids")
    with torch.no_grad():
        return model(**{key: batch[key] for key in wanted if key in batch}).logits


@pytest.mark.parametrize("shape", SHAPES)
def test_last_layer_of_the_first_token_gives_the_models_own_logits(shape: str) -> None:
    classifier, batch = classifier_of(shape), make_batch(shape)
    assert torch.allclose(classifier.logits(batch), full_logits(classifier.model, batch), rtol=1e-5, atol=1e-5)
    assert classifier._first_token._agrees


@pytest.mark.parametrize("shape", SHAPES)
def test_last_layer_is_really_cut(shape: str) -> None:
    classifier, seen = classifier_of(shape), []
    feed_forward = [m for m in classifier.model.modules() if isinstance(m, torch.nn.Linear) and m.in_features == 48][-1]
    hook = feed_forward.register_forward_hook(lambda module, inputs, output: seen.append(output.shape[1]))
    batch = make_batch(shape, ["pair", "plain"])
    classifier.logits(batch)
    classifier.logits_and_hidden_states(batch)
    hook.remove()
    assert seen == [1, batch["input_ids"].shape[1]]


def test_a_model_that_reads_all_positions_is_computed_in_full() -> None:
    model = make_model("modernbert", classifier_pooling="mean")
    classifier, batch = Classifier(model, mask_id=MASK), make_batch("modernbert")
    assert torch.allclose(classifier.logits(batch), full_logits(model, batch), rtol=1e-5, atol=1e-5)
    assert classifier._first_token._agrees is False


def test_cutting_leaves_the_model_as_it_was() -> None:
    classifier, batch = Classifier(make_model("roberta"), mask_id=MASK), make_batch("roberta")
    keys = list(classifier.state_dict())
    expected = classifier.logits(batch)
    twin = copy.deepcopy(classifier)
    with torch.no_grad():
        for weight in classifier.parameters():
            weight.zero_()
    assert list(classifier.state_dict()) == keys
    assert torch.equal(twin.logits(batch), expected)


@pytest.mark.parametrize("shape", SHAPES)
def test_path_from_embeddings_equals_path_from_ids(shape: str) -> None:
    classifier, batch = classifier_of(shape), make_batch(shape)
    looked_up = classifier.word_embeddings(batch["input_ids"])
    got = classifier.logits_from_embeddings(looked_up, batch)
    assert torch.allclose(got, classifier.logits(batch), rtol=1e-6, atol=1e-6)
    other = classifier.logits_from_embeddings(-looked_up, batch)
    assert not torch.allclose(other, got, atol=1e-3)
    assert not classifier.word_embeddings._forward_hooks


def test_root_of_the_vocabulary_follows_the_weights() -> None:
    classifier = Classifier(make_model("roberta"), mask_id=MASK)
    g = torch.randn(7, 32)
    for _ in range(2):
        expected = (g @ classifier.word_embeddings.weight.T).norm(dim=1)
        assert torch.allclose((g @ classifier.vocabulary_root().T).norm(dim=1), expected, rtol=1e-5)
        with torch.no_grad():
            classifier.word_embeddings.weight.mul_(2)


def test_bfloat16_weights_give_float32_logits() -> None:
    classifier, batch = Classifier(make_model("roberta").bfloat16(), mask_id=MASK), make_batch("roberta")
    assert classifier.dtype == torch.bfloat16
    assert classifier.logits(batch).dtype == torch.float32
    for measure in ("loo_sign", "grad_l2", "grad_l1", "int_grad_sign", "inp_grad_abs"):
        scores = fmm.attribute(classifier, batch, measure).scores
        exact = fmm.attribute(classifier_of("roberta"), batch, measure).scores
        assert scores.dtype == torch.float32
        assert torch.corrcoef(torch.stack([scores.flatten(), exact.flatten()]))[0, 1] > 0.98


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *letters, *(letters[i] * 2 for i in range(26))]
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    names = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", mask_token="<mask>", **names)


def test_load_classifier(tmp_path, tokenizer) -> None:
    model = make_model("roberta")
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    classifier, loaded = fmm.load_classifier(tmp_path, device="cpu")
    assert loaded.mask_token_id == classifier.mask_id == MASK and classifier.pad_id == PAD
    assert classifier.max_length == 10 and classifier.num_labels == 3 and classifier.label_names[2] == "LABEL_2"
    assert not any(weight.requires_grad for weight in classifier.parameters()) and not classifier.training
    batch = make_batch("roberta")
    assert torch.allclose(classifier.logits(batch), classifier_of("roberta").logits(batch), rtol=1e-6, atol=1e-6)
    assert fmm.load_classifier(tmp_path, device="cpu", dtype=torch.bfloat16)[0].dtype == torch.bfloat16


def test_checkpoint_without_a_trained_head_is_refused(tmp_path, tokenizer) -> None:
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    RobertaForMaskedLM(RobertaConfig(vocab_size=60, **size)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(FmmError, match="no trained weights for classifier"):
        fmm.load_classifier(tmp_path)


def test_missing_folder_is_named(tmp_path) -> None:
    with pytest.raises(FmmError, match="nowhere"):
        fmm.load_classifier(tmp_path / "nowhere")


def test_label_names_must_fit() -> None:
    with pytest.raises(FmmError, match="2 label names"):
        Classifier(make_model("roberta"), mask_id=MASK, label_names=["no", "yes"])
