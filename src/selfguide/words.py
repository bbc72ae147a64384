"""Words of a text in any script: combining marks belong to their letter, and some scripts have no spaces between words.

In Chinese, Japanese, Thai, Lao, Khmer and Burmese every character counts as a word of its own (with its marks), since finding
words there takes a dictionary; half a word, where words are counted.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai and Lao, Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han characters
)
_IS_SPACELESS = re.compile(f"[{_SPACELESS}]")
_JOINERS = "\u200c\u200d"  # inside words of Persian and of Indic scripts, and inside emoji


@lru_cache(maxsize=1)
def marks() -> str:
    """Return the combining marks as the inside of a character class; a regular expression's letters are without them."""
    found = [number for number in range(0x300, 0x20000) if unicodedata.category(chr(number))[0] == "M"]
    ranges: list[list[int]] = []
    for number in found:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


@lru_cache(maxsize=1)
def _pattern() -> re.Pattern[str]:
    more = f"[{marks()}{_JOINERS}]"
    return re.compile(
        rf"[{_SPACELESS}]{more}*"
        rf"|[^\W{_SPACELESS}](?:[^\W{_SPACELESS}]|{more})*"
        rf"|[^\w\s](?:\u200d[^\w\s]|{more})*"
    )


def is_spaceless(text: str) -> bool:
    """Return whether a text has characters of a script that is written without spaces between words."""
    return not text.isascii() and _IS_SPACELESS.search(text) is not None


def split_words(text: str) -> list[str]:
    """Split a text into words and punctuation marks, without the white space.

    Args:
        text: The text.

    Returns:
        Its words in their order; see the module for scripts without spaces.
    """
    return _pattern().findall(text)


def split_at_spaces(text: str) -> list[str]:
    """Split a text at white space alone, and what is written without spaces into its characters.

    Args:
        text: The text.

    Returns:
        Its pieces in their order; punctuation stays with the word before it where there are spaces.
    """
    pieces: list[str] = []
    for piece in text.split():
        pieces += split_words(piece) if is_spaceless(piece) else [piece]
    return pieces


def join_words(words: list[str]) -> str:
    """Join words by single spaces, but none between two characters of scripts that have none.

    Args:
        words: The words.

    Returns:
        The text.
    """
    parts: list[str] = []
    for word in words:
        if parts and not (is_spaceless(parts[-1]) and is_spaceless(word)):
            parts.append(" ")
        parts.append(word)
    return "".join(parts)


def count_words(text: str) -> float:
    """Count the words of a text: pieces between spaces, and half a word for every character of a script without spaces.

    Args:
        text: The text.

    Returns:
        The count.
    """
    if not is_spaceless(text):
        return float(len(text.split()))
    return sum(0.5 if is_spaceless(piece) else 1.0 for piece in split_at_spaces(text) if re.search(r"\w", piece))


def abridged(text: str, length: int) -> str:
    """Return a text of at most ``length`` characters; a longer one ends in an ellipsis."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"
