"""Erasure curves against the authors' masked inputs and logits, and what they cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import RobertaForSequenceClassification

from fmm.cost import Cost
from fmm.erasure import Answers, Eraser
from fmm.errors import FmmError
from fmm.inference import Rows, evaluate
from fmm.masking import mask_by_importance, mask_count
from fmm.measures import build
from fmm.models.classifier import Classifier

GOLDENS = Path(__file__).parent / "goldens"
INPUTS, MASKING = np.load(GOLDENS / "inputs.npz"), np.load(GOLDENS / "masking.npz")
RATIOS = [percent / 100 for percent in MASKING["ratios_percent"].tolist()]
OURS = {"grad-l2": "grad_l2", "loo-sign": "loo_sign", "beam-sign-10": "beam_10"}
RUNS = [key.removesuffix("__logits") for key in MASKING.files if key.endswith("__logits")]


@pytest.fixture(scope="module")
def classifier():
    model = RobertaForSequenceClassification.from_pretrained(GOLDENS / "model").eval()
    classifier = Classifier(model, mask_id=4, pad_id=1)
    classifier.logits({"input_ids": torch.tensor([[4]])})  # the first pass tries a shortcut out, at its own cost
    return classifier


def batch_of(group, rows=slice(None)):
    keys = ("input_ids", "attention_mask", "sequence_id")
    batch = {key: torch.tensor(INPUTS[f"{group}_{key}"]).long()[rows] for key in keys}
    return batch | {"example_id": torch.arange(len(INPUTS[f"{group}_y"]))[rows]}, torch.tensor(INPUTS[f"{group}_y"])[
        rows
    ]


@pytest.mark.parametrize("run", RUNS)
def test_masked_inputs_and_logits_equal_the_authors(classifier, run):
    group, name, mode = run.split("__")
    # the beam of a long row costs thousands of passes: a few rows of it
    lengths = INPUTS[f"{group}_length"]
    rows = np.sort(np.argsort(lengths)[:6]) if "beam" in name else np.arange(len(lengths))
    found = Eraser(classifier, build(OURS[name]), RATIOS, mode == "recursive")(*batch_of(group, rows))
    margin = MASKING[f"{run}__cut_margin"][:, rows]
    clear = ~((margin < 1e-3).any(axis=0))
    assert np.array_equal(found.input_ids.numpy()[:, clear], MASKING[f"{run}__input_ids"][:, rows][:, clear])
    difference = np.abs(found.logits.numpy() - MASKING[f"{run}__logits"][:, rows])[:, clear]
    assert clear.mean() > 0.8 and difference.max() < 1e-4


def test_counts_and_ties_equal_the_authors():
    lengths = torch.arange(1, 61)
    for place, ratio in enumerate(RATIOS):
        assert mask_count(ratio, lengths).tolist() == MASKING["count_rule_n1to60"][:, place].tolist()
        long = torch.tensor(MASKING["count_rule_long_n"])
        assert mask_count(ratio, long).tolist() == MASKING["count_rule_long"][:, place].tolist()
    ids = torch.tensor(MASKING["ties_all_equal_50pct_input_ids"]).long()
    position = torch.arange(ids.shape[1])
    words = (position >= 1) & (position <= lengths[:, None])
    before = ids.masked_fill(words, 5)
    assert torch.equal(mask_by_importance(before, torch.zeros(ids.shape), words, 4, 0.5), ids)


@pytest.mark.parametrize("measure", ["loo_sign", "grad_l2", "rand"])
def test_a_row_does_not_depend_on_its_company(classifier, measure):
    eraser = Eraser(classifier, build(measure), RATIOS, signals=True)
    batch, y = batch_of("pair", slice(0, 6))
    whole = eraser(batch, y)
    for row in range(6):
        alone = eraser({key: value[row : row + 1] for key, value in batch.items()}, y[row : row + 1])
        assert torch.equal(alone.input_ids[:, 0], whole.input_ids[:, row])
        assert [step[0] for step in alone.order] == [step[row] for step in whole.order]
        torch.testing.assert_close(alone.logits[:, 0], whole.logits[:, row], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(alone.signals[:, 0], whole.signals[:, row], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("measure", "signals"),
    [("rand", True), ("loo_sign", True), ("loo_sign", False), ("grad_l2", False), ("grad_l2", True)],
)
def test_nothing_is_evaluated_twice(classifier, measure, signals):
    seen, cost = set(), Cost()

    def remember(module, args, kwargs):
        seen.update(row.numpy().tobytes() for row in kwargs["input_ids"])

    handle = classifier.model.register_forward_pre_hook(remember, with_kwargs=True)
    with cost.counting(classifier):
        Eraser(classifier, build(measure), RATIOS, signals=signals)(*batch_of("single"), cost=cost)
    handle.remove()
    assert 0 < cost.forward <= 1.05 * max(len(seen), cost.scored)


def test_known_ends_are_not_evaluated_again(classifier):
    batch, y = batch_of("single", slice(0, 8))
    eraser = Eraser(classifier, build("loo_sign"), RATIOS)
    plain, cost, again = Cost(), Cost(), None
    with plain.counting(classifier):
        whole = eraser(batch, y, cost=plain)
    with cost.counting(classifier):
        again = eraser(batch, y, (Answers(whole.logits[0], None), Answers(whole.logits[-1], None)), cost)
    assert torch.equal(whole.input_ids, again.input_ids) and torch.equal(whole.logits, again.logits)
    assert cost.forward < plain.forward


def test_order_lists_every_masked_token_once(classifier):
    batch, y = batch_of("pair", slice(0, 8))
    found = Eraser(classifier, build("grad_l2"), [0, 0.25, 1])(batch, y)
    for row in range(8):
        newly = sorted(position for step in found.order for position in step[row])
        expected = (found.rankable[row] & (batch["input_ids"][row] != 4)).nonzero()[:, 0].tolist()
        assert newly == expected and found.order[0][row] == []
    assert not (found.input_ids[-1][found.rankable] != 4).any()


def test_the_second_text_can_be_erased_instead(classifier):
    batch, y = batch_of("pair", slice(0, 4))
    found = Eraser(classifier, build("loo_abs"), [0, 1], explain="second")(batch, y)
    assert torch.equal(
        found.input_ids[-1] != batch["input_ids"], (batch["sequence_id"] == 2) & (batch["input_ids"] != 4)
    )


def test_ratios_without_both_ends_are_refused(classifier):
    with pytest.raises(FmmError, match="lack 1"):
        Eraser(classifier, build("rand"), [0, 0.5])(*batch_of("single", slice(0, 1)))


def test_signals_overheard_from_the_gradient_pass_are_the_evaluations(classifier):
    batch, y = batch_of("pair", slice(0, 8))
    found = Eraser(classifier, build("inp_grad_abs"), RATIOS, signals=True)(batch, y)
    for step in (0, 3, 10):
        rows = Rows.from_batch({**batch, "input_ids": found.input_ids[step]})
        expected = evaluate(classifier, rows, signals=True)
        torch.testing.assert_close(found.signals[step], expected.signals, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(found.logits[step], expected.logits, atol=1e-5, rtol=1e-5)
