"""The campaign on damaged files: a byte is flipped, half of the file is cut off, all of it, or the file is gone.

The command that reads the file has to refuse it in words, or to do without it and end in the undamaged result. Ending with
another result and without a word is a defect: the damage was used silently.
"""

from __future__ import annotations

import random
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.robustness.commands import COMMANDS, Command
from experiments.robustness.forks import forked
from experiments.robustness.ledger import Case, defect, sound
from experiments.robustness.worlds import Worlds, contents_of


@dataclass(frozen=True)
class Target:
    """Files, and the command that reads them."""

    name: str
    before: str
    """The command of the table that makes them; with its inputs, the state in which they are damaged."""
    files: str
    """Paths in that state, as a regular expression."""
    line: str
    """The command that reads them; empty: ``before`` again."""
    result: str
    """Paths that must be as without damage, as a regular expression."""
    stopped: int = 0
    """Kill ``before`` just before this renaming."""
    most: int = 0
    """Take only so many of the files, evenly; 0: all."""


_VISIBLE = r"(?!.*/\.)"
_RESUME = "train --output tuned --resume"
_CALIBRATE = "calibrate fused more.txt --output calibrated"
_ENCODE = "encode notes.txt --encoder tuned --output vectors.npy"
_TUNED = r"tuned/(?!README|report|run)"
_CALIBRATED = r"calibrated/(?!README|run|similarity)"
_ANY_WORDS = r"-"
"""The command has to end in words; there is no result to compare."""

TARGETS = (
    Target("checkpoints", "train", r"tuned\.partial/.*", _RESUME, _TUNED, 14, 6),
    Target("start encoder", "train", r"bert/.*", _RESUME, _TUNED, 14, 6),
    Target("dev pairs", "train", r"pairs\.tsv", _RESUME, _TUNED, 14, 6),
    Target("views", "train", r"cache/views/.*\.npy", f"{COMMANDS['train'].line} --output other", r"other/model.*"),
    Target("statistics", "train fused", r"fused/(calibration|(.*/)?[^/]*\.safetensors).*", _CALIBRATE, _CALIBRATED),
    Target("run.json", "train", r"tuned/run\.json", _ENCODE, r"vectors\.npy"),
    Target("run.json", "train", r"tuned/run\.json", "train --config tuned/run.json --output other", r"other/model.*"),
    Target("run.json", "train fused", r"fused/run\.json", _CALIBRATE, _CALIBRATED),
    Target("finished encoder", "train", r"tuned/.*", _ENCODE, r"vectors\.npy", most=6),
    *(
        Target(
            "vectors",
            f"encode .{kind}",
            rf"notes\.{kind}\.partial/.*",
            COMMANDS[f"encode .{kind}"].again,
            rf"notes\.{kind}",
            4,
        )
        for kind in ("npy", "parquet")
    ),
    Target(
        "vectors",
        "encode int8 vectors",
        r"notes\.ranges\.npy",
        "encode notes.txt --encoder tuned --precision int8 --ranges notes.ranges.npy --output other.npy",
        r"other\.npy",
    ),
    Target(
        "similarity scale", "train", r"tuned/similarity\.json", "similarity one another --encoder tuned", _ANY_WORDS
    ),
    Target("results", "eval", r"scores/.*", "", _ANY_WORDS),
    Target("results", "compare", r"comparison/.*\.json", "", _ANY_WORDS, most=3),
    Target("results", "compare", r"comparison/.*\.json", "compare --from comparison", _ANY_WORDS, most=3),
    Target("results", "compare", r"comparison/.*\.json", "report comparison", _ANY_WORDS, most=3),
    Target("results", "study", r"study/.*\.json", "", _ANY_WORDS, most=3),
    Target("results", "study", r"study/.*\.json", "report study", _ANY_WORDS, most=3),
)


def _flipped(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(content)


def _truncated(path: Path, draw: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _emptied(path: Path, draw: random.Random) -> None:
    path.write_bytes(b"")


def _removed(path: Path, draw: random.Random) -> None:
    path.unlink()


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "a flipped bit": _flipped,
    "half cut off": _truncated,
    "emptied": _emptied,
    "missing": _removed,
}


def cases(worlds: Worlds, short: bool) -> Iterator[Case]:
    """Return the cases of the campaign; see :func:`experiments.robustness.kills.cases`."""
    for target in TARGETS[:6] if short else TARGETS:
        files = _files(worlds, target)
        if target.most and len(files) > target.most:
            files = [files[round(step * (len(files) - 1) / (target.most - 1))] for step in range(target.most)]
        for file in random.Random(target.name).sample(files, 1) if short else files:
            for damage in DAMAGES:
                yield _case(worlds, target, file, damage)


def _state(worlds: Worlds, target: Target) -> Path:
    """Return the folder with the state in which files are damaged; it is made once."""
    folder = worlds.work / "states" / re.sub(r"\W+", "-", f"{target.before} {target.stopped}")
    if not (folder.with_name(folder.name + ".complete")).exists():
        command = COMMANDS[target.before]
        made = Command(
            "state",
            target.line,
            (*command.inputs, "more.txt"),
            "",
            preparation=command.line,
            stopped_before=target.stopped,
        )
        world = worlds.fresh(made, f"state {target.before} {target.stopped}")
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(world, folder)
        folder.with_name(folder.name + ".complete").touch()
    return folder


def _files(worlds: Worlds, target: Target) -> list[str]:
    state = _state(worlds, target)
    found = sorted(path.relative_to(state).as_posix() for path in state.rglob("*") if path.is_file())
    return [name for name in found if re.fullmatch(_VISIBLE + target.files, name) and "/." not in name]


def _case(worlds: Worlds, target: Target, file: str, damage: str) -> Case:
    line = target.line or COMMANDS[target.before].line
    name = f"{target.name} | {file} | {damage} | {line}"

    def trial() -> dict[str, Any]:
        wanted = _undamaged(worlds, target, line)
        world = _copy(worlds, target, "damage " + name)
        DAMAGES[damage](world / file, random.Random(name))
        ended = forked(shlex.split(line), world)
        facts = {"code": ended.code, "message": ended.words[-240:]}
        found = _results(world, target)
        worlds.remove(world)
        if not ended.in_words:
            return defect(f"it ended with code {ended.code}: {ended.words[-300:]}", **facts)
        if ended.code:
            return sound(noticed="refused", **facts)
        if found != wanted:
            other = [part for part in wanted if found.get(part) != wanted[part]]
            return defect(f"used silently: other {', '.join(other[:3])}", **facts)
        return sound(noticed="the undamaged result", **facts)

    return Case(name, {"kind": target.name, "damage": damage}, trial)


_wanted: dict[tuple[str, str, str], dict[str, Any]] = {}


def _undamaged(worlds: Worlds, target: Target, line: str) -> dict[str, Any]:
    key = (target.before, line, target.result)
    if key not in _wanted:
        world = _copy(worlds, target, "damage none")
        ended = forked(shlex.split(line), world)
        if ended.code:
            raise SystemExit(f"`selfguide {line}` failed without damage: {ended.err}")
        _wanted[key] = _results(world, target)
        worlds.remove(world)
    return _wanted[key]


def _copy(worlds: Worlds, target: Target, name: str) -> Path:
    world = worlds.work / "worlds" / re.sub(r"\W+", "-", name)[:120]
    worlds.remove(world)
    shutil.copytree(_state(worlds, target), world)
    return world


def _results(world: Path, target: Target) -> dict[str, Any]:
    return {
        name: content["digest"] if isinstance(content, dict) else content
        for name, content in contents_of(world).items()
        if re.match(target.result, name)
    }
