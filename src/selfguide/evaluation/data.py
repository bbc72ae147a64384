"""Where a task's rows come from: the package, a data folder in our layout or SentEval's, or the Hugging Face hub.

The papers' numbers are for all rows of a task. A file with fewer is refused, unless the caller allows it, and then the
notes of the result say so; a file with more is another set and always refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from selfguide.data.pairs import read_pairs
from selfguide.data.streams import COMPRESSIONS
from selfguide.errors import SelfguideError
from selfguide.evaluation.hub import COPIES, Copy, read_copy
from selfguide.evaluation.layouts import (
    ReadPart,
    Record,
    checked_rows,
    columns,
    one_version,
    place,
    place_of,
    read_own_layout,
    read_senteval,
    senteval_files,
    senteval_root,
)
from selfguide.evaluation.rows import Rows, TaskData, TextForm
from selfguide.evaluation.tasks import Kind, Part, Task

VARIABLE = "SELFGUIDE_DATA"
_FORMS: dict[TextForm, str] = {"raw": "as released", "senteval": "as SentEval tokenises it"}
_NAME_A_FOLDER = f"name the folder with --data (in Python data=) or the environment variable {VARIABLE}"
_ALLOW_PARTIAL = "pass --allow-partial (in Python allow_partial=True) to score what is there"


def data_folder(given: str | Path | None) -> Path | None:
    """The data folder: the one given, else the one that the environment variable names, else None."""
    named = os.environ.get(VARIABLE)
    if given is not None:
        folder, who, way_out = Path(given).expanduser(), "given as the data folder", "check the path"
    elif named:
        folder, who = Path(named).expanduser(), f"which the environment variable {VARIABLE} names"
        way_out = "mend the variable or unset it"
    else:
        return None
    if not folder.is_dir():
        fault = "is no folder" if folder.exists() else "does not exist"
        raise SelfguideError(f"{folder}, {who}, {fault}: {way_out}.")
    return folder


def find_data(
    task: Task,
    *,
    folder: Path | None,
    text: TextForm = "raw",
    allow_partial: bool = False,
    download: bool = True,
) -> TaskData:
    """The rows of a task from the first source that has them, checked against what is known of it."""
    search = _Search(task, text, allow_partial)
    if not task.where:
        return search.found(_demo(task), "package", text)
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


def own_pairs(path: str | Path) -> TaskData:
    """A user's own file of ``score<TAB>sentence<TAB>sentence`` as a task, named after the file."""
    pairs = read_pairs(path)
    low, high = min(pairs.scores), max(pairs.scores)
    if low == high:
        raise SelfguideError(
            f"{path} has the grade {low:g} on every line, and nothing can be correlated with a constant: "
            "pass pairs of different grades."
        )
    kind: Kind = "binary-pairs" if set(pairs.scores) == {0.0, 1.0} else "graded-pairs"
    name = Path(path).name
    name = name.removesuffix(suffix) if (suffix := Path(name).suffix) in COMPRESSIONS else name
    task = Task(Path(name).stem, Path(name).stem, kind, (Part("all"),), "", low, high, language="unknown")
    rows = Rows("all", pairs.first, pairs.second, grades=pairs.scores)
    return TaskData(task, (rows,), "file", digest_of([rows]))


def digest_of(parts: list[Rows]) -> str:
    """16 hex digits that change with any part, row, grade or label, and with nothing else."""
    digest = hashlib.sha256()
    for rows in parts:
        digest.update(json.dumps([rows.part, len(rows)]).encode())
        empty = [None] * len(rows)
        table = zip(rows.first, rows.second or empty, rows.grades or empty, rows.labels or empty, strict=True)
        for row in table:
            digest.update(json.dumps(row).encode() + b"\n")
    return digest.hexdigest()[:16]


# -- the sources -------------------------------------------------------------------------------------------------------


def _demo(task: Task) -> dict[str, ReadPart]:
    read = {}
    for part in task.parts:
        path = Path(str(resources.files("selfguide"))) / "resources" / "demo" / f"pairs-{part.name}.tsv"
        pairs = read_pairs(path)
        graded = zip(pairs.scores, pairs.first, pairs.second, strict=True)
        records = [Record(f"{path.name}, line {number}", *row) for number, row in enumerate(graded, 1)]
        read[part.name] = ReadPart(checked_rows(task, part.name, records), path.name)
    return read


