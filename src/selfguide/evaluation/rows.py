"""The rows of a task as they were read, and what is said about where they come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from selfguide.evaluation.tasks import Task

TextForm = Literal["raw", "senteval"]
"""Text as released, or as SentEval tokenises and lower-cases it (what the papers scored)."""
TEXT_FORMS: tuple[TextForm, ...] = ("raw", "senteval")


@dataclass(frozen=True)
class Rows:
    """One part of a task. ``second`` is there for pairs, ``grades`` for graded and binary pairs, ``labels`` for classes."""

    part: str
    first: list[str]
    second: list[str] | None = None
    grades: list[float] | None = None
    labels: list[str] | None = None

    def __len__(self) -> int:
        return len(self.first)

    def sentences(self) -> list[str]:
        """Every sentence of the part."""
        return [*self.first, *(self.second or [])]


@dataclass(frozen=True)
class TaskData:
    """A task with its rows."""

    task: Task
    parts: tuple[Rows, ...]
    source: str
    """Where the rows come from, in words that name no folder of the machine: ``folder``, ``file``,
    ``package``, ``hf:owner/name``."""
    digest: str
    """A short hash of all rows, grades and labels included."""
    text: TextForm = "raw"
    """The form of the text that was found, which a copy on the hub may have in one form only."""
    notes: tuple[str, ...] = ()
    """What a reader of the score must know: rows missing, another copy's quirks."""

    def part(self, name: str) -> Rows:
        """The part of this name."""
        return next(rows for rows in self.parts if rows.part == name)

    def sentences(self) -> list[str]:
        """Every sentence of the task, repeats included."""
        return [sentence for rows in self.parts for sentence in rows.sentences()]
