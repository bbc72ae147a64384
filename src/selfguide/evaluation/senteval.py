"""Data folders as SentEval's download script leaves them: which files hold each task, and how they are laid out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from selfguide.errors import SelfguideError
from selfguide.evaluation.layouts import (
    RawRow,
    ReadPart,
    checked_rows,
    counted,
    numbered_lines,
    single_spaced,
    table_rows,
)
from selfguide.evaluation.tasks import Task

_ROOTS = ("", "downstream", "data/downstream", "SentEval/data/downstream")


def _file_per_class(positive: Path, negative: Path) -> Iterator[RawRow]:
    for label, path in (("1", positive), ("0", negative)):
        for where, line in numbered_lines(path, "latin-1"):
            yield RawRow(where, label, line)


def _columns(path: Path, value: int, first: int, second: int, header: bool = False) -> Iterator[RawRow]:
    """Read some columns of a wider table, whose rows do not all have the same number of columns."""
    needed = max(value, first, second) + 1
    lines = numbered_lines(path)
    if header:
        next(lines, None)
    for where, line in lines:
        cells = line.split("\t")
        if len(cells) < needed:
            raise SelfguideError(f"{where} has {counted(cells)}, where at least {needed} are wanted.")
        yield RawRow(where, cells[value], cells[first], cells[second])


def _text_and_label(path: Path) -> Iterator[RawRow]:
    for where, (text, label) in table_rows(path, 2, "text<TAB>label"):
        yield RawRow(where, label, text)


def _questions(path: Path) -> Iterator[RawRow]:
    for where, line in numbered_lines(path, "latin-1"):
        label, colon, rest = line.partition(":")
        if not colon:
            raise SelfguideError(f"{where} has no colon: every line must be CLASS:kind question.")
        yield RawRow(where, label, rest.partition(" ")[2])


def _sentences_and_grades(sentences: Path, grades: Path) -> Iterator[RawRow]:
    """Read sentences from one file and grades from another; an ungraded pair has a blank grade."""
    pairs, values = list(numbered_lines(sentences)), list(numbered_lines(grades))
    if len(pairs) != len(values):
        raise SelfguideError(
            f"{sentences} has {len(pairs):,} lines and {grades.name} beside it {len(values):,}: one of them is cut short."
        )
    for number, ((where, line), (_, value)) in enumerate(zip(pairs, values, strict=True), 1):
        if not value.strip():
            continue
        cells = line.split("\t")
        if len(cells) != 2:
            raise SelfguideError(f"{where} has {counted(cells)}: it must be sentence<TAB>sentence.")
        yield RawRow(f"{sentences} with {grades.name}, line {number}", value, *cells)


@dataclass(frozen=True)
class _Layout:
    """The files of a part of a task below SentEval's ``downstream``, and the function that reads them."""

    files: tuple[str, ...]
    """``{part}`` stands for the part's name."""
    read: Callable[..., Iterator[RawRow]]
    names: Mapping[str, str] = field(default_factory=dict)
    """Parts that SentEval calls otherwise."""


_STSB = partial(_columns, value=4, first=5, second=6)
_LAYOUTS: dict[str, _Layout] = {
    **{
        f"sts{year}": _Layout(
            tuple(f"STS/STS{year}-en-test/STS.{what}.{{part}}.txt" for what in ("input", "gs")), _sentences_and_grades
        )
        for year in (12, 13, 14, 15, 16)
    },
    "stsb": _Layout(("STS/STSBenchmark/sts-test.csv",), _STSB),
    "stsb-dev": _Layout(("STS/STSBenchmark/sts-dev.csv",), _STSB),
    "sickr": _Layout(("SICK/SICK_test_annotated.txt",), partial(_columns, value=3, first=1, second=2, header=True)),
    "mr": _Layout(("MR/rt-polarity.pos", "MR/rt-polarity.neg"), _file_per_class),
    "cr": _Layout(("CR/custrev.pos", "CR/custrev.neg"), _file_per_class),
    "subj": _Layout(("SUBJ/subj.objective", "SUBJ/subj.subjective"), _file_per_class),
    "mpqa": _Layout(("MPQA/mpqa.pos", "MPQA/mpqa.neg"), _file_per_class),
    "sst2": _Layout(("SST/binary/sentiment-{part}",), _text_and_label),
    "trec": _Layout(("TREC/{part}.label",), _questions, {"train": "train_5500", "test": "TREC_10"}),
    "mrpc": _Layout(("MRPC/msr_paraphrase_{part}.txt",), partial(_columns, value=0, first=3, second=4, header=True)),
}


def has_layout(task: Task) -> bool:
    """Return whether SentEval has the task."""
    return task.name in _LAYOUTS


def find_root(task: Task, folder: Path) -> Path | None:
    """Return SentEval's ``downstream`` folder at or below a folder, or None where it has no file of the task."""
    roots = (folder / root for root in _ROOTS)
    return next((root for root in roots if any(path.is_file() for path in _all_paths(task, root))), None)


def read_senteval(task: Task, root: Path) -> dict[str, ReadPart]:
    """Read the parts of a task that a SentEval download has.

    Args:
        task: The task.
        root: What :func:`find_root` returned.

    Returns:
        The parts by name.

    Raises:
        SelfguideError: A part lacks one of its two files, or a row is faulty.
    """
    read = {}
    for part in task.parts:
        paths = _paths(task, part.name, root)
        present = [path for path in paths if path.is_file()]
        if present and present != paths:
            missing = next(path for path in paths if path not in present)
            raise SelfguideError(
                f"{missing} is missing, without which {present[0].name} cannot be used: download it again."
            )
        if present:
            records = map(single_spaced, _LAYOUTS[task.name].read(*paths))
            read[part.name] = ReadPart(checked_rows(task, part.name, records), str(paths[0]))
    return read


def _paths(task: Task, part: str, root: Path) -> list[Path]:
    layout = _LAYOUTS[task.name]
    return [root / file.format(part=layout.names.get(part, part)) for file in layout.files]


def _all_paths(task: Task, root: Path) -> Iterator[Path]:
    for part in task.parts if has_layout(task) else ():
        yield from _paths(task, part.name, root)
