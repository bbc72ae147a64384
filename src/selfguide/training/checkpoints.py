"""Complete checkpoints: which one a run resumes from, and whether it is intact.

A checkpoint, like the folder of an earlier stage, counts only with the file that is written last and holds the digests of the
others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from selfguide.errors import SelfguideError
from selfguide.files import damage_of, folder_digests, read_json, write_text
from selfguide.progress import Reporter

COMPLETE_FILE = "complete.json"
"""Without it the folder does not count."""


def write_complete(folder: Path, facts: dict[str, Any]) -> None:
    """Declare a folder complete.

    Args:
        folder: The folder; its files are as they are to be.
        facts: What else the file is to hold.
    """
    digests = folder_digests(folder, leave_out=lambda path: path.name == COMPLETE_FILE or path.name.startswith("."))
    write_text(folder / COMPLETE_FILE, json.dumps(facts | {"files": digests}))


def completeness_problem(folder: Path) -> str | None:
    """Return a description of the damage in a complete folder; folders of earlier versions carry no digests."""
    try:
        facts = read_json(folder / COMPLETE_FILE)
        digests = facts.get("files", {})
        return damage_of(folder, digests)
    except (OSError, ValueError, AttributeError) as error:
        return f"{folder / COMPLETE_FILE} cannot be read ({error})"


def kept_rates(folder: Path) -> dict[int, float]:
    """Return the learning rates by step that a complete checkpoint keeps; those of earlier versions keep none."""
    return {int(step): float(rate) for step, rate in read_json(folder / COMPLETE_FILE).get("rates", [])}


def complete_checkpoints(work: Path) -> list[Path]:
    """Return the complete checkpoints in a work folder, the newest first."""
    complete = [folder for folder in work.glob("checkpoint-*") if (folder / COMPLETE_FILE).is_file()]
    return sorted(complete, key=lambda folder: int(folder.name.rpartition("-")[2]), reverse=True)


def checkpoint_to_resume(work: Path, reporter: Reporter) -> Path | None:
    """Return the newest checkpoint that is as it was written; a warning names a damaged one.

    Args:
        work: The work folder.
        reporter: Gets a warning where an older checkpoint has to do.

    Returns:
        The checkpoint, or ``None`` where there is none at all.

    Raises:
        SelfguideError: There are checkpoints, and all of them are damaged.
    """
    found = complete_checkpoints(work)
    problems: list[str] = []
    for folder in found:
        problem = completeness_problem(folder)
        if problem is None:
            for named in problems:
                reporter.warn(f"{named}; the checkpoint before it is used.")
            return folder
        problems.append(problem)
    if problems:
        raise SelfguideError(
            f"The checkpoint to go on from is damaged: {problems[0]}. Bring the file back, or start the run over with "
            "--overwrite."
        )
    return None
