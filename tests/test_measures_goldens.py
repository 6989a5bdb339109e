"""Equal to the authors' TensorFlow code, array by array (tests/goldens/explain.npz).

Where that code guesses texts from special tokens, rows of its own tests are ambiguous; our batches say which token
belongs to which text, and the goldens hold given the authors' assignment. What a user gets is in the last two tests.
"""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import RobertaForSequenceClassification

import fmm
from fmm import measures
from fmm.inference import Rows, evaluate
from fmm.measures.base import Explained
from fmm.measures.beam import Search
from fmm.models.classifier import Classifier

GOLDENS = Path(__file__).parent / "goldens"
EXPLAIN = np.load(GOLDENS / "explain.npz")
INPUTS = np.load(GOLDENS / "inputs.npz")
GROUPS = ("single", "pair", "edge")
PLAIN = [
    "grad-l2", "grad-l1", "inp-grad-sign", "inp-grad-abs", "int-grad-sign", "int-grad-abs", "loo-sign", "loo-abs",
]  # fmt: skip
RIEMANN = [key for key in EXPLAIN if "riemann" in key]
BEAMS = [key for key in EXPLAIN if "beam" in key and key.count("__") == 1]


@cache
def classifier() -> Classifier:
    return Classifier(RobertaForSequenceClassification.from_pretrained(GOLDENS / "model").eval(), mask_id=4)


def batch_of(group: str, rows: np.ndarray | slice = slice(None)) -> dict[str, torch.Tensor]:
    names = {"input_ids": "input_ids", "attention_mask": "attention_mask", "sequence_id": "sequence_id", "y": "labels"}
    batch = {name: torch.from_numpy(INPUTS[f"{group}_{key}"][rows]).long() for key, name in names.items()}
    return {**batch, "example_id": torch.arange(len(batch["labels"]))}


def assert_close(scores: torch.Tensor, wanted: np.ndarray) -> None:
    real = ~np.isnan(wanted)
    assert (scores.numpy()[~real] == 0).all()
    scale = np.maximum(1.0, np.nanmax(np.abs(wanted), axis=1, keepdims=True))
    assert (np.abs(scores.numpy() - wanted) / scale)[real].max() <= 1e-4


@pytest.mark.parametrize("group", GROUPS)
def test_logits(group: str) -> None:
    got = evaluate(classifier(), Rows.from_batch(batch_of(group))).logits.numpy()
    assert np.abs(got - INPUTS[f"{group}_logits"]).max() <= 1e-4


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("group", GROUPS)
def test_scores(group: str, name: str) -> None:
    got = fmm.attribute(classifier(), batch_of(group), name.replace("-", "_"))
    assert_close(got.scores, EXPLAIN[f"{group}__{name}"])


@pytest.mark.parametrize("key", RIEMANN)
def test_integrated_gradients_of_other_step_counts(key: str) -> None:
    group, _, steps = key.split("__")
    measure = {"name": "int_grad_sign", "steps": int(steps.removeprefix("riemann"))}
    assert_close(fmm.attribute(classifier(), batch_of(group), measure).scores, EXPLAIN[key])


def search(batch: dict[str, torch.Tensor], beam: measures.Measure) -> dict[int, Search]:
    """The finished search of every row, all rows in one batch."""
    rankable, found = measures.rankable_tokens(batch), {}
    for block in Rows.from_batch(batch).blocks():
        length = block.input_ids.shape[1]
        asked = Explained(block, rankable[block.index, :length], batch["labels"][block.index], 0)
        searches = beam.search(classifier(), asked, evaluate(classifier(), block).logits)
        found.update(zip(block.index.tolist(), searches))
    return found


@pytest.mark.parametrize("key", BEAMS)
def test_beam_in_one_batch_equals_the_authors_batches_of_one(key: str) -> None:
    group, name = key.split("__")
    # Every sixth of the single and pair rows keeps the test short.
    chosen = np.flatnonzero(EXPLAIN[f"{key}__rows"] % (1 if group == "edge" else 6) == 0)
    batch = batch_of(group, EXPLAIN[f"{key}__rows"][chosen])
    for place, done in search(batch, measures.build(name.replace("-sign-", "_"))).items():
        golden = chosen[place]
        assert done.n_evaluated == EXPLAIN[f"{key}__n_evaluated"][golden]
        assert abs(float(done.score[0]) - EXPLAIN[f"{key}__score"][golden]) <= 1e-3
        if EXPLAIN[f"{key}__margin"][golden] > 1e-3:
            wanted = np.nan_to_num(EXPLAIN[key][golden])
            assert done.importance(len(wanted)).tolist() == wanted.tolist()


def test_beam_scores_of_a_mixed_batch() -> None:
    rows = EXPLAIN["pair__beam-sign-10__rows"]
    assert rows.tolist() == list(range(32))
    got = fmm.attribute(classifier(), batch_of("pair", rows[8:16]), "beam_10")
    assert torch.equal(got.scores, torch.from_numpy(np.nan_to_num(EXPLAIN["pair__beam-sign-10"][8:16])))


def test_empty_first_text_leaves_the_second_alone() -> None:
    """The authors take `<s></s></s> B </s>` for a single text B; here an empty first text has nothing to rank."""
    batch = batch_of("edge", np.array([3]))
    second = (batch["input_ids"] > 2) & (batch["attention_mask"] == 1)
    assert second.any()
    batch["sequence_id"] = second.long() * 2
    for measure in ("loo_sign", "beam_10"):
        got = fmm.attribute(classifier(), batch, measure)
        assert not got.rankable.any() and (got.scores == 0).all()


def test_a_literal_special_token_within_the_text_is_a_word() -> None:
    """The authors take `<s>` (id 0) within a text for its end (edge row 8); a user's text is one text."""
    batch = batch_of("edge", np.array([8]))
    batch["sequence_id"] = (batch["attention_mask"] == 1).long()
    last = int(batch["attention_mask"].sum()) - 1
    batch["sequence_id"][0, [0, last]] = 0
    middle = (batch["input_ids"][0, 1:last] == 0).nonzero()[0, 0] + 1
    got = fmm.attribute(classifier(), batch, "loo_sign")
    assert got.rankable[0, middle] and got.scores[0, middle] != 0
