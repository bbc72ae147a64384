"""The table in LanceDB, and the record that says which of its versions readers see.

    notes.index/
      index.json     the encoder, the columns, and the version of the table that is visible
      rows.lance/    the table, with its indexes

LanceDB makes a new version of a table with every change, in one step each. A version counts once ``index.json`` names it; it has
a tag as well, so that cleaning up never takes it.
"""

from __future__ import annotations

import json
import os
import shlex
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from selfguide.data.messages import first_line
from selfguide.errors import SelfguideError, UsageError
from selfguide.files import read_json, write_text
from selfguide.search.columns import KEY, SENTENCE, VECTOR, Column, Value, table_schema
from selfguide.versions import versions

if TYPE_CHECKING:
    from numpy.typing import NDArray

RECORD = "index.json"
_FORMAT = 1
_TABLE = "rows"
_TAG = "visible"
_EVER = timedelta(days=36_500)
_SCANNED = 16_384
_DELETED = 5_000
_GONE = "a file of it is missing; unless another process has just changed it, make it again"
WORDS = (
    "any", "arabic", "danish", "dutch", "english", "finnish", "french", "german", "greek", "hungarian", "italian", "norwegian",
    "portuguese", "romanian", "russian", "spanish", "swedish", "tamil", "turkish",
)  # fmt: skip
"""Languages whose words the full-text index reduces to their stems; ``any`` leaves words as they are."""


@dataclass(frozen=True)
class IndexRecord:
    """What ``index.json`` holds."""

    encoder: str | None
    """Name or folder of the encoder; ``None`` where it was given as a loaded one."""
    digest: str
    """Identifies the encoder; see :mod:`selfguide.engine.digest`."""
    dim: int
    columns: tuple[Column, ...]
    words: str
    """Language of the full-text index; one of :data:`WORDS`."""
    version: int = 0
    """The version of the table that readers see; 0 while it is made."""
    rows: int = 0
    trained: int = 0
    """How many rows the vector index was trained on; 0 where there is none."""

    def write(self, folder: Path) -> None:
        """Write the record, which makes its version visible."""
        made = {"written": time.strftime("%Y-%m-%d %H:%M:%S"), "versions": versions("lancedb")}
        write_text(folder / RECORD, json.dumps({"format": _FORMAT, **asdict(self), **made}, indent=1) + "\n")

    @property
    def setting(self) -> dict[str, Any]:
        """What rows of one index have in common, by the words of messages."""
        columns = ", ".join(f"{column.name} ({column.kind})" for column in self.columns) or "none"
        return {"the encoder": self.digest, "columns": columns, "--words": self.words}


def read_record(folder: Path) -> IndexRecord:
    """Read the record of an index.

    Args:
        folder: The index.

    Returns:
        The record.

    Raises:
        SelfguideError: There is no index, or its record is damaged.
    """
    path = folder / RECORD
    try:
        content = read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        if partial_folder(folder).is_dir() and not folder.exists():
            raise SelfguideError(
                f"The index {folder} is not finished: repeat the command that was making it, which continues it."
            ) from None
        if folder.exists():
            raise SelfguideError(f"{folder} is no index: name a folder that `selfguide index` made.") from None
        raise SelfguideError(
            f"There is no index at {folder}: `selfguide index TEXT --output {shlex.quote(str(folder))}` makes one."
        ) from None
    except OSError as error:
        raise SelfguideError(f"The index {folder} cannot be read: {error.strerror or error}.") from None
    except ValueError as error:
        raise _damaged(folder, error) from None
    try:
        if content["format"] != _FORMAT:
            raise SelfguideError(f"The index {folder} was made by another version of selfguide: make it again.")
        columns = tuple(Column(**column) for column in content["columns"])
        names = ("encoder", "digest", "dim", "words", "version", "rows", "trained")
        return IndexRecord(columns=columns, **{name: content[name] for name in names})
    except (KeyError, TypeError) as error:
        raise _damaged(folder, error) from None


def _damaged(folder: Path, error: Exception) -> SelfguideError:
    return SelfguideError(f"The index {folder} is damaged ({RECORD}: {first_line(error)}): make it again.")


