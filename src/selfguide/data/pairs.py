"""Pairs of sentences, graded or not: ``score<TAB>sentence<TAB>sentence`` per line, without header, quoting or escapes.

Sentences are not cleaned as training text is: a benchmark needs every row, with its text as released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from selfguide.data.lines import TextLines
from selfguide.data.messages import shortened
from selfguide.data.sources import byte_source, require_file
from selfguide.errors import SelfguideError

_LAYOUTS = {2: "sentence<TAB>sentence", 3: "score<TAB>sentence<TAB>sentence"}


@dataclass(frozen=True)
class SentencePairs:
    """Pairs in the order of their file, with or without scores."""

    scores: list[float] | None
    first: list[str]
    second: list[str]
    path: Path

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.first)


@dataclass(frozen=True)
class Pairs(SentencePairs):
    """Pairs with a score each."""

    scores: list[float]


def read_pairs(path: str | Path) -> Pairs:
    """Read graded pairs.

    Args:
        path: The file.

    Returns:
        At least two pairs, since fewer cannot be correlated.

    Raises:
        SelfguideError: The file cannot be read, a line is at fault, or there is only one pair.
    """
    scores, first, second = _read(Path(path), columns=(3,))
    if len(scores) < 2:
        raise SelfguideError(f"{path} holds only one pair: at least two are needed, as {_LAYOUTS[3]} a line.")
    return Pairs(scores, first, second, Path(path))


def read_sentence_pairs(path: str | Path) -> SentencePairs:
    """Read pairs with or without a score in front.

    Args:
        path: The file.

    Returns:
        The pairs; ``scores`` is ``None`` if the file has two columns.

    Raises:
        SelfguideError: The file cannot be read, or a line is at fault.
    """
    scores, first, second = _read(Path(path), columns=(2, 3))
    return SentencePairs(scores or None, first, second, Path(path))


def _read(path: Path, columns: tuple[int, ...]) -> tuple[list[float], list[str], list[str]]:
    """Parse the file: the first line chooses among the allowed numbers of columns, and all lines must agree."""
    lines = TextLines(byte_source(require_file(path.expanduser())))
    allowed = columns
    blank = None  # number of the first blank line since the last row
    scores: list[float] = []
    first: list[str] = []
    second: list[str] = []
    for line in lines:
        cells = line.rstrip("\r").split("\t")
        if cells == [""]:
            blank = blank or lines.number
            continue
        if blank:  # harmless at the end of a file, but in the middle something is missing
            raise SelfguideError(f"{path}, line {blank} is blank: every line must be {_layout(allowed)}.")
        if len(cells) not in allowed:
            raise lines.column_error(cells, _layout(allowed))
        allowed = (len(cells),)
        for place, sentence in (("first", cells[-2]), ("second", cells[-1])):
            if not sentence.strip():
                raise lines.error(f"has an empty {place} sentence: fill it in, or take the line out.")
        if len(cells) == 3:
            scores.append(_score(cells[0], lines))
        first.append(cells[-2])
        second.append(cells[-1])
    if not first:
        raise SelfguideError(f"{path} holds no pairs but only blank lines: every line must be {_layout(columns)}.")
    return scores, first, second


def _score(text: str, lines: TextLines) -> float:
    try:
        score = float(text.replace("_", "?"))  # Python reads 1_0 as ten, but no score is written so
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        hint = " (a header has to be taken out)" if lines.number == 1 else ""
        raise lines.error(f"has {shortened(text)} as its score, where a finite number is wanted{hint}.")
    return score


def _layout(columns: tuple[int, ...]) -> str:
    return " or ".join(_LAYOUTS[number] for number in columns)
