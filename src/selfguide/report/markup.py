"""Small pieces of HTML. Whatever is shown passes :func:`escape` here, so that no page can forget it."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Cell:
    """What stands in one place of a table; all of it plain text."""

    text: str
    note: str = ""
    """Smaller, behind the text: a deviation, a p-value."""
    value: float | None = None
    """The number in full: what the table sorts by and what a reader of the page's source finds."""
    deviation: float | None = None
    best: bool = False
    sentence: bool = False
    """A sentence of the user's text, in whatever language and direction."""


@dataclass(frozen=True)
class Heading:
    """The head of a column."""

    title: str
    numeric: bool = True
    help: str = ""


def escape(value: object) -> str:
    """Text as HTML shows it, in attributes too."""
    return html.escape(str(value), quote=True)


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text."""
    return f"<p{_class(kind)}>{escape(text)}</p>"


def bullets(lines: Iterable[str]) -> str:
    """A list of plain lines; nothing where there are none."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def facts(items: Mapping[str, str]) -> str:
    """The few numbers that a page begins with."""
    shown = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in items.items())
    return f'<dl class="facts">{shown}</dl>'


def code(text: str) -> str:
    """Something to type or to copy."""
    return f'<pre tabindex="0"><code>{escape(text)}</code></pre>'


def folded(title: str, body: str) -> str:
    """What only some readers want: it opens by a click, a key, or when the page is printed."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def figure(drawing: str, caption: str) -> str:
    """A drawing with the sentence that says how to read it."""
    return f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>"


def settings_table(caption: str, values: Mapping[str, Any]) -> str:
    """Names and values, two columns."""
    rows = [[Cell(name.replace("_", " ")), Cell(plain(value))] for name, value in values.items()]
    return table(caption, [Heading("setting", False), Heading("value", False)], rows, sortable=False)


def table(caption: str, headings: Sequence[Heading], rows: Sequence[Sequence[Cell]], sortable: bool = True) -> str:
    """A table whose first column names its rows, in a box of its own to scroll in."""
    head = "".join(_heading(heading) for heading in headings)
    widest = [max((len(row[place].note) for row in rows), default=0) for place in range(len(headings))]
    body = "".join(_row(row, headings, widest) for row in rows)
    return (
        f'<div class="scroll" role="region" aria-label="{escape(caption)}" tabindex="0">'
        f"<table{' data-sortable' if sortable and len(rows) > 1 else ''}><caption>{escape(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def plain(value: Any) -> str:
    """A value of a configuration as a person would write it."""
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return f"{value:g}" if isinstance(value, float) else str(value)


def number(value: float | None, decimals: int = 2, sign: bool = False) -> str:
    """A number with a real minus; nothing for one that is missing."""
    if value is None or not math.isfinite(value):
        return ""
    return f"{value:{'+' if sign else ''}.{decimals}f}".replace("-", "−")


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _heading(heading: Heading) -> str:
    help = f' title="{escape(heading.help)}"' if heading.help else ""
    return f'<th scope="col"{_class("number" if heading.numeric else "")}{help}>{escape(heading.title)}</th>'


def _row(row: Sequence[Cell], headings: Sequence[Heading], widest: Sequence[int]) -> str:
    pieces = []
    for place, (cell, heading, room) in enumerate(zip(row, headings, widest, strict=True)):
        name = 'th scope="row"' if place == 0 else "td"
        kinds = " ".join(["number"] * heading.numeric + ["sentence"] * cell.sentence)
        # An empty lang says that the language is unknown; dir=auto lets a sentence run its own way.
        attributes = _class(kinds) + (' lang="" dir="auto"' if cell.sentence else "")
        attributes += f' data-value="{cell.value!r}"' if cell.value is not None else ""
        attributes += f' data-deviation="{cell.deviation!r}"' if cell.deviation is not None else ""
        text = f"<strong>{escape(cell.text)}</strong>" if cell.best else escape(cell.text)
        # A column with notes keeps room for one in every cell, so that its numbers stand in line.
        note = f' <span class="note{" wide" if room > 8 else ""}">{escape(cell.note)}</span>' if room else ""
        pieces.append(f"<{name}{attributes}>{text}{note}</{name.split()[0]}>")
    return f"<tr>{''.join(pieces)}</tr>"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
