"""The work of an explanation in parts, each written when done, so that a killed run continues where it was."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from fmm import records
from fmm.data import Encoded
from fmm.explain.progress import Progress
from fmm.explain.source import Source
from fmm.explain.words import pieces_of_word, pool, rank_descending, word_spans, words_of_token
from fmm.measures import attribute
from fmm.models.classifier import Classifier
from fmm.records import Run

ROWS_PER_PART = 32
_TEXTS = ("", "first", "second")  # by sequence id; "" is a special token


@dataclass
class Job:
    """All that decides the scores: the model, the tokenised rows with their gold labels [N], and what is asked."""

    classifier: Classifier
    tokenizer: Any
    source: Source
    rows: Encoded
    gold: NDArray[np.int64]
    measures: Sequence[Mapping[str, Any]]
    target: Any
    explain: str
    seed: int

    @cached_property
    def added_tokens(self) -> frozenset[str]:
        """Tokens that were added to the vocabulary whole, special ones among them: each is one word of a text.

        The unknown token is none: it stands for a part of a word, or for several words.
        """
        return frozenset(self.tokenizer.get_added_vocab()) - {self.tokenizer.unk_token}


def explain(job: Job, run: Run) -> tuple[pa.Table, pa.Table]:
    """Explain all rows. Returns the tables of tokens and of examples, in the order of the source.

    Parts found in `run` are not computed again; a damaged one is, and that is said.
    """
    order = np.argsort([len(ids) for ids in job.rows.input_ids], kind="stable")
    parts = [order[start : start + ROWS_PER_PART] for start in range(0, len(order), ROWS_PER_PART)]
    progress = Progress(len(order))
    found = []
    for number, rows in enumerate(parts):
        tables = _read_part(run, number)
        if tables is None:
            tables = explain_rows(job, rows)
            for name, table in zip(("tokens", "examples"), tables):
                run.write_parquet(_part(number, name), table)
            progress.advance(len(rows))
        else:
            progress.skip(len(rows))
        found.append(tables)
    progress.finish()
    tokens, examples = (pa.concat_tables(tables) for tables in zip(*found))
    by_row = [("row", "ascending")]
    return tokens.sort_by([*by_row, ("measure", "ascending"), ("position", "ascending")]), examples.sort_by(by_row)


def remove_parts(run: Run) -> None:
    """Drop the parts once the whole is written."""
    shutil.rmtree(run.directory / "parts", ignore_errors=True)


def _part(number: int, name: str) -> str:
    return f"parts/{number:05d}-{name}.parquet"


def _read_part(run: Run, number: int) -> tuple[pa.Table, pa.Table] | None:
    """A finished part, or None; the file of examples is written last."""
    if not (run.directory / _part(number, "examples")).exists():
        return None
    tokens, examples = (records.read_parquet(run.directory / _part(number, name)) for name in ("tokens", "examples"))
    if tokens is None or examples is None:
        print(f"part {number} in {run.directory} is damaged; computing it again", flush=True)
        return None
    return tokens, examples


def batch_of(job: Job, rows: NDArray[np.int64]) -> dict[str, torch.Tensor]:
    """Rows at `rows` as a padded batch on the model's device."""
    batch = job.rows.batch(job.tokenizer, rows.tolist())
    batch["labels"] = torch.from_numpy(job.gold[rows])
    batch["example_id"] = torch.from_numpy(job.source.example_ids[rows])
    return {name: values.to(job.classifier.device) for name, values in batch.items()}


def explain_rows(job: Job, rows: NDArray[np.int64]) -> tuple[pa.Table, pa.Table]:
    """Tables of tokens and examples of some rows, by every measure."""
    batch = batch_of(job, rows)
    target: Any = job.target
    columns: dict[str, list] = {name: [] for name in _TOKENS.names}
    for measure in job.measures:
        found = attribute(job.classifier, batch, dict(measure), target=target, explain=job.explain, seed=job.seed)
        if not isinstance(target, torch.Tensor):
            target, predicted = found.target, found.predicted  # later measures explain the same logit
        ranks = found.ranks().cpu().numpy()
        scores = found.scores.cpu().numpy()
        for place, row in enumerate(rows.tolist()):
            _tokens(job, row, str(measure["name"]), found.signed, scores[place], ranks[place], columns)
    examples = _examples(job, rows, found.logits.cpu(), target.cpu(), predicted.cpu())
    return pa.table(columns, schema=_TOKENS), examples


_TOKENS = pa.schema(
    [
        ("row", pa.int64()),
        ("example_id", pa.int64()),
        ("position", pa.int32()),
        ("token", pa.string()),
        ("start", pa.int32()),
        ("end", pa.int32()),
        ("text", pa.string()),
        ("measure", pa.string()),
        ("signed", pa.bool_()),
        ("score", pa.float32()),
        ("rank", pa.int32()),
    ]
)


