"""The classifier and tokenizer that training starts from: any encoder that has a mask token."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from fmm.data.sources import TIMEOUT
from fmm.errors import FmmError, first_line

_NO_LIMIT = 10**6  # tokenizers without a limit report a huge one
_SENTINELS = ("the answer was not what they hoped for", "café naïve Привет 東京")


def load_tokenizer(name: str, revision: str | None = None) -> Any:
    """Load the tokenizer of a hub id or folder and check that it can serve masked fine-tuning.

    Raises FmmError where it cannot be found, or fails `check_tokenizer`.
    """
    tokenizer = _from_pretrained(AutoTokenizer, "tokenizer", name, revision=revision)
    check_tokenizer(tokenizer, name)
    return tokenizer


def check_tokenizer(tokenizer: Any, name: str) -> None:
    """Refuse a tokenizer without mask token, one that falls apart into characters, or one that loses text.

    A tokenizer whose merges were lost in loading still runs and yields single characters; nothing else would notice.
    """
    if not tokenizer.is_fast:
        raise FmmError(
            f"the tokenizer of {name!r} has no fast version, which fmm needs to know what belongs to which text"
        )
    for token in ("mask", "pad"):
        if getattr(tokenizer, f"{token}_token_id") is None:
            raise FmmError(
                f"the tokenizer of {name!r} has no {token} token; choose an encoder trained with masking, "
                "such as roberta-base"
            )
    special = set(tokenizer.all_special_tokens)
    pieces = [t for t in tokenizer.get_vocab() if t not in special and not t.startswith("##")]
    if not pieces:  # transformers makes an empty tokenizer where a folder has none
        raise FmmError(f"{name!r} has no tokenizer files (such as tokenizer.json); save its tokenizer into that folder")
    words = [tokenizer.convert_tokens_to_string([t]).strip() for t in sorted(pieces, key=len, reverse=True)[:2000]]
    words = [word for word in words if word.isalpha() and word.isascii() and 4 <= len(word) <= 12][:50]
    counts = [len(tokenizer(word, add_special_tokens=False)["input_ids"]) for word in words]
    if counts and sum(counts) > 2 * len(counts):
        raise FmmError(
            f"the tokenizer of {name!r} splits words of its own vocabulary, such as {words[0]!r}, into {counts[0]} "
            "pieces; its files are damaged or do not fit this version of transformers"
        )
    for text in _SENTINELS:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        if tokenizer.unk_token_id not in ids and _letters(tokenizer.decode(ids)) != _letters(text):
            raise FmmError(
                f"the tokenizer of {name!r} loses text: {text!r} comes back as {tokenizer.decode(ids)!r}; "
                "check its files"
            )


def _letters(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in decomposed if c.isalnum())


def load_model(name: str, label_names: Sequence[str], *, revision: str | None = None, attention: str = "sdpa") -> Any:
    """Load a sequence classifier with these labels; its head is new where the checkpoint has none of that size.

    Raises FmmError for regression, multi-label, decoder and encoder-decoder checkpoints, and where nothing is found.
    """
    config = _from_pretrained(AutoConfig, "model", name, revision=revision)
    check_config(config, name)
    labels = {"id2label": dict(enumerate(label_names)), "label2id": {n: i for i, n in enumerate(label_names)}}
    load = {
        "revision": revision,
        **hub_options(name, revision),
        "num_labels": len(label_names),
        "ignore_mismatched_sizes": True,
        **labels,
    }
    try:
        return _load(name, attention, load)
    except FmmError:
        raise
    except Exception as error:  # safetensors, torch and transformers each raise their own kinds
        if not isinstance(error, ValueError | ImportError) or "attention" not in str(error):
            raise FmmError(
                f"the weights of {name!r} could not be loaded ({first_line(error)}); fetch or save the model again"
            ) from error
    print(f"{name} has no {attention} attention; its own (eager) attention is used", flush=True)
    return _load(name, "eager", load)


def _load(name: str, attention: str, options: Mapping[str, Any]) -> Any:
    model, report = AutoModelForSequenceClassification.from_pretrained(
        name, attn_implementation=attention, output_loading_info=True, **options
    )
    # The head may be of other labels and is then new; transformers would make anything else new as well.
    check_shapes([key for key in report["mismatched_keys"] if key[0].startswith(f"{model.base_model_prefix}.")], name)
    check_weights(model, name)
    return model


def check_shapes(mismatched: Iterable[Sequence[Any]], name: str) -> None:
    """Refuse weights (name, shape in the file, shape in the model) that are not of the shape of the configuration."""
    for weight, found, wanted in sorted(mismatched, key=str):
        raise FmmError(
            f"the weights of {name!r} do not fit its config.json: {weight} is {list(found)} and should be "
            f"{list(wanted)}; fetch or save the model again"
        )


def label_names(name: str) -> list[str]:
    """The labels of a classifier by number, from its configuration alone. Raises FmmError where it is not found."""
    return config_labels(_from_pretrained(AutoConfig, "model", name), name)


def config_labels(config: Any, name: str) -> list[str]:
    """The names in a configuration's `id2label`. Raises FmmError where they are not numbered 0, 1, 2, ..."""
    numbers = sorted(config.id2label)
    if numbers != list(range(len(numbers))):
        raise FmmError(
            f"the labels of {name!r} are numbered {', '.join(map(str, numbers))} in its config.json; number them from "
            f"0 to {len(numbers) - 1} in id2label"
        )
    return [str(config.id2label[number]) for number in numbers]


