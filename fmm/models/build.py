"""The classifier and tokenizer that training starts from: any encoder that has a mask token."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig
from transformers import __version__ as transformers_version
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from fmm.data.labels import label_text
from fmm.data.sources import TIMEOUT
from fmm.errors import FmmError, first_line
from fmm.models.families import check_family
from fmm.models.folder import check_model_folder
from fmm.models.head import arranged_head, with_new_head
from fmm.models.names import shown
from fmm.models.tokenizer import check_tokenizer
from fmm.models.weights import Loading, read_classifier

_NO_LIMIT = 10**6  # tokenizers without a limit report a huge one
_SHORTEST = 8  # tokens of an input that says anything
# Heads for other questions, some of which have the shapes and names of one that classifies texts.
_OTHER_HEADS = ("TokenClassification", "QuestionAnswering", "MultipleChoice", "NextSentencePrediction")


def load_tokenizer(name: str, revision: str | None = None) -> Any:
    """Load the tokenizer of a hub id or folder and check that it can serve masked fine-tuning.

    Raises FmmError where it cannot be found, or fails `check_tokenizer`.
    """
    check_model_folder(name)
    if Path(name).is_dir():
        configuration(name, revision)  # the tokenizer's loader reads it too, and would blame the tokenizer
    tokenizer = _from_pretrained(AutoTokenizer, "tokenizer", name, revision=revision)
    try:
        check_tokenizer(tokenizer, name)
    except FmmError:
        raise
    except Exception as error:  # of the Rust tokenizer, which raises the bare class
        raise FmmError(
            f"the tokenizer of {name!r} fails on a plain text ({first_line(error)}); its files are damaged or "
            "incomplete: copy them from where the model comes from, or call the tokenizer's save_pretrained(<folder>)"
        ) from error
    return tokenizer


def load_model(
    name: str, labels: Sequence[str], *, revision: str | None = None, attention: str = "sdpa"
) -> tuple[Any, Loading]:
    """Load a sequence classifier with these labels, in float32; its head is new where the checkpoint has none for
    them (`arranged_head`). Returns it and what was read of the checkpoint.

    Weights are float32 whatever the checkpoint holds: AdamW's updates are lost in half precision. Mixed precision is
    `trainer.precision`'s business. Raises FmmError for regression, multi-label, decoder and encoder-decoder
    checkpoints, where a part of the encoder is not in the checkpoint, and where nothing is found.
    """
    config = configuration(name, revision)
    check_config(config, name)
    options = {
        "revision": revision,
        **hub_options(name, revision),
        "num_labels": len(labels),
        "id2label": dict(enumerate(labels)),
        "label2id": {label: number for number, label in enumerate(labels)},
    }
    model, loading = _read(name, attention, options, new_head=True)
    if not loading.has_head:
        return model, loading
    if other := other_head(config):
        sentence = f"the head of {name} is one for {other}: it is not used, a new one is trained"
        return with_new_head(model), replace(loading, head=sentence)
    own_names = label_names(name, revision)
    if len(own_names) != len(labels):
        return model, loading
    model, head = arranged_head(model, own_names, labels, name)
    return model, replace(loading, head=head)


def _read(name: str, attention: str, options: Mapping[str, Any], *, new_head: bool = False) -> tuple[Any, Loading]:
    remedy = "fetch or save the model again" if new_head else "give the folder of a trained classifier"
    try:
        return read_classifier(name, new_head=new_head, attn_implementation=attention, **options)
    except FmmError:
        raise
    except Exception as error:  # safetensors, torch and transformers each raise their own kinds
        if not isinstance(error, ValueError | ImportError) or "attention" not in str(error).casefold():
            raise FmmError(f"the weights of {name!r} could not be loaded {_cause(error, remedy)}") from error
    if new_head:
        print(f"{name} has no {attention} attention; its own (eager) attention is used", flush=True)
    try:
        return read_classifier(name, new_head=new_head, attn_implementation="eager", **options)
    except FmmError:
        raise
    except Exception as error:  # such as of a number of heads that does not divide the width
        if not isinstance(error, ImportError):
            raise FmmError(f"the weights of {name!r} could not be loaded {_cause(error, remedy)}") from error
        raise FmmError(
            f"the weights of {name!r} could not be loaded ({first_line(error)}); take _attn_implementation out of its "
            "config.json"
        ) from error


def read_trained(name: str, config: Any, dtype: torch.dtype, num_labels: int) -> tuple[Any, Loading]:
    """A trained classifier of the checkpoint `name` with this configuration, and what was read of it.

    Raises FmmError where it is none.
    """
    other = other_head(config)
    if other is not None:
        raise FmmError(
            f"checkpoint {name!r} has a head for {other}, which does not classify texts; fine-tune it first, by "
            "task=train with it as model.name"
        )
    # The attention is named, as a configuration may ask for one that needs a GPU or a package.
    model, loading = _read(name, "sdpa", {"dtype": dtype, "num_labels": num_labels, **hub_options(name)})
    if loading.new_weights:
        raise FmmError(
            f"checkpoint {name!r} has no trained weights for {', '.join(loading.new_weights[:3])}; "
            "it is no trained classifier: fine-tune it first, by task=train with it as model.name"
        )
    return model, loading


def other_head(config: Any) -> str | None:
    """What a checkpoint's head is for where that is not the class of a text, such as TokenClassification."""
    kinds = [str(architecture) for architecture in config.architectures or []]
    if any("ForSequenceClassification" in kind for kind in kinds):
        return None
    return next((head for head in _OTHER_HEADS for kind in kinds if kind.endswith(f"For{head}")), None)


