"""From scores of tokens to scores of words, by character spans of the original text. Pure functions."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Span = tuple[int, int]

_CJK = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"  # written without blanks: each character is a word
# Accents, vowel signs and joiners go with the letter before them; for `re` they are no letters.
_MARKS = "\u00ad\u200c\u200d" + "".join(c for c in map(chr, range(0x300, 0xFE30)) if unicodedata.category(c)[0] == "M")
_LETTERS = rf"(?:(?![{_CJK}])\w[{_MARKS}]*)+"
_WORD = re.compile(rf"[{_CJK}][{_MARKS}]*|{_LETTERS}(?:['’]{_LETTERS})*|[^\w\s]+")


def word_spans(text: str, literals: Iterable[str] = ()) -> list[Span]:
    """Character spans of words: runs of letters and digits, an apostrophe inside included; runs of other signs apart.

    Each of `literals` (the tokenizer's special tokens, where a text spells them out) is one word.

    >>> [("It's dull, isn't it?"[a:b]) for a, b in word_spans("It's dull, isn't it?")]
    ["It's", 'dull', ',', "isn't", 'it', '?']
    """
    special = "|".join(re.escape(literal) for literal in sorted(literals, key=len, reverse=True))
    found, end = [], 0
    for start, stop in [m.span() for m in re.finditer(special, text)] if special else []:
        found += [match.span() for match in _WORD.finditer(text, end, start)] + [(start, stop)]
        end = stop
    return found + [match.span() for match in _WORD.finditer(text, end)]


def word_of_token(spans: Sequence[Span], words: Sequence[Span], text: str) -> list[int]:
    """Number of the word in which each token starts, blanks in front of it aside; −1 where there is none.

    >>> word_of_token([(0, 4), (4, 6), (6, 10)], [(0, 6), (7, 10)], "duller now")
    [0, 0, 1]
    """
    starts = [start for start, _ in words]
    found = []
    for start, end in spans:
        while start < end and text[start].isspace():
            start += 1
        number = bisect_right(starts, start) - 1
        found.append(number if number >= 0 and start < words[number][1] else -1)
    return found


def pool(scores: Sequence[float], word: Sequence[int], n_words: int, signed: bool) -> NDArray[np.float64]:
    """Score of each word [n_words]: the sum of its pieces for a signed measure, their maximum for an absolute one.

    NaN where a word has no piece.

    >>> pool([1.0, -3.0, 0.5], [0, 0, 1], 3, signed=True).tolist()
    [-2.0, 0.5, nan]
    """
    values, at = np.asarray(scores, np.float64), np.asarray(word, np.int64)
    kept = at >= 0
    total = np.zeros(n_words) if signed else np.full(n_words, -np.inf)
    (np.add if signed else np.maximum).at(total, at[kept], values[kept])
    return np.where(np.bincount(at[kept], minlength=n_words) > 0, total, np.nan)


def rank_descending(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Rank of each score, 0 the largest, ties to the earlier; −1 for NaN.

    >>> rank_descending(np.array([0.1, np.nan, 0.7])).tolist()
    [1, -1, 0]
    """
    known = np.flatnonzero(~np.isnan(scores))
    order = known[np.argsort(-scores[known], kind="stable")]
    ranks = np.full(len(scores), -1, dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks
