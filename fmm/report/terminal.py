"""Coloured words on a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.style import Style
from rich.text import Text

# Blue speaks for the label, orange against it; told apart by the colour-blind, readable on light and dark.
_FOR, _AGAINST, _PAPER = (86, 166, 228), (244, 150, 66), (238, 238, 238)

Word = tuple[int, int, float]


def coloured(text: str, words: Iterable[Word], *, signed: bool) -> Text:
    """The text with a background per word: (start, end, score), colour relative to the largest score.

    Words against the label are underlined as well.
    """
    words = list(words)
    largest = max((abs(score) for *_, score in words), default=0.0)
    shown = Text(text)
    for start, end, score in words:
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
    """Without colours: the words by falling score."""
    ordered = sorted(words, key=lambda word: -word[2])
    return Text(", ".join(f"{text[start:end]} {score:.3g}" for start, end, score in ordered) or text)
