"""Erasure curves: mask the most important tokens step by step and see what the classifier still says.

At ratio r exactly `mask_count(r, n)` of the n tokens of the explained text are masked. *Recursive* curves explain the
input as masked so far before each step, static ones explain the unmasked input once.
Source: arXiv 2310.07819, section 4.2.

Nothing is computed twice: the forward pass that scores a masked input is the measure's reference pass where it has
one and the source of MaSF's signal; a row that a step leaves as it was is not evaluated again; the answers on the
unmasked and the fully masked input, the same for all measures, can be handed in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from fmm.cost import Cost
from fmm.faithfulness import check_ratios
from fmm.inference import Rows, evaluate, signals_of
from fmm.masking import mask_by_importance, mask_count, ranks
from fmm.measures import Measure, rankable_tokens
from fmm.models.classifier import Classifier

Batch = Mapping[str, Tensor]


@dataclass(frozen=True)
class Answers:
    """What the classifier says about B rows: `logits` [B, C], `signals` [B, L + 1, D] or None."""

    logits: Tensor
    signals: Tensor | None


Known = tuple[Answers | None, Answers | None]


@dataclass(frozen=True)
class Erasure:
    """The curves of B rows of T tokens over R rising ratios.

    Attributes:
        ratios: masking ratios. rankable [B, T]: tokens of the explained text.
        input_ids [R, B, T]: the masked inputs. logits [R, B, C] float32.
        signals [R, B, L + 1, D] float32, or None.
        order: R lists of B lists: token positions newly masked at this ratio, the most important first.
    """

    ratios: list[float]
    rankable: Tensor
    input_ids: Tensor
    logits: Tensor
    signals: Tensor | None
    order: list[list[list[int]]]


@dataclass(frozen=True)
class Eraser:
    """How to erase: everything about a curve but the rows.

    Attributes:
        measure: from `fmm.measures.build`. recursive: None for the measure's own default.
        ratios: shares in [0, 1], 0 and 1 among them. explain: `first`, `second` or `both`: the text that is masked.
        seed: of measures that draw. signals: also take MaSF's signals. token_budget: tokens in one pass.
    """

    classifier: Classifier
    measure: Measure
    ratios: Sequence[float]
    recursive: bool | None = None
    explain: str = "first"
    seed: int = 0
    signals: bool = False
    token_budget: int | None = None

    def __call__(self, batch: Batch, target: Tensor, known: Known = (None, None), cost: Cost | None = None) -> Erasure:
        """Curves of a padded batch [B, T] for the logits `target` [B].

        `known`: answers on the unmasked and fully masked rows, where another measure has them (perhaps without
        signals: those of the result are then NaN until the row changes). A row's result does not depend on the others.
        """
        ratios = check_ratios(self.ratios)
        batch = {key: value.cpu() for key, value in batch.items()}
        walk = _Walk(self, batch, target.cpu(), rankable_tokens(batch, self.explain), Cost() if cost is None else cost)
        for place, ratio in enumerate(ratios):
            walk.mask(ratio, known[int(ratio)] if ratio in (0.0, 1.0) else None)
            walk.answer(max((later for later in ratios[place + 1 :] if later < 1), default=None))
        return walk.result(ratios)


class _Walk:
    """State of B rows on their way from unmasked to fully masked."""

    def __init__(self, eraser: Eraser, batch: Batch, target: Tensor, rankable: Tensor, cost: Cost) -> None:
        self.eraser, self.batch, self.target, self.rankable, self.cost = eraser, batch, target, rankable, cost
        self.mask_id, n = eraser.classifier.mask_id, len(target)
        self.recursive = eraser.measure.recursive_default if eraser.recursive is None else eraser.recursive
        self.ids = batch["input_ids"]
        self.scores = torch.zeros(self.ids.shape)
        self.explained = torch.zeros(n, dtype=torch.bool)  # rows whose scores belong to the present input
        self.unanswered = torch.ones(n, dtype=torch.bool)  # rows whose logits do not
        self.logits = torch.full((n, eraser.classifier.num_labels), float("nan"))
        self.signals: Tensor | None = None
        self.inputs: list[Tensor] = []
        self.answers: list[Answers] = []
        self.order: list[list[list[int]]] = []

    def mask(self, ratio: float, known: Answers | None) -> None:
        """Go on to the input of this ratio; `known` are its answers, if anybody has them."""
        before = self.ids
        if ratio > 0:
            self.ids = mask_by_importance(before, self.scores, self.rankable, self.mask_id, ratio)
        new = self.ids != before
        changed = new.any(dim=1)
        self.order.append(_most_important_first(self.scores, new))
        self.unanswered |= changed
        if self.recursive:
            self.explained &= ~changed
            self.scores[changed] = 0
        self.cost.scored += int(changed.sum()) if self.inputs else len(changed)
        if known is not None:
            self.logits, self.unanswered = known.logits.clone(), torch.zeros_like(self.unanswered)
            if known.signals is not None:
                self.signals = known.signals.clone()

    def answer(self, last_choice: float | None) -> None:
        """Find the answers on the present input, and scores where a ratio up to `last_choice` masks more of it.

        A row is explained as soon as its input is there, though a later step may be the first that masks more of it:
        measures that pass over the input anyway then give its logits too.
        """
        if self.eraser.signals and not self.eraser.measure.passes_over_input:
            self._evaluate()  # one pass for the metric, MaSF and the measure's reference
        if last_choice is not None:
            self._explain(last_choice)
        self._evaluate()
        self.inputs.append(self.ids)
        signals = None if self.signals is None else self.signals.clone()
        self.answers.append(Answers(self.logits.clone(), signals))

    def _explain(self, last_choice: float) -> None:
        masked = ((self.ids == self.mask_id) & self.rankable).sum(dim=1)
        more = mask_count(last_choice, self.rankable.sum(dim=1)) > masked
        rows = (more & ~self.explained).nonzero()[:, 0]
        if not len(rows):
            return
        eraser = self.eraser
        reference = self.logits[rows].masked_fill(self.unanswered[rows, None], float("nan"))
        batch = self._rows(rows)
        with _overhearing(eraser) as heard:
            scores, logits = eraser.measure.explain(
                eraser.classifier,
                batch,
                self.target[rows],
                explain=eraser.explain,
                seed=eraser.seed,
                reference=reference,
            )
        self.scores[rows] = scores
        self.explained[rows] = True
        if logits is not None:
            still = self.unanswered[rows]
            signals = torch.stack([heard[key] for key in _row_keys(batch)]) if heard else None
            self._take(rows[still], logits[still], None if signals is None else signals[still])

    def _evaluate(self) -> None:
        rows = self.unanswered.nonzero()[:, 0]
        if not len(rows):
            return
        eraser = self.eraser
        ragged = Rows.from_batch(self._rows(rows))
        found = evaluate(eraser.classifier, ragged, token_budget=eraser.token_budget, signals=eraser.signals)
        self._take(rows, found.logits, found.signals)

    def _take(self, rows: Tensor, logits: Tensor, signals: Tensor | None) -> None:
        self.logits[rows] = logits
        if signals is not None:
            if self.signals is None:
                self.signals = torch.full((len(self.logits), *signals.shape[1:]), float("nan"))
            self.signals[rows] = signals
        self.unanswered[rows] = False

    def _rows(self, rows: Tensor) -> Batch:
        return {key: value[rows] for key, value in self.batch.items()} | {"input_ids": self.ids[rows]}

    def result(self, ratios: list[float]) -> Erasure:
        """All steps together."""
        signals = None
        if self.signals is not None:
            nothing = torch.full_like(self.signals, float("nan"))
            signals = torch.stack([nothing if a.signals is None else a.signals for a in self.answers])
        logits = torch.stack([answers.logits for answers in self.answers])
        return Erasure(ratios, self.rankable, torch.stack(self.inputs), logits, signals, self.order)


@contextmanager
def _overhearing(eraser: Eraser) -> Iterator[dict[bytes, Tensor]]:
    """Signals [L + 1, D] of the rows that a gradient measure passes over anyway, by row key; empty if not wanted."""
    heard: dict[bytes, Tensor] = {}
    if not (eraser.signals and eraser.measure.passes_over_input):
        yield heard
        return

    def listen(batch: Batch, hidden: tuple[Tensor, ...]) -> None:
        heard.update(zip(_row_keys(batch), signals_of(hidden)))

    with eraser.classifier.handing_hidden_states_to(listen):
        yield heard


def _row_keys(batch: Batch) -> list[bytes]:
    """What tells one input from another: the bytes of its attended tokens and their types."""
    parts = [batch[key].cpu() for key in ("input_ids", "token_type_ids") if batch.get(key) is not None]
    stacked = torch.stack(parts, dim=1)
    if "attention_mask" not in batch:
        return [row.numpy().tobytes() for row in stacked]
    return [row[:, kept].numpy().tobytes() for row, kept in zip(stacked, batch["attention_mask"].bool().cpu())]


def _most_important_first(scores: Tensor, new: Tensor) -> list[list[int]]:
    """Positions where `new` [B, T], by descending score, ties to the earlier one."""
    place = ranks(scores, new)
    return [row.argsort()[:count].tolist() for row, count in zip(place, new.sum(dim=1).tolist())]
