"""All of an encoder is read from its checkpoint, in float32, or the checkpoint is refused in a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    ModernBertConfig,
    ModernBertForTokenClassification,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
)

from fmm.errors import FmmError
from fmm.models import build, tiny
from fmm.models.classifier import Classifier, load_classifier, takes_token_types
from fmm.tasks import explain, racu, train

LABELS = ["neg", "pos"]
SHAPE = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 66,
}
Change = Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    texts = ["the movie was not good at all, really wonderful acting", "dull plot and boring people"] * 30
    return tiny.train_tokenizer(texts, vocab_size=400, max_length=64)


def roberta(kind: Any, tokenizer: Any) -> Any:
    torch.manual_seed(0)
    labels = {"id2label": dict(enumerate(LABELS)), "label2id": {"neg": 0, "pos": 1}}
    return kind(RobertaConfig(vocab_size=len(tokenizer), pad_token_id=1, type_vocab_size=1, **labels, **SHAPE))


@pytest.fixture
def folder(tokenizer: Any, tmp_path: Path) -> Path:
    """A trained classifier's folder."""
    roberta(RobertaForSequenceClassification, tokenizer).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def rewrite(folder: Path, change: Change) -> None:
    path = folder / "model.safetensors"
    save_file({k: v.clone() for k, v in change(load_file(path)).items()}, path, {"format": "pt"})


