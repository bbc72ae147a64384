"""Files that are part of the package: the embedded encoder and the demonstration data."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from selfguide.data.pairs import Pairs, read_pairs
from selfguide.errors import SelfguideError

MINI = "mini"


def mini_folder() -> Path:
    """The folder of the embedded encoder."""
    folder = Path(str(resources.files("selfguide"))) / "resources" / MINI
    if not (folder / "config.json").is_file():
        raise SelfguideError(
            "The embedded encoder 'mini' is missing from this installation; re-install selfguide, or pass --encoder FOLDER."
        )
    return folder


def demo_file(name: str) -> Path:
    """A file of the embedded demonstration data."""
    return Path(str(resources.files("selfguide"))) / "resources" / "demo" / name


def demo_sentences() -> list[str]:
    """The embedded sentences."""
    return demo_file("sentences.txt").read_text(encoding="utf-8").splitlines()


def demo_pairs(split: str) -> Pairs:
    """The embedded graded pairs: ``"dev"`` or ``"test"``."""
    return read_pairs(demo_file(f"pairs-{split}.tsv"))
