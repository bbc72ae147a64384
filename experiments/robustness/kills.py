"""The kill campaign: each command is killed, the command that the documentation names is typed, and the result compared.

Where: just before every renaming; just before some of the other changes of names; at random times; and in a
process of its own, started as anybody would start it. In some cases the second command is killed as well. A part of the random
times end in SIGTERM, a part in Ctrl-C.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.robustness.commands import COMMANDS, JOBS, Command
from experiments.robustness.forks import Ended, forked, started
from experiments.robustness.ledger import Case, defect, skipped, sound
from experiments.robustness.shim import NAMES, RENAME, Interference
from experiments.robustness.worlds import Reference, Unsound, Worlds, check

KILL = -int(signal.SIGKILL)
STOPPED = 130
_LONG = ("export onnx", "study", "map")
"""Commands that take several seconds even here; they are killed less often elsewhere than before renamings."""
FINISHED = ("it is finished", "exists already", "was added already", "There is an index at")
"""What a command that had finished before the kill says when it is typed again."""
_REAL = tuple(name for name in COMMANDS if name not in ("cache --clear", "encode int8 vectors", "probe", "report"))
"""Commands that are started in a process of their own, too; the others have written all as soon as they write anything."""


def cases(worlds: Worlds, short: bool) -> Iterator[Case]:
    """Return the cases of the campaign.

    Args:
        worlds: Makes the folders.
        short: A few of each kind only.
    """
    for command in COMMANDS.values():
        if short and command.name not in ("train", "eval", "calibrate --overwrite", "encode .npy"):
            continue
        reference = worlds.reference(command)
        few = short or command.name in _LONG
        for place in _spread(reference.renames, 2) if short else range(1, reference.renames + 1):
            yield _case(worlds, command, "before a renaming", plan=Interference(RENAME, place, KILL))
        for place in _spread(reference.changes, 1 if few else 3):
            yield _case(worlds, command, "before another change of a name", plan=Interference(NAMES, place, KILL))
        for number in range(1 if few else 2):
            yield _case(worlds, command, "at a random time", number=number, signal_number=signal.SIGKILL)
        if not short:
            yield _case(worlds, command, "at a random time, and again", number=0, signal_number=signal.SIGKILL)
        yield _case(worlds, command, "by SIGTERM", signal_number=signal.SIGTERM)
        yield _case(worlds, command, "by Ctrl-C", signal_number=signal.SIGINT)
    if short:
        return
    for command in [*(COMMANDS[name] for name in _REAL), JOBS]:
        reference = worlds.reference(command)
        place = random.Random(command.name).randint(1, max(1, reference.renames))
        if command is not JOBS:
            yield _case(worlds, command, "a process of its own", plan=Interference(RENAME, place, KILL), real=True)
        yield _case(worlds, command, "a process of its own", number=0, signal_number=signal.SIGKILL, real=True)


def _spread(count: int, most: int) -> list[int]:
    """Return at most so many places from 1 to a count, evenly."""
    if count <= most:
        return list(range(1, count + 1))
    return sorted({1 + round(step * (count - 1) / (most - 1)) for step in range(most)}) if most > 1 else [count]


def _case(
    worlds: Worlds,
    command: Command,
    where: str,
    *,
    plan: Interference | None = None,
    number: int = 0,
    signal_number: signal.Signals | None = None,
    real: bool = False,
) -> Case:
    detail = f"{plan.kinds}:{plan.at}" if plan else f"{signal_number and signal_number.name} {number}"
    name = f"{command.name} | {where} | {detail}"

    def trial() -> dict[str, Any]:
        reference = worlds.reference(command)
        world = worlds.fresh(command, f"kill {name}")
        facts = _tried(worlds, command, world, reference, name, plan, signal_number, real, "again" in where)
        if facts["outcome"] != "defect":
            worlds.remove(world)
        return facts

    return Case(name, {"command": command.name, "where": where}, trial)


def _tried(
    worlds: Worlds,
    command: Command,
    world: Path,
    reference: Reference,
    name: str,
    plan: Interference | None,
    signal_number: signal.Signals | None,
    real: bool,
    twice: bool,
) -> dict[str, Any]:
    draw = random.Random(name)
    run = started if real else forked
    seconds = worlds.writing_seconds(command) if real and signal_number else reference.seconds
    stop = None if signal_number is None else (draw.uniform(0.02, 0.98) * seconds, int(signal_number))
    first = run(command.words, world, plan=plan, stop=stop)
    if first.code == 0:
        return skipped("it had finished before")
    in_order = signal_number in (signal.SIGTERM, signal.SIGINT)
    wanted = (STOPPED, -int(signal_number)) if in_order and signal_number else (KILL,)
    if first.code not in wanted:
        return defect(f"it ended with code {first.code}: {first.words}")
    at = {} if stop is None else {"after": round(stop[0], 2)}
    if twice:
        forked(command.words_again, world, stop=(draw.uniform(0.02, 0.9) * reference.seconds, int(signal.SIGKILL)))
    try:
        last = gone_on(command, world, reference)
    except Unsound as problem:
        return defect(str(problem), first=first.words, **at)
    return sound(last=last.words[-160:], **at)


def gone_on(command: Command, world: Path, reference: Reference) -> Ended:
    """Type what a user types after an interruption, and compare the result.

    Args:
        command: The command that was interrupted.
        world: Its folder.
        reference: What it must end in.

    Returns:
        How the last command ended.

    Raises:
        Unsound: It was refused, or failed, or the result is another one.
    """
    ended = forked(command.words_again, world)
    nothing = ended.code == 2 and "Nothing to resume" in ended.err
    if nothing and ("it is finished" not in ended.err or _is_the_former(command, world, reference)):
        ended = forked(command.words, world)
    done = ended.code == 0 or (ended.code == 2 and any(words in ended.err for words in FINISHED))
    if not done:
        raise Unsound(f"going on ended with code {ended.code}: {ended.words}")
    check(world, reference)
    return ended


def _is_the_former(command: Command, world: Path, reference: Reference) -> bool:
    """Return whether what is finished is still what was to be replaced: the kill came before anything was written."""
    if "--overwrite" not in command.words:
        return False
    try:
        check(world, reference)
    except Unsound:
        return True
    return False
