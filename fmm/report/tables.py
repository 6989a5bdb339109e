"""A table once, printed four ways: Markdown, CSV, LaTeX (booktabs, as in the papers) and HTML."""

from __future__ import annotations

import csv
import html
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Format = Callable[[Any], str]
MISSING = "–"


def _finite(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def percent(value: float | None) -> str:
    """A fraction as a percentage with one decimal, – where there is none.

    >>> percent(0.1234), percent(None)
    ('12.3', '–')
    """
    return f"{100 * value:.1f}".replace("-", "−") if _finite(value) else MISSING  # type: ignore[operator]


def points(value: float | None) -> str:
    """A difference of fractions, in points with its sign."""
    return f"{100 * value:+.1f}".replace("-", "−") if _finite(value) else MISSING  # type: ignore[operator]


def interval(ends: tuple[float | None, float | None] | None) -> str:
    """An interval of fractions in percent.

    >>> interval((0.1, 0.25))
    '[10.0, 25.0]'
    """
    return MISSING if ends is None or not all(map(_finite, ends)) else f"[{percent(ends[0])}, {percent(ends[1])}]"


def pvalue(value: float | None) -> str:
    """A p-value with three decimals."""
    if not _finite(value):
        return MISSING
    return "<0.001" if value < 0.001 else f"{value:.3f}"  # type: ignore[operator]


def whole(value: float | None) -> str:
    """A count with thin thousands."""
    return f"{value:,.0f}".replace(",", "\u202f") if _finite(value) else MISSING


def decimal(value: float | None) -> str:
    """A number with two decimals."""
    return f"{value:.2f}".replace("-", "−") if _finite(value) else MISSING


def text(value: Any) -> str:
    """Anything as it stands."""
    return MISSING if value is None or value == "" else str(value)


@dataclass(frozen=True)
class Column:
    """`key` names it in CSV, `title` for people."""

    key: str
    title: str
    show: Format = text
    numeric: bool = True


@dataclass
class Table:
    """Rows of raw values under `columns`; `notes` stand below. `best` marks a row (by number) to stand out."""

    key: str
    title: str
    columns: Sequence[Column]
    rows: list[list[Any]]
    notes: list[str] = field(default_factory=list)
    best: int | None = None

    def shown(self) -> list[list[str]]:
        """Cells as text."""
        return [[column.show(value) for column, value in zip(self.columns, row, strict=True)] for row in self.rows]

    def filled(self) -> Table:
        """The table without columns that hold nothing, as people see it; its CSV keeps them."""
        cells = self.shown()
        places = [i for i in range(len(self.columns)) if not cells or any(row[i] != MISSING for row in cells)]
        rows = [[row[i] for i in places] for row in self.rows]
        return replace(self, columns=[self.columns[i] for i in places], rows=rows)

    def markdown(self) -> str:
        """The table as Markdown, its notes below."""
        head = "| " + " | ".join(column.title for column in self.columns) + " |"
        rule = "|" + "|".join("---:" if column.numeric else "---" for column in self.columns) + "|"
        body = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in self.shown()]
        return "\n".join([f"### {self.title}", "", head, rule, *body, "", *(f"{note}\n" for note in self.notes)])

    def csv(self) -> str:
        """Raw values; an interval becomes two columns, `_low` and `_high`. NaN and None are empty."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        pairs = [column.show is interval for column in self.columns]
        names = [column.key for column in self.columns]
        writer.writerow(
            [n for name, pair in zip(names, pairs) for n in ([f"{name}_low", f"{name}_high"] if pair else [name])]
        )
        for row in self.rows:
            cells = [c for value, pair in zip(row, pairs) for c in ((value or (None, None)) if pair else (value,))]
            writer.writerow([cell if _finite(cell) else "" for cell in cells])
        return buffer.getvalue()

    def latex(self) -> str:
        """A booktabs table with caption and label."""
        spec = "".join("r" if column.numeric else "l" for column in self.columns)
        rows = [" & ".join(latex_escape(cell) for cell in row) + r" \\" for row in self.shown()]
        notes = " ".join(latex_escape(note) for note in self.notes)
        return "\n".join(
            [
                r"\begin{table}[t]",
                r"\centering",
                rf"\caption{{{latex_escape(self.title)}. {notes}}}",
                rf"\label{{tab:{self.key}}}",
                rf"\begin{{tabular}}{{{spec}}}",
                r"\toprule",
                " & ".join(latex_escape(column.title) for column in self.columns) + r" \\",
                r"\midrule",
                *rows,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )

    def html(self) -> str:
        """A table in a box that scrolls sideways on a phone, its first column staying in sight."""
        head = "".join(f'<th scope="col"{_numeric(c)}>{html.escape(c.title)}</th>' for c in self.columns)
        body = "".join(self._html_row(number, row) for number, row in enumerate(self.shown()))
        notes = "".join(f"<p class=note>{html.escape(note)}</p>" for note in self.notes)
        caption = html.escape(self.title)
        return (
            f'<div class=scroll tabindex=0 role=region aria-label="{caption}"><table><caption>{caption}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{notes}"
        )

    def _html_row(self, number: int, row: list[str]) -> str:
        cells = [f"<td{_numeric(c)}>{html.escape(cell)}</td>" for c, cell in zip(self.columns[1:], row[1:])]
        first = f'<th scope="row"{_numeric(self.columns[0])}>{html.escape(row[0])}</th>'
        return f"<tr{' class=best' if number == self.best else ''}>{first}{''.join(cells)}</tr>"


def _numeric(column: Column) -> str:
    return " class=n" if column.numeric else ""


_LATEX = {"\\": r"\textbackslash{}", "−": "$-$", "–": "--", "\u202f": r"\,", "·": r"$\cdot$", "≤": r"$\le$", "<": "$<$"}
_LATEX |= {character: "\\" + character for character in "&%$#_{}"} | {
    "~": r"\textasciitilde{}",
    "^": r"\^{}",
    ">": "$>$",
}
_LATEX |= {
    "≥": r"$\ge$",
    "±": r"$\pm$",
    "α": r"$\alpha$",
    "“": "``",
    "”": "''",
    "’": "'",
    "×": r"$\times$",
    "ρ": r"$\rho$",
}


def latex_escape(value: str) -> str:
    """Plain text for LaTeX.

    >>> latex_escape("grad_l2 −3.0%")
    'grad\\\\_l2 $-$3.0\\\\%'
    """
    return "".join(_LATEX.get(character, character) for character in value)
