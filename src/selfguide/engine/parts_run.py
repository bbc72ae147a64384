"""Encode a text into a folder of parts: in this process, as one of several shards, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from selfguide.data.options import TextOptions
from selfguide.engine.parts import (
    Manifest,
    PartsJob,
    check_job,
    make_manifest,
    make_parts,
    numbers_of,
    remove_abandoned_locks,
    unfinished,
)
from selfguide.engine.parts_check import check_parts
from selfguide.engine.ray_engine import make_with_ray
from selfguide.errors import UsageError
from selfguide.progress import Reporter, counted

ENGINES = ("plain", "ray")


@dataclass(frozen=True)
class PartsOutcome:
    """What an encoding into parts did."""

    rows: int
    """Rows of the whole text."""
    parts: int
    """Parts of the whole text."""
    mine: int
    """Parts that this process was to make."""
    made: int
    """Parts that were made now; the others of its share were there."""
    busy: int
    """Parts of its share that another process is making."""
    missing: int
    """Parts of the whole text that are not there yet."""


def encode_to_parts(
    job: PartsJob,
    sources: Sequence[str | Path],
    options: TextOptions,
    *,
    part_rows: int | None = None,
    shard: tuple[int, int] = (0, 1),
    engine: str = "plain",
    workers: int | None = None,
    address: str | None = None,
    reporter: Reporter | None = None,
) -> PartsOutcome:
    """Encode a text into numbered Parquet files; parts that are there are skipped.

    Args:
        job: Encoder, folder and form.
        sources: The text: ``.txt``, ``.jsonl`` and ``.parquet`` files, globs or folders.
        options: How it is read.
        part_rows: Rows of a part; ``None``: those of the folder's manifest, or 100,000.
        shard: Which of how many processes this is, from 0: it makes every so-many-th part.
        engine: ``plain``: in this process; ``ray``: on a Ray cluster (extra ``ray``).
        workers: For Ray: number of actors.
        address: For Ray: the cluster's address.
        reporter: Shows progress.

    Returns:
        What was done.

    Raises:
        UsageError: The folder holds something else, or the options cannot be used together.
        SelfguideError: The text or the folder cannot be read or written.
    """
    reporter = reporter or Reporter(quiet=True)
    check_job(job)
    index, count = shard
    if not 0 <= index < count:
        raise UsageError(f"--shard counts from 0: 0/{count} to {count - 1}/{count}, not {index}/{count}.")
    if engine not in ENGINES:
        raise UsageError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}.")
    if engine == "ray" and count > 1:
        raise UsageError(
            "--shard divides the work without Ray, and --engine ray divides it itself: leave one of them out."
        )
    model = job.load()
    with reporter.bar("counting rows", None, "rows") as advance:
        manifest = make_manifest(job, model, sources, options, part_rows, advance)
    mine = numbers_of(manifest, shard)
    todo = [number for number in unfinished(job.folder, manifest) if number % count == index]
    if len(todo) < len(mine):
        there = len(mine) - len(todo)
        verb = "is" if there == 1 else "are"
        reporter.note(f"{there:,} of {counted(len(mine), 'part')} {verb} there already.")
    made = busy = 0
    with reporter.bar("encoding", sum(manifest.slices[number].rows for number in todo), "sentences") as advance:
        if engine == "ray":
            del model  # the actors load their own
            make_with_ray(job, todo, workers, address, advance)
            made = len(todo)
        else:
            done = dict(make_parts(job, manifest, model, todo, advance))
            made, busy = sum(done.values()), len(todo) - len(done)
    remove_abandoned_locks(job.folder)
    left = len(unfinished(job.folder, manifest))
    return PartsOutcome(manifest.rows, len(manifest.slices), len(mine), made, busy, left)


def check_folder(folder: Path, reporter: Reporter | None = None) -> Manifest:
    """Prove that a folder of parts holds every row of its text exactly once.

    Args:
        folder: The folder.
        reporter: Shows progress.

    Returns:
        Its manifest.

    Raises:
        SelfguideError: Something is missing, too much or wrong; the message says what.
    """
    reporter = reporter or Reporter(quiet=True)
    manifest = Manifest.from_folder(folder)
    with reporter.bar("checking", manifest.rows, "rows") as advance:
        check_parts(folder, manifest, advance)
    return manifest
