"""The weights of a checkpoint: all of the encoder is read from it, or the checkpoint is refused.

transformers makes random weights of everything that a file lacks. That is right for a new classification head and
wrong for anything else: an encoder that is random in part trains, and is worth nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification
from transformers.utils import logging as transformers_logging

from fmm.errors import FmmError, counted
from fmm.models import names
from fmm.models.folder import WEIGHTS
from fmm.models.stored import stored_dtypes, weights_file

# Embeddings of zeros that make a checkpoint a damaged one: fewer may be tokens that were never trained.
_FEW_ZEROS, _SHARE_OF_ZEROS = 16, 0.25
# Settings that a configuration may bring along and that would change what a call returns.
_PLAIN_OUTPUT = {"return_dict": True, "output_attentions": False, "output_hidden_states": False}


@dataclass(frozen=True)
class Loading:
    """What was read from a checkpoint and what was not; a part of the run's record.

    Attributes:
        stored_dtypes: number formats of the weights on disk, such as `["float16"]`; empty where not known.
        trained_dtype: number format of the weights in memory, the one that training works on.
        new_weights: names of weights that the checkpoint lacks, drawn at random: the classification head, a pooler.
        removed_prefix: what stood before the names of the weights, such as `module.`; None for nothing.
        unused: number of weights in the checkpoint that the classifier has no place for, such as a language model's
            head.
        file: name of the file that the weights were read from, or of its index; None where not known.
        tied: the name under which the file held the word embeddings, where it is that of an output layer.
        constant: matrices of the encoder that hold one number throughout.
        zero_embeddings: tokens of the vocabulary whose embedding is zero, beside padding and added tokens.
        head: what was done with a trained classification head, in a sentence; None where the checkpoint has none.
    """

    stored_dtypes: list[str]
    trained_dtype: str
    new_weights: list[str]
    removed_prefix: str | None
    unused: int
    file: str | None = None
    tied: str | None = None
    constant: list[str] = field(default_factory=list)
    zero_embeddings: int = 0
    head: str | None = None

    @property
    def has_head(self) -> bool:
        """Whether the checkpoint has a trained classification head of this number of labels."""
        return not any("pooler" not in name.split(".") for name in self.new_weights)

    def record(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)

    def said(self, name: str) -> list[str]:
        """Sentences for the log: what a reader would not expect."""
        lines = []
        if self.new_weights:
            lines.append(f"{name} has no {names.shown(self.new_weights)}; these are new and drawn from the run's seed")
        lines += self.said_of_encoder(name)
        return [*lines, self.head] if self.head else lines

    def said_of_encoder(self, name: str) -> list[str]:
        """Those of the sentences that a trained classifier gives cause for, too."""
        lines = []
        if self.removed_prefix:
            lines.append(f"the names of the weights of {name} began with {self.removed_prefix!r}, which was taken away")
        if self.tied:
            lines.append(f"the word embeddings of {name} were read from {self.tied}, the same matrix by another name")
        if self.constant:
            lines.append(f"warning: {name} holds one number throughout {names.shown(self.constant)}")
        if self.zero_embeddings:
            tokens = counted(self.zero_embeddings, "token")
            lines.append(f"warning: the embeddings of {tokens} of {name} are zero: the model cannot tell them apart")
        if stored := [dtype for dtype in self.stored_dtypes if dtype != self.trained_dtype]:
            lines.append(f"the weights of {name} are stored as {' and '.join(stored)} and read as {self.trained_dtype}")
        if self.file == WEIGHTS[0] and (Path(name) / WEIGHTS[1]).exists():
            lines.append(f"{name} holds {WEIGHTS[0]} and {WEIGHTS[1]}; the first is read")
        return lines


def read_classifier(
    name: str, *, dtype: torch.dtype = torch.float32, new_head: bool = False, **options: Any
) -> tuple[Any, Loading]:
    """A sequence classifier with all of its encoder from the checkpoint `name`. Returns it and what was read.

    `new_head`: a head of another shape than the configuration's is replaced, and not refused as the encoder's weights
    are. `options` go to `from_pretrained`. Raises FmmError where a part of the encoder is missing, is of another shape
    than the configuration, is beyond it, or holds no learned values; whatever transformers raises goes through.
    """
    file = weights_file(name, options)
    model, report, renamed = _with_whole_encoder(name, dtype, options)
    stored = stored_dtypes(file, name)  # after the weights: what cannot be read at all is said by their error
    in_encoder = [key for key in report["mismatched_keys"] if key[0].startswith(f"{model.base_model_prefix}.")]
    if not new_head:
        check_head_size(model, report["mismatched_keys"], name)
    check_shapes(in_encoder if new_head else report["mismatched_keys"], name)
    check_depth(model, report["unexpected_keys"], name)
    constant = check_values(model, name)
    if not new_head:
        check_head(model, name)
    replaced = [key[0] for key in report["mismatched_keys"] if key not in in_encoder]
    loading = Loading(
        stored_dtypes=stored,
        trained_dtype=str(next(model.parameters()).dtype).removeprefix("torch."),
        new_weights=sorted({*report["missing_keys"], *replaced}),
        unused=len(report["unexpected_keys"]),
        file=None if file is None else file.name,
        constant=constant,
        **renamed,
    )
    return model, loading


def _with_whole_encoder(
    name: str, dtype: torch.dtype, options: Mapping[str, Any]
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The model, what transformers reports, and what was renamed so that nothing of the encoder is missing."""
    renamed: dict[str, Any] = {"removed_prefix": None, "tied": None}
    mapping: dict[str, str] = {}
    model, report = _from_pretrained(name, dtype, options)
    base = model.base_model_prefix
    missing = missing_encoder_weights(model, report["missing_keys"])
    if missing and (prefix := names.common_wrapper(report["unexpected_keys"], missing, base)):
        renamed["removed_prefix"] = prefix
        mapping[f"^{re.escape(prefix)}"] = ""
        model, report = _from_pretrained(name, dtype, {**options, "key_mapping": mapping})
        missing = missing_encoder_weights(model, report["missing_keys"])
    if missing and (tied := names.tied_embeddings(report["unexpected_keys"], missing)):
        renamed["tied"] = tied
        mapping[f"^{re.escape(renamed['removed_prefix'] or '')}{re.escape(tied)}$"] = missing[0]
        model, report = _from_pretrained(name, dtype, {**options, "key_mapping": dict(reversed(mapping.items()))})
        missing = missing_encoder_weights(model, report["missing_keys"])
    if missing:
        raise FmmError(_missing_sentence(name, model, missing, report["unexpected_keys"]))
    return model, report, renamed


