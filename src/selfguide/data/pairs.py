"""Graded pairs of sentences, for evaluation: ``score<TAB>sentence<TAB>sentence``, no header, nothing quoted or escaped.

The sentences are taken as they stand, without the cleaning that training text gets: a benchmark's rows are all wanted,
and its text as it was released.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from selfguide.data.messages import shortened
from selfguide.data.sources import byte_source, require_file
from selfguide.data.streams import TextLines
from selfguide.errors import SelfguideError

_LAYOUTS = {2: "sentence<TAB>sentence", 3: "score<TAB>sentence<TAB>sentence"}


@dataclass(frozen=True)
class Pairs:
    """Pairs with a score each, in the order of the file."""

    scores: list[float]
    first: list[str]
    second: list[str]
    path: Path

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True)
class UnscoredPairs:
    """Pairs whose scores may not be there: None when the file has two columns."""

    scores: list[float] | None
    first: list[str]
    second: list[str]
    path: Path

    def __len__(self) -> int:
        return len(self.first)


def read_pairs(path: str | Path) -> Pairs:
    """A file of graded pairs; at least two, since less cannot be correlated."""
    rows = list(_rows(Path(path), columns=(3,)))
    if len(rows) < 2:
        raise SelfguideError(f"{path} holds only one pair: at least two are needed, as {_LAYOUTS[3]} a line.")
    scores = [row.score for row in rows if row.score is not None]
    return Pairs(scores, [row.first for row in rows], [row.second for row in rows], Path(path))


def read_unscored_pairs(path: str | Path) -> UnscoredPairs:
    """A file of pairs with or without a score in front."""
    rows = list(_rows(Path(path), columns=(2, 3)))
    scores = [row.score for row in rows if row.score is not None]
    return UnscoredPairs(scores or None, [row.first for row in rows], [row.second for row in rows], Path(path))


class _Row(NamedTuple):
    score: float | None
    first: str
    second: str


def _rows(path: Path, columns: tuple[int, ...]) -> Iterator[_Row]:
    """The one parser: every line in one of the layouts allowed, and all lines in the same."""
    lines = TextLines(byte_source(require_file(path.expanduser())))
    allowed = columns
    found = False
    blank = None  # the first of the blank lines that we are in
    for line in lines:
        cells = line.rstrip("\r").split("\t")
        if cells == [""]:
            blank = blank or lines.number
            continue
        if blank:  # at the end of a file a blank line does no harm; in the middle something is missing
            raise SelfguideError(f"{path}, line {blank} is blank: every line must be {_layout(allowed)}.")
        if len(cells) not in allowed:
            raise lines.error(f"has {_number_of_columns(cells)}: every line must be {_layout(allowed)}.")
        allowed = (len(cells),)
        found = True
        yield _parsed(cells, lines)
    if not found:
        raise SelfguideError(f"{path} holds no pairs but only blank lines: every line must be {_layout(columns)}.")


def _parsed(cells: list[str], lines: TextLines) -> _Row:
    *scores, first, second = cells
    for place, sentence in (("first", first), ("second", second)):
        if not sentence.strip():
            raise lines.error(f"has an empty {place} sentence: fill it in, or take the line out.")
    return _Row(_parsed_score(scores[0], lines) if scores else None, first, second)


def _parsed_score(text: str, lines: TextLines) -> float:
    try:
        score = float(text.replace("_", "?"))  # Python takes 1_0 for ten, and nobody writes a score so
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        hint = " (a header has to be taken out)" if lines.number == 1 else ""
        raise lines.error(f"has {shortened(text)} as its score, where a finite number is wanted{hint}.")
    return score


def _number_of_columns(cells: list[str]) -> str:
    return f"{len(cells)} tab-separated column{'s' if len(cells) > 1 else ''}"


def _layout(columns: tuple[int, ...]) -> str:
    return " or ".join(_LAYOUTS[number] for number in columns)
