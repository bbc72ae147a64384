"""Pairs of sentences, graded or not: ``score<TAB>sentence<TAB>sentence`` per line, without header, quoting or escapes.

A ``.csv`` file without tabs is read as spreadsheets write it: quoted, in these columns or with a header that names them.
Sentences are not cleaned as training text is: a benchmark needs every row, with its text as released.
"""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass
from pathlib import Path

from selfguide.data.dialect import Dialect, detect_dialect, named_separator
from selfguide.data.lines import TextLines
from selfguide.data.messages import shortened
from selfguide.data.sources import byte_source, require_file
from selfguide.errors import SelfguideError
from selfguide.progress import counted

_SAMPLED_LINES = 200
_TITLES = (
    ("score", "scores", "similarity", "similarityscore", "label", "grade", "gold", "goldscore"),
    ("sentence1", "text1", "sentencea", "texta", "first", "firstsentence", "s1"),
    ("sentence2", "text2", "sentenceb", "textb", "second", "secondsentence", "s2"),
)
"""What headers call the columns, without blanks and lines between words."""
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
    source = byte_source(require_file(path.expanduser()))
    lines = TextLines(source)
    named = path.with_suffix("") if source.compression else path
    if named.suffix.lower() == ".csv":
        sample = lines.peek(_SAMPLED_LINES)
        if not any("\t" in line for line in sample):
            return _read_table(lines, sample, columns)
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
        _check_sentences(cells[-2:], lines)
        if len(cells) == 3:
            scores.append(_score(cells[0], lines))
        first.append(cells[-2])
        second.append(cells[-1])
    if not first:
        raise SelfguideError(f"{path} holds no pairs but only blank lines: every line must be {_layout(columns)}.")
    return scores, first, second


def _read_table(
    lines: TextLines, sample: list[str], columns: tuple[int, ...]
) -> tuple[list[float], list[str], list[str]]:
    """Parse comma-separated values: a header names the columns, or they are in the usual order."""
    mark = named_separator(sample)
    if mark is not None:
        next(iter(lines))
    dialect = Dialect(mark) if mark is not None else detect_dialect(sample)
    layout = "score, sentence, sentence" if columns == (3,) else "sentence, sentence or score, sentence, sentence"
    places: list[int] | None = None
    width = 0
    found: tuple[list[float], list[str], list[str]] = ([], [], [])
    try:
        for cells in dialect.rows(lines):
            if not cells:
                continue
            if places is None:
                width = len(cells)
                places = _places(cells)
                if places is not None and len(places) in columns:
                    continue
                if width not in columns:
                    raise lines.error(
                        f"has {counted(width, 'column')}: every line must be {layout}, or a first line must name the columns "
                        "score, sentence1 and sentence2."
                    )
                places = list(range(width))
            if len(cells) != width:
                raise lines.error(f"has {counted(len(cells), 'column')} where the first line has {width}.")
            *score, first, second = (cells[place] for place in places)
            _check_sentences([first, second], lines)
            if score:
                found[0].append(_score(score[0], lines))
            found[1].append(first)
            found[2].append(second)
    except csv.Error as error:
        raise lines.error(f"is not valid CSV ({error}): look for a quote that is not closed or not doubled.") from error
    if not found[1]:
        raise SelfguideError(f"{lines.name} holds no pairs: every line must be {layout}.")
    return found


def _places(titles: list[str]) -> list[int] | None:
    """Return where a header has score, first and second sentence; ``None`` if the row does not name both sentences."""
    names = [re.sub(r"[\s_-]", "", title).casefold() for title in titles]
    found = [next((names.index(name) for name in usual if name in names), None) for usual in _TITLES]
    if None in found[1:]:
        return None
    return [place for place in found if place is not None]


def _check_sentences(pair: list[str], lines: TextLines) -> None:
    for place, sentence in zip(("first", "second"), pair, strict=True):
        if not sentence.strip():
            raise lines.error(f"has an empty {place} sentence: fill it in, or take the line out.")


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
