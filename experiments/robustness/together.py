"""The campaign of two at once: the same command line twice in one folder, the second a moment after the first.

One of them has to end in the result that two runs alone end in; the other has to wait for it, share the work, find it done, or
be refused with who holds the folder and since when. Neither may end with code 0 without a sound result.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

from experiments.robustness.commands import COMMANDS, Command
from experiments.robustness.forks import together
from experiments.robustness.kills import FINISHED
from experiments.robustness.ledger import Case, defect, skipped, sound
from experiments.robustness.worlds import Unsound, Worlds, check

_HELD = re.compile(r"is being written by `.+` \(process \d+, since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\)")


def cases(worlds: Worlds, short: bool) -> Iterator[Case]:
    """Return the cases of the campaign; see :func:`experiments.robustness.kills.cases`."""
    for command in COMMANDS.values():
        if short and command.name not in ("train --resume", "eval"):
            continue
        for number in range(1 if short else 3):
            yield _case(worlds, command, number)


def _case(worlds: Worlds, command: Command, number: int) -> Case:
    name = f"{command.name} | twice | {number}"

    def trial() -> dict[str, Any]:
        reference = worlds.reference(command)
        world = worlds.fresh(command, f"together {name}")
        delay = random.Random(name).uniform(0.0, 0.9) * reference.seconds if number else 0.0
        ended = together([command.words, command.words], world, delay)
        facts = {"codes": [one.code for one in ended], "message": ended[1].words[-200:], "delay": round(delay, 2)}
        problem = next((one for one in ended if not one.in_words), None)
        if problem is not None:
            return defect(f"one ended with code {problem.code}: {problem.words[-300:]}", **facts, code=problem.code)
        if all(one.code for one in ended):
            return defect(f"neither ended in order: {ended[0].words[-300:]}", **facts)
        refused = [one.words for one in ended if one.code]
        if any(not _HELD.search(words) and not any(part in words for part in FINISHED) for words in refused):
            return defect(f"it was refused without who holds the folder: {refused[0][-300:]}", **facts)
        try:
            check(world, reference)
        except Unsound as found:
            return defect(str(found), **facts)
        worlds.remove(world)
        held = any(_HELD.search(words) for words in refused)
        what = "refused, with the holder" if held else "found it done" if refused else "both ended in order"
        if number and what == "found it done":
            return skipped("the first had finished")
        return sound(noticed=what, **facts)

    return Case(name, {"command": command.name}, trial)
