"""Where a task's rows come from: the package, a data folder in our layout or SentEval's, or the Hugging Face hub.

The papers' numbers are for all rows of a task. A file with fewer is refused unless the caller allows it, and then the notes of
the result say so; a file with more is another dataset and always refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from selfguide.data.lines import COMPRESSIONS
from selfguide.data.pairs import read_pairs
from selfguide.data.resources import demo_file
from selfguide.errors import SelfguideError
from selfguide.evaluation.completeness import ALLOW_PARTIAL, count_notes
from selfguide.evaluation.hub import COPIES, HubCopy, read_copy
from selfguide.evaluation.layouts import (
    ReadPart,
    checked_rows,
    columns,
    find_file,
    pair_rows,
    read_own_layout,
    relative_path,
)
from selfguide.evaluation.retrieval_sets import is_retrieval_folder, read_retrieval
from selfguide.evaluation.rows import Rows, TaskData
from selfguide.evaluation.senteval import find_root, has_layout, read_senteval
from selfguide.evaluation.tasks import GROUPS, RETRIEVAL, TASKS, Kind, Part, Task, TextForm
from selfguide.progress import Reporter

VARIABLE = "SELFGUIDE_DATA"
_FORMS: dict[TextForm, str] = {"raw": "as released", "senteval": "as SentEval tokenises it"}
_NAME_A_FOLDER = f"name the folder with --data (in Python data=) or the environment variable {VARIABLE}"


def data_folder(given: str | Path | None) -> Path | None:
    """Return the data folder.

    Args:
        given: The folder; None for the one that the environment variable ``SELFGUIDE_DATA`` names.

    Returns:
        The folder, or None where neither names one.

    Raises:
        SelfguideError: It does not exist or is not a folder.
    """
    named = given if given is not None else os.environ.get(VARIABLE) or None
    if named is None:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        who, way_out = "given as the data folder", "check the path"
        if given is None:
            who, way_out = f"which the environment variable {VARIABLE} names", "correct the variable or unset it"
        raise SelfguideError(
            f"{folder}, {who}, {'is not a folder' if folder.exists() else 'does not exist'}: {way_out}."
        )
    return folder


def find_data(
    task: Task,
    *,
    folder: Path | None,
    text: TextForm = "raw",
    allow_partial: bool = False,
    download: bool = True,
    reporter: Reporter | None = None,
) -> TaskData:
    """Read the rows of a task from the first source that has them, and check that they are complete.

    Args:
        task: The task.
        folder: The data folder, if there is one.
        text: The form of the text.
        allow_partial: Accept missing rows, with a note.
        download: Whether to look on the Hugging Face hub for what the folder does not have.
        reporter: Shows progress while a corpus is read.

    Returns:
        The rows and where they come from.

    Raises:
        SelfguideError: No source has the task, or what it has is incomplete or faulty.
    """
    search = _Search(task, text, allow_partial)
    if not task.path:
        return search.found(_demo(task), "package", text)
    if folder is not None and task.kind == "retrieval" and (found := _retrieval_folder(task, folder)):
        return _retrieval_data(task, found, allow_partial, reporter or Reporter(quiet=True))
    if folder is not None and (data := _in_folder(search, folder)):
        return data
    tried = [] if folder is None else [f"The data folder {folder} does not have it."]
    faults = []
    for copy in COPIES.get(task.name, ()) if download else ():
        try:
            return _on_hub(search, copy)
        except SelfguideError as error:
            faults.append(str(error).rstrip("."))
    if faults:
        tried.append(f"The Hugging Face hub was tried: {'; '.join(dict.fromkeys(faults))}.")
    raise SelfguideError(_missing(task, text, tried, download))


def retrieval_tasks(folder: Path) -> tuple[Task, ...]:
    """Return the retrieval sets that a data folder has: below ``retrieval/`` or below itself, or the folder is one.

    Those that the package declares come first; the others are named after their folders.
    """
    found: dict[str, Task] = {}
    for path in (folder, *sorted(folder.glob("*")), *sorted((folder / RETRIEVAL).glob("*"))):
        name = path.resolve().name
        if name not in found and path.is_dir() and is_retrieval_folder(path):
            parts = (Part("corpus"), Part("queries"), Part("qrels"))
            place = path.relative_to(folder).as_posix()
            found[name] = Task(name, name, "retrieval", parts, place, language="unknown", forms=("raw",))
    known = [task for task in TASKS if task.name in GROUPS[RETRIEVAL] and task.name in found]
    return (*known, *(task for name, task in found.items() if name not in GROUPS[RETRIEVAL]))


def _retrieval_folder(task: Task, folder: Path) -> Path | None:
    """Return the folder of a retrieval set: at its place, or as BEIR's archives are unpacked, or the data folder itself."""
    paths = [folder / task.path, folder / task.name, *([folder] if folder.resolve().name == task.name else [])]
    return next((path for path in paths if is_retrieval_folder(path)), None)


