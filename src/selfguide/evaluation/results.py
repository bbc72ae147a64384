"""Scores with their provenance, and the folder that keeps them between runs."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from selfguide.errors import SelfguideError
from selfguide.escaping import csv_text
from selfguide.evaluation.embedder import EncoderInfo
from selfguide.evaluation.tasks import GROUPS
from selfguide.files import read_json, remove_leftovers, write_text
from selfguide.locks import beside, holders, inside, owned_folder, waited_for
from selfguide.progress import Reporter

SCORES_FILE = "scores.json"
TABLE_FILE = "scores.csv"


@dataclass(frozen=True)
class DataInfo:
    """Which rows were scored; see :class:`~selfguide.evaluation.rows.TaskData`."""

    source: str
    digest: str
    rows: int
    text: str


@dataclass(frozen=True)
class TaskScore:
    """The score of one encoder on one task."""

    task: str
    title: str
    metric: str
    value: float
    """The main metric × 100; NaN where it is undefined, and then a note says why."""
    interval: tuple[float, float] | None
    details: dict[str, Any]
    notes: tuple[str, ...]
    encoder: EncoderInfo
    data: DataInfo
    protocol: dict[str, Any]
    versions: dict[str, str]
    date: str
    seconds: float
    command: str | None = None
    """The command line that made it; None from Python."""
    device: str = ""
    """What it was computed on; empty for an encoder that is a function."""

    @property
    def key(self) -> tuple[str, str, str, dict[str, Any]]:
        """What decides the score: the task, the encoder's digest, the rows' digest and the protocol."""
        return self.task, self.encoder.digest, self.data.digest, self.protocol

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; NaN becomes None. Command and device are left out where they are not known."""
        unknown = [name for name in ("command", "device") if not getattr(self, name)]
        return _plain({name: value for name, value in asdict(self).items() if name not in unknown})

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TaskScore:
        """Make a score from what :meth:`to_dict` returned.

        Args:
            values: What the file holds.

        Returns:
            The score.
        """
        values = dict(values)
        values["value"] = math.nan if values["value"] is None else values["value"]
        values["interval"] = tuple(values["interval"]) if values["interval"] else None
        values["notes"] = tuple(values["notes"])
        values["encoder"] = EncoderInfo(**values["encoder"])
        values["data"] = DataInfo(**values["data"])
        return cls(**{item.name: values[item.name] for item in fields(cls) if item.name in values})


@dataclass(frozen=True)
class Evaluation:
    """All scores of one encoder."""

    encoder: EncoderInfo
    scores: tuple[TaskScore, ...] = ()

    def __getitem__(self, task: str) -> TaskScore:
        return {score.task: score for score in self.scores}[task]

    def averages(self) -> dict[str, float]:
        """Return the mean over each group whose tasks all have scores (``sts``: the papers' seven sets)."""
        values = {score.task: score.value for score in self.scores}
        return {
            group: math.fsum(values[name] for name in members) / len(members)
            for group, members in GROUPS.items()
            if len(members) > 1 and all(name in values for name in members)
        }

    def notes(self) -> list[str]:
        """Return what must be known about the scores, one line each."""
        return [f"{score.title}: {note}" for score in self.scores for note in score.notes]


