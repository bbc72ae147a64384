"""Find figures of results that stand on a page without a mark.

Strict where results are reported (``STRICT``): every decimal. Elsewhere: what looks like a score, a gain, a ratio, a deviation or
a p-value; plain settings such as a temperature of 0.05 pass. Code, links and generated parts are left out, and so are a figure
with ``<!--from: SOURCE-->`` and the settings that a page lists in ``<!-- not results: … -->``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from experiments.pages.render import TABLE, UNIT, VALUE

STRICT = ("docs/results/", "docs/performance.md", "docs/methods/fused.md", "README.md")
FREE = ("docs/reference/", "docs/extend/", "src/selfguide/resources/demo/")
"""Pages without figures of results: decimals there are settings, examples and properties of the data."""
NOT_YET = (
    "docs/results/choosing.md",
    "docs/results/speed.md",
    "docs/results/studies.md",
    "docs/performance.md",
    "docs/methods/fused.md",
)
"""Pages whose prose has figures without a mark; the list only gets shorter."""
_SETTINGS = re.compile(r"<!-- not results:(.*?)-->", re.DOTALL)
_HIDDEN = (
    re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE),
    re.compile(r"^ {4,}\S.*$", re.MULTILINE),
    re.compile(r"`[^`\n]*`"),
    re.compile(r"\]\([^)\n]*\)"),
    re.compile(r"!\[[^\]\n]*(?:\[[^\]\n]*\][^\]\n]*)*\]"),
    re.compile(r"[\d.,]+(?: ± [\d.]+)?" + UNIT + r"<!--from:.*?-->", re.DOTALL),
    re.compile(r"\b\d+\.\d+\.\d+\b"),  # versions
    re.compile(r"\barXiv:\d+\.\d+|\b(?:CC BY(?:-SA)?|Apache-|Python|BY|GFDL,?) ?\d\.\d(?: and \d\.\d)?"),
)
_ANY = re.compile(r"[+−]?(?<![\w.])\d[\d,]*\.\d+(?![\w.]*\d)")
_LIKE_A_RESULT = re.compile(
    r"(?<![\w.])\d{2}\.\d+(?![\w.]*\d)"  # a score
    r"|[+−]\d+\.\d+"  # a gain
    r"|\d+(?:\.\d+)? ×(?! \d)"  # a ratio
    r"|\d+\.\d+ times\b"
    r"|± \d+\.\d+"
    r"|\bp (?:=|<) \d"
)


def unsourced(page: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the words of every figure that looks like a result and has no source.

    Args:
        page: The page's path in the repository.
        text: Its content.
    """
    if page.startswith(FREE) or page in NOT_YET:
        return
    allowed = {word.strip(",;") for listed in _SETTINGS.findall(text) for word in listed.split()}
    bare = VALUE.sub(_blank, TABLE.sub(_blank, _SETTINGS.sub(_blank, text)))
    for pattern in _HIDDEN:
        bare = pattern.sub(_blank, bare)
    rule = _ANY if page.startswith(STRICT) else _LIKE_A_RESULT
    for found in rule.finditer(bare):
        if found[0].lstrip("+−± ") not in allowed and found[0] not in allowed:
            line = bare.count("\n", 0, found.start()) + 1
            yield line, f"{found[0]!r} comes from no results file: {_near(bare, found)}"


def _blank(found: re.Match[str]) -> str:
    """Keep the line breaks, so that lines can be counted."""
    return re.sub(r"[^\n]", " ", found[0])


def _near(text: str, found: re.Match[str]) -> str:
    around = text[max(0, found.start() - 40) : found.end() + 25]
    return "…" + " ".join(around.split()) + "…"
