"""The weights of a checkpoint: all of the encoder is read from it, or the checkpoint is refused.

transformers makes random weights of everything that a file lacks. That is right for a new classification head and
wrong for anything else: an encoder that is random in part trains, and is worth nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import AutoModelForSequenceClassification
from transformers.utils import cached_file
from transformers.utils import logging as transformers_logging

from fmm.errors import FmmError, first_line
from fmm.models.folder import WEIGHTS

# What wrappers put before the names of weights: DataParallel, torch.compile, Lightning modules, sentence-transformers.
WRAPPERS = ("module", "_orig_mod", "model", "net", "network", "encoder", "backbone", "base_model", "auto_model", "0")
_WRAPPED = re.compile(rf"^((?:(?:{'|'.join(WRAPPERS)})\.)+)")
_SHOWN = 3  # names in a message


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
        head: what was done with a trained classification head, in a sentence; None where the checkpoint has none.
    """

    stored_dtypes: list[str]
    trained_dtype: str
    new_weights: list[str]
    removed_prefix: str | None
    unused: int
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
            lines.append(f"{name} has no {_names(self.new_weights)}; these are new and drawn from the run's seed")
        if self.removed_prefix:
            lines.append(f"the names of the weights of {name} began with {self.removed_prefix!r}, which was taken away")
        if self.head:
            lines.append(self.head)
        if stored := [dtype for dtype in self.stored_dtypes if dtype != self.trained_dtype]:
            lines.append(f"the weights of {name} are stored as {' and '.join(stored)} and read as {self.trained_dtype}")
        return lines


def read_classifier(
    name: str, *, dtype: torch.dtype = torch.float32, new_head: bool = False, **options: Any
) -> tuple[Any, Loading]:
    """A sequence classifier with all of its encoder from the checkpoint `name`. Returns it and what was read.

    `new_head`: a head of another shape than the configuration's is replaced, and not refused as the encoder's weights
    are. `options` go to `from_pretrained`. Raises FmmError where a part of the encoder is missing, is of another shape
    than the configuration, is beyond it, or holds no learned values; whatever transformers raises goes through.
    """
    model, report = _from_pretrained(name, dtype, options)
    prefix = None
    if missing := missing_encoder_weights(model, report["missing_keys"]):
        prefix = common_wrapper(report["unexpected_keys"], missing, model.base_model_prefix)
        if prefix is None:
            raise FmmError(_missing_sentence(name, model, missing, report["unexpected_keys"]))
        model, report = _from_pretrained(name, dtype, {**options, "key_mapping": {f"^{re.escape(prefix)}": ""}})
        if missing := missing_encoder_weights(model, report["missing_keys"]):
            raise FmmError(_missing_sentence(name, model, missing, report["unexpected_keys"]))
    in_encoder = [key for key in report["mismatched_keys"] if key[0].startswith(f"{model.base_model_prefix}.")]
    check_shapes(in_encoder if new_head else report["mismatched_keys"], name)
    check_depth(model, report["unexpected_keys"], name)
    check_values(model, name)
    replaced = [key[0] for key in report["mismatched_keys"] if key not in in_encoder]
    loading = Loading(
        stored_dtypes=stored_dtypes(name, options),
        trained_dtype=str(next(model.parameters()).dtype).removeprefix("torch."),
        new_weights=sorted({*report["missing_keys"], *replaced}),
        removed_prefix=prefix,
        unused=len(report["unexpected_keys"]),
    )
    return model, loading


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


def common_wrapper(unexpected: Sequence[str], missing: Sequence[str], base: str) -> str | None:
    """What a wrapper put before the names of the weights: taken away from the unexpected names, it gives all missing
    ones, with or without the encoder's own `base` before them. None where there is no such prefix.

    >>> common_wrapper(["module.bert.w", "module.classifier.w"], ["bert.w"], "bert")
    'module.'
    >>> common_wrapper(["bert.w"], ["roberta.w"], "roberta") is None  # another kind of model is no wrapper
    True
    """
    prefixes: dict[str, None] = {}
    for key in unexpected:
        if match := _WRAPPED.match(key):
            parts = match[1].split(".")[:-1]
            prefixes |= {".".join(parts[: length + 1]) + ".": None for length in range(len(parts))}
    for prefix in prefixes:
        rest = {key.removeprefix(prefix) for key in unexpected if key.startswith(prefix)}
        names = rest | {f"{base}.{key}" for key in rest}
        if set(missing) <= names:
            return prefix
    return None


