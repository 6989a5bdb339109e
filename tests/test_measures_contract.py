"""What every measure promises, on every supported shape of model. Measures are found by themselves."""

from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

import fmm
from fmm import measures
from fmm.errors import FmmError
from tests.shapes import CLS, MASK, PAD, ROWS, SEP, SHAPES, classifier_of, make_batch

MEASURES = measures.available()


@cache
def explained(shape: str, measure: str) -> fmm.Attribution:
    return fmm.attribute(classifier_of(shape), make_batch(shape), measure)


def assert_same(scores: Tensor, expected: Tensor, rankable: Tensor) -> None:
    """Equal to 1e-5 · max(1, largest |score| of the row), and the same order wherever the gap is wider than that."""
    for row, wanted, ranked in zip(scores, expected, rankable):
        tolerance = 1e-5 * max(1.0, wanted.abs().max().item())
        assert (row - wanted).abs().max() <= tolerance
        row, wanted = row[ranked], wanted[ranked]
        wider = (wanted[:, None] - wanted[None, :]) > 2 * tolerance
        assert ((row[:, None] > row[None, :]) | ~wider).all()


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("shape", SHAPES)
def test_scores_do_not_depend_on_the_batch(shape: str, measure: str) -> None:
    together, classifier = explained(shape, measure), classifier_of(shape)
    order = list(reversed(ROWS))
    reordered = fmm.attribute(classifier, make_batch(shape, order, right=2), measure)
    width = together.scores.shape[1]
    assert_same(reordered.scores.flip(0)[:, :width], together.scores, together.rankable)
    assert (reordered.scores[:, width:] == 0).all()
    for place, name in enumerate(ROWS):
        if name not in ("pair", "empty", "some masked", "at the limit", "specials in the text"):
            continue
        alone = fmm.attribute(classifier, make_batch(shape, [name], left=place % 2), measure)
        scores = torch.zeros(1, width)
        scores[:, : alone.scores.shape[1] - place % 2] = alone.scores[:, place % 2 :]
        assert_same(scores, together.scores[place : place + 1], together.rankable[place : place + 1])


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("shape", SHAPES)
def test_only_words_of_the_text_are_ranked_and_padding_is_zero(shape: str, measure: str) -> None:
    batch, got = make_batch(shape), explained(shape, measure)
    assert got.scores.dtype == torch.float32
    assert got.scores.shape == batch["input_ids"].shape
    assert got.scores.isfinite().all()
    assert (got.scores[batch["attention_mask"] == 0] == 0).all()
    assert torch.equal(got.rankable, batch["sequence_id"] == 1)
    ranks = got.ranks()
    assert (ranks[~got.rankable] == -1).all()
    for row, ranked in zip(ranks, got.rankable):
        assert row[ranked].sort().values.tolist() == list(range(int(ranked.sum())))
    assert got.logits.shape == (len(ROWS), 3)
    assert got.target.tolist() == batch["labels"].tolist()


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_gives_numbers(shape: str, measure: str, dtype: torch.dtype) -> None:
    names = ["pair", "empty", "some masked"]
    with torch.autocast("cpu", dtype=dtype):
        got = fmm.attribute(classifier_of(shape), make_batch(shape, names), measure)
    assert got.scores.dtype == torch.float32 and got.scores.isfinite().all()
    assert got.scores[0].abs().sum() > 0


@pytest.mark.parametrize("measure", MEASURES)
def test_works_within_inference_mode_and_is_not_silently_zero(measure: str) -> None:
    expected = explained("roberta", measure)
    with torch.inference_mode():
        got = fmm.attribute(classifier_of("roberta"), make_batch("roberta"), measure)
    assert_same(got.scores, expected.scores, expected.rankable)
    assert got.scores[0].abs().sum() > 0


@pytest.mark.parametrize("measure", MEASURES)
def test_model_in_training_mode_is_explained_in_evaluation_mode_and_left_as_it_was(measure: str) -> None:
    expected, classifier = explained("bert", measure), classifier_of("bert")
    classifier.train().requires_grad_(True)
    try:
        got = fmm.attribute(classifier, make_batch("bert"), measure)
        assert classifier.training and classifier.model.bert.encoder.training
        assert all(weight.requires_grad and weight.grad is None for weight in classifier.parameters())
    finally:
        classifier.eval().requires_grad_(False)
    assert_same(got.scores, expected.scores, expected.rankable)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("explain", ["second", "both"])
def test_either_text_can_be_explained(measure: str, explain: str) -> None:
    batch = make_batch("bert", ["pair", "some masked", "empty first"])
    got = fmm.attribute(classifier_of("bert"), batch, measure, explain=explain)
    wanted = batch["sequence_id"] == 2 if explain == "second" else batch["sequence_id"] > 0
    assert torch.equal(got.rankable, wanted)
    assert (got.scores[0][wanted[0]] != 0).sum() >= 3


@pytest.mark.parametrize("measure", MEASURES)
def test_seed_zero_is_a_seed(measure: str) -> None:
    batch = make_batch("roberta", ["plain", "pair"])
    zero, one = (measures.build(measure)(classifier_of("roberta"), batch, batch["labels"], seed=s) for s in (0, 1))
    assert torch.equal(zero, explained("roberta", measure).scores[:2, : zero.shape[1]]) or measure != "rand"
    assert (measure == "rand") != torch.equal(zero, one)


@pytest.mark.parametrize("measure", [name for name in MEASURES if name.startswith(("loo", "beam"))])
def test_occlusion_leaves_special_masked_and_auxiliary_tokens_at_zero(measure: str) -> None:
    batch = make_batch("roberta", ["some masked", "pair", "all masked"])
    scores = fmm.attribute(classifier_of("roberta"), batch, measure).scores
    ids = batch["input_ids"]
    assert (scores[(ids == CLS) | (ids == SEP) | (ids == PAD) | (ids == MASK)] == 0).all()
    assert (scores[batch["sequence_id"] == 2] == 0).all()


@pytest.mark.parametrize("name", [name for name in MEASURES if name.endswith("_sign")])
def test_abs_is_the_magnitude_of_sign(name: str) -> None:
    signed, magnitude = explained("electra", name), explained("electra", name.replace("_sign", "_abs"))
    assert torch.equal(signed.scores.abs(), magnitude.scores)
    assert signed.signed and not magnitude.signed


def test_a_target_is_a_name_or_a_whole_number_of_any_kind() -> None:
    classifier, batch = classifier_of("bert"), make_batch("bert")
    assert torch.equal(
        fmm.attribute(classifier, batch, "rand", target=np.int64(1)).target, torch.ones(len(ROWS)).long()
    )
    for target in (1.0, True, None, [1]):
        with pytest.raises(FmmError, match=r"unknown target"):
            fmm.attribute(classifier, batch, "rand", target=target)
