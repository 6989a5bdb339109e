"""Explained texts as one self-contained HTML page: words coloured by score, measures side by side."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

_HERE = Path(__file__).parent

_FORM = """<div class=bar><form id=form aria-label="filter">
<label class=f>prediction<select id=predicted><option value="">all</option></select></label>
<label class=f>gold label<select id=gold><option value="">all</option></select></label>
<label class=f>outcome<select id=kind><option value="">all</option><option value=wrong>errors</option>
<option value=right>right</option></select></label>
<label class=f>order<select id=order><option value="">as in the data</option>
<option value=unsure>least sure first</option>
<option value=sure>most sure first</option></select></label>
<label class=f>search<input id=query type=search autocomplete=off></label>
<fieldset id=measures><legend>measures</legend></fieldset></form></div>"""

_LEGEND = """<div class=legend><span><i class="ramp two"></i>signed measure: against (orange, dotted) to for (blue)
the explained label</span>
<span><i class="ramp one"></i>absolute measure: importance</span>
<span><b>bold</b> the first-ranked word</span>
<span>colour is relative to the largest score of the text</span></div>"""

_LEGEND_FRAMED = _LEGEND.replace("</div>", "<span><i class='w framed'>framed</i> known evidence</span></div>")


@dataclass(frozen=True)
class Page:
    """What the page says above the examples, and its measures in the order of their columns."""

    title: str
    lead: str
    notes: Sequence[str]
    measures: Sequence[str]


def render(
    page: Page,
    examples: pa.Table,
    words: pa.Table,
    ends: dict[int, list[int | None]],
    max_rows: int,
    evidence: Sequence[Sequence[tuple[int, int]]] | None = None,
) -> str:
    """Return the page of the first `max_rows` examples.

    `examples` and `words` are the tables of `fmm.explain.work`; `ends` gives, for rows that were cut, where the model's
    input ended in each text (None: not cut). Words that touch a row's `evidence` spans of the first text are framed.
    """
    data = page_data(examples.slice(0, max_rows), words, ends, page.measures)
    for row, number in zip(data["rows"], examples["row"].to_pylist()) if evidence is not None else ():
        row["e"] = _framed(row, evidence[number]) if evidence is not None else []
    notes = [*page.notes]
    if examples.num_rows > max_rows:
        notes.append(f"The first {max_rows} of {examples.num_rows} examples; the Parquet files hold all.")
    legend = _LEGEND if evidence is None else _LEGEND_FRAMED
    style, script = ((_HERE / f"explain.{kind}").read_text("utf-8") for kind in ("css", "js"))
    lines = "".join(f"<p class=soft>{html.escape(line)}</p>" for line in (page.lead, *notes))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{html.escape(page.title)}</title><style>{style}</style></head><body>"
        f"<header><h1>{html.escape(page.title)}</h1>{lines}{legend}</header>{_FORM}<main>"
        "<p class=soft id=count role=status></p><div id=list></div><button id=more type=button hidden></button>"
        "<noscript>This page draws its examples with a small script.</noscript>"
        f'</main><footer></footer><script type="application/json" id=data>{embedded(data)}</script>'
        f"<script>{script}</script></body></html>\n"
    )


def embedded(data: Any) -> str:
    """JSON that is safe inside a script element, whatever texts it holds.

    >>> embedded("</script>")
    '"\\\\u003c/script\\\\u003e"'
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def page_data(
    examples: pa.Table, words: pa.Table, ends: dict[int, list[int | None]], names: Sequence[str]
) -> dict[str, Any]:
    """What the script reads: measures, and per row its texts, word spans `w`, scores `s` and ranks `r` by measure."""
    signs = dict(zip(words["measure"].to_pylist(), words["signed"].to_pylist()))
    measures = {name: bool(signs.get(name)) for name in names}
    number = {name: i for i, name in enumerate(measures)}
    spans: dict[int, dict[tuple[int, int, int], int]] = {}
    cells: dict[int, list[tuple[int, int, float, int]]] = {}
    columns = (words[name].to_pylist() for name in ("row", "text", "start", "end", "measure", "score", "rank"))
    for row, which, start, end, measure, score, rank in zip(*columns):
        if score is None:
            continue  # the page shows the whole text; the model has not read this word
        known = spans.setdefault(row, {})
        at = known.setdefault((start, end, int(which == "second")), len(known))
        cells.setdefault(row, []).append((number[measure], at, float(f"{score:.4g}"), rank))
    rows = [
        _row(
            example,
            spans.get(example["row"], {}),
            cells.get(example["row"], []),
            len(measures),
            ends.get(example["row"]),
        )
        for example in examples.to_pylist()
    ]
    return {"measures": [{"name": name, "signed": signed} for name, signed in measures.items()], "rows": rows}


def _row(
    example: dict[str, Any],
    spans: dict[tuple[int, int, int], int],
    cells: list[tuple[int, int, float, int]],
    n_measures: int,
    ends: list[int | None] | None,
) -> dict[str, Any]:
    # The script slices UTF-16 strings, where a character beyond the basic plane counts twice.
    texts = (example["text"], example["text_pair"] or "")
    order = sorted(spans, key=lambda span: (span[2], span[0]))
    place = {spans[span]: i for i, span in enumerate(order)}
    scores: list[list[float | None]] = [[None] * len(spans) for _ in range(n_measures)]
    ranks: list[list[int]] = [[-1] * len(spans) for _ in range(n_measures)]
    for measure, at, score, rank in cells:
        scores[measure][place[at]], ranks[measure][place[at]] = score, rank
    to_utf16 = [_utf16(text) for text in texts]
    return {
        "id": example["example_id"],
        "text": texts[0],
        "pair": example["text_pair"],
        "gold": example["gold"],
        "predicted": example["predicted"],
        "probability": round(example["probability"], 4),
        "target": example["target"],
        "cut": example["cut_characters"],
        "w": [[to_utf16[of][a], to_utf16[of][b], of] for a, b, of in order],
        "s": scores,
        "r": ranks,
        "ends": [None if end is None else to_utf16[i][end] for i, end in enumerate(ends or [None, None])],
    }


def _framed(row: dict[str, Any], spans: Sequence[tuple[int, int]]) -> list[int]:
    """Numbers of the words of the first text that touch one of the character `spans`."""
    at = _utf16(row["text"])
    here = [(at[a], at[b]) for a, b in spans]
    return [i for i, (a, b, of) in enumerate(row["w"]) if of == 0 and any(a < end and start < b for start, end in here)]


def _utf16(text: str) -> list[int] | range:
    """Place of each character (and of the end) in the UTF-16 string that a browser sees."""
    if text.isascii():
        return range(len(text) + 1)
    places = [0]
    for character in text:
        places.append(places[-1] + (2 if ord(character) > 0xFFFF else 1))
    return places