def _from_pretrained(name: str, dtype: torch.dtype, options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """As transformers reads it, without its own table of missing weights: what matters of it is said in sentences."""
    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        model, report = AutoModelForSequenceClassification.from_pretrained(
            name,
            dtype=dtype,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            trust_remote_code=False,
            **_PLAIN_OUTPUT,
            **options,
        )
    finally:
        transformers_logging.set_verbosity(level)
    # A checkpoint whose weights are in two formats leaves the buffers or a head in the other one.
    return model.to(dtype), {key: sorted(values, key=str) for key, values in report.items() if key != "error_msgs"}


def missing_encoder_weights(model: Any, missing: Iterable[str]) -> list[str]:
    """Those of the missing weights that belong to the encoder: not to the head, nor to a pooler that feeds the head.

    A masked language model has no pooler, so that one is new wherever training starts from it.
    """
    prefix = f"{model.base_model_prefix}."
    return sorted(key for key in missing if key.startswith(prefix) and "pooler" not in key.split("."))


def _missing_sentence(name: str, model: Any, missing: Sequence[str], unexpected: Sequence[str]) -> str:
    kind = model.config.model_type
    total = sum(key.startswith(f"{model.base_model_prefix}.") for key in model.state_dict())
    if hint := names.hint(unexpected):
        return (
            f"the weights of {name!r} lack {len(missing)} of the {total} of a {kind} encoder "
            f"({names.shown(missing)}); {hint}"
        )
    if len(missing) < total:
        return (
            f"the weights of {name!r} lack {len(missing)} of the {total} of a {kind} encoder as its config.json "
            f"describes it ({names.shown(missing)}), and training would start from random ones; fetch or save the "
            "model again, with its own config.json"
        )
    held = f"they are named otherwise ({names.shown(unexpected)})" if unexpected else "the file holds none"
    return (
        f"the weights of {name!r} hold nothing of the {kind} encoder that its config.json describes: {held}; give a "
        "folder whose weights and config.json belong together"
    )


def check_head_size(model: Any, mismatched: Iterable[Sequence[Any]], name: str) -> None:
    """Refuse a head of more or fewer labels than config.json names: it is the names that lack, not the weights."""
    base, labels = f"{model.base_model_prefix}.", model.config.num_labels
    for weight, stored, expected in sorted(mismatched, key=str):
        same_inputs = list(stored[1:]) == list(expected[1:])
        if not weight.startswith(base) and same_inputs and expected[0] == labels != stored[0]:
            raise FmmError(
                f"the head of {name!r} tells {stored[0]} labels apart ({weight}) and its config.json names {labels}; "
                f"name all {stored[0]} of them in id2label there, by number"
            )


def check_shapes(mismatched: Iterable[Sequence[Any]], name: str) -> None:
    """Refuse weights (name, shape in the file, shape in the model) that are not of the shape of the configuration."""
    for weight, stored, expected in sorted(mismatched, key=str):
        raise FmmError(
            f"the weights of {name!r} do not fit its config.json: {weight} is {list(stored)} and should be "
            f"{list(expected)}; fetch or save the model again"
        )


def check_depth(model: Any, unexpected: Iterable[str], name: str) -> None:
    """Refuse a checkpoint with layers beyond those of the configuration: the model would be cut in silence."""
    patterns = {_without_numbers(key) for key in model.state_dict()}
    base = model.base_model_prefix
    beyond = []
    for key in unexpected:
        candidates = {key, f"{base}.{key}"}
        if re.search(r"\.\d+\.", key) and any(_without_numbers(each) in patterns for each in candidates):
            beyond.append(key)
    if beyond:
        raise FmmError(
            f"the weights of {name!r} have layers that its config.json does not ({len(beyond)} weights, such as "
            f"{beyond[0]}), which would be left out; correct the number of layers in config.json"
        )


def _without_numbers(key: str) -> str:
    return re.sub(r"(?<=\.)\d+(?=\.)", "N", key)


def check_values(model: Any, name: str) -> list[str]:
    """Refuse weights that hold no learned values: not finite, or the same number throughout a layer or most of the
    encoder. Returns the names of single matrices that hold one number, which may be meant."""
    for weight_name, weight in model.named_parameters():
        if not torch.isfinite(weight).all():
            raise FmmError(
                f"the weights of {name!r} hold values that are not finite numbers (in {weight_name}); its training "
                "diverged or its file is damaged: train or fetch it again"
            )
    matrices = {key: weight for key, weight in model.base_model.named_parameters() if _is_matrix(weight)}
    constant = [key for key, weight in matrices.items() if _constant(weight)]
    embeddings = model.get_input_embeddings().weight
    if _constant(embeddings) or 2 * len(constant) > len(matrices):
        value = (embeddings if _constant(embeddings) else matrices[constant[0]]).flatten()[0].item()
        raise FmmError(
            f"the weights of {name!r} are {value:g} throughout ({len(constant)} of {len(matrices)} matrices of the "
            "encoder hold one number); its file is damaged or a placeholder: fetch or save the model again"
        )
    if layer := _constant_layer(list(matrices), constant):
        raise FmmError(
            f"the weights of {name!r} in {layer} hold one number throughout; its file is damaged, such as by a "
            "download that did not end: fetch or save the model again"
        )
    return [key for key in constant if "token_type" not in key]  # of which many models have zeros


def zero_embeddings(model: Any, tokenizer: Any, name: str) -> int:
    """Number of tokens of the vocabulary with an embedding of zeros, which a model cannot tell apart.

    A row for padding is meant to be zero, rows of added tokens may be, and rows beyond the vocabulary only fill up the
    matrix: they do not count. Raises FmmError where a large part of the vocabulary is zero.
    """
    layer = model.get_input_embeddings()
    apart = {tokenizer.pad_token_id, layer.padding_idx, *tokenizer.get_added_vocab().values()}
    ids = sorted(set(tokenizer.get_vocab().values()) - apart)
    zero = (layer.weight.detach()[torch.tensor(ids, dtype=torch.long)] == 0).all(dim=1)
    n = int(zero.sum())
    if n >= _FEW_ZEROS and n > _SHARE_OF_ZEROS * len(ids):
        first = tokenizer.convert_ids_to_tokens(ids[int(zero.nonzero()[0])])
        raise FmmError(
            f"the embeddings of {n:,} of the {len(ids):,} tokens of {name!r} are zero, such as that of {first!r}; its "
            "file is damaged, such as by a download that did not end: fetch or save the model again"
        )
    return n


def _constant_layer(matrices: Sequence[str], constant: Sequence[str]) -> str | None:
    """The first numbered layer of which all matrices are among `constant`."""
    layers: dict[str, list[str]] = {}
    for key in matrices:
        if match := re.match(r"(.+?\.\d+)\.", key):
            layers.setdefault(match[1], []).append(key)
    return next((layer for layer, keys in layers.items() if set(keys) <= set(constant)), None)


def check_head(model: Any, name: str) -> None:
    """Refuse a classification head that gives all texts the same logits: a matrix of it holds one number."""
    inside = {id(weight) for weight in model.base_model.parameters()}
    for key, weight in model.named_parameters():
        if id(weight) not in inside and _is_matrix(weight) and _constant(weight):
            raise FmmError(
                f"{key} of {name!r}, a part of its classification head, is {abs(weight.flatten()[0].item()):g} "
                "throughout, so that all texts get one answer; its file is damaged or it was never trained: fine-tune "
                "it first, by task=train with it as model.name"
            )


def _is_matrix(weight: torch.Tensor) -> bool:
    return weight.ndim == 2 and min(weight.shape) > 1


def _constant(weight: torch.Tensor) -> bool:
    return bool((weight == weight.flatten()[0]).all())
