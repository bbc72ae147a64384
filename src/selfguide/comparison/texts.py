"""The text that is compared on and the dev pairs, by whatever name they were given.

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
from selfguide.evaluation.rows import TaskData, TextForm
from selfguide.evaluation.tasks import TASKS, Part, Task
from selfguide.evaluation.tasks import tasks as named_tasks
from selfguide.progress import Reporter

OF_A_TASK = "data:"
AnyText = str | Path | Iterable[str] | Iterable[Path] | Sentences
_STSB = Task(
    "data:stsb",
    "STS-B (train, dev and test)",
    "graded-pairs",
    (Part("train", 5749), Part("dev", 1500), Part("test", 1379)),
    "sts/stsb/{part}.tsv",
)


@dataclass(frozen=True)
class DatasetLocator:
    """Where a task's rows may be looked for, and what will do."""

    data: str | Path | None = None
    text: TextForm = "raw"
    allow_partial: bool = False
    download: bool = True

    def rows(self, task: Task) -> TaskData:
        """The rows of a task."""
        return find_data(
            task,
            folder=data_folder(self.data),
            text=self.text,
            allow_partial=self.allow_partial,
            # No known copy on the hub is split as the papers' text is.
            download=self.download and task is not _STSB,
        )


@dataclass(frozen=True)
class NamedText:
    """Sentences, and what to call them in a record: names without folders."""

    sentences: Sentences
    names: tuple[str, ...]


def named_text(text: AnyText | NamedText, locator: DatasetLocator, options: TextOptions) -> NamedText:
    """What a Python caller gave, as text with a name."""
    if isinstance(text, NamedText):
        return text
    if isinstance(text, str) and text.startswith(OF_A_TASK):
        return text_of_sources([text], locator, options)
    sentences = open_text(text, options)
    return NamedText(sentences, tuple(Path(name).name for name in sentences.summary.files))


def text_of_sources(sources: Sequence[str], locator: DatasetLocator, options: TextOptions) -> NamedText:
    """What was named on the command line, files and tasks in any order."""
    names = tuple(name if name.startswith((OF_A_TASK, "hf:")) else Path(name).name for name in sources)
    of_tasks = [name for name in sources if name.startswith(OF_A_TASK)]
    files = [name for name in sources if not name.startswith(OF_A_TASK)]
    if not of_tasks:
        return NamedText(Sentences(files, options), names)
    wanted = [sentence for name in of_tasks for sentence in _sentences_of(name, locator)]
    if not files:
        return NamedText(Sentences.from_strings(wanted, options), names)
    others = Sentences(files, options)
    joined = chain(wanted, others)
    return NamedText(Sentences.from_strings(joined, replace(options, column=None, field=None)), names)


def dev_rows(dev: str | Path | None, locator: DatasetLocator) -> TaskData | None:
    """The dev pairs: a file, or the name of a task of graded pairs."""
    if dev is None:
        return None
    known = {task.name: task for task in TASKS}
    if str(dev) not in known or Path(dev).exists():
        return own_pairs(dev)
    task = known[str(dev)]
    if task.kind != "graded-pairs":
        raise UsageError(f"The dev pairs need grades, and {task.title} has none; stsb-dev would do.")
    return locator.rows(task)


def write_pairs(rows: TaskData, path: Path) -> Path:
    """Rows as a file that a run can read."""
    with path.open("w", encoding="utf-8", newline="\n") as target:
        for part in rows.parts:
            for grade, *pair in zip(part.grades or [], part.first, part.second or [], strict=True):
                target.write("\t".join([repr(grade), *(" ".join(sentence.split()) for sentence in pair)]) + "\n")
    return path


def write_sentences(text: NamedText, path: Path, reporter: Reporter) -> None:
    """Clean the text once for all cells; a sentence a line, since cleaning leaves no line breaks in one."""
    with (
        path.open("w", encoding="utf-8", newline="\n") as target,
        reporter.bar("reading", None, "sentences") as advance,
    ):
        for number, sentence in enumerate(text.sentences, 1):
            target.write(sentence + "\n")
            if number % 10_000 == 0:
                advance(10_000, "")
    if text.sentences.summary.kept < 2:
        raise SelfguideError(
            f"There is too little to train on: {text.sentences.summary.describe()}. Name a text of at least two different "
            "sentences; tuning pays from a few hundred on."
        )


def read_sentences(path: Path) -> Sentences:
    """What :func:`write_sentences` wrote, as it was: nothing is dropped or cut a second time."""

    def lines() -> Iterator[str]:
        with path.open(encoding="utf-8", newline="\n") as source:
            for line in source:
                yield line[:-1]

    return Sentences.from_strings(lines(), TextOptions(keep_duplicates=True, keep_blank=True, max_chars=2**31))


def _sentences_of(source: str, locator: DatasetLocator) -> Iterator[str]:
    """Both sentences of every pair in the order of the rows, repeats included: the cleaning drops those."""
    for task in named_tasks(source.removeprefix(OF_A_TASK)):
        if task.kind != "graded-pairs":
            raise UsageError(f"{source}: text can be taken from tasks of graded pairs, and {task.title} is none.")
        rows = locator.rows(_STSB if task.name == "stsb" else task)
        for part in rows.parts:
            for pair in zip(part.first, part.second or [], strict=True):
                yield from pair
