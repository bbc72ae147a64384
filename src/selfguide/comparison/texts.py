"""The text and the dev pairs of a comparison, from any kind of source.

Besides everything that `selfguide train` reads, ``data:stsb`` stands for all sentences of STS-B's train, dev and test part
without their grades (the papers' protocol), and ``data:TASK`` for the sentences of any other task of graded pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from selfguide.data import Sentences, TextOptions, open_text
from selfguide.errors import SelfguideError, UsageError
from selfguide.evaluation.data import data_folder, find_data, own_pairs
from selfguide.evaluation.rows import TaskData
from selfguide.evaluation.tasks import CORPORA, TASKS, Task, TextForm, tasks_named
from selfguide.progress import Reporter

TASK_PREFIX = "data:"
AnyText = str | Path | Iterable[str] | Iterable[Path] | Sentences


@dataclass(frozen=True)
class DatasetLocator:
    """Where to look for the rows of tasks, and whether incomplete ones are accepted; see :func:`selfguide.evaluate`."""

    data: str | Path | None = None
    text: TextForm = "raw"
    allow_partial: bool = False
    download: bool = True

    def rows(self, task: Task) -> TaskData:
        """Return the rows of a task."""
        return find_data(
            task,
            folder=data_folder(self.data),
            text=self.text,
            allow_partial=self.allow_partial,
            download=self.download,
        )


@dataclass(frozen=True)
class NamedText:
    """Sentences, and their names (files without folders, tasks) for records."""

    sentences: Sentences
    names: tuple[str, ...]


def named_text(text: AnyText | NamedText, locator: DatasetLocator, options: TextOptions) -> NamedText:
    """Open the text that a Python caller gave.

    Args:
        text: What :func:`selfguide.train` takes, ``"data:TASK"``, or text that has a name already.
        locator: Where to look for the task.
        options: How the text is read and cleaned.

    Returns:
        The text with its names.
    """
    if isinstance(text, NamedText):
        return text
    if isinstance(text, str) and text.startswith(TASK_PREFIX):
        return text_of_sources([text], locator, options)
    sentences = open_text(text, options)
    return NamedText(sentences, tuple(Path(name).name for name in sentences.summary.files))


def text_of_sources(sources: Sequence[str], locator: DatasetLocator, options: TextOptions) -> NamedText:
    """Open the text that the command line names: files and ``data:TASK`` in any order.

    Args:
        sources: The names.
        locator: Where to look for the tasks.
        options: How the text is read and cleaned.

    Returns:
        The text with its names, the sentences of tasks first.

    Raises:
        SelfguideError: A source cannot be found or read.
    """
    names = tuple(name if name.startswith((TASK_PREFIX, "hf:")) else Path(name).name for name in sources)
    of_tasks = [name for name in sources if name.startswith(TASK_PREFIX)]
    files = [name for name in sources if not name.startswith(TASK_PREFIX)]
    if not of_tasks:
        return NamedText(Sentences(files, options), names)
    sentences: Iterable[str] = [sentence for name in of_tasks for sentence in _task_sentences(name, locator)]
    if files:
        sentences = chain(sentences, Sentences(files, options))
        options = replace(options, column=None, field=None, delimiter=None, split_sentences=False)
    return NamedText(Sentences.from_strings(sentences, options), names)


def dev_rows(dev: str | Path | None, locator: DatasetLocator) -> TaskData | None:
    """Return the dev pairs.

    Args:
        dev: A file of graded pairs, the name of a task of graded pairs, or None.
        locator: Where to look for the task.

    Returns:
        The pairs, or None where none were given.

    Raises:
        UsageError: The task has no grades.
    """
    if dev is None:
        return None
    task = next((task for task in TASKS if task.name == str(dev)), None)
    if task is None or Path(dev).exists():
        return own_pairs(dev)
    if task.kind != "graded-pairs":
        raise UsageError(f"The dev pairs need grades, and {task.title} has none; stsb-dev would do.")
    return locator.rows(task)


def write_pairs(rows: TaskData, path: Path) -> Path:
    """Write rows as a file of graded pairs that a run can read; returns its path.

    Args:
        rows: Graded pairs.
        path: The file.

    Returns:
        The path.
    """
    with path.open("w", encoding="utf-8", newline="\n") as target:
        for part in rows.parts:
            for grade, *pair in zip(part.grades or [], part.first, part.second or [], strict=True):
                target.write("\t".join([repr(grade), *(" ".join(sentence.split()) for sentence in pair)]) + "\n")
    return path


def write_sentences(text: NamedText, path: Path, reporter: Reporter) -> None:
    """Clean the text once for all cells, and write it, one sentence a line.

    Args:
        text: The text; cleaning leaves no line breaks in a sentence.
        path: The file to write.
        reporter: Where the progress bar goes.

    Raises:
        SelfguideError: There are fewer than two sentences.
    """
    with (
        path.open("w", encoding="utf-8", newline="\n") as target,
        reporter.bar("reading", None, "sentences") as advance,
    ):
        for number, sentence in enumerate(text.sentences, 1):
            target.write(sentence + "\n")
            if number % 10_000 == 0:
                advance(10_000, "")
    for note in text.sentences.described():
        reporter.note(note)
    if text.sentences.summary.kept < 2:
        raise SelfguideError(
            f"There is too little to train on: {text.sentences.summary.describe()}. Name a text of at least two different "
            "sentences; tuning pays from a few hundred on."
        )


def read_sentences(path: Path) -> Sentences:
    """Return what :func:`write_sentences` wrote, without cleaning it a second time."""

    def lines() -> Iterator[str]:
        with path.open(encoding="utf-8", newline="\n") as source:
            for line in source:
                yield line[:-1]

    return Sentences.from_strings(lines(), TextOptions(keep_duplicates=True, keep_blank=True, max_chars=2**31))


def _task_sentences(source: str, locator: DatasetLocator) -> Iterator[str]:
    """Yield the sentences of tasks in the order of the rows; cleaning drops the repeats.

    Of a retrieval set these are the documents without the queries, of a few-shot set the training rows without the test rows.
    """
    for task in tasks_named(source.removeprefix(TASK_PREFIX)):
        if task.kind == "retrieval":
            found = locator.rows(task).retrieval
            yield from (document.full_text for document in (found.documents() if found else ()))
            continue
        if task.kind in ("few-shot", "clustering"):
            yield from locator.rows(task).parts[0].first
            continue
        if task.kind != "graded-pairs":
            raise UsageError(
                f"{source}: text can be taken from tasks of graded pairs and from retrieval, few-shot and clustering sets, "
                f"but {task.title} is not one of these."
            )
        for part in locator.rows(CORPORA.get(task.name, task)).parts:
            for pair in zip(part.first, part.second or [], strict=True):
                yield from pair
