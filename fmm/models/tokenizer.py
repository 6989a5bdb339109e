"""What a tokenizer must be able to do: mask, pad, keep words whole and lose no text."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

from fmm.errors import FmmError

_SAMPLED = 2000  # pieces of a vocabulary that are looked at
_SENTINELS = ("the answer was not what they hoped for", "café naïve Привет 東京")


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
    if not isinstance(tokenizer.model_max_length, int | float | None):
        raise FmmError(
            f"model_max_length in tokenizer_config.json of {name!r} is {tokenizer.model_max_length!r}; give a number "
            "of tokens"
        )
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
            if Path(name).is_dir() and not (Path(name) / "tokenizer_config.json").exists():
                raise FmmError(
                    f"{name!r} has no tokenizer_config.json, which says what its {token} token is; copy it from where "
                    "the model comes from, or call the tokenizer's save_pretrained(<folder>)"
                )
            raise FmmError(
                f"the tokenizer of {name!r} has no {token} token; choose an encoder trained with masking, "
                f"such as roberta-base, or name it ({token}_token) in tokenizer_config.json if it has one"
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
    words = vocabulary_words(tokenizer)
    counts = [_fewest_pieces(tokenizer, word) for word in words]
    if sum(counts) > 0.5 * sum(map(len, words)):
        worst = max(range(len(words)), key=lambda place: counts[place] / len(words[place]))
        raise FmmError(
            f"the tokenizer of {name!r} splits words of its own vocabulary, such as {words[worst]!r}, into "
            f"{counts[worst]} pieces; its merges are lost: its files are damaged or do not fit this version of "
            "transformers"
        )


def vocabulary_words(tokenizer: Any) -> list[str]:
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
