"""Errors that a user can act on.

Every failure that is not a bug is a :class:`SelfguideError`: one sentence that names what is wrong and, if there is one, the
way out. The command line prints it without a traceback and exits with ``exit_code``.
"""

from __future__ import annotations

from collections.abc import Iterable


class SelfguideError(Exception):
    """A problem that the user can fix: a wrong path, a damaged file, text that cannot be trained on."""

    exit_code = 1


class UsageError(SelfguideError):
    """An unknown name or option, or a value that is not allowed."""

    exit_code = 2


class InterruptedRun(SelfguideError):
    """The user stopped a run; its progress is saved and the message says how to resume."""

    exit_code = 130


class FolderInUse(SelfguideError):
    """Another process is writing the same output; the message says which one, and since when."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean …?" with the known name nearest to a misspelt one; empty where none is near."""
    import difflib

    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def one_line(error: object) -> str:
    """Return another library's message, which may have several lines, on one line."""
    return " ".join(str(error).split())
