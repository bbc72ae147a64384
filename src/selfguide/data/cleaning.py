"""From a raw row to a clean sentence: the rules, one row at a time, with no state."""

from __future__ import annotations

import re
import unicodedata

# Controls that are not white space, and the format characters nobody sees: soft hyphen, zero-width space,
# direction marks, the byte-order mark, tags. The visible format characters (Arabic number signs) stay, and so do the
# joiner and the non-joiner: Persian and the Indic scripts spell words with them, emoji are put together by them.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0001\U000e0020-\U000e007f]+"
)
_SURROGATE = re.compile("[\ud800-\udfff]")


class MarkedText(str):
    """A row with a remark for the counts; almost every row needs none and is a plain ``str``."""

    __slots__ = ("replaced", "truncated")

    replaced: bool  # bad UTF-8 was replaced in it
    truncated: bool  # it is the head of a line too long to be held in memory

    def __new__(cls, text: str, *, replaced: bool = False, truncated: bool = False) -> MarkedText:
        marked = super().__new__(cls, text)
        marked.replaced = replaced
        marked.truncated = truncated
        return marked


# A row as a reader hands it over: None is a null value.
Row = str | None


def clean(text: str) -> str:
    """NFC, no invisible characters, any run of white space one space, nothing at the ends."""
    # Most lines are clean already. Printable means: no control, no format character, and no white space but the space.
    if text.isprintable() and "  " not in text and unicodedata.is_normalized("NFC", text):
        return text.strip()
    # The order matters: only once the invisible characters are gone can a letter and its accent meet and compose.
    visible = _INVISIBLE.sub("", text)
    return unicodedata.normalize("NFC", " ".join(visible.split()))


def has_surrogates(text: str) -> bool:
    """Whether the text holds half a character (JSON escapes can spell one), which no UTF-8 file can hold."""
    return not text.isascii() and _SURROGATE.search(text) is not None


def replace_surrogates(text: str) -> MarkedText:
    return MarkedText(_SURROGATE.sub("\ufffd", text), replaced=True)
