"""Folders in which commands run, the results that they must end in, and the comparison of the two.

The reference of a command is made twice, and kept in the work folder: after a change of the package, begin with a new
folder. A file that is the same in both must be the same, byte for byte, after a kill too; in
a JSON file with dates or durations, every value that is the same in both must be.
"""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiments.robustness import material
from experiments.robustness.commands import COMMANDS, JOBS, MADE_BY, Command
from experiments.robustness.forks import Ended, forked, in_a_child, started, terminal_of
from experiments.robustness.shim import NAMES, RENAME, Interference
from selfguide.files import write_text
from selfguide.search.columns import SENTENCE, VECTOR

_DATE = re.compile(rb"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?: ?[+-]\d{4})?)?")
_DURATION = re.compile(rb"\b\d[\d,]*(?:\.\d+)? ?(?:sentences/s|seconds|s|min|minutes|ms)\b")
"""Durations and rates, which two runs may share by accident."""
_TEXT = (".json", ".md", ".html", ".csv", ".tex", ".svg", ".jsonl", ".txt")
_ANY = "…"
"""Stands for a value that two runs do not share."""
_TIMES = ("seconds", "sentences_per_second")
"""Keys and columns of durations, which may be the same in two runs by accident."""
_WORKING = ("tmp", "hub")
_INDEX_RECORD = "index.json"
"""Beside it, an index has files with random names: what is compared is its rows."""
ROWS = "(its rows)"
READ = re.compile(r"[0-9a-f]{64} \d+ rows, \d+ found by words")
"""What :func:`rows_of_index` returns of an index that can be read."""
_KILLED = -9


class Unsound(Exception):
    """A result that is not as it must be; the message says how."""


@dataclass(frozen=True)
class Reference:
    """What a command ends in."""

    files: dict[str, Any]
    """By path: a digest, the masked content of JSON, or :data:`_ANY`."""
    seconds: float
    renames: int
    changes: int
    """How many names it changed: renamings, files and folders made and removed."""

    @property
    def exact(self) -> int:
        """How many files must be identical."""
        return sum(isinstance(content, str) and content != _ANY for content in self.files.values())