def _tokens(
    job: Job, row: int, measure: str, signed: bool, scores: np.ndarray, ranks: np.ndarray, into: dict[str, list]
) -> None:
    """Append one row's tokens to the columns of `_TOKENS`."""
    ids, sequence = job.rows.input_ids[row], job.rows.sequence_id[row]
    assert job.rows.offsets is not None
    spans, n = job.rows.offsets[row], len(ids)
    into["row"] += [row] * n
    into["example_id"] += [int(job.source.example_ids[row])] * n
    into["position"] += range(n)
    into["token"] += job.tokenizer.convert_ids_to_tokens(ids)
    into["start"] += [span[0] if s else None for span, s in zip(spans, sequence)]
    into["end"] += [span[1] if s else None for span, s in zip(spans, sequence)]
    into["text"] += [_TEXTS[s] or None for s in sequence]
    into["measure"] += [measure] * n
    into["signed"] += [signed] * n
    into["score"] += scores[:n].tolist()
    into["rank"] += [rank if rank >= 0 else None for rank in ranks[:n].tolist()]


def _examples(job: Job, rows: NDArray[np.int64], logits: Any, target: Any, predicted: Any) -> pa.Table:
    names = job.classifier.label_names
    best, probabilities = logits.argmax(1), logits.softmax(1)
    gold = job.gold[rows]
    return pa.table(
        {
            "row": pa.array(rows, pa.int64()),
            "example_id": pa.array(job.source.example_ids[rows], pa.int64()),
            "text": pa.array([job.source.texts[i] for i in rows], pa.string()),
            "text_pair": pa.array([job.source.pairs[i] if job.source.pairs else None for i in rows], pa.string()),
            "gold": pa.array([names[label] if label >= 0 else None for label in gold], pa.string()),
            "predicted": pa.array([names[label] for label in best.tolist()], pa.string()),
            "probability": pa.array(probabilities.max(1).values.tolist(), pa.float32()),
            "target": pa.array([names[label] for label in target.tolist()], pa.string()),
            "target_is_prediction": pa.array(predicted.tolist(), pa.bool_()),
            "logits": pa.array(logits.tolist(), pa.list_(pa.float32())),
            "cut_characters": pa.array([cut_characters(job, int(i)) for i in rows], pa.int32()),
        }
    )


def cut_characters(job: Job, row: int) -> int:
    """Characters at the end of a row's texts that did not fit into the model."""
    if not job.rows.truncated[row]:
        return 0
    assert job.rows.offsets is not None
    spans, sequence = job.rows.offsets[row], job.rows.sequence_id[row]
    texts = [job.source.texts[row], job.source.pairs[row] if job.source.pairs else ""]
    ends = [max((span[1] for span, s in zip(spans, sequence) if s == number), default=0) for number in (1, 2)]
    return sum(max(0, len(text.rstrip()) - end) for text, end in zip(texts, ends))


def word_table(job: Job, tokens: pa.Table) -> pa.Table:
    """Scores of all words of the explained texts, from the table of tokens sorted by row, measure and position.

    A word that the model has not read, as the text was cut before it or the tokenizer leaves it out, has no tokens and
    neither score nor rank.
    """
    ranked = tokens.filter(pc.is_valid(tokens["rank"]))
    names = ("row", "measure", "text", "token", "start", "end", "score", "signed")
    columns = {name: ranked[name].to_pylist() for name in names}
    keys = list(zip(columns["row"], columns["measure"], columns["text"]))
    starts = [i for i in range(len(keys)) if i == 0 or keys[i] != keys[i - 1]]
    into: dict[str, list] = {name: [] for name in _WORDS.names}
    for start, stop in zip(starts, [*starts[1:], len(keys)]):
        _words_of_text(job, *keys[start], {name: values[start:stop] for name, values in columns.items()}, into)
    return pa.table(into, schema=_WORDS)


_WORDS = pa.schema(
    [
        ("row", pa.int64()),
        ("example_id", pa.int64()),
        ("text", pa.string()),
        ("word", pa.string()),
        ("start", pa.int32()),
        ("end", pa.int32()),
        ("tokens", pa.int32()),
        ("measure", pa.string()),
        ("signed", pa.bool_()),
        ("score", pa.float32()),
        ("rank", pa.int32()),
    ]
)


def _words_of_text(job: Job, row: int, measure: str, which: str, part: dict[str, list], into: dict[str, list]) -> None:
    """Append the words of one text by one measure to the columns of `_WORDS`."""
    text = job.source.texts[row] if which == "first" else (job.source.pairs or [""])[row]
    signed, pieces_at = bool(part["signed"][0]), list(zip(part["start"], part["end"]))
    added = job.added_tokens
    spans = word_spans(text, pieces_at, [span for span, token in zip(pieces_at, part["token"]) if token in added])
    touched = words_of_token(pieces_at, spans, text)
    scores, pieces = pool(part["score"], touched, len(spans), signed), pieces_of_word(touched, len(spans))
    ranks = rank_descending(scores)
    for i, (start, end) in enumerate(spans):
        read = bool(pieces[i])
        values: tuple[Any, ...] = (
            row,
            int(job.source.example_ids[row]),
            which,
            text[start:end],
            start,
            end,
            int(pieces[i]),
        )
        values += (measure, signed, float(scores[i]) if read else None, int(ranks[i]) if read else None)
        for column, value in zip(into.values(), values):
            column.append(value)
