"""Tokenizers of every kind are taken; one that lost its merges is not."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from fmm.errors import FmmError
from fmm.models import build
from fmm.models.tokenizer import vocabulary_words

ENGLISH = [
    "unfortunately the governmental committee published another wonderful statement about international agreements",
    "people remember beautiful mountains, terrible winters and important conversations between different generations",
    "several companies announced enormous investments into renewable technology because customers demanded it",
] * 20
CHINESE = ["这部电影非常好看演员表演精彩", "我们昨天去了北京大学图书馆", "今天天气不好所以没有出门"] * 20
RUSSIAN = ["правительство опубликовало замечательное заявление", "красивые горы и ужасные зимние разговоры"] * 20
THAI = ["ภาพยนตร์เรื่องนี้สนุกมากและนักแสดงเก่ง", "เมื่อวานเราไปห้องสมุดมหาวิทยาลัย"] * 20
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def finished(inner: Tokenizer) -> Any:
    names = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=inner, mask_token="<mask>", **names)


def byte_level(texts: Iterable[str], prefix_space: bool) -> Any:
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator(texts, trainer)
    return finished(inner)


def unigram(texts: Iterable[str]) -> Any:
    inner = Tokenizer(models.Unigram())
    inner.normalizer = normalizers.NFKC()
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False)
    inner.train_from_iterator(texts, trainer)
    return finished(inner)


def metaspace_bpe(texts: Iterable[str]) -> Any:
    inner = Tokenizer(models.BPE(unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=SPECIAL, show_progress=False)
    inner.train_from_iterator(texts, trainer)
    return finished(inner)


def wordpiece(texts: Iterable[str], lowercase: bool) -> Any:
    inner = Tokenizer(models.WordPiece(unk_token="<unk>"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=500, special_tokens=SPECIAL, show_progress=False)
    inner.train_from_iterator(texts, trainer)
    return finished(inner)


def characters() -> Any:
    letters = dict.fromkeys([*SPECIAL, *"abcdefghijklmnopqrstuvwxyz ,.", *"".join(RUSSIAN)])
    inner = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[], unk_token="<unk>"))
    return finished(inner)


def words(texts: Iterable[str]) -> Any:
    inner = Tokenizer(models.WordLevel(unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=SPECIAL, show_progress=False))
    return finished(inner)


SOUND = {
    "byte-level": lambda: byte_level(ENGLISH, prefix_space=False),
    "byte-level, prefix space": lambda: byte_level(ENGLISH, prefix_space=True),
    "byte-level, Russian": lambda: byte_level(RUSSIAN, prefix_space=False),
    "byte-level, Chinese": lambda: byte_level(CHINESE, prefix_space=False),
    "byte-level, Thai": lambda: byte_level(THAI, prefix_space=False),
    "unigram": lambda: unigram(ENGLISH),
    "unigram, Chinese": lambda: unigram(CHINESE),
    "unigram, Thai": lambda: unigram(THAI),
    "metaspace BPE": lambda: metaspace_bpe(ENGLISH),
    "wordpiece, uncased": lambda: wordpiece(ENGLISH, lowercase=True),
    "wordpiece, cased": lambda: wordpiece([text.title() for text in ENGLISH], lowercase=False),
    "wordpiece, Chinese": lambda: wordpiece(CHINESE, lowercase=True),
    "wordpiece, lower-cased by mistake": lambda: wordpiece(ENGLISH + [t.title() for t in RUSSIAN], lowercase=True),
    "characters": characters,
    "words": lambda: words(ENGLISH),
}


@pytest.mark.parametrize("kind", SOUND)
def test_sound_tokenizers_are_taken(kind: str) -> None:
    build.check_tokenizer(SOUND[kind](), kind)


def without_merges(tokenizer: Any) -> Any:
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    content["model"]["merges"] = []
    return finished(Tokenizer.from_str(json.dumps(content)))


@pytest.mark.parametrize("kind", [kind for kind in SOUND if "byte-level" in kind or "BPE" in kind])
def test_lost_merges_are_seen(kind: str) -> None:
    """transformers#47706: such a tokenizer loads and silently yields single characters."""
    tokenizer = SOUND[kind]()
    if not vocabulary_words(tokenizer):
        pytest.fail(f"{kind}: the vocabulary has no word to try")
    with pytest.raises(FmmError, match=r"splits words of its own vocabulary, such as .* its merges are lost"):
        build.check_tokenizer(without_merges(tokenizer), kind)


def test_half_of_the_merges_lost_are_seen() -> None:
    tokenizer = byte_level(ENGLISH, prefix_space=False)
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    content["model"]["merges"] = content["model"]["merges"][:20]
    with pytest.raises(FmmError, match="splits words of its own vocabulary"):
        build.check_tokenizer(finished(Tokenizer.from_str(json.dumps(content))), "half")