def check_vocabulary(model: Any, tokenizer: Any, name: str) -> None:
    """Refuse a tokenizer whose largest token id has no embedding in the model: they belong to different models."""
    rows, largest = model.get_input_embeddings().num_embeddings, max(tokenizer.get_vocab().values())
    if largest >= rows:
        raise FmmError(
            f"the tokenizer of {name!r} has token ids up to {largest} but the model has {rows} embeddings; "
            "give a folder whose tokenizer and model belong together"
        )


def check_weights(model: Any, name: str) -> None:
    """Refuse a model with a weight that is infinite or not a number: every logit of it would be nothing."""
    for weight_name, weight in model.named_parameters():
        if not torch.isfinite(weight).all():
            raise FmmError(
                f"the weights of {name!r} hold values that are not finite numbers (in {weight_name}); its training "
                "diverged or its file is damaged: train or fetch it again"
            )


def check_config(config: Any, name: str) -> None:
    """Refuse what is not a single-label classifier on an encoder, in a sentence."""
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


def max_tokens(model: Any, tokenizer: Any, wanted: int | None = None) -> int:
    """Length limit in tokens: min(tokenizer limit, model positions), or `wanted` where that is smaller.

    RoBERTa-like models keep the first positions for padding, so that 514 position embeddings take 512 tokens.
    """
    positions = getattr(model.config, "max_position_embeddings", None) or _NO_LIMIT
    table = getattr(getattr(model.base_model, "embeddings", None), "position_embeddings", None)
    if table is not None and getattr(table, "padding_idx", None) is not None:
        positions = table.num_embeddings - table.padding_idx - 1
    limit = min(positions, tokenizer.model_max_length or _NO_LIMIT)
    limit = 512 if limit >= _NO_LIMIT else limit
    if wanted is None:
        return limit
    if not 8 <= wanted <= limit:
        raise FmmError(f"data.max_length={wanted} does not fit: give a number of tokens from 8 to the model's {limit}")
    return wanted


def identity(model: Mapping[str, Any]) -> dict[str, Any]:
    """What names a model in a run's settings: its configuration and, for a folder, a digest of its files."""
    named = {key: value for key, value in model.items() if key != "attention"}
    folder = Path(str(model["name"]))
    return {**named, "name": folder.name, "content": folder_digest(folder)} if folder.is_dir() else named


def folder_digest(folder: Path) -> str:
    """Digest of a model folder's weights, configuration and tokenizer files (16 hex digits)."""
    digest = hashlib.sha256()
    files = sorted(p for p in folder.iterdir() if p.suffix in (".json", ".txt", ".safetensors", ".bin", ".model"))
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
    if (Path(name).is_absolute() or name.startswith(".")) and not Path(name).is_dir():
        raise FmmError(f"model folder {name!r} does not exist; give a folder with config.json, or a hub id")
    options |= hub_options(name, options.get("revision"))
    try:
        return loader.from_pretrained(name, **options)
    except Exception as error:
        hint = "give a hub id such as FacebookAI/roberta-base (needs the network once) or a model folder by model.name="
        raise FmmError(f"the {what} of {name!r} could not be loaded ({first_line(error)}); {hint}") from error
