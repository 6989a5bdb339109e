"""The file that a checkpoint's weights come from, and the number formats it holds them in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers.utils import cached_file

from fmm.errors import FmmError, first_line
from fmm.models.folder import WEIGHTS

_FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_FLOATS |= {"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
_CODES = {"I8": "int8", "U8": "uint8", "I16": "int16", "U16": "uint16", "I32": "int32", "U32": "uint32"}
_CODES |= {"I64": "int64", "U64": "uint64"}


def weights_file(name: str, options: Mapping[str, Any]) -> Path | None:
    """The file that transformers reads for `name`, or the index of its parts; None where it cannot be found again."""
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


def stored_dtypes(path: Path | None, name: str) -> list[str]:
    """Number formats of the floating-point weights on disk, sorted; empty where the file cannot be read again.

    Raises FmmError where most of its matrices are whole numbers: they are quantised, and mean nothing without their
    scales.
    """
    if path is None:
        return []
    if path.suffix == ".json":
        parts = sorted(set(json.loads(path.read_text("utf-8"))["weight_map"].values()))
        path = path.with_name(parts[0])
    try:
        matrices, floats = _formats(path)
    except Exception as error:  # of a part that is not in the cache, or a pickle that torch will not read
        print(f"the number format of {path} is not known ({first_line(error)})", flush=True)
        return []
    quantised = [dtype for dtype in matrices if dtype in _CODES.values()]
    if 2 * len(quantised) > len(matrices):
        raise FmmError(
            f"the weights of {name!r} are quantised ({quantised[0]}); fmm reads weights in floating point: give the "
            "model that they were made from"
        )
    return sorted(floats)


def _formats(path: Path) -> tuple[list[str], set[str]]:
    """Formats of the matrices, one each, and those of all floating-point weights."""
    if path.suffix != ".safetensors":
        weights = torch.load(path, map_location="meta", weights_only=True, mmap=True)
        tensors = [weight for weight in weights.values() if isinstance(weight, torch.Tensor)]
        floats = {str(weight.dtype).removeprefix("torch.") for weight in tensors if weight.is_floating_point()}
        return [str(weight.dtype).removeprefix("torch.") for weight in tensors if weight.ndim == 2], floats
    with safe_open(path, "pt") as file:
        slices = [file.get_slice(key) for key in file.keys()]  # noqa: SIM118 - not a mapping
        codes = [(part.get_dtype(), len(part.get_shape())) for part in slices]
    matrices = [_FLOATS.get(code, _CODES.get(code, code)) for code, ndim in codes if ndim == 2]
    return matrices, {_FLOATS[code] for code, _ in codes if code in _FLOATS}
