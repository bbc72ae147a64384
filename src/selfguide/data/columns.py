"""Which column of a table holds the sentences."""

from __future__ import annotations

from collections.abc import Sequence

from selfguide.data.messages import NAME_THE_COLUMN, listed
from selfguide.errors import SelfguideError

_USUAL_NAMES = ("text", "sentence")


def find_table_column(name: str, first: Sequence[str], wanted: str | None) -> tuple[int, bool]:
    """The number of the sentences' column, and whether the first row is a header."""
    titles = [cell.strip() for cell in first]
    if wanted is None:
        usual = find_usual_name(titles)
        if usual is not None:
            return titles.index(usual), True
        if len(titles) == 1:
            return 0, False
        raise SelfguideError(f"{name} has {len(titles)} columns ({listed(titles)}): {NAME_THE_COLUMN}.")
    if wanted.isdecimal():
        if int(wanted) < len(titles):
            return int(wanted), False
        raise SelfguideError(f"{name} has no column {wanted}: it has {len(titles)}, counted from 0 ({listed(titles)}).")
    if wanted in titles:
        return titles.index(wanted), True
    raise SelfguideError(
        f"{name} has no column {wanted!r}: set column to one of {listed(titles)}, or to its number from 0."
    )


def find_named_column(name: str, columns: Sequence[str], wanted: str | None) -> str:
    """The name of the sentences' column in a table whose columns all have names."""
    if wanted is None:
        found = find_usual_name(columns) or (columns[0] if len(columns) == 1 else None)
        if found is None:
            raise SelfguideError(f"{name} has the columns {listed(columns)}: {NAME_THE_COLUMN}.")
        return found
    if wanted in columns:
        return wanted
    if wanted.isdecimal() and int(wanted) < len(columns):
        return columns[int(wanted)]
    raise SelfguideError(f"{name} has no column {wanted!r}: set column to one of {listed(columns)}.")


def find_usual_name(names: Sequence[str]) -> str | None:
    for usual in _USUAL_NAMES:
        for name in names:
            if name.strip().casefold() == usual:
                return name
    return None