def change_config(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def both(folder: Path) -> list[Callable[[], Any]]:
    return [lambda: build.load_model(str(folder), LABELS), lambda: load_classifier(str(folder))]


WRAPPERS = ["module.", "_orig_mod.", "model.", "net.", "0.auto_model.", "module._orig_mod.", "_orig_mod.model."]


@pytest.mark.parametrize("prefix", WRAPPERS)
def test_a_wrappers_prefix_is_taken_away_and_said(folder: Path, prefix: str) -> None:
    expected = load_file(folder / "model.safetensors")
    rewrite(folder, lambda weights: {prefix + name: weight for name, weight in weights.items()})
    model, loading = build.load_model(str(folder), LABELS)
    assert loading.removed_prefix == prefix and not loading.new_weights
    assert any(repr(prefix) in line for line in loading.said("it"))
    state = model.state_dict()
    assert all(torch.equal(state[name], weight) for name, weight in expected.items())
    assert load_classifier(str(folder))[0].num_labels == 2


def test_a_bare_encoder_under_a_prefix_gets_a_new_head(folder: Path) -> None:
    """sentence-transformers saves the encoder without its own name, under `0.auto_model.`."""
    expected = load_file(folder / "model.safetensors")

    def bare(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        encoder = {name: weight for name, weight in weights.items() if name.startswith("roberta.")}
        return {"0.auto_model." + name.removeprefix("roberta."): weight for name, weight in encoder.items()}

    rewrite(folder, bare)
    model, loading = build.load_model(str(folder), LABELS)
    assert torch.equal(
        model.roberta.embeddings.word_embeddings.weight, expected["roberta.embeddings.word_embeddings.weight"]
    )
    assert loading.new_weights and all(name.startswith("classifier.") for name in loading.new_weights)


MISSING: dict[str, tuple[Change, str]] = {
    "layer": (
        lambda w: {k: v for k, v in w.items() if ".layer.1." not in k},
        r"lack 16 of the \d+ of a roberta encoder .*layer\.1\.attention",
    ),
    "embeddings": (
        lambda w: {k: v for k, v in w.items() if "word_embeddings" not in k},
        "lack 1 of .*word_embeddings",
    ),
    "another model's names": (
        lambda w: {k.replace("roberta.", "bert."): v for k, v in w.items()},
        "hold nothing of the roberta encoder .*bert.embeddings",
    ),
    "nothing": (lambda w: {"x": torch.zeros(1)}, "hold nothing of the roberta encoder"),
    "a layer, under a prefix": (
        lambda w: {"module." + k: v for k, v in w.items() if ".layer.1." not in k},
        "hold nothing of the roberta encoder|lack",
    ),
}


@pytest.mark.parametrize("name", MISSING)
def test_what_is_missing_of_the_encoder_is_an_error(folder: Path, name: str) -> None:
    change, message = MISSING[name]
    rewrite(folder, change)
    for load in both(folder):
        with pytest.raises(FmmError, match=message):
            load()


@pytest.mark.parametrize(
    ("layers", "message"), [(3, r"lack 16 of"), (1, r"have layers that its config\.json does not")]
)
def test_another_depth_than_the_weights_is_refused(folder: Path, layers: int, message: str) -> None:
    change_config(folder, num_hidden_layers=layers)
    for load in both(folder):
        with pytest.raises(FmmError, match=message):
            load()


def test_weights_of_zeros_behind_a_sound_header_are_refused(folder: Path) -> None:
    rewrite(folder, lambda weights: {name: torch.zeros_like(weight) for name, weight in weights.items()})
    for load in both(folder):
        with pytest.raises(FmmError, match="are 0 throughout"):
            load()


@pytest.mark.parametrize("named", [True, False], ids=["in config.json", "not in config.json"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_read_as_float32_and_said(folder: Path, dtype: torch.dtype, named: bool) -> None:
    rewrite(folder, lambda weights: {name: weight.to(dtype) for name, weight in weights.items()})
    stored = str(dtype).removeprefix("torch.")
    change_config(folder, dtype=stored if named else None)
    model, loading = build.load_model(str(folder), LABELS)
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert loading.record()["stored_dtypes"] == [stored] and loading.trained_dtype == "float32"
    assert any(stored in line for line in loading.said("it"))
    assert load_classifier(str(folder))[0].dtype == torch.float32


@pytest.mark.parametrize("config_dtype", ["float16", None])
def test_float32_weights_stay_float32_whatever_the_configuration_says(folder: Path, config_dtype: str | None) -> None:
    change_config(folder, dtype=config_dtype)
    model, loading = build.load_model(str(folder), LABELS)
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert loading.stored_dtypes == ["float32"] and not any("stored as" in line for line in loading.said("it"))


@pytest.mark.parametrize("kind", ["roberta", "bert"])
def test_a_masked_language_model_gets_a_new_head_and_nothing_else(tokenizer: Any, tmp_path: Path, kind: str) -> None:
    """As on the hub: a language model's head, no pooler."""
    if kind == "roberta":
        source = roberta(RobertaForMaskedLM, tokenizer)
    else:
        source = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **SHAPE))
    source.save_pretrained(tmp_path)
    model, loading = build.load_model(str(tmp_path), LABELS)
    assert all("classifier" in name or "pooler" in name for name in loading.new_weights)
    for name, weight in source.base_model.state_dict().items():
        assert torch.equal(model.base_model.state_dict()[name], weight)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(FmmError, match=r"no trained weights for .*fine-tune it first"):
        load_classifier(str(tmp_path))


@pytest.mark.parametrize("form", ["sharded", "bin"])
def test_other_files_of_weights(folder: Path, form: str) -> None:
    model, _ = build.load_model(str(folder), LABELS)
    path = folder / "model.safetensors"
    if form == "bin":
        torch.save({name: weight.half() for name, weight in load_file(path).items()}, folder / "pytorch_model.bin")
        path.unlink()
    else:
        path.unlink()
        model.save_pretrained(folder, max_shard_size="10KB")
        assert (folder / "model.safetensors.index.json").exists()
    again, loading = build.load_model(str(folder), LABELS)
    assert loading.stored_dtypes == ["float16" if form == "bin" else "float32"]
    assert torch.allclose(again.classifier.dense.weight, model.classifier.dense.weight, atol=1e-3)


def test_weights_cut_short_are_a_sentence(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-500])
    for load in both(folder):
        with pytest.raises(FmmError, match="could not be loaded"):
            load()


def test_a_head_of_another_number_of_labels_is_new_and_said(folder: Path) -> None:
    model, loading = build.load_model(str(folder), ["a", "b", "c"])
    assert loading.new_weights == ["classifier.out_proj.bias", "classifier.out_proj.weight"]
    assert model.config.num_labels == 3 and any("classifier.out_proj" in line for line in loading.said("it"))


def write(path: Path, text: str = "{}") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def model_folder(path: Path) -> None:
    write(path / "config.json", '{"model_type": "roberta"}')
    write(path / "model.safetensors", "x")


def adapter(path: Path) -> None:
    write(path / "adapter_config.json", '{"base_model_name_or_path": "roberta-base"}')
    write(path / "adapter_model.safetensors", "x")


def trainer_output(path: Path) -> None:
    for step in (500, 1000, 1500):
        model_folder(path / f"checkpoint-{step}")
    write(
        path / "checkpoint-1500" / "trainer_state.json", '{"best_model_checkpoint": "/elsewhere/out/checkpoint-1000"}'
    )


def sentence_transformer(path: Path) -> None:
    write(path / "modules.json", "[]")
    model_folder(path / "0_Transformer")


FOLDERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "adapter": (adapter, r"PEFT adapter of 'roberta-base' .*merge_and_unload"),
    "Trainer's output": (trainer_output, r"output folder of a Trainer.*3 checkpoints, such as .*checkpoint-1000$"),
    "sentence-transformers": (
        sentence_transformer,
        "sentence-transformers folder; .* lies in .*0_Transformer",
    ),
    "Lightning": (lambda p: write(p / "best.ckpt"), "is a Lightning checkpoint.*save_pretrained"),
    "empty": (lambda p: p.mkdir(), "is empty"),
    "weights only": (lambda p: write(p / "model.safetensors"), r"has no config\.json \(it holds model\.safetensors\)"),
    "config only": (
        lambda p: write(p / "config.json", '{"model_type": "bert"}'),
        "loaded: there are none",
    ),
    "damaged config": (lambda p: write(p / "config.json", "{"), r"config\.json is damaged"),
    "no model type": (lambda p: write(p / "config.json"), "names no model_type"),
    "unfinished run": (lambda p: write(p / "record.json"), "training did not end"),
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_what_is_no_model_folder_is_named(tmp_path: Path, kind: str) -> None:
    make, message = FOLDERS[kind]
    make(tmp_path / "it")
    for load in both(tmp_path / "it"):
        with pytest.raises(FmmError, match=message):
            load()


@pytest.mark.parametrize("file", ["tf_model.h5", "flax_model.msgpack", "model.onnx"])
def test_weights_of_other_frameworks_are_named(tmp_path: Path, file: str) -> None:
    write(tmp_path / "config.json", '{"model_type": "bert"}')
    write(tmp_path / file)
    with pytest.raises(FmmError, match="which PyTorch does not read"):
        build.load_model(str(tmp_path), LABELS)


FILES: dict[str, str] = {
    "last.ckpt": r"Lightning checkpoint.*load_from_checkpoint.*save_pretrained",
    "model.safetensors": "file of weights without configuration and tokenizer",
    "best_model.pt": "file of weights without configuration and tokenizer",
    "pytorch_model.bin": "file of weights without configuration and tokenizer",
    "model.gguf": "a file of GGUF, which PyTorch does not read",
    "model.onnx": "a file of ONNX, which PyTorch does not read",
    "model.tar.gz": "is an archive; unpack it",
    "notes.txt": "is a file; a model is a folder",
}


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("relative", [True, False])
def test_a_checkpoint_file_is_named(
    tmp_path: Path, compose: Any, monkeypatch: pytest.MonkeyPatch, file: str, relative: bool
) -> None:
    write(tmp_path / file)
    monkeypatch.chdir(tmp_path)
    path = file if relative else str(tmp_path / file)
    with pytest.raises(FmmError, match=FILES[file]):
        load_classifier(path)
    for task in (explain, racu):
        with pytest.raises(FmmError, match=FILES[file]):
            task.run(compose(f"task={task.__name__.split('.')[-1]}", f"checkpoint={path}"))
    with pytest.raises(FmmError, match=FILES[file]):
        train.run(compose("task=train", f"model.name={path}", "dry_run=true", "trainer.accelerator=cpu"))


def test_a_file_of_a_model_folder_leads_to_the_folder(folder: Path) -> None:
    with pytest.raises(FmmError, match=f"give the folder {folder}"):
        load_classifier(str(folder / "model.safetensors"))


@pytest.mark.parametrize("name", ["outputs/train/toy/x/model", "runs/last.ckpt", "model.safetensors"])
def test_a_path_that_is_not_there_is_no_hub_id(name: str) -> None:
    with pytest.raises(FmmError, match="is neither there nor a hub id"):
        load_classifier(name)


def zeroed(folder: Path, rows: slice | list[int]) -> None:
    def change(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        weights["roberta.embeddings.word_embeddings.weight"][rows] = 0
        return weights

    rewrite(folder, change)


def test_embeddings_that_are_zero_in_part_are_refused(folder: Path, tokenizer: Any) -> None:
    zeroed(folder, slice(len(tokenizer) // 2, None))
    with pytest.raises(FmmError, match=r"embeddings of \d+ of the \d+ tokens of .* are zero, such as that of"):
        load_classifier(str(folder))


def test_a_few_embeddings_of_zeros_are_said(folder: Path, tokenizer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    zeroed(folder, [tokenizer.pad_token_id])
    assert load_classifier(str(folder))[0].loading["zero_embeddings"] == 0
    assert "are zero" not in capsys.readouterr().out
    zeroed(folder, [tokenizer.pad_token_id, len(tokenizer) - 3, len(tokenizer) - 2])
    assert load_classifier(str(folder))[0].loading["zero_embeddings"] == 2
    assert "the embeddings of 2 tokens" in capsys.readouterr().out


def test_rows_of_zeros_that_only_fill_up_the_matrix_are_fine(
    folder: Path, tokenizer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A vocabulary padded to a multiple of 64, and added tokens that were never trained."""
    model = RobertaForSequenceClassification.from_pretrained(folder)
    more = build.load_tokenizer(str(folder))
    more.add_tokens([f"@user{number}" for number in range(40)])
    model.resize_token_embeddings(len(more), pad_to_multiple_of=1024)
    with torch.no_grad():
        model.get_input_embeddings().weight[len(tokenizer) :] = 0
    model.save_pretrained(folder)
    more.save_pretrained(folder)
    assert load_classifier(str(folder))[0].loading["zero_embeddings"] == 0
    assert "are zero" not in capsys.readouterr().out


def test_a_head_of_more_labels_than_named_is_a_sentence_about_labels(folder: Path) -> None:
    model = RobertaForSequenceClassification.from_pretrained(folder, num_labels=3, ignore_mismatched_sizes=True)
    model.save_pretrained(folder)
    for maps in ({"id2label": {"0": "a", "1": "b"}}, {"id2label": None, "label2id": {"a": 0, "b": 1}}):
        change_config(folder, **{"label2id": None, **maps})
        with pytest.raises(FmmError, match=r"tells 3 labels apart .* names 2; name all 3 of them in id2label"):
            load_classifier(str(folder))
    change_config(folder, id2label=None, label2id={"a": 0, "c": 2})
    with pytest.raises(FmmError, match=r"numbered 0, 2 in its config\.json, without 1"):
        load_classifier(str(folder))


def test_remote_code_is_not_run_nor_asked_about(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*args: object) -> str:
        raise AssertionError("a prompt at the terminal")

    monkeypatch.setattr("builtins.input", asked)
    change_config(folder, model_type="mine", auto_map={"AutoConfig": "mine.Config", "AutoModel": "mine.Model"})
    write(folder / "mine.py", "raise AssertionError('this code ran')")
    for load in both(folder):
        with pytest.raises(FmmError, match=r"needs code of its own .* does not run"):
            load()


def test_known_models_with_code_of_their_own_are_read_by_transformers(folder: Path) -> None:
    change_config(folder, auto_map={"AutoModelForSequenceClassification": "mine.Model"})
    write(folder / "mine.py", "raise AssertionError('this code ran')")
    for load in both(folder):
        load()


@pytest.mark.parametrize("other", ["pad", "unk", "cls"])
def test_a_mask_token_with_another_meaning_is_refused(tokenizer: Any, folder: Path, other: str) -> None:
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps(settings | {"mask_token": settings[f"{other}_token"]}))
    with pytest.raises(FmmError, match=f"is its {other} token too"):
        build.load_tokenizer(str(folder))


def test_a_tokenizer_that_cuts_at_four_tokens_is_refused(tokenizer: Any, folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": 4}))
    with pytest.raises(FmmError, match="cuts every text at 4 tokens"):
        load_classifier(str(folder))


@pytest.mark.parametrize(("types", "taken"), [(1, False), (2, True), (0, False)])
def test_token_types_go_to_models_that_know_two(types: int, taken: bool) -> None:
    torch.manual_seed(0)
    config = BertConfig(vocab_size=30, type_vocab_size=max(types, 1), num_labels=2, **SHAPE)
    model = BertForSequenceClassification(config).eval()
    model.config.type_vocab_size = types
    assert takes_token_types(model) is taken
    ids = torch.randint(5, 30, (2, 6))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": (ids > 15).long()}
    logits = Classifier(model, mask_id=4).logits(batch)
    ignored = Classifier(model, mask_id=4).logits({k: v for k, v in batch.items() if k != "token_type_ids"})
    assert torch.allclose(logits, ignored) is not taken


def test_an_unknown_wrappers_prefix_is_taken_away_but_not_another_models_name(folder: Path) -> None:
    rewrite(folder, lambda weights: {"student." + name: weight for name, weight in weights.items()})
    assert build.load_model(str(folder), LABELS)[1].removed_prefix == "student."
    rewrite(folder, lambda weights: {name.replace("student.roberta", "bert"): w for name, w in weights.items()})
    for load in both(folder):
        with pytest.raises(FmmError, match="hold nothing of the roberta encoder"):
            load()


def test_two_encoders_in_one_file_are_refused(folder: Path) -> None:
    rewrite(
        folder, lambda weights: {f"{who}.{name}": w for who in ("student", "teacher") for name, w in weights.items()}
    )
    for load in both(folder):
        with pytest.raises(FmmError, match=r"several encoders, named student\., teacher\."):
            load()


def test_what_is_missing_is_named_under_a_prefix_too(folder: Path) -> None:
    rewrite(folder, lambda weights: {f"module.{name}": w for name, w in weights.items() if ".layer.1." not in name})
    with pytest.raises(FmmError, match=r"lack 16 of .*layer\.1\."):
        build.load_model(str(folder), LABELS)


@pytest.mark.parametrize("prefix", ["", "module."])
def test_word_embeddings_saved_as_the_output_layer_are_read(tokenizer: Any, tmp_path: Path, prefix: str) -> None:
    """The two are one matrix in a language model, and safetensors keeps one name of a shared one."""
    source = roberta(RobertaForMaskedLM, tokenizer)
    source.save_pretrained(tmp_path)
    name = "roberta.embeddings.word_embeddings.weight"

    def moved(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        rest = {prefix + key: weight for key, weight in weights.items() if key != name}
        return {**rest, f"{prefix}lm_head.decoder.weight": weights[name]}

    rewrite(tmp_path, moved)
    model, loading = build.load_model(str(tmp_path), LABELS)
    assert torch.equal(model.state_dict()[name], source.state_dict()[name])
    assert loading.tied and any("word embeddings" in line for line in loading.said("it"))


@pytest.mark.parametrize("entry", ["state_dict", "model_state_dict"])
def test_the_file_of_a_whole_run_is_named(folder: Path, entry: str) -> None:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save({entry: weights, "epoch": 3}, folder / "pytorch_model.bin")
    for load in both(folder):
        with pytest.raises(FmmError, match=f"whole run's, with the weights in its entry '{entry}'"):
            load()


def test_a_pickled_model_is_not_run(folder: Path, tokenizer: Any) -> None:
    (folder / "model.safetensors").unlink()
    torch.save(roberta(RobertaForSequenceClassification, tokenizer), folder / "pytorch_model.bin")
    for load in both(folder):
        with pytest.raises(FmmError, match="Python objects beside tensors, which fmm does not run"):
            load()


def test_an_adapter_that_was_not_merged_is_named(folder: Path) -> None:
    rewrite(folder, lambda weights: {name.replace("query.", "query.base_layer."): w for name, w in weights.items()})
    with pytest.raises(FmmError, match=r"not been merged \(LoRA\)"):
        build.load_model(str(folder), LABELS)


def test_quantised_weights_are_refused(folder: Path) -> None:
    change_config(folder, quantization_config={"quant_method": "gptq", "bits": 4})
    with pytest.raises(FmmError, match=r"is quantised \(gptq\)"):
        build.load_model(str(folder), LABELS)
    change_config(folder, quantization_config=None)
    rewrite(folder, lambda weights: {name: (weight * 100).to(torch.int8) for name, weight in weights.items()})
    for load in both(folder):
        with pytest.raises(FmmError, match=r"are quantised \(int8\)"):
            load()


def test_one_layer_of_zeros_is_refused_and_one_matrix_said(folder: Path) -> None:
    whole = load_file(folder / "model.safetensors")
    rewrite(folder, lambda weights: {n: w * 0 if "layer.1.output.dense" in n else w for n, w in weights.items()})
    _, loading = build.load_model(str(folder), LABELS)
    assert loading.constant == ["encoder.layer.1.output.dense.weight"]
    assert any("one number throughout" in line for line in loading.said("it"))
    rewrite(folder, lambda _: {name: w * 0 if "layer.1." in name else w for name, w in whole.items()})
    for load in both(folder):
        with pytest.raises(FmmError, match=r"in encoder\.layer\.1 hold one number"):
            load()


def test_token_types_of_zeros_are_fine(tokenizer: Any, tmp_path: Path) -> None:
    BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **SHAPE)).save_pretrained(tmp_path)
    rewrite(tmp_path, lambda weights: {n: w * 0 if "token_type" in n else w for n, w in weights.items()})
    assert not build.load_model(str(tmp_path), LABELS)[1].constant


def test_a_head_of_zeros_is_no_trained_classifier_but_can_be_trained(folder: Path) -> None:
    rewrite(folder, lambda weights: {n: w * 0 if "classifier" in n else w for n, w in weights.items()})
    build.load_model(str(folder), LABELS)
    with pytest.raises(FmmError, match="classification head, is 0 throughout"):
        load_classifier(str(folder))


def test_the_head_of_another_question_is_not_taken_for_one_of_texts(tokenizer: Any, tmp_path: Path) -> None:
    """ModernBERT names the head of its token classifier as that of its text classifier."""
    special = {"pad_token_id": 1, "cls_token_id": 0, "bos_token_id": 0, "sep_token_id": 2, "eos_token_id": 2}
    source = ModernBertForTokenClassification(ModernBertConfig(vocab_size=len(tokenizer), **special, **SHAPE))
    source.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model, loading = build.load_model(str(tmp_path), LABELS)
    assert loading.head is not None and "TokenClassification" in loading.head
    assert not torch.equal(model.classifier.weight, source.classifier.weight)
    with pytest.raises(FmmError, match="head for TokenClassification"):
        load_classifier(str(tmp_path))


@pytest.mark.parametrize(
    "values",
    [{"return_dict": False, "output_attentions": True}, {"attn_implementation": "flash_attention_2"}],
    ids=["outputs", "attention"],
)
def test_a_configuration_cannot_change_what_a_call_returns(folder: Path, values: dict[str, Any]) -> None:
    change_config(folder, **values)
    classifier, tokenizer = load_classifier(str(folder))
    assert classifier.logits({"input_ids": torch.tensor([tokenizer("dull plot")["input_ids"]])}).shape == (1, 2)
    build.load_model(str(folder), LABELS)


def test_of_two_files_the_one_that_is_read_is_said(folder: Path) -> None:
    torch.save({}, folder / "pytorch_model.bin")
    _, loading = build.load_model(str(folder), LABELS)
    assert loading.file == "model.safetensors" and any("the first is read" in x for x in loading.said(str(folder)))


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 440449768\n"


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json"])
def test_a_pointer_of_git_lfs_is_named(folder: Path, file: str) -> None:
    (folder / file).write_text(POINTER)
    for load in both(folder):
        with pytest.raises(FmmError, match=f"{file} is a pointer of Git LFS"):
            load()


LEFT_BY_TRAINING: dict[str, tuple[str, str]] = {
    "DeepSpeed": ("zero_to_fp32.py", "DeepSpeed checkpoint"),
    "FSDP": ("pytorch_model_fsdp_0/__0_0.distcp", "FSDP checkpoint"),
    "a Trainer's adapter": ("checkpoint-500/adapter_config.json", "checkpoint-500 is a"),
    "parts without index": ("model-00001-of-00002.safetensors", "has parts of a model .* without the index"),
    "weights of torch": ("best_model.pt", r"rename the file to pytorch_model\.bin"),
    "ONNX below": ("onnx/model.onnx", "weights of ONNX alone"),
}


@pytest.mark.parametrize("kind", LEFT_BY_TRAINING)
def test_what_training_and_conversion_leave_is_named(tmp_path: Path, kind: str) -> None:
    file, message = LEFT_BY_TRAINING[kind]
    write(tmp_path / file)
    if "adapter" not in kind:
        write(tmp_path / "config.json", '{"model_type": "bert"}')
    for load in both(tmp_path):
        with pytest.raises(FmmError, match=message):
            load()


def test_a_model_deeper_down_is_found(tmp_path: Path) -> None:
    model_folder(tmp_path / "snapshots" / "abc")
    with pytest.raises(FmmError, match=r"a model lies in .*snapshots/abc"):
        build.load_model(str(tmp_path), LABELS)


def test_tokens_beyond_the_embeddings_are_named(folder: Path) -> None:
    tokenizer = build.load_tokenizer(str(folder))
    tokenizer.add_tokens(["@user"])
    tokenizer.save_pretrained(folder)
    with pytest.raises(FmmError, match=r"added tokens without embedding in the model \(@user;"):
        load_classifier(str(folder))
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"mask_token": "<blank>"}))
    with pytest.raises(FmmError, match="'<blank>', is no token of its model"):
        load_classifier(str(folder))


@pytest.mark.parametrize(("limit", "said"), [(16, True), (64, False), (10**30, False)])
def test_a_tokenizer_that_cuts_far_below_the_model_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str], limit: int, said: bool
) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": limit}))
    assert load_classifier(str(folder))[0].max_length == min(limit, 64)
    assert ("texts are read up to 16 tokens" in capsys.readouterr().out) is said


def test_a_limit_that_is_no_number_is_a_sentence(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": "64"}))
    with pytest.raises(FmmError, match=r"model_max_length .* is '64'"):
        load_classifier(str(folder))


def test_a_kind_that_transformers_does_not_know_is_named(folder: Path) -> None:
    change_config(folder, model_type="newthing")
    for load in both(folder):
        with pytest.raises(FmmError, match=r"is of the kind 'newthing', which transformers \S+ does not know"):
            load()


DAMAGED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "heads": (lambda f: change_config(f, num_attention_heads=5), r"could not be loaded \(The hidden size \(16\)"),
    "link": (lambda f: dangling(f / "model.safetensors"), r"is a link to .*nowhere, which is not there"),
    "index": (lambda f: without_part(f), "could not be loaded|does not appear"),
    "uint16": (lambda f: as_whole_numbers(f, torch.uint16), r"are quantised \(uint16\)"),
    "int64": (lambda f: as_whole_numbers(f, torch.int64), r"are quantised \(int64\)"),
}


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))


def without_part(folder: Path) -> None:
    model = RobertaForSequenceClassification.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="10KB")
    sorted(folder.glob("model-*"))[1].unlink()


def as_whole_numbers(folder: Path, dtype: torch.dtype) -> None:
    rewrite(folder, lambda w: {k: (v * 100).abs().to(dtype) if v.ndim == 2 else v for k, v in w.items()})


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_folder_is_a_sentence_in_every_task(folder: Path, compose: Any, kind: str) -> None:
    change, message = DAMAGED[kind]
    change(folder)
    for load in both(folder):
        with pytest.raises(FmmError, match=message):
            load()
    with pytest.raises(FmmError, match=message):
        train.run(compose("task=train", f"model.name={folder}", "dry_run=true", "trainer.accelerator=cpu"))


def test_a_tokenizer_that_fails_on_a_text_is_a_sentence(folder: Path) -> None:
    tokens = json.loads((folder / "tokenizer.json").read_text())
    tokens["model"] = {"type": "WordPiece", "unk_token": "[NONE]", "continuing_subword_prefix": "##",
                       "max_input_chars_per_word": 100, "vocab": tokens["model"]["vocab"]}  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokens))
    with pytest.raises(FmmError, match=r"fails on a plain text \(.*\); its files are damaged or incomplete"):
        build.load_tokenizer(str(folder))


def test_a_configuration_that_cannot_be_read_leads_to_its_file(folder: Path) -> None:
    change_config(folder, dtype="torch.float16")
    for load in both(folder):
        with pytest.raises(FmmError, match=r"configuration of .* could not be loaded .*; correct its config\.json"):
            load()