def _retrieval_data(task: Task, folder: Path, allow_partial: bool, reporter: Reporter) -> TaskData:
    with reporter.bar(f"reading {task.title}", None, "documents") as advance:
        read = read_retrieval(folder, lambda count: advance(count, ""))
    notes = []
    for part in task.parts:
        name = f"{folder} ({part.name})"
        title = f"{task.title} ({part.name})"
        notes += count_notes(part, read.counts[part.name], name, title, allow_partial=allow_partial)
    queries = Rows("queries", [query.text for query in read.retrieval.queries])
    return TaskData(task, (queries,), "folder", read.digest, "raw", tuple(notes), read.retrieval)


def own_pairs(path: str | Path) -> TaskData:
    """Read a user's own file of ``score<TAB>sentence<TAB>sentence`` as a task.

    Args:
        path: The file, which names the task. Pairs whose scores are all 0 or 1 are taken as binary.

    Returns:
        The rows.

    Raises:
        SelfguideError: The file cannot be read, or all its scores are equal.
    """
    pairs = read_pairs(path)
    low, high = min(pairs.scores), max(pairs.scores)
    if low == high:
        raise SelfguideError(
            f"{path} has the grade {low:g} on every line, and nothing can be correlated with a constant: "
            "pass pairs of different grades."
        )
    kind: Kind = "binary-pairs" if set(pairs.scores) == {0.0, 1.0} else "graded-pairs"
    name = Path(path).name
    name = Path(name.removesuffix(suffix) if (suffix := Path(name).suffix) in COMPRESSIONS else name).stem
    task = Task(name, name, kind, (Part("all"),), "", low, high, language="unknown")
    rows = Rows("all", pairs.first, pairs.second, grades=pairs.scores)
    return TaskData(task, (rows,), "file", digest_of([rows]))


def digest_of(parts: Iterable[Rows]) -> str:
    """Return 16 hexadecimal digits that depend on every part, row, grade and label, and on nothing else."""
    digest = hashlib.sha256()
    for rows in parts:
        digest.update(json.dumps([rows.part, len(rows)]).encode())
        empty = [None] * len(rows)
        for row in zip(rows.first, rows.second or empty, rows.grades or empty, rows.labels or empty, strict=True):
            digest.update(json.dumps(row).encode() + b"\n")
    return digest.hexdigest()[:16]


def _demo(task: Task) -> dict[str, ReadPart]:
    paths = {part.name: demo_file(f"pairs-{part.name}.tsv") for part in task.parts}
    return {
        part: ReadPart(checked_rows(task, part, pair_rows(path, path.name)), path.name) for part, path in paths.items()
    }


def _in_folder(search: _Search, folder: Path) -> TaskData | None:
    task, text = search.task, search.text
    if read := read_own_layout(task, folder, text):
        return search.found(read, "folder", text)
    root = find_root(task, folder)
    if root is not None and (text == "senteval" or len(task.forms) == 1):
        return search.found(read_senteval(task, root), "folder", text)
    # The same task in the other form of text is no substitute, and fetching it from elsewhere would be a surprise.
    other: TextForm = "senteval" if text == "raw" else "raw"
    part = task.parts[0].name
    if root is not None or find_file(task, part, folder, other) is not None:
        raise SelfguideError(
            f"{root or folder} holds {task.title} {_FORMS[other]}, not {_FORMS[text]}: pass --text {other} "
            f'(in Python text="{other}"), or put the other form at {relative_path(task, part, text)} in the data folder.'
        )
    return None


