"""Tokens, their text, and what is cut off."""

from __future__ import annotations

import pytest

from fmm.data import encode
from fmm.data.encoding import longest_first, tokenizer_hash
from fmm.errors import FmmError
from tests.data_helpers import word_tokenizer


@pytest.mark.parametrize(("style", "separators"), [("bert", 1), ("roberta", 2)])
def test_sequence_id_tells_the_texts_apart(style: str, separators: int) -> None:
    rows = encode(word_tokenizer(style), ["a b c"], ["d e"], 512)
    assert rows.sequence_id == [[0, 1, 1, 1, *[0] * separators, 2, 2, 0]]
    assert (rows.token_type_ids is None) == (style == "roberta")
    assert rows.truncated == [False]


def test_special_tokens_written_in_a_text_belong_to_it() -> None:
    rows = encode(word_tokenizer(), ["a [SEP] [MASK] b"], None, 512)
    assert rows.sequence_id == [[0, 1, 1, 1, 1, 0]]


@pytest.mark.parametrize("style", ["bert", "roberta"])
@pytest.mark.parametrize(("first", "second"), [(3, 700), (700, 3), (400, 400), (1, 900), (900, 1)])
def test_pairs_too_long_keep_the_shorter_text(style: str, first: int, second: int) -> None:
    rows = encode(word_tokenizer(style), ["a " * first], ["b " * second], 512)
    kept = [rows.sequence_id[0].count(text) for text in (1, 2)]
    assert len(rows.input_ids[0]) == 512 and rows.truncated == [True]
    assert min(kept) >= 1
    room = sum(kept)
    assert kept == list(longest_first(first, second, room))
    for n, k in zip((first, second), kept):
        assert k == n if n <= room // 2 else k >= room // 2


def test_cutting_equals_the_librarys_longest_first() -> None:
    tokenizer = word_tokenizer()
    texts, pairs = (
        ["a b c d e f g", "a", "a b c", "a b c d e f"],
        ["a b c d e", "a b c d e f g h i", "b", "a b c d e f"],
    )
    for max_length in range(6, 16):
        theirs = tokenizer(texts, pairs, truncation="longest_first", max_length=max_length)
        assert encode(tokenizer, texts, pairs, max_length).input_ids == theirs["input_ids"]


def test_cut_single_text_keeps_its_start_and_offsets() -> None:
    rows = encode(word_tokenizer(), ["a b c d e"], None, 5, offsets=True)
    assert rows.sequence_id == [[0, 1, 1, 1, 0]]
    assert rows.offsets is not None and rows.offsets[0][1:4] == [(0, 1), (2, 3), (4, 5)]


def test_no_room_is_a_sentence() -> None:
    with pytest.raises(FmmError, match=r"set data\.max_length to at least 5"):
        encode(word_tokenizer(), ["a b"], ["c d"], 4)


def test_empty_second_text_is_kept_as_it_is() -> None:
    assert encode(word_tokenizer(), ["a"], [""], 512).sequence_id == [[0, 1, 0, 0]]


def test_truncation_saved_with_a_tokenizer_is_neither_used_nor_lost() -> None:
    tokenizer = word_tokenizer()
    before = tokenizer_hash(tokenizer)
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.backend_tokenizer.enable_padding(length=9)
    rows = encode(tokenizer, ["a b c d e f"], None, 512)
    assert len(rows.input_ids[0]) == 8
    assert tokenizer.backend_tokenizer.truncation["max_length"] == 4
    assert tokenizer.backend_tokenizer.padding["length"] == 9
    assert tokenizer_hash(tokenizer) == before


def test_slow_tokenizer_is_refused() -> None:
    class Slow:
        is_fast = False

    with pytest.raises(FmmError, match="tokenizer Slow is not a fast tokenizer"):
        encode(Slow(), ["a"], None, 512)
