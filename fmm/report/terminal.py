"""On a terminal: coloured words of an explanation, and the report's main table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from fmm.report.tables import MISSING, interval, percent, text, whole

# Blue speaks for the label, orange against it; told apart by the colour-blind, readable on light and dark.
_FOR, _AGAINST, _PAPER = (86, 166, 228), (244, 150, 66), (238, 238, 238)

Word = tuple[int, int, float | None]  # start, end, score; None where the model has not read the word

# Control characters would move the cursor or vanish: each is shown by its picture, one character for one.
PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {0x7F: 0x2421}
PICTURES |= dict.fromkeys(range(0x80, 0xA0), 0x2426)


def coloured(text: str, words: Iterable[Word], *, signed: bool) -> Text:
    """The text with a background per word: (start, end, score), colour relative to the largest score.

    Words against the label are underlined as well.
    """
    scored = [(start, end, score) for start, end, score in words if score is not None]
    largest = max((abs(score) for *_, score in scored), default=0.0)
    shown = Text(text.translate(PICTURES))
    for start, end, score in scored:
        share = abs(score) / largest if largest > 0 else 0.0
        if share > 0.02:
            shown.stylize(_style(share, against=signed and score < 0), start, end)
    return shown


def _style(share: float, *, against: bool) -> Style:
    hue = _AGAINST if against else _FOR
    mixed = tuple(round(paper + share * (full - paper)) for paper, full in zip(_PAPER, hue))
    return Style(color="#101010", bgcolor="#{:02x}{:02x}{:02x}".format(*mixed), underline=against, bold=share == 1.0)


def print_explanation(
    text: str, pair: str | None, measures: dict[str, tuple[bool, list[Word], list[Word]]], lines: Iterable[str]
) -> None:
    """Print `lines`, then for each measure (signed, words of the text, words of the pair) the coloured texts."""
    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text(line))
    for name, (signed, first, second) in measures.items():
        console.print(Text(f"\n{name}" + (" (blue for, orange underlined against)" if signed else ""), style="bold"))
        for shown, words in ((text, first), (pair, second)):
            if shown is not None:
                console.print(coloured(shown, words, signed=signed) if console.color_system else _ordered(shown, words))


def _ordered(text: str, words: list[Word]) -> Text:
    """Without colours: the words by falling score, those that the model has not read at the end."""
    shown = text.translate(PICTURES)
    scored = sorted((-score, start, end) for start, end, score in words if score is not None)
    parts = [f"{shown[start:end]} {-negative:.3g}" for negative, start, end in scored]
    parts += [f"{shown[start:end]} –" for start, end, score in words if score is None]
    return Text(", ".join(parts) or shown)


def print_faithfulness(name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the main table of one group from the rows that its report's record holds, the most faithful first.

    Columns without any value (RACU where it is undefined) are left out.
    """
    columns = [
        ("measure", [text(row["measure"]) for row in rows]),
        ("RACU (%)", [percent(row["racu"]) for row in rows]),
        ("95%", [interval(row["racu_rows"]) for row in rows]),
        ("ACU (×100)", [percent(row["acu"]) for row in rows]),
        ("95%", [interval(row["acu_rows"]) for row in rows]),
        ("rank", [text(row["rank"]) for row in rows]),
        ("passes per row", [whole(row.get("cost")) for row in rows]),
        ("seeds", [whole(row.get("n")) for row in rows]),
    ]
    shown = [(title, cells) for title, cells in columns if set(cells) != {MISSING}]
    table = Table(box=box.SIMPLE)
    for title, _ in shown:
        table.add_column(title, justify="left" if title == "measure" else "right", no_wrap=True)
    for cells in zip(*(cells for _, cells in shown)):
        table.add_row(*cells)
    console = Console(highlight=False, width=max(Console().width, 110))  # a cut number would be a wrong one
    console.print(f"Faithfulness, {name}", soft_wrap=True)
    console.print(table)
