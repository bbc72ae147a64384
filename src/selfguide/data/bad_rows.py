"""Rows that cannot be used, of which a user may allow some."""

from __future__ import annotations

from selfguide.data.cleaning import MarkedText
from selfguide.errors import SelfguideError

_ALLOW = "pass --skip-bad-rows N (in Python skip_bad_rows=N) to leave up to N such rows out"


class BadRows:
    """Counts the bad rows of one source; more than the allowed number is an error.

    Args:
        allowed: How many are left out.
    """

    row = MarkedText("", bad=True)
    """Placeholder of a bad row, which is counted and dropped."""

    def __init__(self, allowed: int) -> None:
        self._allowed = allowed
        self._count = 0

    def refused(self, error: SelfguideError) -> MarkedText:
        """Return the placeholder of a bad row.

        Args:
            error: What is wrong with it.

        Raises:
            SelfguideError: It is one more than allowed.
        """
        self._count += 1
        if self._count <= self._allowed:
            return self.row
        if self._allowed == 0:
            raise SelfguideError(f"{str(error).rstrip('.')}; or {_ALLOW}.") from None
        raise SelfguideError(
            f"{str(error).rstrip('.')}. It is bad row number {self._count}, and {self._allowed} are allowed."
        )
