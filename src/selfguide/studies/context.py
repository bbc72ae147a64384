"""The context of a measurement: the study's encoder, text and tasks, and encoders that a grid has kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from selfguide.comparison.cells import CellFolder
from selfguide.comparison.compare import compare
from selfguide.comparison.texts import DatasetLocator, NamedText
from selfguide.errors import SelfguideError, UsageError
from selfguide.evaluation.evaluate import load_tasks
from selfguide.evaluation.protocol import Protocol
from selfguide.evaluation.rows import TaskData
from selfguide.evaluation.tasks import task_named
from selfguide.models.encoders import load, load_encoder
from selfguide.studies.base import grid_folder
from selfguide.studies.specs import GridRun
from selfguide.studies.values import scores_to_json

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

PROTOCOL = Protocol(bootstrap=0)
"""How a study scores: it reports the deviation over seeds, so there are no bootstrap intervals."""


@dataclass(frozen=True)
class MeasurementContext:
    """The data of a study, for the functions of its measurements."""

    encoder: str
    device: str
    data: str | None
    text: Path
    """A file of the study's sentences, cleaned, one a line."""
    output: Path
    dev: str | None
    tasks: str
    pairs: tuple[str, ...] = ()
    batch_size: int = 64

    @property
    def on_gpu(self) -> bool:
        """Whether torch computes on a CUDA device."""
        return self.device != "cpu" and torch.cuda.is_available()

    def load_encoder(self) -> SentenceTransformer:
        """Load the encoder that the study starts from.

        Returns:
            The encoder.
        """
        return load_encoder(self.encoder, device=self.device)

    def kept_encoder(self, grid: str, label: str, seed: int | None) -> SentenceTransformer:
        """Load the encoder that a grid with ``keep=True`` has made of a row with a seed.

        Args:
            grid: The grid's key.
            label: The row.
            seed: The seed; ``None`` for a row without one.

        Returns:
            The encoder.

        Raises:
            SelfguideError: That cell has not finished.
        """
        folder = grid_folder(self.output, grid)
        for record in CellFolder(folder).read_all():
            if (record.label, record.seed) == (label, seed) and record.error is None:
                return load(folder / "encoders" / GridRun(label, seed).stem, device=self.device)
        raise SelfguideError(f"There is no finished encoder {label!r} with seed {seed} in the grid {grid!r}.")

    def sentences(self) -> list[str]:
        """Read the study's text.

        Returns:
            The sentences.
        """
        return self.text.read_text(encoding="utf-8").split("\n")[:-1]

    def rows(self, task: str) -> TaskData:
        """Read the rows of any task by its name.

        Args:
            task: The task's name.

        Returns:
            Its rows.
        """
        return DatasetLocator(self.data).rows(task_named(task))

    def task_rows(self) -> list[TaskData]:
        """Read the rows of the study's tasks, and of the user's own pairs.

        Returns:
            The rows of each.
        """
        return load_tasks(self.tasks, self.pairs, self.data, PROTOCOL)

    def graded_tasks(self) -> list[TaskData]:
        """Read the rows of those among the study's tasks that have graded pairs.

        Returns:
            The rows of each.

        Raises:
            UsageError: None of the tasks has graded pairs.
        """
        found = [rows for rows in self.task_rows() if rows.task.kind == "graded-pairs"]
        if not found:
            raise UsageError("None of the study's tasks has graded pairs; name one that has, such as --tasks stsb.")
        return found

    def compare(self, key: str, text: NamedText, **arguments: Any) -> dict[str, Any]:
        """Run a comparison inside a measurement, for data that a plan cannot know; its cells resume.

        Args:
            key: Names its folder among the study's grids.
            text: The text to tune on.
            **arguments: Methods, settings, seeds, tasks and pairs, as for :func:`selfguide.compare`.

        Returns:
            The scores as plain values; see :func:`selfguide.studies.values.scores_to_json`.

        Raises:
            SelfguideError: A cell failed; the others are kept, and the next run continues from them.
        """
        found = compare(
            self.encoder,
            text,
            dev=self.dev,
            data=self.data,
            output=grid_folder(self.output, key),
            report=False,
            jobs=1,
            protocol=PROTOCOL,
            device=self.device,
            batch_size=self.batch_size,
            **arguments,
        )
        if found.failed:
            reasons = "; ".join(f"{record.label}, seed {record.seed}: {record.error}" for record in found.failed)
            raise SelfguideError(f"{len(found.failed)} of {len(found.records)} cells failed: {reasons}")
        return scores_to_json(found.summary)


@dataclass(frozen=True)
class GradedPairs:
    """The graded pairs of all parts of a task."""

    first: list[str]
    second: list[str]
    grades: list[float]

    @classmethod
    def of(cls, rows: TaskData, differing: bool = False) -> GradedPairs:
        """Join the parts of a task.

        Args:
            rows: The task's rows.
            differing: Whether at least two grades must differ.

        Returns:
            The pairs of all parts.

        Raises:
            SelfguideError: The grades do not differ.
        """
        first = [sentence for part in rows.parts for sentence in part.first]
        second = [sentence for part in rows.parts for sentence in part.second or []]
        grades = [grade for part in rows.parts for grade in part.grades or []]
        if differing and len(set(grades)) < 2:
            raise SelfguideError(
                f"{rows.task.title} has {len(grades)} pairs with {len(set(grades))} different grades; at least two are needed."
            )
        return cls(first, second, grades)

    def subset(self, indices: Sequence[int]) -> GradedPairs:
        """Return the pairs at these indices, in their order."""
        first, second = [self.first[index] for index in indices], [self.second[index] for index in indices]
        return GradedPairs(first, second, [self.grades[index] for index in indices])

    @cached_property
    def sentences(self) -> list[str]:
        """The distinct sentences."""
        return list(dict.fromkeys([*self.first, *self.second]))

    @cached_property
    def indices(self) -> tuple[list[int], list[int]]:
        """The indices of the first and of the second sentences among the distinct ones."""
        index = {sentence: number for number, sentence in enumerate(self.sentences)}
        return [index[sentence] for sentence in self.first], [index[sentence] for sentence in self.second]