class Worlds:
    """Makes folders for the cases of a campaign, and keeps the references."""

    def __init__(self, work: Path) -> None:
        self.work = Path(work).resolve()
        self.template = self.work / "template"
        self._references: dict[str, Reference] = {}

    def prepare(self) -> None:
        """Make the material and what commands make for others, once."""
        if (self.template / "complete").exists():
            return
        shutil.rmtree(self.template, ignore_errors=True)
        self.template.mkdir(parents=True)
        material.make(self.template)
        for made in ("train", "train fused"):
            command = COMMANDS[made]
            world = self.fresh(command, "making")
            ended = forked(command.words, world)
            if ended.code:
                raise SystemExit(f"`selfguide {command.line}` failed: {ended.err}")
            for name in (name for name, maker in MADE_BY.items() if maker == made):
                shutil.copytree(world / name, self.template / name)
            self.remove(world)
        (self.template / "complete").touch()

    def fresh(self, command: Command, case: str) -> Path:
        """Make a folder with what a command needs.

        Args:
            command: The command.
            case: The folder's name.

        Returns:
            The folder.
        """
        world = self.work / "worlds" / re.sub(r"\W+", "-", case)
        self.remove(world)
        for name in ("tmp", "home"):
            (world / name).mkdir(parents=True, exist_ok=True)
        (world / "home").rmdir()
        for name in command.inputs:
            source = self.template / name
            if source.is_dir():
                shutil.copytree(source, world / name)
            else:
                shutil.copy(source, world / name)
        if command.preparation:
            import shlex

            plan = Interference(RENAME, command.stopped_before, _KILLED) if command.stopped_before else None
            ended = forked(shlex.split(command.preparation), world, plan)
            if ended.code != (_KILLED if plan else 0):
                raise SystemExit(f"The preparation of {command.name} ended with code {ended.code}: {ended.err}")
        return world

    def remove(self, world: Path) -> None:
        """Remove a folder and the output beside it."""
        shutil.rmtree(world, ignore_errors=True)
        shutil.rmtree(terminal_of(world), ignore_errors=True)

    def reference(self, command: Command) -> Reference:
        """Return what a command ends in, from two runs that nothing disturbs."""
        if command.name not in self._references:
            file = self.work / "references" / f"{command.name.replace(' ', '-')}.json"
            if not file.exists():
                file.parent.mkdir(exist_ok=True)
                write_text(file, json.dumps(asdict(self._made(command))))
            self._references[command.name] = Reference(**json.loads(file.read_text(encoding="utf-8")))
        return self._references[command.name]

    def writing_seconds(self, command: Command) -> float:
        """Return how long a process of its own is at a command after its first change of the folder."""
        file = self.work / "references" / f"{command.name.replace(' ', '-')}.seconds"
        if not file.exists():
            world = self.fresh(command, f"reference {command.name} timing {os.getpid()}")
            ended = started(command.words, world)
            if ended.code:
                raise SystemExit(f"`selfguide {command.line}` failed with code {ended.code}: {ended.err}")
            self.remove(world)
            write_text(file, str(ended.writing))
        return float(file.read_text(encoding="utf-8"))

    def _made(self, command: Command) -> Reference:
        contents, ended = [], []
        alone = command.name == JOBS.name  # its cells have processes of their own, which a forked child cannot start
        for number in range(2):
            world = self.fresh(command, f"reference {command.name} {number} {os.getpid()}")
            ended.append(started(command.words, world) if alone else _undisturbed(command, world))
            contents.append(contents_of(world))
            if unread := [value for name, value in contents[-1].items() if ROWS in name and not READ.match(value)]:
                raise SystemExit(f"The index of an undisturbed {command.name} cannot be read: {unread[0]}")
            self.remove(world)
            time.sleep(1.1 - time.time() % 1.0)
        if alone:
            return Reference(_common(*contents), ended[0].seconds, 0, 0)
        world = self.fresh(command, f"reference {command.name} counting {os.getpid()}")
        renames = forked(command.words, world, Interference(RENAME)).events
        self.remove(world)
        return Reference(_common(*contents), ended[0].seconds, renames, ended[1].events)


def _undisturbed(command: Command, world: Path) -> Ended:
    ended = forked(command.words, world, Interference(NAMES))
    if ended.code:
        raise SystemExit(f"`selfguide {command.line}` failed with code {ended.code}: {ended.err}")
    return ended


def contents_of(world: Path) -> dict[str, Any]:
    """Return the content of every file of a world, by path, in a form in which runs can be compared."""
    indexes = [record.parent for record in world.glob(f"*/{_INDEX_RECORD}")]
    paths = [
        path
        for path in sorted(world.rglob("*"))
        if path.relative_to(world).parts[0] not in _WORKING
        and not any(path.is_relative_to(index) and path.parent != index for index in indexes)
    ]
    return (
        {path.relative_to(world).as_posix(): _content(path) for path in paths if path.is_file()}
        | {
            f"{path.relative_to(world).as_posix()}/": _ANY
            for path in paths
            if path.is_dir() and not any(path.iterdir())
        }
        | {f"{index.name}/ {ROWS}": rows_of_index(index) for index in indexes}
    )


def _content(path: Path) -> Any:
    raw = path.read_bytes()
    if path.name == _INDEX_RECORD:
        with suppress(ValueError):
            return {"digest": "", "json": json.loads(raw) | dict.fromkeys(("version", "written"), _ANY)}
    if path.suffix in _TEXT:
        raw = _DURATION.sub(b"DURATION", _DATE.sub(b"DATE", raw))
    if path.suffix == ".csv":
        raw = _without_times(list(csv.reader(io.StringIO(raw.decode("utf-8")))))
    elif path.suffix == ".md":
        raw = b"\n".join(_blocks_without_times(raw.decode("utf-8").split("\n")))
    digest = hashlib.sha256(raw).hexdigest()
    if path.suffix == ".json":
        try:
            return {"digest": digest, "json": json.loads(raw)}
        except ValueError:
            return digest
    return digest


