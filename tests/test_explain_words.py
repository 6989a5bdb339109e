"""Words from tokens."""

import numpy as np
import pyarrow as pa
import pytest

from fmm.explain.evidence import evidence_table
from fmm.explain.words import pool, rank_descending, word_of_token, word_spans


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not great, dull...", ["not", "great", ",", "dull", "..."]),
        ("", []),
        ("naïve café", ["naïve", "café"]),
        ("好片 good", ["好", "片", "good"]),
        ("a <mask> b", ["a", "<mask>", "b"]),
        ("👍🏽 ok", ["👍🏽", "ok"]),
        ("g\u0308r\u0308eat cafe\u0301", ["g\u0308r\u0308eat", "cafe\u0301"]),
        ("हिन्दी शब्द", ["हिन्दी", "शब्द"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),
        ("dull</s><s>great", ["dull", "</s>", "<s>", "great"]),
        ("<b>dull</b>", ["<", "b", ">", "dull", "</", "b", ">"]),
    ],
)
def test_words(text, words):
    assert [text[a:b] for a, b in word_spans(text, ["<s>", "</s>", "<mask>"])] == words


def test_tokens_with_leading_blanks_and_empty_spans_find_their_word():
    text = "a great film"
    words = word_spans(text)
    assert word_of_token([(0, 1), (1, 7), (7, 12), (12, 12), (1, 2)], words, text) == [0, 1, 2, -1, 1]


def test_pieces_are_summed_or_their_maximum_taken():
    scores, at = [0.5, -1.0, 2.0], [0, 0, 2]
    assert pool(scores, at, 3, signed=True)[[0, 2]].tolist() == [-0.5, 2.0]
    assert pool(scores, at, 3, signed=False)[[0, 2]].tolist() == [0.5, 2.0]
    assert np.isnan(pool(scores, at, 3, signed=True)[1])


def test_ranks_give_ties_to_the_earlier():
    assert rank_descending(np.array([1.0, 2.0, 2.0, np.nan])).tolist() == [2, 0, 1, -1]


def test_evidence_counts_first_tokens_and_the_k_first():
    def rows(measure, ranks):
        spans = [(0, 3), (4, 8), (9, 13), (14, 18)]
        return [
            {"row": 0, "measure": measure, "text": "first", "rank": rank, "start": a, "end": b}
            for rank, (a, b) in zip(ranks, spans)
        ]

    tokens = pa.Table.from_pylist(rows("good", [1, 0, 2, 3]) + rows("poor", [0, 3, 2, 1]))
    table = evidence_table(tokens, [[(0, 8)]])
    good, poor = table.rows
    assert good[:3] == ["good", 1, 1.0] and good[4] == 1.0 and good[5] == 0.5
    assert poor[2] == 1.0 and poor[4] == 0.5
