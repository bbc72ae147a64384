"""The columns of an index: the type of each, found from its values, and the name it is stored under."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from selfguide.data.cleaning import Cell, has_surrogates, replace_surrogates
from selfguide.data.messages import listed, shortened
from selfguide.errors import SelfguideError, UsageError

TEXT, WHOLE, NUMBER, TRUTH = "text", "whole number", "number", "true or false"
"""The types of columns."""
MOST_COLUMNS = 200
SENTENCE = "text"
"""What the sentence itself is called, in conditions and in the table."""
VECTOR, KEY = "_vector", "_key"

_PLAIN_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_WHOLE = re.compile(r"-?(0|[1-9]\d{0,18})", re.ASCII)
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_LONGEST = 2**63

Value = str | int | float | bool | None


@dataclass(frozen=True)
class Column:
    """A column of the index."""

    name: str
    """Its name in the input, by which conditions call it."""
    stored: str
    """Its name in the table, which is the same where that is a plain one."""
    kind: str
    """One of the four types."""


def plain(value: object) -> Value:
    """Return a value of the input as one that JSON and the table can hold.

    Args:
        value: What a reader gives: lists and objects become JSON, dates text in the order of time, and no number is infinite.

    Returns:
        The value; ``None`` where it is missing. Cells of tables stay cells.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Cell):
        return value if value.strip() else None
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, ensure_ascii=True, default=str)
    if not isinstance(value, str):
        isoformat = getattr(value, "isoformat", None)
        value = str(isoformat()) if callable(isoformat) else str(value)
    return str(replace_surrogates(value)) if has_surrogates(value) else value


def kind_of(value: Value) -> str:
    """Return the type of one value; that of a table's cell is what it looks like."""
    if isinstance(value, bool):
        return TRUTH
    if isinstance(value, int):
        return WHOLE if -_LONGEST <= value < _LONGEST else TEXT
    if isinstance(value, float):
        return NUMBER
    if isinstance(value, Cell):
        cell = value.strip()
        if _WHOLE.fullmatch(cell):
            return WHOLE if -_LONGEST <= int(cell) < _LONGEST else TEXT
        if _NUMBER.fullmatch(cell) and len(cell) < 300 and math.isfinite(float(cell)):
            return NUMBER
        return TRUTH if cell.lower() in ("true", "false") else TEXT
    return TEXT


def common_kind(kinds: Iterable[str]) -> str:
    """Return the type that holds the values of all of several types: a number for both kinds of numbers, otherwise text."""
    found = set(kinds)
    if found == {WHOLE, NUMBER}:
        return NUMBER
    return found.pop() if len(found) == 1 else TEXT


def converted(value: Value, kind: str) -> Value:
    """Return a value in the type of its column.

    Args:
        value: A value of this type, or of any if the type is text.
        kind: The type.
    """
    if value is None:
        return None
    if kind == TEXT:
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value)
    if kind == TRUTH:
        return value.strip().lower() == "true" if isinstance(value, str) else bool(value)
    return int(value) if kind == WHOLE else float(value)


def new_columns(kinds: Mapping[str, set[str]]) -> list[Column]:
    """Return the columns of a new index.

    Args:
        kinds: The types of each column's values, by its name in the input.

    Returns:
        The columns, in the same order.

    Raises:
        SelfguideError: There are too many.
    """
    check_number(len(kinds))
    columns: list[Column] = []
    taken = {SENTENCE, VECTOR, KEY}
    for number, (name, found) in enumerate(kinds.items()):
        stored = name
        if _PLAIN_NAME.fullmatch(name) is None or name in taken:
            stored = f"column_{number}"
            while stored in taken or stored in kinds:
                stored += "_"
        taken.add(stored)
        columns.append(Column(name, stored, common_kind(found) if found else TEXT))
    return columns


def check_number(count: int) -> None:
    """Refuse more columns than an index keeps.

    Raises:
        SelfguideError: There are too many.
    """
    if count > MOST_COLUMNS:
        raise SelfguideError(
            f"The text has more than {MOST_COLUMNS} columns or fields, which is the most that an index keeps: name those to keep "
            "with --columns."
        )


def check_fit(columns: Iterable[Column], kinds: Mapping[str, set[str]]) -> None:
    """Refuse to add a text whose columns an index does not have, or has with another type.

    Args:
        columns: The columns of the index.
        kinds: The types of the text's columns.

    Raises:
        SelfguideError: A column does not fit.
    """
    known = {column.name: column for column in columns}
    unknown = [name for name in kinds if name not in known]
    if unknown:
        has = f"it has {listed(list(known))}" if known else "it has none"
        raise SelfguideError(
            f"The index has no column {shortened(unknown[0])} ({has}): leave it out with --columns, or build the index anew."
        )
    for name, found in kinds.items():
        kind = known[name].kind
        if kind != TEXT and found and common_kind({*found, kind}) != kind:
            other = min(found - {kind})
            raise SelfguideError(
                f"The column {shortened(name)} of the index holds values of the type {kind}, and the text has values of the type "
                f"{other} there: correct them, leave the column out with --columns, or build the index anew."
            )


def wanted_columns(words: str | None) -> frozenset[str] | None:
    """Return the columns that ``--columns`` names.

    Args:
        words: Names separated by commas, ``all`` or ``None`` for all, or ``none``.

    Returns:
        The names; ``None`` for all.

    Raises:
        UsageError: A name is empty.
    """
    if words is None or words == "all":
        return None
    if words == "none":
        return frozenset()
    names = [word.strip() for word in words.split(",")]
    if not all(names):
        raise UsageError(f"columns takes names separated by commas, all or none, not {words!r}.")
    return frozenset(names)


def table_schema(columns: Iterable[Column], width: int) -> Any:
    """Return the Arrow schema of the table."""
    import pyarrow as pa

    kinds = {TEXT: pa.string(), WHOLE: pa.int64(), NUMBER: pa.float64(), TRUTH: pa.bool_()}
    return pa.schema(
        [
            pa.field(SENTENCE, pa.string()),
            *[pa.field(column.stored, kinds[column.kind]) for column in columns],
            pa.field(KEY, pa.int64()),
            pa.field(VECTOR, pa.list_(pa.float32(), width)),
        ]
    )
