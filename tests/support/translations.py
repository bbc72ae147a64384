"""Back-translations for tests: a file of pairs, and a command that stands in for Apertium."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

from toys import toy_sentences


def turned(sentence: str) -> str:
    """The words of a sentence in reverse order, as its translation."""
    return " ".join(reversed(sentence.split()))


def write_pairs(path: Path) -> Path:
    """A translation of each of forty sentences, but the first comes back as it was, and the second has two."""
    sentences = toy_sentences(40)
    rows = [f"{sentence}\t{turned(sentence)}" for sentence in sentences[1:]]
    path.write_text("\n".join([f"{sentences[0]}\t{sentences[0].upper()}", f"{sentences[1]}\tmy sister", *rows]) + "\n")
    return path


def write_fake_apertium(folder: Path) -> Path:
    """A command of that name that marks each block, and knows eng-spa only, in both directions."""
    folder.mkdir()
    script = folder / "apertium"
    script.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "if sys.argv[-1] not in ('eng-spa', 'spa-eng'):\n"
        "    sys.exit(f'Error: Mode {sys.argv[-1]} does not exist.')\n"
        "blocks = sys.stdin.read().split('\\n\\n')\n"
        "if any('merge' in block for block in blocks): blocks = [' '.join(blocks)]\n"
        "mark = 'x ' if sys.argv[-1] == 'eng-spa' else 'y '\n"
        "print('\\n\\n'.join(mark + block for block in blocks), end='')\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IEXEC)
    return folder
