"""Read documents, paragraphs and sentences from a folder of text.

The files end in ``.txt`` or ``.txt.xz`` and are UTF-8, with one paragraph a line and a blank line between documents.
"""

from __future__ import annotations

import lzma
import re
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

# A sentence ends at . ! or ? (with closing quotes or brackets), white space, and what looks like a new sentence.
# An opening mark, a capital (with accents, for Spanish), a digit, or a letter of Arabic, which has no capitals.
_NEXT = r"""["'(\[“‘«]*[¿¡]*(?:[A-ZÁÉÍÓÚÜÑ0-9]|[\u0621-\u064a])"""
_BOUNDARY = re.compile(rf"""[.!?؟۔]+["')\]”’»]*\s+(?={_NEXT})""")
# Abbreviations whose full stop ends no sentence; initials ("J. S. Bach") are recognised by their length.
_ABBREVIATIONS = frozenset(
    """
    mr mrs ms dr prof st sr jr rev gen col sgt capt lt gov sen rep hon mt vs etc inc ltd co corp no vol fig
    figs eq al ed eds cf ca approx dept est e.g i.e a.m p.m u.s u.k u.n jan feb mar apr jun jul aug sep sept
    oct nov dec
    """.split()
)


def text_files(folder: Path) -> list[Path]:
    """Return the text files of a folder, or the one file that is named, in a fixed order."""
    if folder.is_file():
        return [folder]
    files = sorted(p for p in folder.iterdir() if p.name.endswith((".txt", ".txt.xz")))
    if not files:
        raise FileNotFoundError(f"There is no .txt or .txt.xz file in {folder}.")
    return files


def documents(folder: Path, share: float = 1.0) -> Iterator[list[str]]:
    """Yield each document of a folder, or of one file, as a list of paragraphs.

    Args:
        folder: The folder or file.
        share: Share of the documents to yield, chosen by their :func:`fingerprint`.
    """
    for path in text_files(folder):
        lines: list[str] = []
        with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as handle:
            for raw in chain(handle, [""]):
                line = raw.strip()
                if line:
                    lines.append(line)
                elif lines:
                    if share >= 1.0 or fingerprint(lines, "share") < share:
                        yield lines
                    lines = []


def fingerprint(paragraphs: list[str], salt: str = "") -> float:
    """Return a number in [0, 1) that depends on the document alone, so that a split does not depend on the order of files.

    Args:
        paragraphs: The document.
        salt: Choices by different salts are independent of each other.
    """
    return zlib.crc32(salt.encode(), zlib.crc32("\n".join(paragraphs).encode("utf-8"))) / 2**32


def sentences(paragraph: str) -> list[str]:
    """Split a paragraph by a simple rule, which rather leaves two sentences together than splits one."""
    out: list[str] = []
    start = 0
    for match in _BOUNDARY.finditer(paragraph):
        if paragraph[match.start()] == ".":
            before = paragraph[start : match.start()].rsplit(None, 1)
            word = before[-1].lstrip("\"'([“‘").lower() if before else ""
            if word in _ABBREVIATIONS or (len(word) == 1 and word.isalpha()):
                continue
        out.append(paragraph[start : match.end()].rstrip())
        start = match.end()
    if start < len(paragraph):
        out.append(paragraph[start:])
    return out
