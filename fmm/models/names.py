"""Names of weights: what a wrapper put before them, and what names say of the program that wrote them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from fmm.errors import FmmError

_SHOWN = 3  # names in a message
_TIED = ("lm_head.decoder.weight", "cls.predictions.decoder.weight", "lm_head.weight", "decoder.weight")
# Entries of a file that torch.save wrote for a whole run: the weights are one of them.
_STATES = ("state_dict", "model_state_dict", "model_state", "model", "module", "net", "ema")


def shown(keys: Sequence[str]) -> str:
    """The first names of a list, and how many more there are.

    >>> shown(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    more = len(keys) - _SHOWN
    return ", ".join(keys[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def common_wrapper(unexpected: Sequence[str], missing: Sequence[str], base: str) -> str | None:
    """What a wrapper (DataParallel, torch.compile, a Lightning module, sentence-transformers) put before the names.

    Taken away from the unexpected names it gives all missing ones, with or without the encoder's own `base` before
    them. None where there is no such prefix, or where it names another kind of model: its layers mean other things
    even where they are named alike. Raises FmmError where two prefixes would do, such as a student's and a teacher's.

    >>> common_wrapper(["module.bert.v", "module.bert.w", "module.classifier.w"], ["bert.v", "bert.w"], "bert")
    'module.'
    >>> common_wrapper(["bert.w"], ["roberta.w"], "roberta") is None  # another kind of model is no wrapper
    True
    """
    names = set(unexpected)
    ends: dict[str, None] = {}
    for key in missing:
        bare = key.removeprefix(f"{base}.")
        ends |= {other.removesuffix(bare): None for other in unexpected if other.endswith(f".{bare}")}
    # `model.roberta.w` is `roberta.w` with a prefix of one part: the encoder's own name stays.
    trimmed = (end if end == f"{base}." else end.removesuffix(f"{base}.") for end in ends)
    prefixes = [prefix for prefix in dict.fromkeys(trimmed) if prefix and not _names_a_model(prefix)]
    prefixes = [prefix for prefix in prefixes if _holds_most(names, prefix, missing, base)]
    if len(prefixes) > 1:
        raise FmmError(
            f"the weights hold several encoders, named {', '.join(sorted(prefixes))}*; save the one that is meant alone"
        )
    return prefixes[0] if prefixes else None


def _holds_most(names: set[str], prefix: str, missing: Sequence[str], base: str) -> bool:
    # Most, not all: what is still missing without the prefix is then named in the error.
    present = [key for key in missing if prefix + key in names or prefix + key.removeprefix(f"{base}.") in names]
    return 2 * len(present) > len(missing)


def _names_a_model(prefix: str) -> bool:
    return not _model_types().isdisjoint(part.casefold().replace("-", "_") for part in prefix.split("."))


@cache
def _model_types() -> frozenset[str]:
    return frozenset(name.replace("-", "_") for name in CONFIG_MAPPING_NAMES)


def tied_embeddings(unexpected: Iterable[str], missing: Sequence[str]) -> str | None:
    """Under which name the file has the word embeddings, where these alone are missing: a language model's output
    layer is the same matrix, and some programs save it once, under either name. None where it is not there."""
    if len(missing) != 1 or not missing[0].endswith("embeddings.weight") or "position" in missing[0]:
        return None
    return next((key for key in unexpected if key in _TIED), None)


def hint(unexpected: Sequence[str]) -> str | None:
    """What the names of a file that lacks an encoder say of it, and what to do; None where they say nothing."""
    if any(".lora_" in key or ".base_layer." in key for key in unexpected):
        return (
            "they are those of a model with an adapter that has not been merged (LoRA): call merge_and_unload() on it "
            "and save_pretrained() the result"
        )
    entry = next((name for name in _STATES if name in unexpected), None)
    if entry is not None:
        return (
            f"the file is a whole run's, with the weights in its entry {entry!r}: save that entry alone "
            f"(torch.save(torch.load(FILE)[{entry!r}], FILE))"
        )
    return None