def rows_of_index(index: Path) -> str:
    """Return the digest of what an index holds: its rows with their vectors, in order, and what a search by words finds.

    It is read in a child: LanceDB starts threads, which the children of this process would miss.

    Args:
        index: The folder.
    """

    def read() -> bytes:
        import selfguide

        opened = selfguide.open_index(index)
        found = hashlib.sha256()
        for batch in opened.store.batches(SENTENCE, VECTOR):
            for row in batch.to_pylist():
                found.update(json.dumps([row[SENTENCE], [float(value).hex() for value in row[VECTOR]]]).encode())
        hits = opened.search(material.sentences(1)[0], mode="text", limit=1000).hits
        return f"{found.hexdigest()} {len(opened)} rows, {len({hit.text for hit in hits})} found by words".encode()

    return in_a_child(read).decode()


def _blocks_without_times(lines: list[str]) -> Iterator[bytes]:
    """Yield the lines of a Markdown file, with each table, which are its lines that begin with a bar, as one."""
    for table, block in itertools.groupby(lines, lambda line: line.startswith("|")):
        if table:
            yield _without_times([[cell.strip() for cell in line.split("|")] for line in block])
        else:
            yield from (line.encode() for line in block)


def _without_times(rows: list[list[str]]) -> bytes:
    places = [place for place, name in enumerate(rows[0] if rows else []) if name not in _TIMES]
    return json.dumps([[row[place] for place in places if place < len(row)] for row in rows]).encode()


def _common(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    if set(one) != set(other):
        raise SystemExit(f"Two runs leave other files: {sorted(set(one) ^ set(other))}")
    found: dict[str, Any] = {}
    for name, content in one.items():
        timed = isinstance(content, dict) and any(f'"{key}"' in json.dumps(content["json"]) for key in _TIMES)
        if content == other[name] and not timed:
            found[name] = content["digest"] if isinstance(content, dict) else content
        elif isinstance(content, dict) and isinstance(other[name], dict):
            found[name] = {"json": _mask(content["json"], other[name]["json"])}
        else:
            found[name] = _ANY
    return found


def _mask(one: Any, other: Any) -> Any:
    """Return a value with a sign in place of each part that two runs do not share."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: _ANY if key in _TIMES else _mask(one[key], other[key]) for key in one if key in other}
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [_mask(left, right) for left, right in zip(one, other, strict=True)]
    return one if one == other else _ANY


def check(world: Path, reference: Reference) -> None:
    """Compare a world with what its command must end in.

    Args:
        world: The folder.
        reference: What it must hold.

    Raises:
        Unsound: Something is missing, left over or different.
    """
    found = contents_of(world)
    if lost := sorted(set(reference.files) - set(found)):
        raise Unsound(f"missing: {', '.join(lost[:5])}")
    # The lock file of a process that was killed at its very end stays; it has no holder and is taken over.
    if left := sorted(name for name in set(found) - set(reference.files) if not name.endswith(".lock")):
        raise Unsound(f"left over: {', '.join(left[:5])}")
    for name, wanted in reference.files.items():
        if wanted == _ANY:
            continue
        content = found[name]
        if isinstance(wanted, dict):
            where = _difference(wanted["json"], content["json"] if isinstance(content, dict) else None)
            if where is not None:
                raise Unsound(f"other values in {name}: {where}")
        elif wanted != (content["digest"] if isinstance(content, dict) else content):
            raise Unsound(f"other bytes: {name}")
    until = time.monotonic() + 5.0  # a watcher removes temporary folders shortly after the kill
    while left_in := [path for path in (world / "tmp").rglob("*") if path.is_file()]:
        if time.monotonic() > until:
            raise Unsound(f"left in the temporary folder: {left_in[0].name}")
        time.sleep(0.1)


def _difference(wanted: Any, found: Any, place: str = "") -> str | None:
    if wanted == _ANY:
        return None
    if isinstance(wanted, dict) and isinstance(found, dict):
        parts = ((wanted[key], found.get(key), f"{place}/{key}") for key in wanted)
        return next((where for part in parts if (where := _difference(*part))), None)
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        both = enumerate(zip(wanted, found, strict=True))
        return next((where for n, (w, f) in both if (where := _difference(w, f, f"{place}/{n}"))), None)
    return None if wanted == found else f"{place or '/'} is {str(found)[:60]!r}, not {str(wanted)[:60]!r}"