class ScoreFolder:
    """A folder with ``scores.json`` (everything) and ``scores.csv`` (a line for each score).

    Several processes may add to it: each score is written as soon as it is computed, together with those that others have
    written meanwhile.
    """

    def __init__(self, folder: Path, command: str | None = None) -> None:
        self.folder, self._command = folder, command
        self.scores: list[TaskScore] = _read(folder / SCORES_FILE)
        self._seen = self._state()

    @contextmanager
    def announced(self, reporter: Reporter) -> Iterator[None]:
        """Announce to other processes that this one adds scores, and note which others do.

        Args:
            reporter: Gets the note.

        Yields:
            Nothing.

        Raises:
            SelfguideError: The folder cannot be made.
            FolderInUse: Another command is writing the folder.
        """
        others = [holder.describe() for holder in holders(inside(self.folder))]
        with owned_folder(self.folder, "scores"):
            if others:
                reporter.note(
                    f"{self.folder} is also being written by {' and '.join(others)}; the scores of both are kept."
                )
            if self.scores:
                try:
                    with self._alone():  # a process may have been killed between the two files
                        self._reread()
                        self._write_table()
                except OSError as error:
                    raise self._unwritable(error) from None
            yield

    def find(self, task: str, encoder: EncoderInfo, data_digest: str, protocol: dict[str, Any]) -> TaskScore | None:
        """Find the score of a former run with the same task, weights, rows and protocol; one of the same name comes first.

        Args:
            task: The name of the task.
            encoder: The encoder.
            data_digest: Digest of the task's rows.
            protocol: How the score is made.

        Returns:
            The score, or None where there is none.
        """
        if self._state() != self._seen:
            self._reread()
        key = (task, encoder.digest, data_digest, protocol)
        found = [score for score in self.scores if score.key == key]
        return next((score for score in found if score.encoder.name == encoder.name), found[0] if found else None)

    def add(self, score: TaskScore) -> TaskScore:
        """Add a score, in place of a former one with the same key and encoder's name, and write both files.

        Args:
            score: The score.

        Returns:
            The score with the command that made it.

        Raises:
            SelfguideError: They cannot be written.
        """
        score = replace(score, command=self._command)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._alone():
                self._reread()
                others = (former for former in self.scores if not _same_row(former, score))
                self.scores = [*others, score]
                content = json.dumps([kept.to_dict() for kept in self.scores], indent=1) + "\n"
                write_text(self.folder / SCORES_FILE, content)
                self._write_table()
                self._seen = self._state()
        except OSError as error:
            raise self._unwritable(error) from None
        return score

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with waited_for(beside(self.folder / SCORES_FILE)):
            for name in (SCORES_FILE, TABLE_FILE):
                remove_leftovers(self.folder / name)
            yield

    def _write_table(self) -> None:
        table, content = self.folder / TABLE_FILE, as_csv(self.scores)
        if not table.is_file() or table.read_text(encoding="utf-8") != content:
            write_text(table, content)

    def _reread(self) -> None:
        self._seen = self._state()
        self.scores = _read(self.folder / SCORES_FILE)

    def _state(self) -> tuple[int, int] | None:
        try:
            status = (self.folder / SCORES_FILE).stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino

    def _unwritable(self, error: OSError) -> SelfguideError:
        return SelfguideError(f"The scores cannot be written to {self.folder}: {error.strerror or error}.")


def as_csv(scores: Iterable[TaskScore]) -> str:
    """Return scores as CSV, one line each."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    names = ("encoder", "task", "metric", "value", "low", "high", "rows", "text", "data", "weights", "date", "notes")
    writer.writerow(names)
    for score in scores:
        numbers = ["" if math.isnan(score.value) else score.value, *(score.interval or ("", ""))]
        writer.writerow([
            csv_text(score.encoder.name), csv_text(score.task), score.metric,
            *(round(x, 4) if isinstance(x, float) else x for x in numbers),
            score.data.rows, score.data.text, score.data.digest, score.encoder.digest, score.date,
            csv_text(" | ".join(score.notes)),
        ])  # fmt: skip
    return target.getvalue()


def table(evaluations: Sequence[Evaluation]) -> tuple[list[str], list[list[float | None]]]:
    """Arrange the scores of several encoders as a table.

    Returns:
        The headings (task titles and group averages), and a row of values for each evaluation; None where there is no score.
    """
    titles: dict[str, str] = {}
    averages: dict[str, None] = {}
    for evaluation in evaluations:
        titles |= {score.task: score.title for score in evaluation.scores}
        averages |= dict.fromkeys(evaluation.averages())
    rows: list[list[float | None]] = []
    for evaluation in evaluations:
        values = {score.task: score.value for score in evaluation.scores}
        means = evaluation.averages()
        rows.append([*(values.get(name) for name in titles), *(means.get(group) for group in averages)])
    return [*titles.values(), *(f"{group} avg" for group in averages)], rows


def _read(path: Path) -> list[TaskScore]:
    if not path.exists():
        return []
    try:
        return [TaskScore.from_dict(values) for values in read_json(path)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SelfguideError(
            f"{path} is not a file of scores that can be read ({type(error).__name__}: {error}); move it away, or name "
            "another folder."
        ) from None


def _same_row(one: TaskScore, other: TaskScore) -> bool:
    """Return whether two scores share a row of the table; a copy of an encoder under another name has its own."""
    return (one.key, one.encoder.name) == (other.key, other.encoder.name)


def _plain(value: Any) -> Any:
    """Convert tuples, NumPy numbers and NaN to what JSON has."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
