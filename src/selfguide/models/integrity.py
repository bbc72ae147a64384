"""Whether a finished folder is as selfguide wrote it: ``run.json`` keeps a digest of every file that the encoder is read from.

A flipped bit in a weight would otherwise be used silently: the encoder loads, and its embeddings are wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from selfguide.errors import SelfguideError
from selfguide.files import damage_of, folder_digests, former_folder, read_json, restore_folder
from selfguide.locks import beside, waited_for

RECORD = "run.json"
FILES = "files"
"""The key of ``run.json`` that holds the digests."""
_NOT_READ_FROM = ("README.md", "report.html", "similarity.json", "calibration.safetensors", RECORD)
"""What no embedding depends on; the statistics of a text, calibration.safetensors, carry a digest of their own."""
_checked: dict[Path, tuple[Any, ...]] = {}
"""Folders that this process has checked, and the state of their files then."""


def encoder_digests(folder: Path) -> dict[str, str]:
    """Return the digests of all files that decide what an encoder computes.

    Args:
        folder: A finished folder; what no embedding depends on, and other finished folders inside, are left out.

    Returns:
        The digests by the files' relative paths.
    """
    inner = {path.parent for path in folder.rglob(RECORD)} - {folder}

    def left_out(path: Path) -> bool:
        parts = path.relative_to(folder).parts
        return parts[0] in (*_NOT_READ_FROM, "runs") or path.name.startswith(".") or not inner.isdisjoint(path.parents)

    return folder_digests(folder, left_out)


def check_folder(folder: Path) -> None:
    """Refuse a finished folder that is damaged; folders that other programs or earlier versions made carry no digests.

    Args:
        folder: The folder.

    Raises:
        SelfguideError: A file is missing or has changed since it was written.
    """
    record = folder / RECORD
    if not record.is_file():
        return
    try:
        content = read_json(record)
        digests = content.get(FILES) or {} if isinstance(content, dict) else {}
        state = tuple((folder / name).stat()[6:9] for name in digests)
    except FileNotFoundError as error:
        raise SelfguideError(f"{error.filename} is missing; copy the encoder again, or train it again.") from None
    except (OSError, ValueError) as error:
        raise SelfguideError(f"{record} is damaged ({error}); copy the encoder again, or train it again.") from None
    if _checked.get(folder.absolute()) == (digests, state):
        return
    problem = damage_of(folder, digests)
    if problem is not None:
        raise SelfguideError(
            f"{problem}. Copy the encoder again, or train it again; if you changed the file yourself, remove {FILES!r} from "
            f"{record}."
        )
    _checked[folder.absolute()] = (digests, state)


def restore_interrupted(folder: Path) -> None:
    """Restore a folder whose replacement was interrupted, on a system that needs two steps for it.

    Args:
        folder: The folder, which may be there or not.
    """
    if folder.name and not folder.exists() and former_folder(folder).is_dir():
        with waited_for(beside(folder)):
            restore_folder(folder)
