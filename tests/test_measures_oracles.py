"""Second oracles: slow loops written from the definitions, completeness, exhaustive search; and bad input."""

import itertools
from pathlib import Path

import pytest
import torch
import yaml
from torch import Tensor

import fmm
from fmm import measures
from fmm.draws import Draw
from fmm.errors import FmmError
from fmm.models.classifier import Classifier
from tests.shapes import MASK, PAD, ROWS, classifier_of, make_batch, make_model

CONF = Path(__file__).parent.parent / "conf" / "measure"


def row_of(name: str, shape: str = "roberta") -> dict[str, Tensor]:
    return make_batch(shape, [name])


def logit(classifier: Classifier, ids: Tensor, label: int) -> float:
    with torch.no_grad():
        return classifier.model(input_ids=ids).logits[0, label].item()


@pytest.mark.parametrize("name", ["plain", "pair", "some masked"])
def test_leave_one_out_equals_a_slow_loop(name: str) -> None:
    classifier, batch = classifier_of("roberta"), row_of(name)
    label, ids = int(batch["labels"]), batch["input_ids"]
    got = fmm.attribute(classifier, batch, "loo_sign").scores[0]
    for place in range(ids.shape[1]):
        masked = ids.clone()
        expected = 0.0
        if batch["sequence_id"][0, place] == 1 and ids[0, place] != MASK:
            masked[0, place] = MASK
            expected = logit(classifier, ids, label) - logit(classifier, masked, label)
        assert got[place].item() == pytest.approx(expected, abs=2e-5)


def slow_beam(classifier: Classifier, batch: dict[str, Tensor], width: int) -> tuple[tuple[int, ...], float, int]:
    """Order, score and number of inputs evaluated, with Python's own lists."""
    ids, label = batch["input_ids"], int(batch["labels"])
    places = [t for t in range(ids.shape[1]) if batch["sequence_id"][0, t] == 1 and ids[0, t] != MASK]
    reference, evaluated = logit(classifier, ids, label), 0
    beams: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for _ in places:
        seen, candidates = set(), []
        for score, order in beams:
            for place in places:
                key = frozenset((*order, place))
                if place in order or key in seen:
                    continue
                seen.add(key)
                masked = ids.clone()
                masked[0, list(key)] = MASK
                candidates.append((score + reference - logit(classifier, masked, label), (*order, place)))
        evaluated += len(candidates)
        beams = sorted(candidates, key=lambda candidate: -candidate[0])[:width]
    return beams[0][1], beams[0][0], evaluated


@pytest.mark.parametrize("width", [1, 3, 10])
def test_beam_equals_a_slow_loop(width: int) -> None:
    classifier = classifier_of("roberta")
    got = fmm.attribute(classifier, make_batch("roberta"), f"beam_{width}").scores
    for name in ("plain", "some masked", "one word over"):
        order, _, _ = slow_beam(classifier, row_of(name), width)
        row = got[list(ROWS).index(name)]
        if name != "one word over":  # equal words tie but for rounding
            assert row.argsort(descending=True)[: len(order)].tolist() == list(order)
        assert row[row > 0].sort(descending=True).values.tolist() == list(range(len(order), 0, -1))


def test_beam_of_unlimited_width_is_exhaustive_search() -> None:
    classifier, batch = classifier_of("roberta"), row_of("pair")
    ids, label = batch["input_ids"], int(batch["labels"])
    reference = logit(classifier, ids, label)
    drop = {}
    for places in itertools.chain.from_iterable(itertools.combinations(range(1, 5), k) for k in range(1, 5)):
        masked = ids.clone()
        masked[0, list(places)] = MASK
        drop[frozenset(places)] = reference - logit(classifier, masked, label)
    best = max(
        itertools.permutations(range(1, 5)), key=lambda order: sum(drop[frozenset(order[: i + 1])] for i in range(4))
    )
    scores = fmm.attribute(classifier, batch, "beam_1000").scores[0]
    assert scores.argsort(descending=True)[:4].tolist() == list(best)


