"""Scores with everything that is needed to trust them, and the folder that keeps them between runs."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from selfguide.errors import SelfguideError
from selfguide.evaluation.embedder import EncoderInfo
from selfguide.evaluation.tasks import GROUPS
from selfguide.files import write_text

SCORES_FILE = "scores.json"
TABLE_FILE = "scores.csv"


@dataclass(frozen=True)
class DataInfo:
    """Which rows were scored."""

    source: str
    digest: str
    rows: int
    text: str


@dataclass(frozen=True)
class TaskScore:
    """One encoder on one task."""

    task: str
    title: str
    metric: str
    value: float
    """The main metric × 100; NaN where it has none, and then a note says why."""
    interval: tuple[float, float] | None
    details: dict[str, Any]
    notes: tuple[str, ...]
    encoder: EncoderInfo
    data: DataInfo
    protocol: dict[str, Any]
    versions: dict[str, str]
    date: str
    seconds: float

    def is_of(self, task: str, encoder: EncoderInfo, data_digest: str, protocol: dict[str, Any]) -> bool:
        """Whether this is the score that such a run would give: same task and rows, same weights, same protocol."""
        return (self.task, self.encoder.digest, self.data.digest, self.protocol) == (
            task,
            encoder.digest,
            data_digest,
            protocol,
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain values; what is not a number is null."""
        return _plain(asdict(self))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TaskScore:
        """Back from :meth:`to_dict`."""
        values = dict(values)
        values["value"] = math.nan if values["value"] is None else values["value"]
        values["interval"] = tuple(values["interval"]) if values["interval"] else None
        values["notes"] = tuple(values["notes"])
        values["encoder"] = EncoderInfo(**values["encoder"])
        values["data"] = DataInfo(**values["data"])
        return cls(**{item.name: values[item.name] for item in fields(cls)})


@dataclass(frozen=True)
class Evaluation:
    """All scores of one encoder."""

    encoder: EncoderInfo
    scores: tuple[TaskScore, ...] = field(default_factory=tuple)

    def __getitem__(self, task: str) -> TaskScore:
        for score in self.scores:
            if score.task == task:
                return score
        raise KeyError(task)

    def averages(self) -> dict[str, float]:
        """The mean over each group of tasks that is here in full (``sts``: the papers' seven sets)."""
        values = {score.task: score.value for score in self.scores}
        return {
            group: math.fsum(values[name] for name in members) / len(members)
            for group, members in GROUPS.items()
            if len(members) > 1 and all(name in values for name in members)
        }

    def notes(self) -> list[str]:
        """What must be known about the scores, a line each."""
        return [f"{score.title}: {note}" for score in self.scores for note in score.notes]


class ScoreFolder:
    """A folder with ``scores.json`` (everything) and ``scores.csv`` (a line for each score), rewritten after every task."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scores: list[TaskScore] = _read(folder / SCORES_FILE)

    def find(self, task: str, encoder: EncoderInfo, data_digest: str, protocol: dict[str, Any]) -> TaskScore | None:
        """The score of a former run that would come out again."""
        return next((score for score in self.scores if score.is_of(task, encoder, data_digest, protocol)), None)

    def add(self, score: TaskScore) -> None:
        """Keep a score, in place of a former one of the same kind, and write the files."""
        self.scores = [
            kept for kept in self.scores if not kept.is_of(score.task, score.encoder, score.data.digest, score.protocol)
        ]
        self.scores.append(score)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_text(self.folder / SCORES_FILE, json.dumps([kept.to_dict() for kept in self.scores], indent=1) + "\n")
            write_text(self.folder / TABLE_FILE, as_csv(self.scores))
        except OSError as error:
            raise SelfguideError(f"The scores cannot be written to {self.folder}: {error.strerror or error}.") from None


def as_csv(scores: Iterable[TaskScore]) -> str:
    """A line for each score."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    names = ("encoder", "task", "metric", "value", "low", "high", "rows", "text", "data", "weights", "date", "notes")
    writer.writerow(names)
    for score in scores:
        low, high = score.interval or ("", "")
        writer.writerow([
            score.encoder.name, score.task, score.metric, "" if math.isnan(score.value) else round(score.value, 4),
            _rounded(low), _rounded(high), score.data.rows, score.data.text, score.data.digest, score.encoder.digest,
            score.date, " | ".join(score.notes),
        ])  # fmt: skip
    return target.getvalue()


def table(evaluations: Sequence[Evaluation]) -> tuple[list[str], list[list[float | None]]]:
    """Headings (task titles and group averages) and a row of values for each evaluation; None where there is no score."""
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
        return [TaskScore.from_dict(values) for values in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SelfguideError(
            f"{path} is not a file of scores that can be read ({type(error).__name__}: {error}); move it away, or name "
            "another folder."
        ) from None


def _plain(value: Any) -> Any:
    """JSON has no NaN and no numpy."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _rounded(value: float | str) -> float | str:
    return value if isinstance(value, str) else round(value, 4)
