"""Which column of a table or field of a record holds the sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from selfguide.data.messages import NAME_THE_COLUMN, listed
from selfguide.errors import SelfguideError
from selfguide.words import count_words

USUAL_NAMES = ("text", "sentence")
_SENTENCE_WORDS = 3
"""Minimum median number of words in a column of sentences."""
_NAME = re.compile(r"[^\W\d][\w./#-]*( [\w./#()-]+)?", re.UNICODE)
"""A name of a column: one or two words that begin with a letter, without punctuation."""
_LONGEST_NAME = 40


class FoundColumn(NamedTuple):
    """The sentences' column."""

    place: int
    header: bool
    """Whether the first row names the columns."""
    why: str
    """Why this column was taken, for the user to check."""


def usual_name(names: Sequence[str]) -> str | None:
    """Return the first of the usual names of a column of sentences, ignoring case."""
    for usual in USUAL_NAMES:
        for name in names:
            if name.strip().casefold() == usual:
                return name
    return None


def find_table_column(name: str, rows: Sequence[Sequence[str]], wanted: str | None, header: str) -> FoundColumn:
    """Find the sentences' column of a table whose columns may have no names.

    Args:
        name: The table, for messages.
        rows: The first rows; the very first may be a header.
        wanted: The name or number that the user gave.
        header: ``yes``, ``no``, or ``auto`` to look at the rows.

    Returns:
        The column.

    Raises:
        SelfguideError: There is no such column, or it is not clear which one holds sentences.
    """
    titles = [cell.strip() for cell in rows[0]]
    named = {"yes": True, "no": False}.get(header)
    if wanted is not None and not wanted.isdecimal():
        if wanted in titles and named is not False:
            return FoundColumn(titles.index(wanted), True, "as asked for")
        raise SelfguideError(
            f"{name} has no column {wanted!r}: set column to one of {listed(titles)}, or to its number from 0."
        )
    if wanted is not None:
        if int(wanted) >= len(titles):
            raise SelfguideError(
                f"{name} has no column {wanted}: it has {len(titles)}, counted from 0 ({listed(titles)})."
            )
        return FoundColumn(int(wanted), looks_like_header(rows) if named is None else named, "as asked for")
    usual = usual_name(titles) if named is not False else None
    if usual is not None:
        return FoundColumn(titles.index(usual), True, "by its name")
    if named is None:
        named = looks_like_header(rows)
    if len(titles) == 1:
        return FoundColumn(0, named, "the only one")
    texts = _sentence_columns(rows[named:], len(titles))
    if len(texts) == 1:
        return FoundColumn(texts[0], named, "the only one with sentences")
    raise SelfguideError(f"{name} has {len(titles)} columns ({listed(titles)}): {NAME_THE_COLUMN}.")


def find_named_column(name: str, columns: Sequence[str], wanted: str | None) -> str:
    """Return the name of the sentences' column in a table whose columns all have names."""
    if wanted is None:
        found = usual_name(columns) or (columns[0] if len(columns) == 1 else None)
        if found is None:
            raise SelfguideError(f"{name} has the columns {listed(columns)}: {NAME_THE_COLUMN}.")
        return found
    if wanted in columns:
        return wanted
    if wanted.isdecimal() and int(wanted) < len(columns):
        return columns[int(wanted)]
    raise SelfguideError(f"{name} has no column {wanted!r}: set column to one of {listed(columns)}.")


def looks_like_header(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row names the columns.

    Every cell must look like a name and occur nowhere below it in its column, and one column at least must be of another kind
    below: numbers, or sentences where the name is a single word.
    """
    titles, body = [cell.strip() for cell in rows[0]], rows[1:]
    if not body or len(set(titles)) < len(titles):
        return False
    if not all(_NAME.fullmatch(title) and len(title) <= _LONGEST_NAME for title in titles):
        return False
    columns = [[row[index].strip() for row in body if index < len(row)] for index in range(len(titles))]
    if any(title in column for title, column in zip(titles, columns, strict=True)):
        return False
    return any(
        bool(column) and (all(map(_is_number, column)) or (" " not in title and has_sentences(column)))
        for title, column in zip(titles, columns, strict=True)
    )


def _sentence_columns(body: Sequence[Sequence[str]], width: int) -> list[int]:
    columns = [[row[index] for row in body if index < len(row)] for index in range(width)]
    return [index for index, column in enumerate(columns) if has_sentences(column)]


def has_sentences(cells: Sequence[str]) -> bool:
    """Return whether the median of the non-empty cells has at least three words."""
    filled = [count_words(cell) for cell in cells if cell.strip()]
    return bool(filled) and median(filled) >= _SENTENCE_WORDS


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", "."))
    except ValueError:
        return False
    return True
