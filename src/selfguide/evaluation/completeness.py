"""Check that a part of a task has the number of rows that it must have."""

from __future__ import annotations

from selfguide.errors import SelfguideError
from selfguide.evaluation.tasks import Part

ALLOW_PARTIAL = "pass --allow-partial (in Python allow_partial=True) to score what is there"


def count_notes(part: Part, count: int, name: str, title: str, *, allow_partial: bool) -> list[str]:
    """Check the number of rows of a part.

    Args:
        part: The part, with the number of rows that it must have.
        count: The number of rows that were read.
        name: The name of the file or copy, for messages.
        title: What the rows are called in messages.
        allow_partial: Accept missing rows, with a note.

    Returns:
        The note that rows are missing; empty where none are.

    Raises:
        SelfguideError: There are no rows or too many, or rows are missing and that is not allowed.
    """
    if not count:
        raise SelfguideError(f"{name} has no rows: copy or download it again.")
    if part.rows is None or count == part.rows:
        return []
    counts = f"{name} has {count:,} rows where {title} has {part.rows:,}"
    if count > part.rows:
        joined = count == part.all_splits
        splits = ", and scores of all its splits together are not those of the papers" if joined else ""
        raise SelfguideError(f"{counts}{splits}: it is another set of rows; get the test set itself.")
    if not allow_partial:
        raise SelfguideError(f"{counts}: it is cut short; copy or download it again, or {ALLOW_PARTIAL}.")
    return [f"Partial: {count:,} of the {part.rows:,} rows of {title}, not to be compared with published numbers."]
