"""The rows of a task, and where they come from."""

from __future__ import annotations

from dataclasses import dataclass

from selfguide.evaluation.retrieval_sets import RetrievalSet
from selfguide.evaluation.tasks import Task, TextForm


@dataclass(frozen=True)
class Rows:
    """One part of a task: ``second`` for pairs, ``grades`` for graded and binary pairs, ``labels`` for classification."""

    part: str
    first: list[str]
    second: list[str] | None = None
    grades: list[float] | None = None
    labels: list[str] | None = None

    def __len__(self) -> int:
        return len(self.first)

    def sentences(self) -> list[str]:
        """Return every sentence of the part: all first ones, then all second ones."""
        return [*self.first, *(self.second or [])]


@dataclass(frozen=True)
class TaskData:
    """A task with its rows."""

    task: Task
    parts: tuple[Rows, ...]
    source: str
    """Where the rows come from, without a path of the machine: ``folder``, ``file``, ``package``, ``hf:owner/name``."""
    digest: str
    """A short hash of all rows, grades and labels included."""
    text: TextForm = "raw"
    """The form of the text that was found; a copy on the hub may have another than was asked for."""
    notes: tuple[str, ...] = ()
    """What a reader of the score must know: missing rows, peculiarities of a copy."""
    retrieval: RetrievalSet | None = None
    """The documents and judgements of a retrieval set, whose only part are its judged queries."""

    def part(self, name: str) -> Rows:
        """Return the part of a name."""
        return next(rows for rows in self.parts if rows.part == name)

    def sentences(self) -> list[str]:
        """Return every sentence of the task, repeats included, part after part."""
        return [sentence for rows in self.parts for sentence in rows.sentences()]