def partial_folder(output: Path) -> Path:
    """Return the folder that an index is while it is made."""
    return output.parent / f"{output.name}.partial"  # with_name would refuse "." and "/"


@contextmanager
def translated(folder: Path, doing: str) -> Iterator[None]:
    """Turn LanceDB's errors, whose messages are pages of Rust, into a sentence.

    Args:
        folder: The index.
        doing: ``read`` or ``written``.

    Yields:
        Nothing.
    """
    try:
        yield
    except SelfguideError:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        message = str(error).lower()
        known = {
            "permission denied": "permission denied",
            "no space left": "no space left on the device",
            "read-only file system": "the file system is read-only",
            "file too large": "a file is too large for the file system, or for a limit of this process",
            "not found": _GONE,
            "no such file": _GONE,
        }
        reason = next((words for sign, words in known.items() if sign in message), first_line(error))
        raise SelfguideError(f"The index {folder} cannot be {doing}: {reason}.") from error


def require_lancedb() -> Any:
    """Return the module ``lancedb``.

    Raises:
        SelfguideError: It is not installed.
    """
    try:
        os.environ.setdefault("RUST_LOG", "error")  # its deprecation notes are not for users
        import lancedb
    except ImportError:
        raise SelfguideError("An index needs LanceDB: pip install 'selfguide[search]'.") from None
    return lancedb


