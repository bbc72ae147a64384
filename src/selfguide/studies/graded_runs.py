"""What studies share that measure on graded pairs, and on encoders that a grid has kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from selfguide.comparison.specs import parse_specs
from selfguide.errors import SelfguideError, UsageError
from selfguide.evaluation.rows import TaskData
from selfguide.studies.measuring import Place, record_stem

Result = dict[str, Any]


@dataclass(frozen=True)
class GradedPairs:
    """All parts of a task as one list, and each distinct sentence once."""

    first: list[str]
    second: list[str]
    grades: list[float]
    sentences: list[str]
    left: list[int]
    """Places of the first sentences among the distinct ones."""
    right: list[int]

    @classmethod
    def of(cls, rows: TaskData) -> GradedPairs:
        """Refuses in words what nothing can be measured on."""
        first = [sentence for part in rows.parts for sentence in part.first]
        second = [sentence for part in rows.parts for sentence in part.second or []]
        grades = [grade for part in rows.parts for grade in part.grades or []]
        if len(set(grades)) < 2:
            raise SelfguideError(
                f"{rows.task.title} has {len(grades)} pairs with {len(set(grades))} different grades; at least two are needed."
            )
        sentences = list(dict.fromkeys([*first, *second]))
        place = {sentence: number for number, sentence in enumerate(sentences)}
        return cls(first, second, grades, sentences, [place[text] for text in first], [place[text] for text in second])


def graded_rows(place: Place) -> list[TaskData]:
    """The study's tasks of graded pairs; the others have nothing that could be measured here."""
    found = [rows for rows in place.task_rows() if rows.task.kind == "graded-pairs"]
    if not found:
        raise UsageError("None of the study's tasks has graded pairs; name one that has, such as --tasks stsb.")
    return found


@dataclass(frozen=True)
class Run:
    """A row of a grid with one of its seeds; None where nothing is drawn at random."""

    label: str
    seed: int | None

    @property
    def key(self) -> str:
        """Names its measurement, as its encoder's folder is named."""
        return record_stem(self.label, self.seed)


def runs_of(specs: Sequence[str], seeds: Sequence[int]) -> list[Run]:
    """What a grid of these rows runs, row by row."""
    return [Run(spec.label, seed) for spec in parse_specs(specs) for seed in (seeds if spec.seeded else (None,))]


def by_label(runs: Sequence[Run], results: Mapping[str, Result | None]) -> dict[str, dict[int | None, Result]]:
    """What was measured of the runs, by label and seed; those that failed are left out."""
    found: dict[str, dict[int | None, Result]] = {run.label: {} for run in runs}
    for run in runs:
        result = results[run.key]
        if result is not None:
            found[run.label][run.seed] = result
    return found
