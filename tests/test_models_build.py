"""Which models and tokenizers are taken, and the sentence for those that are not."""

import json

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BartConfig,
    BertConfig,
    BertForSequenceClassification,
    DistilBertConfig,
    GPT2Config,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from fmm.errors import FmmError
from fmm.models import build, tiny
from fmm.models.classifier import load_classifier

TEXTS = ["the movie was not good at all, really wonderful acting", "dull plot and boring people"] * 30
TINY = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "intermediate_size": 16, "max_length": 64}


@pytest.fixture(scope="module")
def tokenizer():
    return tiny.train_tokenizer(TEXTS, vocab_size=400, max_length=64)


@pytest.fixture
def folder(tokenizer, tmp_path):
    tiny.build_model(TINY, ["neg", "pos"], len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def test_tiny_tokenizer_loses_no_text_and_survives_saving(tokenizer, folder):
    loaded = build.load_tokenizer(str(folder))
    text = "naïve Привет 東京 good"
    assert loaded(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert loaded.decode(loaded(text)["input_ids"], skip_special_tokens=True).strip() == text
    assert loaded.mask_token_id == 4 and loaded("a", "b").sequence_ids()[0] is None


def test_tokenizer_without_merges_is_refused(folder):
    """transformers#47706: such a tokenizer loads and silently yields single characters."""
    data = json.loads((folder / "tokenizer.json").read_text())
    data["model"]["merges"] = []
    (folder / "tokenizer.json").write_text(json.dumps(data))
    with pytest.raises(FmmError, match="splits words of its own vocabulary"):
        build.load_tokenizer(str(folder))


def test_tokenizer_that_drops_text_is_refused():
    inner = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate("abcdefghijklmnopqrstuvwxyz")}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    loses = PreTrainedTokenizerFast(tokenizer_object=inner, mask_token="[MASK]", pad_token="[PAD]")
    with pytest.raises(FmmError, match="loses text"):
        build.check_tokenizer(loses, "letters")


def test_tokenizer_without_mask_token_is_refused(tokenizer):
    without = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, pad_token="<pad>")
    with pytest.raises(FmmError, match="no mask token"):
        build.check_tokenizer(without, "gpt")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (BertConfig(num_labels=1, architectures=["BertForSequenceClassification"]), "regression"),
        (BertConfig(problem_type="regression"), "regression"),
        (BertConfig(problem_type="multi_label_classification"), "multi-label"),
        (BertConfig(is_decoder=True), "decoder"),
        (BartConfig(), "decoder"),
        (GPT2Config(), "not a masked language model"),
    ],
    ids=["one output", "regression", "multi-label", "decoder", "encoder-decoder", "causal"],
)
def test_models_that_are_no_single_label_encoder_are_refused(config, message):
    with pytest.raises(FmmError, match=message):
        build.check_config(config, "some/model")


@pytest.mark.parametrize("config", [BertConfig(), RobertaConfig(), DistilBertConfig()], ids=lambda c: c.model_type)
def test_encoders_are_taken(config):
    build.check_config(config, "some/model")


def test_nothing_there_says_what_to_give():
    with pytest.raises(FmmError, match="does not exist"):
        build.load_model("/no/such/folder", ["a", "b"])
    with pytest.raises(FmmError, match=r"model\.name="):
        build.load_tokenizer("no-such-owner/no-such-model")


def test_folder_without_tokenizer_is_refused(folder):
    """transformers makes an empty tokenizer there, to which every word is unknown."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises(FmmError, match="has no tokenizer files"):
        build.load_tokenizer(str(folder))


@pytest.mark.parametrize("content", [b"", b"xx" * 100, None], ids=["empty", "garbage", "missing"])
def test_damaged_weights_are_a_sentence(folder, content):
    (folder / "model.safetensors").unlink()
    if content is not None:
        (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(FmmError, match=r"the weights of .* could not be loaded"):
        build.load_model(str(folder), ["neg", "pos"])
    with pytest.raises(FmmError, match="could not be loaded"):
        load_classifier(str(folder))


def test_weights_that_are_no_numbers_are_refused(folder):
    model, _ = build.load_model(str(folder), ["neg", "pos"])
    with torch.no_grad():
        model.get_input_embeddings().weight[3, 1] = float("nan")
    model.save_pretrained(folder)
    for load in (lambda: build.load_model(str(folder), ["neg", "pos"]), lambda: load_classifier(str(folder))):
        with pytest.raises(FmmError, match=r"not finite numbers \(in .*word_embeddings\.weight\)"):
            load()


@pytest.mark.parametrize("down", [True, False])
def test_without_network_only_the_hubs_cache_is_asked(monkeypatch, down):
    asked = []

    def info(self, name, **options):
        if down:
            raise ConnectionError("no route to host")

    def load(name, **options):
        asked.append(options)
        raise OSError("not in the cache")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", info)
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", load)
    build._hub_answers.cache_clear()
    with pytest.raises(FmmError, match="not in the cache"):
        build.load_tokenizer("some-owner/some-model")
    build._hub_answers.cache_clear()
    assert asked[0].get("local_files_only", False) is down


def test_tokenizer_of_a_larger_vocabulary_than_the_model_is_refused(folder, tokenizer):
    small = tiny.build_model(TINY, ["neg", "pos"], len(tokenizer) - 1)
    with pytest.raises(FmmError, match="belong together"):
        build.check_vocabulary(small, tokenizer, "some/model")


def test_heads_that_cannot_share_the_hidden_size_are_refused():
    with pytest.raises(FmmError, match="no multiple"):
        tiny.build_model(TINY | {"hidden_size": 17}, ["neg", "pos"], 300)


def change_config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_weights_of_another_shape_than_the_configuration_are_refused(folder):
    change_config(folder, intermediate_size=77)
    for load in (load_classifier, lambda name: build.load_model(name, ["neg", "pos"])):
        with pytest.raises(FmmError, match=r"do not fit its config\.json: \S+ is \[.*77"):
            load(str(folder))


def test_labels_with_a_gap_in_their_numbers_are_refused(folder):
    change_config(folder, id2label={"0": "neg", "2": "pos"}, label2id={"neg": 0, "pos": 2})
    for load in (load_classifier, build.label_names):
        with pytest.raises(FmmError, match="numbered 0, 2 in its config"):
            load(str(folder))


def test_head_is_new_where_the_checkpoint_has_another(folder):
    model, _ = build.load_model(str(folder), ["a", "b", "c"])
    assert model.config.num_labels == 3 and model.config.id2label == {0: "a", 1: "b", 2: "c"}


def test_length_limit_leaves_out_the_positions_that_roberta_keeps_for_padding(tokenizer):
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    roberta = RobertaForSequenceClassification(RobertaConfig(max_position_embeddings=42, pad_token_id=1, **shape))
    bert = BertForSequenceClassification(BertConfig(max_position_embeddings=40, **shape))
    assert build.max_tokens(roberta, tokenizer) == build.max_tokens(bert, tokenizer) == 40
    assert build.max_tokens(bert, tokenizer, wanted=16) == 16
    with pytest.raises(FmmError, match="max_length=41"):
        build.max_tokens(bert, tokenizer, wanted=41)


def test_identity_follows_the_folders_content(folder):
    before = build.identity({"name": str(folder), "attention": "sdpa"})
    assert "attention" not in before
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    assert build.identity({"name": str(folder)})["content"] != before["content"]