@pytest.mark.parametrize("shape", ["bert", "roberta"])
def test_gradient_norms_are_those_of_the_one_hot_input(shape: str) -> None:
    classifier, batch = classifier_of(shape), row_of("some masked", shape)
    table = classifier.word_embeddings.weight
    one_hot = torch.nn.functional.one_hot(batch["input_ids"], len(table)).float().requires_grad_(True)
    chosen = classifier.logits_from_embeddings(one_hot @ table, batch)[0, int(batch["labels"])]
    gradient = torch.autograd.grad(chosen, one_hot)[0]
    for norm in (1, 2):
        got = fmm.attribute(classifier, batch, f"grad_l{norm}").scores
        assert torch.allclose(got, torch.linalg.vector_norm(gradient, ord=norm, dim=-1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("variant", ["authors", "textbook"])
@pytest.mark.parametrize("baseline", ["pad", "mask", "zero"])
def test_integrated_gradients_equal_a_slow_loop(variant: str, baseline: str) -> None:
    classifier, batch, steps = classifier_of("bert"), row_of("some masked", "bert"), 4
    table = classifier.word_embeddings.weight
    embeddings = table[batch["input_ids"]]
    start = {"pad": table[PAD], "mask": table[MASK], "zero": 0 * table[0]}[baseline]
    total = torch.zeros(embeddings.shape)
    for k in range(1, steps + 1):
        s = k / steps if variant == "authors" else (k - 0.5) / steps
        point = (start + s * (embeddings - start)).requires_grad_(True)
        chosen = classifier.logits_from_embeddings(point, batch)[0, int(batch["labels"])]
        total += torch.autograd.grad(chosen, point)[0] * (s if variant == "authors" else 1) / steps
    expected = (total * (embeddings if variant == "authors" else embeddings - start)).sum(-1)
    if baseline == "mask":
        expected[batch["input_ids"] == MASK] = 0
    options = {"name": "int_grad_sign", "variant": variant, "baseline": baseline, "steps": steps}
    assert torch.allclose(fmm.attribute(classifier, batch, options).scores, expected, rtol=1e-4, atol=1e-5)


def test_textbook_integrated_gradients_are_complete() -> None:
    classifier, batch = classifier_of("roberta"), make_batch("roberta", ["plain", "pair", "at the limit"])
    table = classifier.word_embeddings.weight
    reference = classifier.logits(batch).gather(1, batch["labels"][:, None])[:, 0]
    baseline = classifier.logits_from_embeddings(table[PAD].expand(*batch["input_ids"].shape, -1), batch)
    difference = reference - baseline.gather(1, batch["labels"][:, None])[:, 0]
    gaps = []
    for steps in (5, 50, 200):
        options = {"name": "int_grad_sign", "variant": "textbook", "steps": steps}
        gaps.append((fmm.attribute(classifier, batch, options).scores.sum(1) - difference).abs())
    assert (gaps[1] <= 0.05 * difference.abs().clamp(min=1)).all()
    assert gaps[0].max() > gaps[1].max() > gaps[2].max()


@pytest.mark.parametrize("variant", ["authors", "textbook"])
def test_masked_tokens_get_exactly_zero_from_the_mask_baseline(variant: str) -> None:
    batch = make_batch("roberta", ["all masked", "some masked"])
    options = {"name": "int_grad_abs", "variant": variant, "baseline": "mask"}
    scores = fmm.attribute(classifier_of("roberta"), batch, options).scores
    assert scores.isfinite().all() and (scores[batch["input_ids"] == MASK] == 0).all()


def test_random_scores_come_from_seed_example_and_position_alone() -> None:
    batch = make_batch("roberta", ["pair"])
    got = fmm.attribute(classifier_of("roberta"), batch, "rand", seed=3).scores
    width = batch["input_ids"].shape[1]
    assert torch.equal(got, Draw.RANDOM_MEASURE.uniform(3, 0, batch["example_id"][:, None], torch.arange(width)))


def test_random_scores_need_to_know_the_example() -> None:
    batch = make_batch("roberta", ["pair"])
    del batch["example_id"]
    with pytest.raises(FmmError, match="example_id"):
        fmm.attribute(classifier_of("roberta"), batch, "rand")


def test_target_is_gold_predicted_a_label_or_given() -> None:
    classifier, batch = classifier_of("roberta"), make_batch("roberta", ["plain", "pair"])
    predicted = classifier.logits(batch).argmax(1)
    batch["labels"] = torch.tensor([2, -1])
    gold = fmm.attribute(classifier, batch, "loo_sign")
    assert gold.target.tolist() == [2, int(predicted[1])] and gold.predicted.tolist() == [False, True]
    assert fmm.attribute(classifier, batch, "loo_sign", target="predicted").target.tolist() == predicted.tolist()
    for target in (1, "LABEL_1", torch.tensor([1, 1])):
        assert fmm.attribute(classifier, batch, "loo_sign", target=target).target.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("measure", "options", "message"),
    [
        ("lo_sign", {}, "did you mean loo_sign"),
        ("beam_0", {}, "beam width 0"),
        ({"name": "int_grad_sign", "variant": "textbok"}, {}, "did you mean textbook"),
        ({"name": "int_grad_sign", "step": 5}, {}, "did you mean steps"),
        ({"name": "int_grad_sign", "steps": 0}, {}, "steps 0"),
        ({"name": "rand", "steps": 5}, {}, "no option 'steps'"),
        ("loo_sign", {"target": 3}, "target 3 is not a label"),
        ("loo_sign", {"target": "LABEL_9"}, "did you mean LABEL_"),
        ("loo_sign", {"target": torch.tensor([-2])}, "target -2 is not a label"),
        ("loo_sign", {"target": torch.tensor([1, 1])}, "one label for each row"),
        ("loo_sign", {"explain": "fist"}, "did you mean first"),
    ],
)
def test_bad_input_is_named(measure: object, options: dict[str, object], message: str) -> None:
    with pytest.raises(FmmError, match=message):
        fmm.attribute(classifier_of("roberta"), row_of("plain"), measure, **options)


@pytest.mark.parametrize("measure", ["grad_l2", "int_grad_abs", "loo_abs", "beam_10"])
def test_logits_that_are_not_finite_name_the_example(measure: str) -> None:
    model = make_model("roberta")
    with torch.no_grad():
        model.roberta.embeddings.word_embeddings.weight[41] = float("nan")
    with pytest.raises(FmmError, match="example 102 are not finite"):
        fmm.attribute(Classifier(model, mask_id=MASK), make_batch("roberta", ["plain", "one token"]), measure)


def test_every_measure_has_a_yaml_that_builds_it() -> None:
    assert sorted(path.stem for path in CONF.glob("*.yaml")) == measures.available()
    for path in CONF.glob("*.yaml"):
        settings = yaml.safe_load(path.read_text())
        assert settings["name"] == path.stem
        built = measures.build(settings)
        assert built.recursive_default == (not path.stem.startswith("beam"))
        for key, value in settings.items():
            assert getattr(built, key) == value
