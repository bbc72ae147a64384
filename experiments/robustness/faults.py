"""The fault campaign: a disk that is full, read-only or broken, from one system call on.

At each chosen write, renaming or new file the call fails: with ENOSPC or EROFS from there on, with EIO once. The command has
to end in words or to do without (a cache, a report); afterwards, on a sound disk, the documented command must end in the
result. Where this process may mount, a small file system is filled as well: memory-mapped files are written without a call.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.robustness.commands import COMMANDS, Command
from experiments.robustness.forks import Ended, forked, terminal_of
from experiments.robustness.kills import gone_on
from experiments.robustness.ledger import Case, defect, skipped, sound
from experiments.robustness.shim import CREATE, FOLDER, REMOVE, RENAME, WRITABLE, WRITE, Interference
from experiments.robustness.worlds import ROWS, Reference, Unsound, Worlds, contents_of

KINDS = {
    "disk full": (errno.ENOSPC, WRITE | CREATE | FOLDER, True),
    "read-only": (errno.EROFS, WRITABLE | CREATE | FOLDER | RENAME | REMOVE, True),
    "input/output error": (errno.EIO, WRITE | RENAME, False),
}
_DISPENSABLE = ("report.html", "cache/", "similarity.json")


def cases(worlds: Worlds, short: bool) -> Iterator[Case]:
    """Return the cases of the campaign; see :func:`experiments.robustness.kills.cases`."""
    for command in COMMANDS.values():
        if short and command.name not in ("train", "encode .parquet"):
            continue
        for kind in KINDS:
            for number in range(1 if short else 2):
                yield _case(worlds, command, kind, number)
    if not short:
        for name in ("train", "encode .npy", "encode .parquet", "calibrate", "export static", "eval", "compare"):
            for number in range(2):
                yield _full(worlds, COMMANDS[name], number)


def _case(worlds: Worlds, command: Command, kind: str, number: int) -> Case:
    name = f"{command.name} | {kind} | {number}"
    failure, events, lasting = KINDS[kind]

    def trial() -> dict[str, Any]:
        reference = worlds.reference(command)
        count = _events(worlds, command, events)
        if count == 0:
            return skipped("it changes nothing of this kind")
        draw = random.Random(name)
        place = (draw.randint(1, max(1, count // 2)), draw.randint(max(1, count // 2), count))
        world = worlds.fresh(command, f"fault {name}")
        ended = forked(command.words, world, Interference(events, place[number], failure, lasting))
        facts = _judged(command, world, reference, ended, f"{place[number]} of {count}")
        if facts["outcome"] != "defect":
            worlds.remove(world)
        return facts

    return Case(name, {"command": command.name, "fault": kind}, trial)


_counts: dict[tuple[str, int], int] = {}


def _events(worlds: Worlds, command: Command, kinds: int) -> int:
    """Return how many calls of these kinds a command makes."""
    if (command.name, kinds) not in _counts:
        world = worlds.fresh(command, f"fault {command.name} counting {os.getpid()}")
        _counts[command.name, kinds] = forked(command.words, world, Interference(kinds)).events
        worlds.remove(world)
    return _counts[command.name, kinds]


def _judged(command: Command, world: Path, reference: Reference, ended: Ended, at: str) -> dict[str, Any]:
    facts = {"at": at, "code": ended.code, "message": ended.words[-240:]}
    if not ended.in_words:
        return defect(f"it ended with code {ended.code}: {ended.words[-300:]}", **facts)
    if ended.code == 0:
        # Everything is there, or what is not there is something that the command can do without, and it said so.
        there = contents_of(world)
        lacking = [name for name in reference.files if name not in there]
        if not all(any(name.startswith(part) or name.endswith(part) for part in _DISPENSABLE) for name in lacking):
            return defect(f"it ended with code 0 without {', '.join(lacking[:3])}", **facts)
        if lacking and ended.hits and not ended.err.strip():
            return defect(f"it said nothing about {', '.join(lacking[:3])}", **facts)
        if other := [name for name in reference.files if ROWS in name and there.get(name) != reference.files[name]]:
            return defect(f"it ended with code 0 and other {', '.join(other)}", **facts)
        return sound(**facts)
    try:
        gone_on(command, world, reference)
    except Unsound as problem:
        return defect(str(problem), **facts)
    return sound(**facts)


def _full(worlds: Worlds, command: Command, number: int) -> Case:
    name = f"{command.name} | file system full | {number}"

    def trial() -> dict[str, Any]:
        reference = worlds.reference(command)
        probe = worlds.fresh(command, f"full {name} measuring")
        before = _size(probe)
        forked(command.words, probe)
        grown = _size(probe) - before
        worlds.remove(probe)
        made = worlds.fresh(command, f"full {name} inputs")
        place = worlds.work / "worlds" / f"mounted-{os.getpid()}"
        place.mkdir(parents=True, exist_ok=True)
        share = random.Random(name).uniform(0.1, 0.9)
        size = max(before, 4096) + int(share * grown) + 65536
        try:
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)], check=True, capture_output=True
            )
        except (OSError, subprocess.CalledProcessError):
            place.rmdir()
            return skipped("this process may not mount a file system")
        world = place / "world"
        try:
            shutil.copytree(made, world)
            ended = forked(command.words, world)
            if ended.code == 0 and not ended.err:
                return skipped("there was room enough")
            subprocess.run(["mount", "-o", "remount,size=1g", str(place)], check=True)
            return _judged(command, world, reference, ended, f"{share:.0%} of what it writes")
        except OSError as error:
            return skipped(f"the inputs did not fit: {error}")
        finally:
            terminal = terminal_of(world)
            subprocess.run(["umount", "-l", str(place)], check=False)
            place.rmdir()
            worlds.remove(made)
            shutil.rmtree(terminal, ignore_errors=True)

    return Case(name, {"command": command.name, "fault": "file system full"}, trial)


def _size(folder: Path) -> int:
    return sum(-(-path.stat().st_size // 4096) * 4096 for path in folder.rglob("*") if path.is_file())