def _missing_sentence(name: str, model: Any, missing: Sequence[str], unexpected: Sequence[str]) -> str:
    kind = model.config.model_type
    total = sum(key.startswith(f"{model.base_model_prefix}.") for key in model.state_dict())
    if len(missing) < total:
        return (
            f"the weights of {name!r} lack {len(missing)} of the {total} of a {kind} encoder as its config.json "
            f"describes it ({_names(missing)}), and training would start from random ones; fetch or save the model "
            "again, with its own config.json"
        )
    held = f"they are named otherwise ({_names(unexpected)})" if unexpected else "the file holds none"
    return (
        f"the weights of {name!r} hold nothing of the {kind} encoder that its config.json describes: {held}; give a "
        "folder whose weights and config.json belong together"
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
        names = {key, f"{base}.{key}"}
        if re.search(r"\.\d+\.", key) and any(_without_numbers(candidate) in patterns for candidate in names):
            beyond.append(key)
    if beyond:
        raise FmmError(
            f"the weights of {name!r} have layers that its config.json does not ({len(beyond)} weights, such as "
            f"{beyond[0]}), which would be left out; correct the number of layers in config.json"
        )


def _without_numbers(key: str) -> str:
    return re.sub(r"(?<=\.)\d+(?=\.)", "N", key)


def check_values(model: Any, name: str) -> None:
    """Refuse weights that hold no learned values: not finite, or the same number throughout."""
    for weight_name, weight in model.named_parameters():
        if not torch.isfinite(weight).all():
            raise FmmError(
                f"the weights of {name!r} hold values that are not finite numbers (in {weight_name}); its training "
                "diverged or its file is damaged: train or fetch it again"
            )
    embeddings = model.get_input_embeddings().weight
    matrices = [weight for weight in model.base_model.parameters() if weight.ndim == 2 and min(weight.shape) > 1]
    constant = [weight for weight in matrices if _constant(weight)]
    if _constant(embeddings) or 2 * len(constant) > len(matrices):
        value = (embeddings if _constant(embeddings) else constant[0]).flatten()[0].item()
        raise FmmError(
            f"the weights of {name!r} are {value:g} throughout ({len(constant)} of {len(matrices)} matrices of the "
            "encoder hold one number); its file is damaged or a placeholder: fetch or save the model again"
        )


def _constant(weight: torch.Tensor) -> bool:
    return bool((weight == weight.flatten()[0]).all())


def stored_dtypes(name: str, options: Mapping[str, Any]) -> list[str]:
    """Number formats of the floating-point weights on disk, sorted; empty where the file cannot be found again."""
    path = _weights_file(name, options)
    if path is None:
        return []
    if path.suffix == ".json":
        shards = sorted(set(json.loads(path.read_text("utf-8"))["weight_map"].values()))
        path = path.with_name(shards[0])
    try:
        return sorted(_dtypes(path))
    except Exception as error:  # of a shard that is not in the cache, or a pickle that torch will not read
        print(f"the number format of {path} is not known ({first_line(error)})", flush=True)
        return []


def _weights_file(name: str, options: Mapping[str, Any]) -> Path | None:
    allowed = {key: options[key] for key in ("revision", "local_files_only") if key in options}
    for file in WEIGHTS:
        found = cached_file(
            name,
            file,
            _raise_exceptions_for_gated_repo=False,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
            **allowed,
        )
        if found is not None:
            return Path(found)
    return None


def _dtypes(path: Path) -> set[str]:
    if path.suffix == ".safetensors":
        codes = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
        with safe_open(path, "pt") as file:
            stored = {file.get_slice(key).get_dtype() for key in file.keys()}  # noqa: SIM118 - not a mapping
        return {codes.get(code, code.lower()) for code in stored if not code.startswith(("I", "U", "BOOL"))}
    weights = torch.load(path, map_location="meta", weights_only=True, mmap=True)
    floats = {weight.dtype for weight in weights.values() if weight.is_floating_point()}
    return {str(dtype).removeprefix("torch.") for dtype in floats}


def _names(keys: Sequence[str]) -> str:
    more = len(keys) - _SHOWN
    return ", ".join(keys[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
