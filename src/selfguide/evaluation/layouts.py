"""Data folders in our own layout, and the checks of every row, from any source."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from selfguide.data.lines import TextLines
from selfguide.data.messages import shortened
from selfguide.data.pairs import read_pairs
from selfguide.data.sources import byte_source, require_file
from selfguide.errors import SelfguideError
from selfguide.evaluation.rows import Rows
from selfguide.evaluation.tasks import Task, TextForm

_PAIRS = ("graded-pairs", "binary-pairs", "pair-classification")


class RawRow(NamedTuple):
    """A row before it is checked."""

    where: str
    """File and line, for error messages."""
    value: object
    """The grade or label."""
    first: str
    second: str | None = None


@dataclass(frozen=True)
class ReadPart:
    """The rows of one part, and the name of their source in messages."""

    rows: Rows
    name: str


def checked_rows(task: Task, part: str, records: Iterable[RawRow]) -> Rows:
    """Check the rows of one part.

    Args:
        task: What the rows must look like: the range of its grades, or its classes.
        part: The name of the part.
        records: The rows as they were read.

    Returns:
        The rows, with grades as numbers.

    Raises:
        SelfguideError: A grade or label does not belong to the task, a sentence of a pair is empty, or all labels are equal.
    """
    kept = list(records)
    first = [record.first for record in kept]
    second = [record.second or "" for record in kept] if task.kind in _PAIRS else None
    if not task.has_labels:
        for record in kept:
            if not (record.first.strip() and (record.second or "").strip()):
                raise SelfguideError(f"{record.where} has an empty sentence, which has no similarity to anything.")
        return Rows(part, first, second, grades=[_grade(task, record) for record in kept])
    # Empty texts stay in: a few rows of CR and MPQA are empty in every copy, and the papers' counts include them.
    labels = [_label(task, record) for record in kept]
    if len(set(labels)) < 2:
        where = kept[0].where.rpartition(", ")[0] if kept else f"{task.title} {part}"
        raise SelfguideError(f"{where} has rows of one class only, where at least two are needed: is it cut short?")
    return Rows(part, first, second, labels=labels)


def _grade(task: Task, record: RawRow) -> float:
    try:
        grade = float(str(record.value).replace("_", "?"))  # Python would read 1_0 as ten
    except ValueError:
        grade = math.nan
    if not math.isfinite(grade):
        raise SelfguideError(f"{record.where} has the grade {shortened(record.value)}, which is not a finite number.")
    if not task.low <= grade <= task.high:
        raise SelfguideError(
            f"{record.where} has the grade {grade:g}, where {task.title} has {task.low:g} to {task.high:g}: "
            "is it another scale or another file?"
        )
    return grade


def _label(task: Task, record: RawRow) -> str:
    label = str(record.value).strip()
    if not label:
        raise SelfguideError(f"{record.where} has an empty label: every line must be {columns(task)}.")
    if task.classes and label not in task.classes:
        raise SelfguideError(
            f"{record.where} has the label {shortened(label)}, where {task.title} has {', '.join(task.classes)}."
        )
    return label


def relative_path(task: Task, part: str, text: TextForm) -> str:
    """Return where a data folder keeps a part of a task, relative to the folder."""
    path = task.path.format(part=part)
    if text == "senteval" and text in task.forms:
        top, _, rest = path.partition("/")
        return f"{top}_senteval/{rest}"
    return path


def find_file(task: Task, part: str, folder: Path, text: TextForm) -> Path | None:
    """Return the file of a part in a data folder, plain or gzipped, or None where there is none."""
    path = folder / relative_path(task, part, text)
    return next((file for file in (path, path.with_name(path.name + ".gz")) if file.is_file()), None)


def columns(task: Task) -> str:
    """Return the columns of our files of a task, for messages."""
    if task.kind not in _PAIRS:
        return "label<TAB>text"
    return f"{'label' if task.has_labels else 'score'}<TAB>sentence<TAB>sentence"


def read_own_layout(task: Task, folder: Path, text: TextForm) -> dict[str, ReadPart]:
    """Read the parts of a task that a data folder in our layout has.

    Returns:
        The parts by name; empty where the folder has no file of the task.
    """
    read = {}
    for part in task.parts:
        if (path := find_file(task, part.name, folder, text)) is not None:
            records: Iterable[RawRow] = _own_rows(task, path)
            if text == "senteval" and text in task.forms:
                records = map(single_spaced, records)
            read[part.name] = ReadPart(checked_rows(task, part.name, records), str(path))
    return read


def _own_rows(task: Task, path: Path) -> Iterator[RawRow]:
    if task.has_labels:
        for where, cells in table_rows(path, 3 if task.kind in _PAIRS else 2, columns(task)):
            yield RawRow(where, *cells)
    else:
        yield from pair_rows(path, str(path))


def pair_rows(path: Path, name: str) -> Iterator[RawRow]:
    """Yield the rows of a file of graded pairs, under the name that messages give the file."""
    pairs = read_pairs(path)
    # The reader allows no blank line between rows, so that the number of a row is the number of its line.
    for number, row in enumerate(zip(pairs.scores, pairs.first, pairs.second, strict=True), 1):
        yield RawRow(f"{name}, line {number}", *row)


def single_spaced(record: RawRow) -> RawRow:
    """Return a row with its text split at white space and joined by single blanks, as SentEval passes sentences on."""
    first, second = " ".join(record.first.split()), record.second
    return record._replace(first=first, second=None if second is None else " ".join(second.split()))


def table_rows(path: Path, width: int, layout: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the place and the tab-separated cells of every line; blank lines are allowed only at the end.

    Args:
        path: The file.
        width: The number of columns.
        layout: What a line must look like, for messages.

    Raises:
        SelfguideError: A line has another number of columns, or a line before the last one is blank.
    """
    blank = ""
    for where, line in numbered_lines(path):
        if not line:
            blank = blank or where
            continue
        if blank:
            raise SelfguideError(f"{blank} is blank: every line must be {layout}.")
        cells = line.split("\t")
        if len(cells) != width:
            raise SelfguideError(f"{where} has {counted(cells)}: every line must be {layout}.")
        yield where, cells


def counted(cells: list[str]) -> str:
    """Return the number of columns, for messages."""
    return f"{len(cells)} column{'s' if len(cells) > 1 else ''} (tab-separated)"


def numbered_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[str, str]]:
    """Yield the place (file and line number) and the text of every line, with any line ending."""
    if encoding == "utf-8":
        lines: Iterable[str] = TextLines(byte_source(require_file(path)))
    else:
        lines = require_file(path).read_bytes().decode(encoding).removesuffix("\n").split("\n")
    for number, line in enumerate(lines, 1):
        yield f"{path}, line {number}", line.removesuffix("\r")
