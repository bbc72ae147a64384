"""Reading a folder of text: documents, paragraphs and sentences.

The format is the plainest there is: UTF-8, one paragraph a line, a blank line between documents, in files that end in
``.txt`` or ``.txt.xz``.
"""

from __future__ import annotations

import lzma
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

# A sentence ends at . ! or ? (with closing quotes or brackets), white space, and what looks like a new beginning.
_BOUNDARY = re.compile(r"""[.!?]+["')\]”’]*\s+(?=["'(\[“‘]?[A-Z0-9])""")
# What stands before a full stop without ending a sentence; initials ("J. S. Bach") are caught by their length.
_ABBREVIATIONS = frozenset(
    """
    mr mrs ms dr prof st sr jr rev gen col sgt capt lt gov sen rep hon mt vs etc inc ltd co corp no vol fig
    figs eq al ed eds cf ca approx dept est e.g i.e a.m p.m u.s u.k u.n jan feb mar apr jun jul aug sep sept
    oct nov dec
    """.split()
)


def text_files(folder: Path) -> list[Path]:
    """The text files of a folder in a fixed order."""
    files = sorted(p for p in folder.iterdir() if p.name.endswith((".txt", ".txt.xz")))
    if not files:
        raise FileNotFoundError(f"no .txt or .txt.xz file in {folder}")
    return files


def documents(folder: Path) -> Iterator[list[str]]:
    """Each document of the folder as its list of paragraphs."""
    for path in text_files(folder):
        lines: list[str] = []
        with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as handle:
            for raw in handle:
                line = raw.strip()
                if line:
                    lines.append(line)
                elif lines:
                    yield lines
                    lines = []
        if lines:
            yield lines


def fingerprint(paragraphs: list[str]) -> float:
    """A number in [0, 1) that depends on the document alone: a split must not change with the order of files."""
    return zlib.crc32("\n".join(paragraphs).encode("utf-8")) / 2**32


def sentences(paragraph: str) -> list[str]:
    """Split a paragraph by a simple rule. Errs on the side of leaving two sentences together."""
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
