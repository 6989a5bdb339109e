"""Generated reviews whose evidence is known: the offline demo and the testing ground for explanations.

Each review has one or two opinions among filler sentences. An opinion is an adjective, perhaps negated ("not", "never",
"hardly"); the label is its polarity after negation. Fillers carry negators and adjectives-free chatter, so
that a negator alone decides nothing. The adjectives and the negators of opinions are marked as evidence.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fmm.data.raw import SPLITS, DatasetInfo, RawData, RawSplit, Spans, raw_split

VERSION = 1  # raise it when the generated rows change

GOOD = ["great", "superb", "lovely", "charming", "brilliant", "delightful", "excellent", "wonderful", "tasty", "fresh", "clever", "moving"]
BAD = ["awful", "dull", "terrible", "boring", "dreadful", "horrible", "stale", "clumsy", "bland", "dirty", "lazy", "tedious"]
NEGATORS = ["not", "never", "hardly"]
ASPECTS = ["food", "service", "plot", "acting", "music", "room", "staff", "ending", "soup", "story", "view", "cast"]
OPINIONS = [
    "the {aspect} was {negator}{degree}{adjective} .",
    "i found the {aspect} {negator}{degree}{adjective} .",
    "to me the {aspect} seemed {negator}{degree}{adjective} .",
]
DEGREES = ["", "", "really ", "quite ", "so "]
FILLERS = [
    "we went there on a {day} with two friends .",
    "it did not rain on {day} .",
    "my sister could not come along .",
    "the {aspect} came after an hour .",
    "there were many people from the town .",
    "i had never heard of the {aspect} before .",
    "they open at nine and close at ten .",
    "a friend told me about the {aspect} .",
    "hardly anyone else was there on {day} .",
    "we talked about the {aspect} on the way home .",
]
DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]


def read(dataset: Mapping[str, Any], data: Mapping[str, Any], *, split: str, cache_dir: Path) -> RawData:
    """Generate the three splits; the rows depend on `dataset.seed` and `dataset.rows` only."""
    rows = {name: int(dataset["rows"][name]) for name in SPLITS}
    seed = int(dataset["seed"])
    splits = {name: generate(rows[name], (seed, i)) for i, name in enumerate(SPLITS)}
    identity = hashlib.sha256(json.dumps(["toy", VERSION, seed, rows], sort_keys=True).encode()).hexdigest()
    origin = {"source": "generated", "revision": VERSION, "split": "official", "seed": seed, "identity": identity}
    return RawData(DatasetInfo.from_config(dataset), splits, origin)


def generate(n: int, seed: int | tuple[int, ...]) -> RawSplit:
    """`n` reviews with labels (0 negative, 1 positive) and the spans of their evidence words."""
    rng = np.random.default_rng(seed)
    rows = [_review(rng) for _ in range(n)]
    texts, labels, evidence = (list(column) for column in zip(*rows))
    return raw_split(texts, None, labels, evidence=evidence)


def _review(rng: np.random.Generator) -> tuple[str, int, Spans]:
    label = int(rng.integers(2))
    sentences = [_opinion(rng, label) for _ in range(1 + int(rng.random() < 0.5))]
    sentences += [(_filler(rng), []) for _ in range(int(rng.integers(2, 4)))]
    text, spans = "", []
    for i in rng.permutation(len(sentences)):
        sentence, found = sentences[i]
        start = len(text) + bool(text)
        text = f"{text} {sentence}" if text else sentence
        spans += [(start + a, start + b) for a, b in found]
    return text, label, spans


def _opinion(rng: np.random.Generator, label: int) -> tuple[str, Spans]:
    negated = rng.random() < 0.35
    words = GOOD if (label == 1) != negated else BAD
    negator = _pick(rng, NEGATORS) if negated else ""
    adjective = _pick(rng, words)
    sentence = _pick(rng, OPINIONS).format(
        aspect=_pick(rng, ASPECTS),
        negator=f"{negator} " if negated else "",
        degree=_pick(rng, DEGREES),
        adjective=adjective,
    )
    evidence = [negator, adjective] if negated else [adjective]
    return sentence, [_span(sentence, word) for word in evidence]


def _filler(rng: np.random.Generator) -> str:
    return _pick(rng, FILLERS).format(day=_pick(rng, DAYS), aspect=_pick(rng, ASPECTS))


def _pick(rng: np.random.Generator, options: list[str]) -> str:
    return options[int(rng.integers(len(options)))]


def _span(sentence: str, word: str) -> tuple[int, int]:
    start = f" {sentence} ".index(f" {word} ")
    return start, start + len(word)