def _on_hub(search: _Search, copy: HubCopy) -> TaskData:
    notes = [f"hf:{copy.name}: {copy.note}."] if copy.note else []
    text = search.text if len(search.task.forms) == 1 else copy.text
    if text != search.text:
        notes.append(
            f"hf:{copy.name} holds its text {_FORMS[text]} only: scored so, though {search.text} was asked for."
        )
    return search.found(read_copy(search.task, copy), f"hf:{copy.name}", text, notes)


@dataclass(frozen=True)
class _Search:
    """The rows that were asked for, and the checks of those that were found."""

    task: Task
    text: TextForm
    allow_partial: bool

    def found(self, read: dict[str, ReadPart], source: str, text: TextForm, notes: Iterable[str] = ()) -> TaskData:
        """Return the rows as the task's data, once they are known to be complete."""
        notes = list(notes)
        joined = "all" in read and "all" not in {part.name for part in self.task.parts}
        expected = (Part("all", self.task.rows),) if joined else self.task.parts
        for part in expected:
            notes += self._completeness(part, read)
        parts = tuple(read[part.name].rows for part in expected if part.name in read)
        if len(self.task.forms) == 1 and self.text == "senteval":
            notes.append(f"{self.task.title} has one form of text only: raw and senteval are the same.")
        empty = sum(not sentence.strip() for rows in parts for sentence in rows.sentences())
        if empty:
            notes.append(f"{empty} texts are empty; they are kept, as SentEval counts them.")
        return TaskData(self.task, parts, source, digest_of(parts), text, tuple(notes))

    def _completeness(self, part: Part, read: dict[str, ReadPart]) -> list[str]:
        """Return the notes on what is missing of a part, where that is allowed."""
        if part.name not in read:
            return [self._without(part)]
        title = self.task.title if part.rows == self.task.rows else f"{self.task.title} {part.name}"
        found = read[part.name]
        return count_notes(part, len(found.rows), found.name, title, allow_partial=self.allow_partial)

    def _without(self, part: Part) -> str:
        path = relative_path(self.task, part.name, self.text)
        missing = f"{self.task.title} is there without its part {part.name}"
        if self.task.splits not in ("none", "folds"):
            raise SelfguideError(f"{missing}, and cannot be scored without: put it at {path}.")
        if not self.allow_partial:
            raise SelfguideError(f"{missing}: put it at {path} in the data folder, or {ALLOW_PARTIAL}.")
        return f"Partial: the subset {part.name} of {self.task.title} is missing, not to be compared with published numbers."


def _missing(task: Task, text: TextForm, tried: list[str], download: bool) -> str:
    if task.kind == "retrieval":
        place = f"{task.path}/corpus.tsv (id<TAB>text), queries.tsv (id<TAB>text) and qrels.tsv (query<TAB>document<TAB>grade)"
        return " ".join((
            f"There is no data for {task.title} ({task.name}).",
            *tried,
            f"Put {place}, or BEIR's folder of that name, into a data folder and {_NAME_A_FOLDER}.",
        ))  # fmt: skip
    paths = " and ".join(relative_path(task, part.name, text) for part in task.parts)
    sentences = [f"There is no data for {task.title} ({task.name}).", *tried]
    if download and task.name not in COPIES:
        sentences.append("No complete copy of it is known on the Hugging Face hub.")
    if not download:
        sentences.append("The Hugging Face hub was not asked.")
    sentences.append(f"Put {paths} ({columns(task)} a line) into a data folder and {_NAME_A_FOLDER}.")
    if has_layout(task):
        sentences.append("A folder that SentEval's download script made will do too, with --text senteval.")
    return " ".join(sentences)
