"""A run's results in few files of limited size, to be carried to where they are kept, and back into a folder."""

from __future__ import annotations

import io
import tarfile
import warnings
from pathlib import Path

CARRIED = ("encoder", "head", "average", "results.jsonl", "train.log")  # everything but the checkpoint
PIECE = 16 * 2**20 - 2**16  # bytes: below 16 MiB
PIECES = 8
STEM = "run.tar."


def bundle(run: Path, out: Path) -> list[Path]:
    """Cut one tar of the run's exports and records into ``run.tar.000``, ``run.tar.001`` …; return the files."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for path in (run / name for name in CARRIED):
            if path.exists():
                tar.add(path, arcname=path.name)
    data = whole.getbuffer()
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob(STEM + "*"):  # a longer bundle that lay here would leave pieces behind
        old.unlink()
    made: list[Path] = []
    for number, begin in enumerate(range(0, len(data), PIECE)):
        made.append(out / f"{STEM}{number:03d}")
        made[-1].write_bytes(data[begin : begin + PIECE])
    if len(made) > PIECES:
        warnings.warn(f"{len(made)} pieces, more than the {PIECES} that are meant to be carried", stacklevel=2)
    return made


def unbundle(pieces: Path, out: Path) -> list[Path]:
    """Join the pieces in a folder and lay the run out in ``out``; return its files."""
    found = sorted(pieces.glob(STEM + "*"))
    if not found or [p.name for p in found] != [f"{STEM}{n:03d}" for n in range(len(found))]:
        raise FileNotFoundError(f"{pieces}: pieces {STEM}000, {STEM}001 … without gaps are wanted")
    data = b"".join(p.read_bytes() for p in found)
    if not data.endswith(bytes(1024)):  # how every tar ends
        raise ValueError(f"{pieces}: the last piece is missing or cut short")
    out.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
        tar.extractall(out, filter="data")
        return [out / member.name for member in tar.getmembers() if member.isfile()]
