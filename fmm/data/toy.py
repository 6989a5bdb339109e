"""Generated reviews whose evidence is known: the offline demo and the testing ground for explanations.

Each review has one or two opinions among filler sentences. An opinion is an adjective, perhaps negated ("not", "never",
"hardly"); the label is its polarity after negation. Some fillers hold a "not" that negates no opinion.
The adjectives and the negators of opinions are the evidence.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from fmm.data.raw import SPLITS, DatasetInfo, RawData, RawSplit, Spans, raw_split

VERSION = 3  # raise it when the generated rows change

GOOD = ("great", "superb", "lovely", "charming", "brilliant", "excellent", "wonderful", "clever")
BAD = ("awful", "dull", "terrible", "boring", "dreadful", "horrible", "stale", "clumsy")
NEGATORS = ("not", "never", "hardly")
ASPECTS = ("food", "service", "plot", "acting", "music", "room", "staff", "ending", "soup", "story", "view", "cast")
OPINIONS = (
    "the {aspect} was {adjective} .",
    "i found the {aspect} {adjective} .",
    "to me the {aspect} seemed {adjective} .",
)
DEGREES = ("", "", "really ", "quite ", "so ")
FILLERS = (
    "we went there on a {day} with two friends .",
    "it did not rain on {day} .",
    "my sister came along .",
    "the {aspect} came after an hour .",
    "there were many people from the town .",
    "i had heard of the {aspect} before .",
    "they open at nine and close at ten .",
    "a friend told me about the {aspect} .",
    "many others were there on {day} .",
    "we talked about the {aspect} on the way home .",
)
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

OPTIONS = ()  # keys of `data` that name files which are read here


def read(dataset: Mapping[str, Any], data: Mapping[str, Any], *, split: str, cache_dir: Path) -> RawData:
    """Generate the three splits; the rows depend on `dataset.seed` and `dataset.rows` only."""
    rows = {name: int(dataset["rows"][name]) for name in SPLITS}
    seed = int(dataset["seed"])
    splits = {name: generate(rows[name], f"{seed}/{name}") for name in SPLITS}
    identity = hashlib.sha256(json.dumps(["toy", VERSION, seed, rows], sort_keys=True).encode()).hexdigest()
    origin = {"source": "generated", "revision": VERSION, "split": "official", "seed": seed, "identity": identity}
    return RawData(DatasetInfo.from_config(dataset), splits, origin)


def generate(n: int, seed: str) -> RawSplit:
    """`n` reviews with labels (0 negative, 1 positive) and the spans of their evidence words."""
    rng = Random(seed)
    texts, labels, evidence = (list(column) for column in zip(*(_review(rng) for _ in range(n))))
    return raw_split(texts, None, labels, evidence=evidence)


def _review(rng: Random) -> tuple[str, int, Spans]:
    label = rng.randrange(2)
    sentences = [_opinion(rng, label) for _ in range(1 + rng.randrange(2))]
    sentences += [(_filler(rng), []) for _ in range(1 + rng.randrange(3))]
    rng.shuffle(sentences)
    text, spans = "", []
    for sentence, found in sentences:
        start = len(text) + bool(text)
        text = f"{text} {sentence}" if text else sentence
        spans += [(start + a, start + b) for a, b in found]
    return text, label, spans


def _opinion(rng: Random, label: int) -> tuple[str, Spans]:
    negated = rng.random() < 0.35
    adjective = rng.choice(GOOD if (label == 1) != negated else BAD)
    negator = rng.choice(NEGATORS)
    evidence = [negator, adjective] if negated else [adjective]
    words = f"{negator} {adjective}" if negated else rng.choice(DEGREES) + adjective
    sentence = rng.choice(OPINIONS).format(aspect=rng.choice(ASPECTS), adjective=words)
    return sentence, [_span(sentence, word) for word in evidence]


def _filler(rng: Random) -> str:
    return rng.choice(FILLERS).format(day=rng.choice(DAYS), aspect=rng.choice(ASPECTS))


def _span(sentence: str, word: str) -> tuple[int, int]:
    start = f" {sentence} ".index(f" {word} ")
    return start, start + len(word)
