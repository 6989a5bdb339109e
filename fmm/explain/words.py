"""From scores of tokens to scores of words, by character spans of the original text. Pure functions.

No character that is not a blank is lost: every one belongs to one word, and every token to the words that it touches.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Span = tuple[int, int]

# Scripts written without blanks between words: Thai, Lao, Burmese, Khmer, kana, half-width kana, Chinese characters.
_UNBROKEN = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u19e0-\u19ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\ua9e0-\ua9ff\uaa60-\uaa7f\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
# Accents, vowel signs and joiners go with the letter before them; for `re` they are no letters.
_MARKS = "\u00ad\u200c\u200d" + "".join(c for c in map(chr, range(0x300, 0xFE30)) if unicodedata.category(c)[0] == "M")
_UNIT = rf"(?:(?![{_MARKS}])[{_UNBROKEN}][{_MARKS}]*)"
_LETTERS = rf"(?:(?![{_UNBROKEN}])\w[{_MARKS}]*)+"
_WORD = re.compile(rf"(?P<unbroken>{_UNIT}+)|{_LETTERS}(?:['’]{_LETTERS})*|(?:(?!{_UNIT}|\w)\S)+")
_UNITS = re.compile(_UNIT)


def word_spans(text: str, tokens: Sequence[Span] | None = None, whole: Collection[Span] = ()) -> list[Span]:
    """Character spans of words: runs of letters and digits, an apostrophe inside included; runs of other signs apart.

    In scripts without blanks between words the tokenizer's own pieces (`tokens`, spans of the text) stand for words,
    and single characters where they are not given. Each span of `whole`, such as that of an added token, is one word.

    >>> [("It's dull, isn't it?"[a:b]) for a, b in word_spans("It's dull, isn't it?")]
    ["It's", 'dull', ',', "isn't", 'it', '?']
    >>> [("好片 good"[a:b]) for a, b in word_spans("好片 good", [(0, 2), (3, 7)])]
    ['好片', 'good']
    """
    cuts = None if tokens is None else {_stripped(text, span)[0] for span in tokens}
    words: list[Span] = []
    end = 0
    for start, stop in sorted(_stripped(text, span) for span in whole):
        if end <= start < stop:
            words += [*_between(text, end, start, cuts), (start, stop)]
            end = stop
    return words + list(_between(text, end, len(text), cuts))


def _between(text: str, start: int, stop: int, cuts: set[int] | None) -> Iterator[Span]:
    for match in _WORD.finditer(text, start, stop):
        if match["unbroken"] is None:
            yield match.span()
            continue
        units = [unit.start() for unit in _UNITS.finditer(text, *match.span())]
        inner = [unit for unit in units[1:] if cuts is None or unit in cuts]
        edges = [match.start(), *inner, match.end()]
        yield from pairwise(edges)


def _stripped(text: str, span: Span) -> Span:
    """A span without the blanks at its ends; empty, at its end, where it holds nothing else."""
    start, end = span
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def words_of_token(spans: Sequence[Span], words: Sequence[Span], text: str) -> list[list[int]]:
    """Numbers of the words that each token touches. A token of blanks alone goes to the word after it, else before it.

    >>> words_of_token([(0, 4), (4, 6), (6, 10)], [(0, 6), (7, 10)], "duller now")
    [[0], [0], [1]]
    >>> words_of_token([(0, 5)], [(0, 1), (1, 5)], "@user")
    [[0, 1]]
    """
    starts = [start for start, _ in words]
    touched = []
    for span in spans:
        start, end = _stripped(text, span)
        first = max(0, bisect_right(starts, start) - 1)
        numbers = []
        for number in range(first, len(words)):
            if words[number][0] >= end:
                break
            if words[number][1] > start:
                numbers.append(number)
        if not numbers and words:
            numbers = [min(bisect_right(starts, start - 1), len(words) - 1)]
        touched.append(numbers)
    return touched


def pool(scores: Sequence[float], touched: Sequence[Sequence[int]], n_words: int, signed: bool) -> NDArray[np.float64]:
    """Score of each word [n_words] from the tokens that touch it; NaN where none does.

    Of a signed measure the sum, where a token that touches several words is shared among them in equal parts, so that
    the words add up to what the tokens add up to. Of an absolute one the maximum.

    >>> pool([1.0, -3.0, 0.5], [[0], [0], [1]], 3, signed=True).tolist()
    [-2.0, 0.5, nan]
    >>> pool([1.0], [[0, 1]], 2, signed=True).tolist(), pool([1.0], [[0, 1]], 2, signed=False).tolist()
    ([0.5, 0.5], [1.0, 1.0])
    """
    total = np.zeros(n_words) if signed else np.full(n_words, -np.inf)
    for score, words in zip(scores, touched):
        for word in words:
            total[word] = total[word] + score / len(words) if signed else max(total[word], score)
    pieces = pieces_of_word(touched, n_words)
    return np.where(pieces > 0, total, np.nan)


def pieces_of_word(touched: Sequence[Sequence[int]], n_words: int) -> NDArray[np.int64]:
    """Number of tokens that touch each word [n_words].

    >>> pieces_of_word([[0], [0, 1]], 3).tolist()
    [2, 1, 0]
    """
    flat = [word for words in touched for word in words]
    return np.bincount(np.array(flat, dtype=np.int64), minlength=n_words)


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
