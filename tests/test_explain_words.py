"""Words from tokens."""

import re

import numpy as np
import pyarrow as pa
import pytest

from fmm.explain.evidence import evidence_table
from fmm.explain.words import pieces_of_word, pool, rank_descending, word_spans, words_of_token
from tests.test_models_tokenizers import SOUND


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
    specials = [match.span() for match in re.finditer("<s>|</s>|<mask>", text)]
    assert [text[a:b] for a, b in word_spans(text, whole=specials)] == words


def test_tokens_with_leading_blanks_and_empty_spans_find_their_word():
    text = "a great film"
    words = word_spans(text)
    assert words_of_token([(0, 1), (1, 7), (7, 12), (12, 12), (1, 2)], words, text) == [[0], [1], [2], [2], [1]]


@pytest.mark.parametrize(
    ("text", "tokens", "words"),
    [
        ("我们昨天去了", [(0, 2), (2, 4), (4, 6)], ["我们", "昨天", "去了"]),
        ("ภาพยนตร์สนุก", [(0, 8), (8, 12)], ["ภาพยนตร์", "สนุก"]),
        ("ﾃｽﾄです", [(0, 3), (3, 5)], ["ﾃｽﾄ", "です"]),
        ("กำ", [(0, 1), (1, 2)], ["ก", "ำ"]),
        ("นี้", [(0, 1), (1, 2), (2, 3)], ["นี้"]),  # a vowel sign and a tone mark stay with their letter
        ("ok好的fine", [(0, 2), (2, 4), (4, 8)], ["ok", "好的", "fine"]),
    ],
)
def test_pieces_of_the_tokenizer_are_words_where_there_are_no_blanks(text, tokens, words):
    assert [text[a:b] for a, b in word_spans(text, tokens)] == words


def test_an_added_token_is_one_word():
    text = "hi @user has COVID-19!"
    tokens = [(0, 2), (2, 8), (8, 12), (12, 21), (21, 22)]
    words = word_spans(text, tokens, whole=[(2, 8), (12, 21)])
    assert [text[a:b] for a, b in words] == ["hi", "@user", "has", "COVID-19", "!"]
    assert words_of_token(tokens, words, text) == [[0], [1], [2], [3], [4]]


def test_pieces_are_summed_or_their_maximum_taken():
    scores, at = [0.5, -1.0, 2.0], [[0], [0], [2]]
    assert pool(scores, at, 3, signed=True)[[0, 2]].tolist() == [-0.5, 2.0]
    assert pool(scores, at, 3, signed=False)[[0, 2]].tolist() == [0.5, 2.0]
    assert np.isnan(pool(scores, at, 3, signed=True)[1])


SCRIPTS = [
    "not great, dull... isn't it?",
    "naïve cafe\u0301 Straße ﬁne ½ №5 x² İstanbul",
    "👍🏽 👩‍👩‍👧 🇩🇪 e\u0301\u0302 ok",
    "हिन्दी शब्द বাংলা தமிழ்",
    "می\u200cخواهم شلام ١٢٣",
    "שלום עולם (טוב)",
    "这部电影非常好看，演员表演精彩。𠀀𠀁",
    "映画はﾃｽﾄです。カタカナ",
    "영화가 재미있어요",
    "ภาพยนตร์เรื่องนี้สนุกมาก ລາວ ភាសាខ្មែរ မြန်မာ",
    "a\r\nb\tc  d\u00a0e\u2003f\u200bg\ufeffh",
    "@user https://a.b/c?d=e#f COVID-19 <mask> </s> a_b",
    "\u0301 starts with a mark",
    "   ",
]


def random_spans(rng, text):
    """Token spans as tokenizers give them: pieces with or without the blank before, some characters in several."""
    spans, at = [], 0
    while at < len(text):
        end = min(len(text), at + int(rng.integers(1, 7)))
        spans += [(at, end)] * int(rng.integers(1, 3))
        at = end
    return spans


@pytest.mark.parametrize("text", SCRIPTS)
def test_no_character_is_lost_and_scores_add_up(text):
    rng = np.random.default_rng(0)
    for _ in range(20):
        tokens = random_spans(rng, text)
        words = word_spans(text, tokens, whole=tokens[:1])
        covered = [place for start, end in words for place in range(start, end)]
        assert len(covered) == len(set(covered)) and covered == sorted(covered)
        assert {place for place, character in enumerate(text) if not character.isspace()} <= set(covered)
        touched = words_of_token(tokens, words, text)
        scores = rng.normal(size=len(tokens))
        pooled = pool(scores, touched, len(words), signed=True)
        if words:
            assert all(touched) and np.nansum(pooled) == pytest.approx(scores.sum())
            assert (pieces_of_word(touched, len(words)) > 0).all()  # the tokens cover the text


@pytest.mark.parametrize("kind", ["byte-level", "byte-level, prefix space", "unigram, Chinese", "wordpiece, uncased"])
def test_no_character_is_lost_by_real_tokenizers(kind):
    tokenizer = SOUND[kind]()
    tokenizer.add_tokens(["@user", "COVID-19"])
    added = set(tokenizer.get_added_vocab())
    for text in SCRIPTS:
        encoding = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
        tokens = encoding["offset_mapping"]
        names = tokenizer.convert_ids_to_tokens(encoding["input_ids"])
        words = word_spans(text, tokens, [span for span, name in zip(tokens, names) if name in added])
        covered = {place for start, end in words for place in range(start, end)}
        assert {place for place, character in enumerate(text) if not character.isspace()} <= covered
        shown = [text[start:end] for start, end in words]
        assert all(name in shown for name in ("@user", "COVID-19") if name in names and name in text)
        if tokens and words:
            scores = np.arange(1.0, len(tokens) + 1)
            pooled = pool(scores, words_of_token(tokens, words, text), len(words), signed=True)
            assert np.nansum(pooled) == pytest.approx(scores.sum())


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
