"""Many small inputs in full batches: nothing padded, nothing twice, and the same answer however it is cut up."""

import pytest
import torch

from fmm.errors import FmmError
from fmm.inference import Rows, evaluate
from fmm.models.classifier import Classifier
from tests.shapes import MASK, ROWS, SHAPES, WITH_TOKEN_TYPES, classifier_of, make_batch, make_model


class Recorder(Classifier):
    """Notes the shape of every batch; memory runs out beyond `limit` tokens."""

    def __init__(self, limit: int = 10**9, error: type[BaseException] = RuntimeError) -> None:
        super().__init__(make_model("roberta"), mask_id=MASK)
        self.limit, self.error = limit, error
        self.shapes: list[tuple[int, ...]] = []

    def logits(self, batch):
        if batch["input_ids"].numel() > self.limit:
            raise self.error("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried")
        self.shapes.append(tuple(batch["input_ids"].shape))
        return super().logits(batch)


def lengths() -> list[int]:
    return make_batch("roberta")["attention_mask"].sum(1).tolist()


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_are_those_of_the_model_on_the_padded_batch(shape: str) -> None:
    classifier, batch = classifier_of(shape), make_batch(shape)
    wanted = {key: batch[key] for key in ("input_ids", "attention_mask", "token_type_ids") if key in batch}
    with torch.no_grad():
        expected = classifier.model(**wanted).logits
    got = evaluate(classifier, Rows.from_batch(batch)).logits
    assert torch.allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_nothing_is_padded_and_no_input_evaluated_twice() -> None:
    recorder, batch = Recorder(), make_batch("roberta")
    result = evaluate(recorder, Rows.from_batch(batch))
    assert result.n_forward == sum(rows for rows, _ in recorder.shapes) == len(ROWS) - 1  # `plain` stands there twice
    repeated = list(ROWS).index("repeated")
    assert (
        result.n_tokens == sum(rows * width for rows, width in recorder.shapes) == sum(lengths()) - lengths()[repeated]
    )
    assert torch.equal(result.logits[repeated], result.logits[0])


def test_equal_tokens_of_different_type_are_different_inputs() -> None:
    batch = make_batch("bert", ["pair", "pair"])
    batch["token_type_ids"][1] = 0
    result = evaluate(classifier_of("bert"), Rows.from_batch(batch))
    assert result.n_forward == 2 and not torch.allclose(result.logits[0], result.logits[1])


@pytest.mark.parametrize("token_budget", [1, 13, 40, 10**6])
def test_the_budget_changes_the_cut_and_not_the_answer(token_budget: int) -> None:
    recorder, rows = Recorder(), Rows.from_batch(make_batch("roberta"))
    got = evaluate(recorder, rows, token_budget=token_budget).logits
    assert torch.allclose(got, evaluate(Recorder(), rows).logits, rtol=1e-5, atol=1e-5)
    assert all(count == 1 or count * width <= token_budget for count, width in recorder.shapes)


@pytest.mark.parametrize("error", [RuntimeError, torch.OutOfMemoryError, MemoryError])
def test_out_of_memory_is_halved_and_repeated(error: type[BaseException]) -> None:
    rows = Rows.concatenate([Rows.from_batch(make_batch("roberta")), Rows.from_batch(make_batch("roberta", ["pair"]))])
    recorder = Recorder(limit=20, error=error)
    got = evaluate(recorder, rows)
    assert torch.allclose(got.logits, evaluate(Recorder(), rows).logits, rtol=1e-5, atol=1e-5)
    assert recorder.token_budget is not None and recorder.token_budget <= 20
    assert got.logits.shape == (len(ROWS) + 1, 3)


def test_one_input_too_large_for_memory_is_an_error_in_words() -> None:
    with pytest.raises(FmmError, match="one input of 10 tokens does not fit"):
        evaluate(Recorder(limit=9), Rows.from_batch(make_batch("roberta")))


def test_other_errors_are_not_taken_for_lack_of_memory() -> None:
    broken = Recorder()
    broken.logits = lambda batch: (_ for _ in ()).throw(RuntimeError("shape mismatch"))
    with pytest.raises(RuntimeError, match="shape mismatch"):
        evaluate(broken, Rows.from_batch(make_batch("roberta")))


def test_no_rows() -> None:
    batch = {key: value[:0] for key, value in make_batch("roberta").items()}
    result = evaluate(classifier_of("roberta"), Rows.from_batch(batch), signals=True)
    assert result.logits.shape == (0, 3) and result.n_forward == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_signals_are_maxima_of_hidden_states_over_tokens(shape: str) -> None:
    classifier, batch = classifier_of(shape), make_batch(shape)
    result = evaluate(classifier, Rows.from_batch(batch), signals=True)
    assert torch.allclose(result.logits, evaluate(classifier, Rows.from_batch(batch)).logits, rtol=1e-5, atol=1e-5)
    for row, length in enumerate(lengths()):
        keys = ("input_ids", "token_type_ids") if shape in WITH_TOKEN_TYPES else ("input_ids",)
        one = {key: batch[key][row : row + 1, :length] for key in keys}
        with torch.no_grad():
            states = classifier.model(**one, output_hidden_states=True).hidden_states
        expected = torch.stack([state[0].amax(0) for state in states])
        assert torch.allclose(result.signals[row], expected, rtol=1e-5, atol=1e-5)
