"""The rows of a text on disk: read once from any source, typed, and identified by their keys.

The text is read a first time into a private file, which is removed with the command: only then are the types of all columns
known, and standard input can be read once only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from selfguide.data import Sentences
from selfguide.data.cleaning import Cell
from selfguide.data.dedup import SeenHashes
from selfguide.data.messages import listed
from selfguide.errors import SelfguideError
from selfguide.progress import Reporter
from selfguide.search.columns import TEXT, Column, Value, check_number, converted, kind_of, plain

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BATCH = 4096


class Row(NamedTuple):
    """A row of the text."""

    text: str
    columns: dict[str, Value]
    """The values that are there, by the names of the index's columns."""
    key: int
    """Identifies the row: equal rows have equal keys."""


class Spool:
    """The rows of a text, read into a file.

    Args:
        text: The text.
        folder: Where the file is made.
        wanted: The columns to keep; ``None`` for all.
        reporter: Shows progress.

    Raises:
        SelfguideError: There is no row, or no column that is wanted.
    """

    def __init__(self, text: Sentences, folder: Path, wanted: frozenset[str] | None, reporter: Reporter) -> None:
        self._file = folder / "rows.jsonl"
        self.kinds: dict[str, set[str]] = {}
        """The types of each column's values."""
        self.count = 0
        met: dict[str, None] = {}
        with (
            self._file.open("w", encoding="utf-8") as file,
            reporter.bar("reading", None, "rows", text.share_read) as advance,
        ):
            for sentence, cells in text.records():
                met |= dict.fromkeys(cells)
                row = {
                    name: self._taken(name, cell) for name, cell in cells.items() if wanted is None or name in wanted
                }
                file.write(
                    json.dumps([sentence, {name: value for name, value in row.items() if value is not None}]) + "\n"
                )
                self.count += 1
                if self.count % _BATCH == 0:
                    advance(_BATCH, "")
        if not self.count:
            raise SelfguideError(f"There is no sentence to index: {text.summary.describe()}.")
        absent = [name for name in sorted(wanted or ()) if name not in met]
        if absent:
            has = f"it has {listed(list(met))}" if met else "it has none"
            raise SelfguideError(f"The text has no column {absent[0]!r} beside its sentences: {has}.")

    def _taken(self, name: str, cell: object) -> Value | list[str]:
        """Return a value as it is written down, and remember its type."""
        if name not in self.kinds:
            check_number(len(self.kinds) + 1)
            self.kinds[name] = set()
        value = plain(cell)
        if value is None:
            return None
        self.kinds[name].add(kind_of(value))
        # The type of a cell is known only when all have been read; the list marks it as not yet typed.
        return [str(plain(str(value)))] if isinstance(value, Cell) else value

    def rows(self, columns: list[Column]) -> Iterator[Row]:
        """Yield the rows in order, each once however often it occurs.

        Args:
            columns: The columns of the index.
        """
        kinds = {column.name: column.kind for column in columns}
        seen = SeenHashes()
        batch: list[Row] = []
        with self._file.open(encoding="utf-8") as file:
            for line in file:
                sentence, cells = json.loads(line)
                values = {name: _value(cell, kinds[name]) for name, cell in cells.items()}
                batch.append(Row(sentence, values, row_key(sentence, values)))
                if len(batch) == _BATCH:
                    yield from _first(batch, seen)
                    batch = []
        yield from _first(batch, seen)

    def keys(self, columns: list[Column]) -> NDArray[np.int64]:
        """Return the keys of the different rows, in order."""
        return np.fromiter((row.key for row in self.rows(columns)), dtype=np.int64)

    def sentence_hashes(self) -> NDArray[np.int64]:
        """Return a hash of every sentence, sorted."""
        with self._file.open(encoding="utf-8") as file:
            return np.unique(np.fromiter((row_key(json.loads(line)[0], {}) for line in file), dtype=np.int64))


def row_key(text: str, columns: dict[str, Value]) -> int:
    """Return a number that identifies a row: a hash of its text and its values."""
    content = json.dumps([text, sorted(columns.items())]) if columns else text
    return int.from_bytes(
        blake2b(content.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little", signed=True
    )


def _value(cell: Value | list[str], kind: str) -> Value:
    """Return a value in its column's type; a list stands for the cell of a table."""
    if isinstance(cell, list):
        return converted(cell[0] if kind == TEXT else cell[0].strip(), kind)
    return converted(cell, kind)


def _first(batch: list[Row], seen: SeenHashes) -> Iterator[Row]:
    """Yield the rows of a batch that did not occur before."""
    hashes = np.array([row.key for row in batch], dtype=np.int64).view(np.uint64)
    return (row for row, new in zip(batch, seen.first_occurrences(hashes).tolist(), strict=True) if new)
