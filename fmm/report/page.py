"""The report as one self-contained HTML page."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fmm.errors import counted
from fmm.report.preconditions import Check
from fmm.report.tables import Table
from fmm.report.verdict import Verdict

STYLE = Path(__file__).with_name("style.css")
_STATES = {"yes": "✓ yes", "no": "✗ no", "unclear": "~ unclear", "unknown": "? unknown", "n/a": "– not asked"}
_TRUST = {"yes": "✓ preconditions hold", "no": "✗ do not rely on it", "unclear": "~ with care"}


@dataclass
class Section:
    """A part of the page: its heading, pictures (title, SVG) and tables, `details` folded away."""

    title: str
    figures: list[tuple[str, str]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    details: list[Table] = field(default_factory=list)


def render(
    title: str, lead: str, verdicts: Sequence[Verdict], sections: Sequence[Section], footer: Sequence[str]
) -> str:
    """Return the whole page; no script, no outside resource, light and dark."""
    cards = "".join(_card(verdict) for verdict in verdicts)
    links = "".join(f'<a href="#{_anchor(s.title)}">{html.escape(s.title)}</a>' for s in sections)
    body = "".join(_section(section) for section in sections)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE.read_text('utf-8')}</style></head><body>"
        f"<header><h1>{html.escape(title)}</h1><p class=soft>{html.escape(lead)}</p>"
        f'<nav aria-label="sections">{links}</nav></header>'
        f"<main><section aria-label=verdict><div class=cards>{cards}</div></section>{body}</main>"
        f"<footer>{''.join(f'<p>{html.escape(line)}</p>' for line in footer)}</footer></body></html>\n"
    )


def _anchor(title: str) -> str:
    return re.sub(r"\W+", "-", title).strip("-").lower()


def _card(verdict: Verdict) -> str:
    checks = "".join(_check(check) for check in verdict.checks)
    steps = "".join(f"<li>{_step(step)}</li>" for step in verdict.next)
    following = f"<div class=what>What to do next</div><ul class=next>{steps}</ul>" if steps else ""
    badge = "✗ no measure to rely on" if verdict.measure is None else _TRUST[verdict.trust]
    scope = f"{counted(len(verdict.seeds), 'model')}, {verdict.n_rows} test rows" if verdict.n_rows else ""
    names = {"unknown": "a checkpoint of yours", "none": "plainly fine-tuned"}
    trained = names.get(verdict.strategy, f"fine-tuned with masking {verdict.strategy}")
    what = ", ".join(part for part in (verdict.dataset, trained, scope) if part)
    return (
        f"<article class=card><div class=what>{html.escape(what)}</div>"
        f"<div class=answer>{html.escape(verdict.measure or 'no measure')}</div>"
        f"<span class='badge {verdict.trust}'>{badge}</span><p>{html.escape(verdict.sentence)}</p>"
        f"{following}<ul class=checks>{checks}</ul></article>"
    )


def _step(step: str) -> str:
    """What to do, its command set apart."""
    before, start, command = step.partition("python run.py ")
    command, comma, after = command.partition(", with the settings")
    code = f"<code>{html.escape(start + command)}</code>" if start else ""
    return f"{html.escape(before)}{code}{html.escape(comma + after)}"


def _check(check: Check) -> str:
    kind = "unknown" if check.status == "n/a" else check.status
    return (
        f"<li><span class='state {kind}'>{_STATES[check.status]}</span><span>{html.escape(check.question)}"
        f"<small>{html.escape(check.detail)}</small></span></li>"
    )


def _section(section: Section) -> str:
    figures = "".join(
        f"<figure><figcaption>{html.escape(title)}</figcaption>{picture}</figure>" for title, picture in section.figures
    )
    first, *rest = [table.filled().html() for table in section.tables]
    details = "".join(
        f"<details><summary>{html.escape(table.title)}</summary>{table.filled().html()}</details>"
        for table in section.details
    )
    heading = html.escape(section.title)
    pictures = f"<div class=figures>{figures}</div>" if figures else ""
    return f"<section id={_anchor(section.title)}><h2>{heading}</h2>{first}{pictures}{''.join(rest)}{details}</section>"
