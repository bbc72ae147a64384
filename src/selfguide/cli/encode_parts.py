"""The part of ``selfguide encode`` that writes a folder of parts, and the one that checks such a folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from selfguide.data import TextOptions
from selfguide.errors import UsageError
from selfguide.progress import Reporter, counted

if TYPE_CHECKING:
    from selfguide.engine.parts import PartsJob


def parsed_shard(text: str | None) -> tuple[int, int]:
    """Read ``--shard``.

    Args:
        text: Such as ``0/8``; ``None`` for the only process.

    Returns:
        Which process, and of how many.

    Raises:
        UsageError: It is something else.
    """
    if text is None:
        return 0, 1
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise UsageError(f"--shard is i/n with i from 0 to n-1, such as 0/8, got {text!r}.")
    return int(match[1]), int(match[2])


def absolute(encoder: str) -> str:
    """Return an encoder's folder as an absolute path, since other processes may start elsewhere; names stay as they are."""
    path = Path(encoder).expanduser()
    return str(path.resolve()) if path.is_dir() else encoder


def run_parts(
    job: PartsJob,
    text: list[str],
    options: TextOptions,
    part_rows: int | None,
    shard: tuple[int, int],
    engine: str,
    cluster: tuple[int | None, str | None],
    reporter: Reporter,
) -> None:
    """Encode into a folder of parts, and say what was done."""
    from selfguide.engine.parts_run import encode_to_parts

    outcome = encode_to_parts(
        job,
        text,
        options,
        part_rows=part_rows,
        shard=shard,
        engine=engine,
        workers=cluster[0],
        address=cluster[1],
        reporter=reporter,
    )
    reporter.note(
        f"{outcome.made:,} of {counted(outcome.parts, 'part')} made now; {outcome.rows:,} rows in all, in {job.folder}"
    )
    if outcome.busy:
        busy = "1 of this shard's parts is" if outcome.busy == 1 else f"{outcome.busy:,} of this shard's parts are"
        reporter.note(f"{busy} being made by another process, and left to it.")
    if outcome.missing:
        reporter.note(f"{counted(outcome.missing, 'part', 'is', 'are')} still missing, of other shards or processes.")
    else:
        reporter.note(f"All parts are there: selfguide encode --check {job.folder} compares them with the text.")


def check(folder: Path, reporter: Reporter) -> None:
    """Prove that a folder of parts is complete."""
    from selfguide.engine.parts_run import check_folder

    manifest = check_folder(folder, reporter)
    parts = "1 part" if len(manifest.slices) == 1 else f"{len(manifest.slices):,} parts"
    reporter.note(f"Every one of the {manifest.rows:,} rows of the text is in {folder} exactly once ({parts}).")
