"""The classifier and tokenizer that training starts from: any encoder that has a mask token."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from fmm.data.labels import are_generic, label_text
from fmm.data.sources import TIMEOUT
from fmm.errors import FmmError, first_line
from fmm.models.families import check_family
from fmm.models.folder import check_model_folder
from fmm.models.head import arranged_head
from fmm.models.weights import Loading, read_classifier

_NO_LIMIT = 10**6  # tokenizers without a limit report a huge one
_SHORTEST = 8  # tokens of an input that says anything
_SAMPLED = 2000  # pieces of a vocabulary that are looked at
_SENTINELS = ("the answer was not what they hoped for", "café naïve Привет 東京")


def load_tokenizer(name: str, revision: str | None = None) -> Any:
    """Load the tokenizer of a hub id or folder and check that it can serve masked fine-tuning.

    Raises FmmError where it cannot be found, or fails `check_tokenizer`.
    """
    check_model_folder(name)
    tokenizer = _from_pretrained(AutoTokenizer, "tokenizer", name, revision=revision)
    check_tokenizer(tokenizer, name)
    return tokenizer


def check_tokenizer(tokenizer: Any, name: str) -> None:
    """Refuse a tokenizer without mask token, one that falls apart into characters, or one that loses text.

    Raises FmmError.
    """
    if not tokenizer.is_fast:
        raise FmmError(
            f"the tokenizer of {name!r} has no fast version, which fmm needs to know what belongs to which text"
        )
    if len(tokenizer.get_vocab()) <= len(set(tokenizer.all_special_tokens)):
        # transformers makes an empty tokenizer where a folder has none
        raise FmmError(f"{name!r} has no tokenizer files (such as tokenizer.json); save its tokenizer into that folder")
    check_special_tokens(tokenizer, name)
    check_merges(tokenizer, name)
    for text in _SENTINELS:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        if tokenizer.unk_token_id not in ids and _letters(tokenizer.decode(ids)) != _letters(text):
            raise FmmError(
                f"the tokenizer of {name!r} loses text: {text!r} comes back as {tokenizer.decode(ids)!r}; "
                "check its files"
            )


def check_special_tokens(tokenizer: Any, name: str) -> None:
    """Refuse a tokenizer without a mask or padding token, or whose mask token has another meaning too."""
    for token in ("mask", "pad"):
        if getattr(tokenizer, f"{token}_token_id") is None:
            raise FmmError(
                f"the tokenizer of {name!r} has no {token} token; choose an encoder trained with masking, "
                "such as roberta-base"
            )
    for other in ("pad", "unk", "cls", "sep", "bos", "eos"):
        if getattr(tokenizer, f"{other}_token_id", None) == tokenizer.mask_token_id:
            raise FmmError(
                f"the mask token of {name!r}, {tokenizer.mask_token!r} (id {tokenizer.mask_token_id}), is its {other} "
                "token too, so that a masked word could not be told from it; correct mask_token in "
                "tokenizer_config.json"
            )


def check_merges(tokenizer: Any, name: str) -> None:
    """Refuse a tokenizer that breaks words of its own vocabulary into characters.

    One whose merges were lost in loading still runs and yields single characters; nothing else would notice. Words of
    the vocabulary are written as the tokenizer itself writes them, with and without the blank that begins a word.
    """
    words = _vocabulary_words(tokenizer)
    counts = [_fewest_pieces(tokenizer, word) for word in words]
    if sum(counts) > 0.5 * sum(map(len, words)):
        worst = max(range(len(words)), key=lambda place: counts[place] / len(words[place]))
        raise FmmError(
            f"the tokenizer of {name!r} splits words of its own vocabulary, such as {words[worst]!r}, into "
            f"{counts[worst]} pieces; its merges are lost: its files are damaged or do not fit this version of "
            "transformers"
        )


def _vocabulary_words(tokenizer: Any) -> list[str]:
    """Up to 60 words of 4 to 12 letters that are one piece of the vocabulary, from all over it."""
    special = set(tokenizer.all_special_tokens) | set(tokenizer.get_added_vocab())
    pieces = sorted(t for t in tokenizer.get_vocab() if len(t) >= 4 and t not in special and not t.startswith("##"))
    words = []
    for piece in pieces[:: max(1, len(pieces) // _SAMPLED)]:
        word = tokenizer.decode(tokenizer.convert_tokens_to_ids([piece])).strip()
        if word.isalpha() and 4 <= len(word) <= 12:
            words.append(word)
    return words[:: max(1, len(words) // 60)]


def _fewest_pieces(tokenizer: Any, word: str) -> int:
    """Pieces of a word, at the start of a text or within it, whichever are fewer."""
    texts = (word, f" {word}")
    return min(len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts)


def _letters(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in decomposed if c.isalnum())


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
    model, loading = _read(name, attention, options)
    if not loading.has_head:
        return model, loading
    own_names = label_names(name, revision)
    if len(own_names) != len(labels):
        return model, loading
    model, head = arranged_head(model, own_names, labels, name)
    return model, replace(loading, head=head)


def _read(name: str, attention: str, options: Mapping[str, Any]) -> tuple[Any, Loading]:
    try:
        return read_classifier(name, new_head=True, attn_implementation=attention, **options)
    except FmmError:
        raise
    except Exception as error:  # safetensors, torch and transformers each raise their own kinds
        if not isinstance(error, ValueError | ImportError) or "attention" not in str(error):
            raise FmmError(
                f"the weights of {name!r} could not be loaded ({first_line(error)}); fetch or save the model again"
            ) from error
    print(f"{name} has no {attention} attention; its own (eager) attention is used", flush=True)
    return read_classifier(name, new_head=True, attn_implementation="eager", **options)


def label_names(name: str, revision: str | None = None) -> list[str]:
    """The labels of a classifier by number, from its configuration alone. Raises FmmError where it is not found."""
    config = configuration(name, revision)
    stored, _ = PreTrainedConfig.get_config_dict(name, revision=revision, **hub_options(name, revision))
    return stored_labels(stored, config.num_labels, name)


def configuration(name: str, revision: str | None = None) -> Any:
    """The configuration of a folder or hub id. Raises FmmError where it is not found."""
    check_model_folder(name)
    return _from_pretrained(AutoConfig, "model", name, revision=revision)


def stored_labels(stored: Mapping[str, Any], count: int, name: str) -> list[str]:
    """The labels in a config.json, by number: of `id2label`, or of `label2id` where that alone names them.

    transformers reads `id2label` only. Where neither names a label they are LABEL_0, LABEL_1, ... Raises FmmError
    where the two contradict each other, and where labels are not numbered 0, 1, 2, ... or one name is used twice.
    """
    forward = _numbered(stored.get("id2label") or {}, name)
    backward = _numbered({number: label for label, number in (stored.get("label2id") or {}).items()}, name)
    if backward and len(backward) < len(stored["label2id"]):
        raise FmmError(f"label2id in the config.json of {name!r} gives two labels one number; give each its own")
    known = [labels for labels in (forward, backward) if labels and not are_generic(labels)]
    if len(known) == 2 and known[0] != known[1]:
        raise FmmError(
            f"the config.json of {name!r} contradicts itself: id2label has the order {', '.join(known[0])} and "
            f"label2id {', '.join(known[1])}; correct the wrong one, or take it out"
        )
    labels = known[0] if known else [f"LABEL_{number}" for number in range(count)]
    folded = [label.casefold() for label in labels]
    if len(set(folded)) < len(folded):
        raise FmmError(f"the labels of {name!r} are {', '.join(labels)}: two have one name; name each in id2label")
    return labels


def _numbered(labels: Mapping[Any, Any], name: str) -> list[str]:
    """Labels by rising number, {number: label}. Raises FmmError where the numbers are not 0, 1, 2, ..."""
    try:
        by_number = {int(number): label_text(label) for number, label in labels.items()}
    except (TypeError, ValueError) as error:
        raise FmmError(f"the labels of {name!r} are not numbered in its config.json ({first_line(error)})") from error
    numbers = sorted(by_number)
    if numbers != list(range(len(numbers))):
        raise FmmError(
            f"the labels of {name!r} are numbered {', '.join(map(str, numbers))} in its config.json; number them from "
            f"0 to {len(numbers) - 1} in id2label"
        )
    return [by_number[number] for number in numbers]


def check_vocabulary(model: Any, tokenizer: Any, name: str) -> None:
    """Refuse a tokenizer whose largest token id has no embedding in the model: they belong to different models."""
    rows, largest = model.get_input_embeddings().num_embeddings, max(tokenizer.get_vocab().values())
    if largest >= rows:
        raise FmmError(
            f"the tokenizer of {name!r} has token ids up to {largest} but the model has {rows} embeddings; "
            "give a folder whose tokenizer and model belong together"
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
    check_family(config, name)


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
    if limit < _SHORTEST:
        raise FmmError(
            f"the tokenizer cuts every text at {limit} tokens (the model has {positions} positions); correct "
            "model_max_length in tokenizer_config.json"
        )
    if wanted is None:
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
    options |= hub_options(name, options.get("revision"))
    try:
        return loader.from_pretrained(name, trust_remote_code=False, **options)  # never run, and never asked about
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise FmmError(
                f"the {what} of {name!r} needs code of its own from its folder or the hub (auto_map in config.json), "
                "which fmm does not run; choose a model whose kind transformers knows"
            ) from error
        hint = "give a hub id such as FacebookAI/roberta-base (needs the network once) or a model folder by model.name="
        raise FmmError(f"the {what} of {name!r} could not be loaded ({first_line(error)}); {hint}") from error
