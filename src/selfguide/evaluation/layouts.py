"""Data folders: our own layout and the one that SentEval's download script leaves behind, read into checked rows.

Whatever rows come from, a folder or the hub, :func:`checked_rows` looks at each of them, so that a faulty one is named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from selfguide.data.messages import shortened
from selfguide.data.pairs import read_pairs
from selfguide.data.sources import byte_source, require_file
from selfguide.data.streams import TextLines
from selfguide.errors import SelfguideError
from selfguide.evaluation.rows import Rows, TextForm
from selfguide.evaluation.tasks import Task

_TREC = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
_BINARY = ("0", "1")


class Record(NamedTuple):
    """A row before it is checked: where it stands, its grade or label, its sentences."""

    where: str
    value: object
    first: str
    second: str | None = None


@dataclass(frozen=True)
class ReadPart:
    """A part's rows and what a message may call their source."""

    rows: Rows
    name: str


# -- what every row is checked for -------------------------------------------------------------------------------------


def checked_rows(task: Task, part: str, records: Iterable[Record]) -> Rows:
    """Rows of one part: grades in the task's range and no empty sentence, or labels of the task's classes."""
    kept = list(records)
    first = [record.first for record in kept]
    second = [record.second or "" for record in kept] if task.kind != "classification" else None
    if task.kind in ("graded-pairs", "binary-pairs"):
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


def _grade(task: Task, record: Record) -> float:
    try:
        grade = float(str(record.value).replace("_", "?"))  # Python takes 1_0 for ten, and nobody writes a grade so
    except ValueError:
        grade = math.nan
    if not math.isfinite(grade):
        raise SelfguideError(f"{record.where} has the grade {shortened(record.value)}, which is no finite number.")
    if not task.low <= grade <= task.high:
        raise SelfguideError(
            f"{record.where} has the grade {grade:g}, where {task.title} has {task.low:g} to {task.high:g}: "
            "is it another scale or another file?"
        )
    return grade


def _label(task: Task, record: Record) -> str:
    classes = _TREC if task.name == "trec" else _BINARY
    label = str(record.value).strip()
    if label not in classes:
        raise SelfguideError(
            f"{record.where} has the label {shortened(label)}, where {task.title} has {', '.join(classes)}."
        )
    return label


# -- our own layout ----------------------------------------------------------------------------------------------------


def one_version(task: Task) -> bool:
    """Whether the task's text exists in one form only, so that raw and senteval are the same."""
    return task.name == "sst2" or not task.where.startswith(("sts/", "transfer/"))


def place(task: Task, part: str, text: TextForm) -> str:
    """Where a data folder keeps this part, relative to it."""
    where = task.where.format(part=part)
    if text == "senteval" and not one_version(task):
        top, _, rest = where.partition("/")
        return f"{top}_senteval/{rest}"
    return where


def place_of(task: Task, part: str, folder: Path, text: TextForm) -> Path | None:
    """The file of a part, plain or gzipped, if the folder has it."""
    path = folder / place(task, part, text)
    return next((there for there in (path, path.with_name(path.name + ".gz")) if there.is_file()), None)


def columns(task: Task) -> str:
    """The layout of a line of our files, for messages."""
    if task.kind == "classification":
        return "label<TAB>text"
    return f"{'label' if task.kind == 'pair-classification' else 'score'}<TAB>sentence<TAB>sentence"


def read_own_layout(task: Task, folder: Path, text: TextForm) -> dict[str, ReadPart]:
    """The parts that the folder has, by name; none if it has no file of the task."""
    read = {}
    for part in task.parts:
        if (path := place_of(task, part.name, folder, text)) is not None:
            records: Iterable[Record] = _own_records(task, path)
            if text == "senteval" and not one_version(task):
                records = map(_joined, records)
            read[part.name] = ReadPart(checked_rows(task, part.name, records), str(path))
    return read


def _own_records(task: Task, path: Path) -> Iterator[Record]:
    if task.kind in ("graded-pairs", "binary-pairs"):
        pairs = read_pairs(path)  # which allows no blank line between rows, so that rows can be counted for lines
        for number, (score, first, second) in enumerate(zip(pairs.scores, pairs.first, pairs.second, strict=True), 1):
            yield Record(f"{path}, line {number}", score, first, second)
        return
    for where, cells in _table(path, 2 if task.kind == "classification" else 3, columns(task)):
        yield Record(where, *cells)


def _joined(record: Record) -> Record:
    """As SentEval hands sentences on: split at white space and joined by one blank, whoever wrote the file."""
    first, second = " ".join(record.first.split()), record.second
    return record._replace(first=first, second=None if second is None else " ".join(second.split()))


def _table(path: Path, width: int, layout: str) -> Iterator[tuple[str, list[str]]]:
    """Tab-separated cells of every line; blank lines are allowed at the end only."""
    blank = ""
    for where, line in _lines(path):
        if not line:
            blank = blank or where
            continue
        if blank:
            raise SelfguideError(f"{blank} is blank: every line must be {layout}.")
        cells = line.split("\t")
        if len(cells) != width:
            raise SelfguideError(f"{where} has {_counted(cells)}: every line must be {layout}.")
        yield where, cells


def _counted(cells: list[str]) -> str:
    return f"{len(cells)} column{'s' if len(cells) > 1 else ''} (tab-separated)"


