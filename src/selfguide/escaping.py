"""Names and messages that come from outside, made harmless in tables that other programs open."""

from __future__ import annotations

import re

_MARKUP = re.compile(r"([\\`*\[\]|]|<(?=[A-Za-z/!?])|(?<!\w)_|_(?!\w))")
_NUMBER = re.compile(r"[+-]?(\d[\d,]*\.?\d*|\.\d+)([eE][+-]?\d+)?%?")


def csv_text(text: str) -> str:
    """Return a field that a spreadsheet does not take for a formula.

    Args:
        text: The field.

    Returns:
        The field, with an apostrophe before it where it begins like a formula and is not a number.
    """
    if text[:1] in ("=", "+", "-", "@", "\t", "\r") and not _NUMBER.fullmatch(text):
        text = f"'{text}"
    return text.replace("\r", " ")  # which ends a line for many readers, quoted or not


def markdown_text(text: str) -> str:
    """Return a text that Markdown shows as it is, on one line.

    Args:
        text: The text.

    Returns:
        The text, with a backslash before what would be markup: emphasis, links, code, HTML, the borders of a table.
    """
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))