class Store:
    """The table of an index.

    Args:
        folder: The index.
        columns: Its columns.
        dim: Dimensions of its vectors.
    """

    def __init__(self, folder: Path, columns: Sequence[Column], dim: int) -> None:
        self.folder, self.columns, self.dim = folder, list(columns), dim
        self._schema = table_schema(self.columns, dim)
        lancedb = require_lancedb()
        with translated(folder, "read"):
            self._connection = lancedb.connect(folder)
        self.table: Any = None

    def create(self) -> None:
        """Make an empty table, or open the one that a killed process left."""
        with translated(self.folder, "written"):
            self.table = self._connection.create_table(_TABLE, schema=self._schema, exist_ok=True)

    def open(self, version: int | None = None) -> None:
        """Open the table.

        Args:
            version: The version to see; ``None`` for the latest.
        """
        with translated(self.folder, "read"):
            self.table = self._connection.open_table(_TABLE)
            if version is not None:
                self.table.checkout(version)

    # -- reading -----------------------------------------------------------------------------------------------------------

    def batches(
        self, *columns: str, where: str | None = None, offset: int = 0, count: int | None = None
    ) -> Iterator[Any]:
        """Yield rows in order, in Arrow batches of some thousand, with these columns alone.

        Args:
            *columns: Names in the table.
            where: SQL that the rows meet.
            offset: How many rows to leave out at the beginning.
            count: How many rows to read at most; ``None`` for all.

        Yields:
            The batches.
        """
        with translated(self.folder, "read"):
            query = self.table.search().select(list(columns)).limit(count or max(1, self.table.count_rows()))
            query = query.offset(offset) if offset else query
            yield from (query if where is None else query.where(where)).to_batches(_SCANNED)

    def vectors_at(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the vectors of rows by their numbers, which must be in order."""
        with translated(self.folder, "read"):
            table = self.table.take_offsets(places.tolist()).select([VECTOR]).to_arrow()
        flat = table.column(VECTOR).combine_chunks().flatten()
        found: NDArray[np.float32] = flat.to_numpy(zero_copy_only=False).reshape(-1, self.dim)
        return found

    def keys(self) -> NDArray[np.int64]:
        """Return the keys of all rows, in order."""
        parts = [batch.column(KEY).to_numpy(zero_copy_only=False) for batch in self.batches(KEY)]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def count(self, where: str | None = None) -> int:
        """Return the number of rows, or of those that meet a condition."""
        with translated(self.folder, "read"):
            return int(self.table.count_rows(where))

    @property
    def has_vector_index(self) -> bool:
        """Whether there is a vector index."""
        with translated(self.folder, "read"):
            return any(index.columns == [VECTOR] for index in self.table.list_indices())

    # -- changing ----------------------------------------------------------------------------------------------------------

    def append(self, rows: Sequence[tuple[str, dict[str, Value], int]], vectors: NDArray[np.float32]) -> None:
        """Add rows in one step.

        Args:
            rows: Text, values by the columns' names, and key of each.
            vectors: Their unit vectors, (rows, dim).
        """
        import pyarrow as pa

        flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).ravel())
        content: dict[str, Any] = {
            SENTENCE: [row[0] for row in rows],
            KEY: [row[2] for row in rows],
            VECTOR: pa.FixedSizeListArray.from_arrays(flat, self.dim),
        }
        for column in self.columns:
            content[column.stored] = [row[1].get(column.name) for row in rows]
        with translated(self.folder, "written"):
            self.table.add(pa.table(content, schema=self._schema))

    def delete_keys(self, keys: NDArray[np.int64]) -> None:
        """Remove rows by their keys."""
        with translated(self.folder, "written"):
            for start in range(0, len(keys), _DELETED):
                self.table.delete(f"{KEY} IN ({', '.join(map(str, keys[start : start + _DELETED].tolist()))})")

    def go_back(self, version: int) -> None:
        """Undo what came after a version."""
        with translated(self.folder, "written"):
            if self.table.version != version:
                self.table.restore(version)

    def index_words(self, words: str) -> None:
        """Make the full-text index, unless there is one."""
        from lancedb.index import FTS

        with translated(self.folder, "written"):
            if any(index.columns == [SENTENCE] for index in self.table.list_indices()):
                return
            if words == "any":
                config = FTS(base_tokenizer="icu", stem=False, remove_stop_words=False)
            else:
                config = FTS(language=words.capitalize())
            self.table.create_index(SENTENCE, config=config)

    def index_vectors(self) -> None:
        """Make the vector index, in place of the former."""
        from lancedb.index import IvfSq

        with translated(self.folder, "written"):
            # A byte a dimension: of those tried the quickest to make, and the best rows are compared by their true vectors.
            self.table.create_index(VECTOR, config=IvfSq(distance_type="cosine"), replace=True)

    def tidy(self) -> None:
        """Merge small files, and bring new rows into the indexes; no version is removed."""
        with translated(self.folder, "written"):
            for _ in range(5):
                before = self.table.version
                self.table.optimize(cleanup_older_than=_EVER)
                if self.table.version == before:
                    return

    def read_back(self) -> None:
        """Read back what has been written, since LanceDB ignores some errors of the disk.

        Raises:
            SelfguideError: It cannot be read, or rows are missing.
        """
        from lancedb.query import MatchQuery

        fresh = Store(self.folder, self.columns, self.dim)
        fresh.open()
        if len(fresh.keys()) != self.count():
            raise SelfguideError(f"The index {self.folder} cannot be read: rows are missing.")
        for batch in fresh.batches(SENTENCE, VECTOR, count=1):
            words = MatchQuery(str(batch.column(SENTENCE)[0])[:200], SENTENCE)
            with translated(self.folder, "read"):
                fresh.table.search(words, query_type="fts").limit(1).to_arrow()

    def publish(self, record: IndexRecord) -> IndexRecord:
        """Make the table as it is visible, all at once, and remove the former versions.

        Args:
            record: The record, but for version and rows.

        Returns:
            The record that was written.
        """
        with translated(self.folder, "written"):
            record = replace(record, version=int(self.table.version), rows=int(self.table.count_rows()))
            record.write(self.folder)
            self._tag(record.version)
            # LanceDB refuses to remove a version with a tag, and warns of readers, who open the table again.
            with suppress(RuntimeError), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.table.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)
        return record

    def _tag(self, version: int) -> None:
        if _TAG in self.table.tags.list():
            self.table.tags.update(_TAG, version)
        else:
            self.table.tags.create(_TAG, version)


def check_words(words: str) -> None:
    """Refuse a language that the full-text index does not know.

    Raises:
        UsageError: It is none of :data:`WORDS`.
    """
    if words not in WORDS:
        raise UsageError(f"words must be one of {', '.join(WORDS)}, got {words!r}.")