def _lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[str, str]]:
    """Lines with their place, whatever the line ends."""
    if encoding == "utf-8":
        lines: Iterable[str] = TextLines(byte_source(require_file(path)))
    else:
        # Every byte is a character in Latin-1, so that nothing can go wrong here.
        lines = require_file(path).read_bytes().decode(encoding).removesuffix("\n").split("\n")
    for number, line in enumerate(lines, 1):
        yield f"{path}, line {number}", line.removesuffix("\r")


# -- SentEval's layout -------------------------------------------------------------------------------------------------

_ROOTS = ("", "downstream", "data/downstream", "SentEval/data/downstream")
_BY_CLASS = {  # SentEval puts the class called 1 first
    "mr": (("1", "MR/rt-polarity.pos"), ("0", "MR/rt-polarity.neg")),
    "cr": (("1", "CR/custrev.pos"), ("0", "CR/custrev.neg")),
    "subj": (("1", "SUBJ/subj.objective"), ("0", "SUBJ/subj.subjective")),
    "mpqa": (("1", "MPQA/mpqa.pos"), ("0", "MPQA/mpqa.neg")),
}
_ONE_FILE = {
    "stsb": "STS/STSBenchmark/sts-test.csv",
    "stsb-dev": "STS/STSBenchmark/sts-dev.csv",
    "sickr": "SICK/SICK_test_annotated.txt",
}


def senteval_files(task: Task, part: str) -> tuple[str, ...]:
    """The files of a part below SentEval's ``downstream``; none where SentEval does not have the task."""
    if task.name in ("sts12", "sts13", "sts14", "sts15", "sts16"):
        return tuple(f"STS/{task.title}-en-test/STS.{what}.{part}.txt" for what in ("input", "gs"))
    if task.name in _BY_CLASS:
        return tuple(name for _, name in _BY_CLASS[task.name])
    if task.name in _ONE_FILE:
        return (_ONE_FILE[task.name],)
    if task.name == "sst2":
        return (f"SST/binary/sentiment-{part}",)
    if task.name == "trec":
        return ("TREC/train_5500.label" if part == "train" else "TREC/TREC_10.label",)
    if task.name == "mrpc":
        return (f"MRPC/msr_paraphrase_{part}.txt",)
    return ()


def senteval_root(task: Task, folder: Path) -> Path | None:
    """SentEval's ``downstream`` folder in or above which the user pointed, if it has any file of the task."""
    files = [name for part in task.parts for name in senteval_files(task, part.name)]
    roots = (folder / root for root in _ROOTS)
    return next((root for root in roots if any((root / name).is_file() for name in files)), None)


def read_senteval(task: Task, root: Path) -> dict[str, ReadPart]:
    """The parts that a SentEval download has; a part with one of its two files missing is an error."""
    read = {}
    for part in task.parts:
        paths = [root / name for name in senteval_files(task, part.name)]
        there = [path for path in paths if path.is_file()]
        if there and there != paths:
            missing = next(path for path in paths if path not in there)
            raise SelfguideError(
                f"{missing} is missing, without which {there[0].name} is of no use: download it again."
            )
        if there:
            records = map(_joined, _senteval_records(task, paths))
            read[part.name] = ReadPart(checked_rows(task, part.name, records), str(paths[0]))
    return read


def _senteval_records(task: Task, paths: list[Path]) -> Iterator[Record]:
    if task.name in _BY_CLASS:
        for path, (label, _) in zip(paths, _BY_CLASS[task.name], strict=True):
            for where, line in _lines(path, "latin-1"):
                yield Record(where, label, line)
    elif task.name in ("stsb", "stsb-dev"):
        yield from _cells(paths[0], value=4, first=5, second=6)
    elif task.name == "sickr":
        yield from _cells(paths[0], value=3, first=1, second=2, header=True)
    elif task.name == "mrpc":
        yield from _cells(paths[0], value=0, first=3, second=4, header=True)
    elif task.name == "sst2":
        for where, (text, label) in _table(paths[0], 2, "text<TAB>label"):
            yield Record(where, label, text)
    elif task.name == "trec":
        for where, line in _lines(paths[0], "latin-1"):
            label, colon, rest = line.partition(":")
            if not colon:
                raise SelfguideError(f"{where} has no colon: every line must be CLASS:kind question.")
            yield Record(where, label, rest.partition(" ")[2])
    else:
        yield from _graded_apart(*paths)


def _cells(path: Path, value: int, first: int, second: int, header: bool = False) -> Iterator[Record]:
    """Some columns of a wider table: SentEval's files have more, and not always the same number of them."""
    wanted = max(value, first, second) + 1
    lines = _lines(path)
    if header:
        next(lines, None)
    for where, line in lines:
        cells = line.split("\t")
        if len(cells) < wanted:
            raise SelfguideError(f"{where} has {_counted(cells)}, where at least {wanted} are wanted.")
        yield Record(where, cells[value], cells[first], cells[second])


def _graded_apart(sentences: Path, grades: Path) -> Iterator[Record]:
    """STS12-16: sentences in one file, grades in another, a blank grade where nobody graded the pair."""
    pairs, values = list(_lines(sentences)), list(_lines(grades))
    if len(pairs) != len(values):
        raise SelfguideError(
            f"{sentences} has {len(pairs):,} lines and {grades.name} beside it {len(values):,}: one of them is cut short."
        )
    for number, ((where, line), (_, value)) in enumerate(zip(pairs, values, strict=True), 1):
        if not value.strip():
            continue
        cells = line.split("\t")
        if len(cells) != 2:
            raise SelfguideError(f"{where} has {_counted(cells)}: it must be sentence<TAB>sentence.")
        yield Record(f"{sentences} with {grades.name}, line {number}", value, *cells)
