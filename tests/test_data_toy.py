"""The toy reviews: reproducible, balanced, and decided by their evidence."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fmm.data.toy import BAD, GOOD, NEGATORS, generate
from tests.data_helpers import build


def test_evidence_decides_the_label() -> None:
    rows = generate(500, "any")
    assert rows.evidence is not None
    for text, label, spans in zip(rows.texts, rows.labels, rows.evidence):
        words = [text[a:b] for a, b in spans]
        negated = False
        for word in words:
            if word in NEGATORS:
                negated = True
                continue
            assert (word in GOOD) != (word in BAD)
            assert int((word in GOOD) != negated) == label
            negated = False
        assert sum(word in (*GOOD, *BAD) for word in text.split()) == sum(word not in NEGATORS for word in words)


def test_a_negator_alone_decides_nothing() -> None:
    rows = generate(4000, "any")
    with_negator = np.array([any(word in NEGATORS for word in text.split()) for text in rows.texts])
    assert 0.45 < rows.labels[with_negator].mean() < 0.55
    with_good = np.array([any(word in GOOD for word in text.split()) for text in rows.texts])
    assert 0.55 < rows.labels[with_good].mean() < 0.75  # an adjective alone is not enough either


def test_rows_are_always_the_same(tmp_path: Path) -> None:
    first, again = build("toy", tmp_path), build("toy", tmp_path, seed=7)
    assert first.fingerprint == again.fingerprint and first.raw("test").texts == again.raw("test").texts
    assert first.record()["rows"] == {"train": 8000, "validation": 1000, "test": 1000}
    assert first.raw("train").texts[0] == EXPECTED
    assert len(set(first.raw("train").texts) & set(first.raw("test").texts)) < 10


def test_compose_brings_the_tiny_model(compose) -> None:  # type: ignore[no-untyped-def]
    toy = compose("dataset=toy")
    assert toy.model.name == "tiny" and toy.training.batch_size == 32 and toy.training.max_epochs == 8
    assert compose("dataset=toy", "model=bert_base", "training.batch_size=8").training.batch_size == 8
    assert compose("dataset=toy", "model=bert_base").model.name != "tiny"
    assert compose("dataset=rte").model.name != "tiny" and compose("dataset=rte").training.max_epochs == 30


EXPECTED = (
    "a friend told me about the staff . "
    "a friend told me about the soup . i found the food so stale . i had heard of the staff before ."
)
