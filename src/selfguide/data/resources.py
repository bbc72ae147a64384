"""Files in the package: the embedded encoder and the demonstration data."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from selfguide.data.pairs import Pairs, read_pairs
from selfguide.errors import SelfguideError

MINI = "mini"
_RESOURCES = Path(str(resources.files("selfguide"))) / "resources"


def mini_folder() -> Path:
    """Return the folder of the embedded encoder.

    Raises:
        SelfguideError: The installation lacks it.
    """
    folder = _RESOURCES / MINI
    if not (folder / "config.json").is_file():
        raise SelfguideError(
            "The embedded encoder 'mini' is missing from this installation; re-install selfguide, or pass --encoder FOLDER."
        )
    return folder


def demo_file(name: str) -> Path:
    """Return the path of a file of the demonstration data."""
    return _RESOURCES / "demo" / name


def demo_sentences() -> list[str]:
    """Return the demonstration sentences."""
    return demo_file("sentences.txt").read_text(encoding="utf-8").splitlines()


def demo_pairs(split: str) -> Pairs:
    """Return the demonstration's graded pairs of a split, ``"dev"`` or ``"test"``."""
    return read_pairs(demo_file(f"pairs-{split}.tsv"))