def _cause(error: Exception, remedy: str) -> str:
    """What was wrong with a file of weights in brackets, and what to do."""
    if "Weights only load failed" in str(error):
        return (
            "(pytorch_model.bin holds Python objects beside tensors, which fmm does not run, or is no file of torch); "
            "save the model by save_pretrained(<folder>)"
        )
    return f"({first_line(error)}); {remedy}"


def label_names(name: str, revision: str | None = None) -> list[str]:
    """The labels of a classifier by number, from its configuration alone. Raises FmmError where it is not found."""
    check_model_folder(name)
    stored, _ = _from_pretrained(_StoredConfiguration, "configuration", name, revision=revision)
    count = stored.get("num_labels") or stored.get("_num_labels") or 2  # 2 is transformers' default
    return stored_labels(stored, int(count), name)


class _StoredConfiguration:
    """The entries of a config.json as they stand there: transformers reads one of its two maps of labels only."""

    @staticmethod
    def from_pretrained(name: str, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        options.pop("trust_remote_code")
        return PreTrainedConfig.get_config_dict(name, **options)


def class_names(name: str) -> list[str]:
    """The labels of a single-label classifier by number, from its configuration alone.

    Raises FmmError where it is not found, or is no such model (`check_config`).
    """
    check_config(configuration(name), name)
    return label_names(name)


def configuration(name: str, revision: str | None = None) -> Any:
    """The configuration of a folder or hub id. Raises FmmError where it is not found."""
    check_model_folder(name)
    return _from_pretrained(AutoConfig, "configuration", name, revision=revision)


def stored_labels(stored: Mapping[str, Any], count: int, name: str) -> list[str]:
    """The labels in a config.json, by number: of `id2label`, or of `label2id` where that alone names them.

    transformers reads `id2label` only. Where neither names a label they are LABEL_0, LABEL_1, ..., `count` where the
    maps do not say how many. Raises FmmError where the two contradict each other, and where labels
    are not numbered 0, 1, 2, ... or one name is used twice.
    """
    forward = _numbered(stored.get("id2label"), "id2label", name)
    named = stored.get("label2id") or {}
    if not isinstance(named, Mapping):
        raise FmmError(f"label2id in the config.json of {name!r} is {named!r}; give a map of labels to numbers")
    backward = _numbered({number: label for label, number in named.items()}, "label2id", name)
    if len(backward) < len(named):
        raise FmmError(f"label2id in the config.json of {name!r} gives two labels one number; give each its own")
    known = [labels for labels in (forward, backward) if labels and not _generic(labels)]
    if len(known) == 2 and any(known[0].get(number) != label for number, label in known[1].items()):
        first, second = (", ".join(labels[number] for number in sorted(labels)) for labels in known)
        raise FmmError(
            f"the config.json of {name!r} contradicts itself: id2label has the order {first} and label2id {second}; "
            "correct the wrong one, or take it out"
        )
    count = max(len(forward), len(backward)) or count
    chosen = known[0] if known else {number: f"LABEL_{number}" for number in range(count)}
    gaps = sorted(set(range(max(chosen) + 1)) - set(chosen))
    if gaps:
        raise FmmError(
            f"the labels of {name!r} are numbered {', '.join(map(str, sorted(chosen)))} in its config.json, without "
            f"{', '.join(map(str, gaps))}; name all of them in id2label, from 0 to {max(chosen)}"
        )
    labels = [chosen[number] for number in range(len(chosen))]
    folded = [label.casefold() for label in labels]
    if len(set(folded)) < len(folded):
        raise FmmError(f"the labels of {name!r} are {', '.join(labels)}: two have one name; name each in id2label")
    return labels


def _generic(labels: Mapping[int, str]) -> bool:
    return all(re.fullmatch(rf"label_{number}", label, re.IGNORECASE) for number, label in labels.items())


def _numbered(labels: Any, key: str, name: str) -> dict[int, str]:
    """Labels by number, from a map {number: label} or a list. Raises FmmError where they are not numbered from 0."""
    if isinstance(labels, Sequence) and not isinstance(labels, str):
        labels = dict(enumerate(labels))
    if not isinstance(labels, Mapping | None):
        raise FmmError(f"{key} in the config.json of {name!r} is {labels!r}; give a map of numbers to labels")
    try:
        by_number = {int(number): label_text(label) for number, label in (labels or {}).items()}
    except (TypeError, ValueError) as error:
        raise FmmError(f"the labels of {name!r} are not numbered in its config.json ({first_line(error)})") from error
    if negative := [number for number in by_number if number < 0]:
        raise FmmError(f"{key} in the config.json of {name!r} has a label {negative[0]}; number labels from 0")
    return by_number


def check_vocabulary(model: Any, tokenizer: Any, name: str) -> None:
    """Refuse a tokenizer with token ids that have no embedding in the model."""
    rows, largest = model.get_input_embeddings().num_embeddings, max(tokenizer.get_vocab().values())
    if largest < rows:
        return
    beyond = sorted(token for token, number in tokenizer.get_vocab().items() if number >= rows)
    if tokenizer.mask_token in beyond:
        raise FmmError(
            f"the mask token of {name!r}, {tokenizer.mask_token!r}, is no token of its model (id "
            f"{tokenizer.mask_token_id} of {rows} embeddings), which thus never learned to read it; correct mask_token "
            "in tokenizer_config.json, or give a model that was trained with masking"
        )
    if set(beyond) <= set(tokenizer.get_added_vocab()):
        raise FmmError(
            f"the tokenizer of {name!r} has added tokens without embedding in the model ({shown(beyond)}; {rows} "
            "embeddings); take them out of the tokenizer, or call model.resize_token_embeddings(len(tokenizer)) and "
            "save both"
        )
    raise FmmError(
        f"the tokenizer of {name!r} has token ids up to {largest} but the model has {rows} embeddings; "
        "give a folder whose tokenizer and model belong together"
    )


def check_config(config: Any, name: str) -> None:
    """Refuse what is not a single-label classifier on an encoder, in a sentence."""
    if quantised := getattr(config, "quantization_config", None):
        method = quantised.get("quant_method") if isinstance(quantised, Mapping) else None
        raise FmmError(
            f"model {name!r} is quantised ({method or 'quantization_config in its config.json'}); fmm reads weights in "
            "floating point: give the model that it was made from"
        )
    classifier = any("ForSequenceClassification" in a for a in (config.architectures or []))
    if config.problem_type == "regression" or (classifier and config.num_labels == 1):
        raise FmmError(
            f"model {name!r} is a regression model (one output); fmm explains classifiers with two or more labels"
        )
    if config.problem_type == "multi_label_classification":
        raise FmmError(f"model {name!r} is a multi-label classifier; fmm explains models that choose one label")
    if getattr(config, "is_encoder_decoder", False) or getattr(config, "is_decoder", False):
        raise FmmError(f"model {name!r} ({config.model_type}) has a decoder; choose an encoder, such as roberta-base")
    if config.model_type not in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        raise FmmError(
            f"model {name!r} ({config.model_type}) is not a masked language model; "
            "choose an encoder, such as roberta-base"
        )
    check_family(config, name)


def max_tokens(model: Any, tokenizer: Any, wanted: int | None = None) -> int:
    """Length limit in tokens: min(tokenizer limit, model positions), or `wanted` where that is smaller.

    RoBERTa-like models keep the first positions for padding, so that 514 position embeddings take 512 tokens.
    """
    positions = getattr(model.config, "max_position_embeddings", None) or _NO_LIMIT
    table = getattr(getattr(model.base_model, "embeddings", None), "position_embeddings", None)
    if table is not None and getattr(table, "padding_idx", None) is not None:
        positions = table.num_embeddings - table.padding_idx - 1
    own_limit = tokenizer.model_max_length or _NO_LIMIT
    limit = min(positions, own_limit)
    limit = 512 if limit >= _NO_LIMIT else limit
    if limit < _SHORTEST:
        raise FmmError(
            f"the tokenizer cuts every text at {limit} tokens (the model has {positions} positions); correct "
            "model_max_length in tokenizer_config.json"
        )
    if wanted is None:
        if 2 * own_limit <= positions < _NO_LIMIT:
            print(f"texts are read up to {limit} tokens, as the tokenizer says; the model has {positions} positions")
        return limit
    if not _SHORTEST <= wanted <= limit:
        raise FmmError(
            f"data.max_length={wanted} does not fit: give a number of tokens from {_SHORTEST} to the model's {limit}"
        )
    return wanted


def identity(model: Mapping[str, Any]) -> dict[str, Any]:
    """What names a model in a run's settings: its configuration and, for a folder, a digest of its files."""
    named = {key: value for key, value in model.items() if key != "attention"}
    folder = Path(str(model["name"]))
    return {**named, "name": folder.name, "content": folder_digest(folder)} if folder.is_dir() else named


def folder_digest(folder: Path) -> str:
    """Digest of a model folder's weights, configuration and tokenizer files (16 hex digits)."""
    digest = hashlib.sha256()
    kinds = (".json", ".txt", ".safetensors", ".bin", ".model")
    files = sorted(p for p in folder.iterdir() if p.suffix in kinds and p.is_file())  # a link may lead nowhere
    for path in files:
        digest.update(path.name.encode())
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def hub_options(name: str, revision: str | None = None) -> dict[str, Any]:
    """What `from_pretrained` needs to be told: to stay within the hub's cache where the hub does not answer.

    Left to itself it asks for every file again and again, for most of a minute.
    """
    return {} if Path(name).is_dir() or _hub_answers(name, revision) else {"local_files_only": True}


@lru_cache(maxsize=64)
def _hub_answers(name: str, revision: str | None) -> bool:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        HfApi().model_info(name, revision=revision, timeout=TIMEOUT)
    except (HfHubHTTPError, HFValidationError):
        return True  # and will give the reason
    except Exception:  # the client raises its transport's errors, which differ between versions
        return False
    return True


def _from_pretrained(loader: Any, what: str, name: str, **options: Any) -> Any:
    options |= hub_options(name, options.get("revision"))
    try:
        return loader.from_pretrained(name, trust_remote_code=False, **options)  # never run, and never asked about
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise FmmError(
                f"the {what} of {name!r} needs code of its own from its folder or the hub (auto_map in config.json), "
                "which fmm does not run; choose a model whose kind transformers knows"
            ) from error
        if what == "configuration" and "does not recognize this architecture" in str(error):
            kind = PreTrainedConfig.get_config_dict(name, revision=options.get("revision"))[0].get("model_type")
            raise FmmError(
                f"model {name!r} is of the kind {kind!r}, which transformers {transformers_version} does not know; "
                "update transformers, or choose another model"
            ) from error
        if what == "tokenizer" and Path(name).is_dir() and not (Path(name) / "tokenizer.json").exists():
            raise FmmError(
                f"the tokenizer of {name!r} could not be loaded ({first_line(error)}), as the folder has no "
                "tokenizer.json; load it where it was trained and call its save_pretrained(<folder>)"
            ) from error
        if what == "configuration" and Path(name).is_dir():
            raise FmmError(
                f"the configuration of {name!r} could not be loaded ({first_line(error)}); correct its config.json, or "
                "fetch or save the model again"
            ) from error
        hint = "give a hub id such as FacebookAI/roberta-base (needs the network once) or a model folder by model.name="
        raise FmmError(f"the {what} of {name!r} could not be loaded ({first_line(error)}); {hint}") from error
