"""The page around the sections: one file, nothing loaded from anywhere, the same bytes for the same content."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from selfguide.report.markup import escape, paragraph


@dataclass(frozen=True)
class Section:
    """A part of the page, with a heading that can be linked to."""

    key: str
    title: str
    body: str


def page(title: str, kicker: str, lead: str, head: str, sections: Sequence[Section], data: str = "") -> str:
    """The whole file.

    Args:
        title: the page's name.
        kicker: what kind of report it is.
        lead: a sentence or two of plain text.
        head: HTML that stands before the sections.
        sections: what follows; those without a body are left out.
        data: JSON for the script, made safe by whoever made it.
    """
    shown = [section for section in sections if section.body]
    style, script = _resource("style.css"), _resource("script.js")
    # The policy names the two by their hashes: nothing is fetched, and nothing else runs, whatever a sentence contains.
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape(title)}</title>",
        f"<style>{style}</style>",
        '</head>\n<body>\n<a class="skip" href="#content">To the content</a>',
        f'<header><p class="kicker">{escape(kicker)}</p><h1>{escape(title)}</h1>{paragraph(lead, "lead")}{head}</header>',
        _contents(shown),
        '<main id="content">',
        *(f'<section id="{item.key}"><h2>{escape(item.title)}</h2>\n{item.body}</section>' for item in shown),
        "</main>",
        "<footer><p>Made by selfguide. This file needs no network and no other file.</p></footer>",
        data,
        f"<script>{script}</script>\n</body>\n</html>\n",
    ]
    # A file name that is not UTF-8 may have come along in a configuration; a page with a mark in it beats none.
    return "\n".join(part for part in parts if part).encode("utf-8", "replace").decode("utf-8")


def _contents(sections: Sequence[Section]) -> str:
    links = "".join(f'<li><a href="#{section.key}">{escape(section.title)}</a></li>' for section in sections)
    return f'<nav aria-label="Contents"><ul>{links}</ul></nav>'


def _resource(name: str) -> str:
    return "\n" + (resources.files("selfguide.report") / name).read_text(encoding="utf-8").replace("\r\n", "\n")


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode("utf-8")).digest()).decode("ascii")
