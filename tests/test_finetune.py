"""Masked fine-tuning: schedules, which parameters decay, and what a mini-batch looks like to the model."""

from types import SimpleNamespace

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from fmm.errors import FmmError
from fmm.finetune import MaskedFineTuning, learning_rate_factor, schedule_lengths
from tests.shapes import LABELS, WORD, make_model

MASK, ROWS, WIDTH = 4, 8, 12


def module(**options):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=2
    )
    defaults = {"mask_id": MASK, "num_labels": 2, "metric_names": ["accuracy"], "batches_per_epoch": 10}
    return MaskedFineTuning(BertForSequenceClassification(config), **defaults | options)


def batch():
    ids = torch.randint(5, 50, (ROWS, WIDTH), generator=torch.Generator().manual_seed(1))
    sequence = torch.tensor([0] + [1] * 6 + [0] + [2] * 3 + [0]).repeat(ROWS, 1)
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "sequence_id": sequence,
        "labels": torch.arange(ROWS) % 2,
        "example_id": torch.arange(ROWS),
    }


def test_linear_schedule_warms_up_and_decays():
    total, warmup = schedule_lengths("linear", steps=1000, batch_size=16, warmup=0.06)
    assert (total, warmup) == (1000, 60)
    factors = [learning_rate_factor(step, total, warmup) for step in range(1001)]
    assert max(factors) == factors[60] == 1.0 and factors[1000] == 0.0 and factors[530] == pytest.approx(0.5)


def test_authors_schedule_warms_up_for_96_percent_and_never_decays():
    total, warmup = schedule_lengths("authors", steps=1000, batch_size=16, warmup=0.06)
    assert warmup == 960 and learning_rate_factor(1000, total, warmup) == pytest.approx(1.0, abs=0.003)
    assert learning_rate_factor(500, total, warmup) == pytest.approx(500 / 960)


def test_schedule_without_warmup_starts_at_the_top():
    assert learning_rate_factor(0, *schedule_lengths("linear", 10, 16, 0.0)) == 1.0


@pytest.mark.parametrize(("strategy", "rows"), [("none", []), ("half_det", [4, 5, 6, 7]), ("uniform", list(range(8)))])
def test_only_the_strategys_rows_change_and_only_in_their_texts(strategy, rows):
    data, tuned = batch(), module(strategy=strategy)
    changed = tuned.masked(data) != data["input_ids"]
    assert set(changed.any(1).nonzero().flatten().tolist()) <= set(rows)
    assert changed[:, data["sequence_id"][0] == 2].any() == bool(rows) == changed[:, data["sequence_id"][0] == 1].any()
    assert not changed[:, data["sequence_id"][0] == 0].any()


def test_loss_is_the_cross_entropy_of_the_masked_batch():
    data, tuned = batch(), module(strategy="uniform").eval()
    logits = tuned.model(input_ids=tuned.masked(data), attention_mask=data["attention_mask"]).logits
    expected = torch.nn.functional.cross_entropy(logits, data["labels"])
    assert torch.allclose(tuned.training_step(data, 0), expected)


@pytest.mark.parametrize(("selection", "views"), [("nomask", 1), ("mask", 1), ("both", 2)])
def test_selection_set_is_unmasked_rows_then_the_same_masked_once(selection, views):
    data, tuned = batch(), module(selection=selection).eval()
    seen = []
    tuned.model.register_forward_pre_hook(lambda m, a, k: seen.append(k["input_ids"]), with_kwargs=True)
    tuned.validation_step(data, 0)
    tuned.validation_step(data, 0)
    assert len(seen) == 2 * views
    assert torch.equal(seen[0], seen[views])  # frozen
    assert torch.equal(seen[0], data["input_ids"]) == (selection != "mask")


class TrainerOfTenSteps:
    world_size, accumulate_grad_batches, max_epochs = 1, 1, 1


def test_biases_and_norms_do_not_decay():
    tuned = module(weight_decay=0.01, learning_rate=3e-4)
    tuned._trainer = TrainerOfTenSteps()
    groups = tuned.configure_optimizers()["optimizer"].param_groups
    names = {id(p): name for name, p in tuned.model.named_parameters()}
    free = {names[id(p)] for p in groups[1]["params"]}
    assert groups[0]["weight_decay"] == 0.01 and groups[1]["weight_decay"] == 0.0
    assert free == {name for name in names.values() if name.endswith("bias") or "LayerNorm" in name}
    assert len(groups[0]["params"]) + len(groups[1]["params"]) == len(names)


def test_a_model_that_was_loaded_for_evaluation_trains_with_dropout():
    loaded = module().model.eval()
    tuned = MaskedFineTuning(loaded, mask_id=MASK, num_labels=2, metric_names=["accuracy"], batches_per_epoch=1)
    assert all(part.training for part in tuned.modules())


def test_training_that_diverged_is_a_sentence():
    tuned = module(learning_rate=0.5)
    with torch.no_grad():
        tuned.model.classifier.bias[:] = float("nan")
    tuned._trainer = SimpleNamespace(current_epoch=2)
    tuned.training_step(batch(), 0)
    with pytest.raises(FmmError, match=r"diverged: the mean loss of epoch 3 is nan; lower .*now 0\.5"):
        tuned.on_train_epoch_end()


@pytest.mark.parametrize("shape", ["deberta", "deberta_v2"])
def test_deberta_learns_in_mixed_precision(shape):
    """The first DeBERTa's attention mixes autocast's formats and fails; it is computed in the weights' own."""
    tuned = MaskedFineTuning(
        make_model(shape), mask_id=MASK, num_labels=LABELS, metric_names=["accuracy"], batches_per_epoch=1
    )
    rows = {"input_ids": torch.full((2, 6), WORD), "attention_mask": torch.ones(2, 6, dtype=torch.long)}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = tuned(rows, rows["input_ids"])
    logits.float().sum().backward()
    assert logits.dtype == (torch.float32 if shape == "deberta" else torch.bfloat16)
    assert tuned.model.get_input_embeddings().weight.grad.abs().sum() > 0
