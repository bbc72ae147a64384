"""What a refused command must look like."""

from __future__ import annotations

from toys import Outcome


def the_refusal(outcome: Outcome) -> str:
    """The one sentence; notes and warnings of what went well before may stand above it."""
    *before, last = outcome.err.splitlines()
    assert "Traceback" not in outcome.err
    assert last.startswith("selfguide: ")
    assert not any(line.startswith("selfguide: ") for line in before)
    assert "which is a bug" not in last
    assert outcome.out == ""
    return last.removeprefix("selfguide: ")
