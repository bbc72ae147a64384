"""Parts of error messages, kept short whatever they quote."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

# Ways out that several errors name, on the command line and in Python.
REPLACE_BAD_UTF8 = 'pass --replace-bad-utf8 (in Python on_bad_utf8="replace")'
NAME_THE_COLUMN = "say which one holds the sentences with --column (in Python column=)"


def listed(names: Sequence[str]) -> str:
    """Return the names separated by commas, the first twenty at most."""
    shown = ", ".join(shortened(name, quote=False) for name in islice(names, 20))
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def shortened(value: object, *, quote: bool = True, width: int = 40) -> str:
    """Return a value (its ``repr``, if ``quote``) as text of at most ``width`` characters."""
    text = repr(value) if quote else str(value)
    return text if len(text) <= width else text[: width - 3] + "..."


def first_line(error: Exception) -> str:
    """Return the first line of another library's error message, which may be pages long."""
    lines = str(error).strip().splitlines()
    return shortened(lines[0], quote=False, width=160).rstrip(".") if lines else type(error).__name__