def _in_folder(search: _Search, folder: Path) -> TaskData | None:
    task, text = search.task, search.text
    if read := read_own_layout(task, folder, text):
        return search.found(read, "folder", text)
    root = senteval_root(task, folder)
    if root is not None and (text == "senteval" or one_version(task)):
        return search.found(read_senteval(task, root), "folder", text)
    # The same task in the other form of text is no substitute, and fetching it from elsewhere would be a surprise.
    other: TextForm = "senteval" if text == "raw" else "raw"
    part = task.parts[0].name
    if root is not None or place_of(task, part, folder, other) is not None:
        raise SelfguideError(
            f"{root or folder} holds {task.title} {_FORMS[other]}, not {_FORMS[text]}: pass --text {other} "
            f'(in Python text="{other}"), or put the other form at {place(task, part, text)} in the data folder.'
        )
    return None


def _on_hub(search: _Search, copy: Copy) -> TaskData:
    task = search.task
    notes = [f"hf:{copy.name}: {copy.note}."] if copy.note else []
    text = search.text if one_version(task) else copy.text
    if text != search.text:
        notes.append(
            f"hf:{copy.name} holds its text {_FORMS[text]} only: scored so, though {search.text} was asked for."
        )
    return search.found(read_copy(task, copy), f"hf:{copy.name}", text, notes)


# -- what is known of the whole ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Search:
    """What was asked for, against which what was found is held."""

    task: Task
    text: TextForm
    allow_partial: bool

    def found(self, read: dict[str, ReadPart], source: str, text: TextForm, notes: list[str] | None = None) -> TaskData:
        """The rows as the task's data, once they are seen to be all of them."""
        notes = list(notes or [])
        joined = "all" in read and "all" not in {part.name for part in self.task.parts}
        expected = (Part("all", self.task.rows),) if joined else self.task.parts
        for part in expected:
            notes += self._short_of(part, read)
        parts = [read[part.name].rows for part in expected if part.name in read]
        if one_version(self.task) and self.text == "senteval":
            notes.append(f"{self.task.title} has one form of text only: raw and senteval are the same.")
        empty = sum(not sentence.strip() for rows in parts for sentence in rows.sentences())
        if empty:
            notes.append(f"{empty} texts are empty; they are kept, as SentEval counts them.")
        return TaskData(self.task, tuple(parts), source, digest_of(parts), text, tuple(notes))

    def _short_of(self, part: Part, read: dict[str, ReadPart]) -> list[str]:
        """Notes on what is missing of a part, where that is allowed."""
        whole = part.rows == self.task.rows
        title = self.task.title if whole else f"{self.task.title} {part.name}"
        if part.name not in read:
            return [self._without(part)]
        count, name = len(read[part.name].rows), read[part.name].name
        if not count:
            raise SelfguideError(f"{name} has no rows: copy or download it again.")
        if part.rows is None or count == part.rows:
            return []
        counts = f"{name} has {count:,} rows where {title} has {part.rows:,}"
        if count > part.rows:
            splits = ", and scores of all its splits together are not those of the papers" if count == 9927 else ""
            raise SelfguideError(f"{counts}{splits}: it is another set of rows; get the test set itself.")
        if not self.allow_partial:
            raise SelfguideError(f"{counts}: it is cut short; copy or download it again, or {_ALLOW_PARTIAL}.")
        return [f"Partial: {count:,} of the {part.rows:,} rows of {title}, not to be compared with published numbers."]

    def _without(self, part: Part) -> str:
        path = place(self.task, part.name, self.text)
        missing = f"{self.task.title} is there without its part {part.name}"
        if self.task.splits not in ("none", "folds"):
            raise SelfguideError(f"{missing}, and cannot be scored without: put it at {path}.")
        if not self.allow_partial:
            raise SelfguideError(f"{missing}: put it at {path} in the data folder, or {_ALLOW_PARTIAL}.")
        return f"Partial: the subset {part.name} of {self.task.title} is missing, not to be compared with published numbers."


def _missing(task: Task, text: TextForm, tried: list[str], download: bool) -> str:
    paths = " and ".join(place(task, part.name, text) for part in task.parts)
    told = [f"There is no data for {task.title} ({task.name}).", *tried]
    if download and task.name not in COPIES:
        told.append("No complete copy of it is known on the Hugging Face hub.")
    if not download:
        told.append("The Hugging Face hub was not asked.")
    told.append(f"Put {paths} ({columns(task)} a line) into a data folder and {_NAME_A_FOLDER}.")
    if senteval_files(task, task.parts[0].name):
        told.append("A folder that SentEval's download script made will do too, with --text senteval.")
    return " ".join(told)
