"""Errors a user can act on.

Every failure that is not a bug is raised as a :class:`SelfguideError`: one sentence that names the thing that is wrong and,
where there is one, the way out. The command line prints it without a traceback and exits with ``exit_code``.
"""

from __future__ import annotations


class SelfguideError(Exception):
    """Something the user can mend: a wrong path, an unknown name, a text that cannot be trained on."""

    exit_code = 1


class UsageError(SelfguideError):
    """A name, option or value that selfguide does not know."""

    exit_code = 2


class InterruptedRun(SelfguideError):
    """The user stopped a run; what was finished is kept and the message says how to go on."""

    exit_code = 130
