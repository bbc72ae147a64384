"""Readers of Parquet files and Hugging Face datasets, streamed a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selfguide.data.cleaning import MarkedText, Record, Row
from selfguide.data.columns import find_named_column
from selfguide.data.messages import REPLACE_BAD_UTF8, first_line, shortened
from selfguide.data.options import TextOptions
from selfguide.data.readers import BATCH_ROWS, Batches, Reader, flat, without_surrogates
from selfguide.errors import SelfguideError

_HUB_TIMEOUT_S = 10.0
_DOWNLOAD_IT = "download the data and pass the file"


class ParquetReader(Reader):
    """Reads a text column of a Parquet file."""

    takes = "column"

    def __init__(self, path: Path, name: str, options: TextOptions, rows: tuple[int, int | None] = (0, None)) -> None:
        super().__init__(name)
        self.path = path
        self._options = options
        self._start, self._stop = rows
        self._read = 0.0

    def file(self) -> Path | None:
        """See :meth:`Reader.file`."""
        return self.path

    def progress(self) -> tuple[int, int] | None:
        """See :meth:`Reader.progress`."""
        try:
            size = self.path.stat().st_size
        except OSError:
            return None
        return int(self._read * size), size

    def batches(self) -> Batches:
        """See :meth:`Reader.batches`."""
        row = self._start + 1
        for batch, column in self.pieces():
            rows = self._rows(column_of(batch, column), row)
            yield from self._with_others(rows, batch, column) if self.with_columns else rows
            row += batch.num_rows

    def column(self) -> str:
        """Return the name of the column that holds the sentences."""
        with self._opened() as file:
            return find_named_column(self.name, file.schema_arrow.names, self._options.column)

    def columns(self) -> Iterator[Any]:
        """Yield the column of text in pieces, as Arrow arrays."""
        for batch, column in self.pieces():
            yield column_of(batch, column)

    def pieces(self) -> Iterator[tuple[Any, str]]:
        """Yield record batches of the wanted rows, and the name of the column of text."""
        with self._opened() as file:
            column = find_named_column(self.name, file.schema_arrow.names, self._options.column)
            if len(file.schema_arrow.names) > 1:
                self.took = f"{self.name}: column {shortened(column)} of {len(file.schema_arrow.names)}."
            self._require_text(file.schema_arrow.field(column).type, column)
            place, groups = 0, list(range(file.num_row_groups))
            sizes = [file.metadata.row_group(group).num_rows for group in groups]
            while groups and place + sizes[groups[0]] <= self._start:
                place += sizes[groups.pop(0)]
            wanted = None if self.with_columns else [column]
            for batch in file.iter_batches(batch_size=BATCH_ROWS, row_groups=groups, columns=wanted):
                if self._stop is not None and place >= self._stop:
                    break
                last = batch.num_rows if self._stop is None else min(batch.num_rows, self._stop - place)
                first = min(max(0, self._start - place), last)
                place += batch.num_rows
                self._read = place / max(1, file.metadata.num_rows)
                if first < last or not batch.num_rows:
                    yield batch.slice(first, last - first), column

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self.path.is_file() and self.path.stat().st_size == 0:
            raise SelfguideError(f"{self.name} is empty: pass a file with sentences in it.")
        try:
            # Without a buffer a whole row group's column would be held in memory, and a file may be one row group.
            with pq.ParquetFile(self.path, buffer_size=1 << 20, pre_buffer=False) as file:
                yield file
        except (pa.ArrowException, OSError) as error:
            raise SelfguideError(
                f"{self.name} cannot be read as Parquet ({first_line(error)}): copy it or write it again."
            ) from error

    def _require_text(self, kind: Any, column: str) -> None:
        import pyarrow as pa

        value = kind.value_type if pa.types.is_dictionary(kind) else kind
        if str(value) not in ("string", "large_string", "string_view", "null"):
            raise SelfguideError(
                f"{self.name}, row 1: column {column!r} holds {kind}, not text; set column to another."
            )

    def _rows(self, column: Any, first_row: int) -> Batches:
        try:
            rows: list[Row] = column.to_pylist()
        except UnicodeDecodeError:
            yield from self._decoded_one_by_one(column, first_row)
        else:
            yield rows

    def _with_others(self, rows: Batches, batch: Any, column: str) -> Batches:
        others = {name: _cells(batch.column(name)) for name in batch.schema.names if name != column}
        done = 0
        for part in rows:
            yield [
                None if row is None else Record.of(row, dict(flat({name: others[name][place] for name in others})))
                for place, row in enumerate(part, done)
            ]
            done += len(part)

    def _decoded_one_by_one(self, column: Any, first_row: int) -> Batches:
        """Find the invalid row: Parquet text must be UTF-8, but some writers do not check."""
        import pyarrow as pa

        plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        rows: list[Row] = []
        for number, value in enumerate(plain.cast(pa.large_binary()).to_pylist(), first_row):
            try:
                rows.append(None if value is None else value.decode())
            except UnicodeDecodeError as error:
                if self._options.on_bad_utf8 == "error":
                    yield rows
                    raise SelfguideError(
                        f"{self.name}, row {number} is not valid UTF-8: fix it, or {REPLACE_BAD_UTF8}."
                    ) from error
                rows.append(MarkedText(value.decode(errors="replace"), replaced=True))
        yield rows


def column_of(batch: Any, name: str) -> Any:
    """Return a column of a record batch; of two with one name the first."""
    return batch.column(batch.schema.names.index(name))


def _cells(column: Any) -> list[Any]:
    """Return the values of a column that is not the sentences'; invalid UTF-8 in it is no reason to stop."""
    import pyarrow as pa

    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        raw = plain.cast(pa.large_binary()).to_pylist()
        values = [None if value is None else value.decode(errors="replace") for value in raw]
    return values


class HubReader(Reader):
    """Reads a text column of a dataset on the Hugging Face hub: ``hf:owner/name`` or ``hf:owner/name:split``."""

    takes = "column"

    def __init__(self, name: str, options: TextOptions) -> None:
        super().__init__(name)
        dataset, _, split = name.removeprefix("hf:").partition(":")
        self._id = dataset.strip()
        self._split = split.strip() or "train"
        self._options = options
        self._dataset: Any = None

    def check(self) -> None:
        """Open the dataset and find its column; see :meth:`Reader.check`."""
        if not self._id:
            raise SelfguideError(f"{self.name} names no dataset: write hf:owner/name or hf:owner/name:split.")
        self._require_on_hub()
        self._dataset = self._opened()
        if self._dataset.column_names:
            find_named_column(self.name, self._dataset.column_names, self._options.column)

    def rows(self) -> Iterator[Row]:
        """See :meth:`Reader.rows`."""
        if self._dataset is None:
            self.check()
        number = 0
        column = None
        try:
            for batch in self._dataset.iter(batch_size=BATCH_ROWS // 4):
                if column is None:
                    column = find_named_column(self.name, list(batch), self._options.column)
                    self.took = f"{self.name}: column {shortened(column)} of {len(batch)}."
                for place, value in enumerate(batch[column]):
                    number += 1
                    row = self._checked(value, column, number)
                    if self.with_columns and row is not None:
                        row = Record.of(row, dict(flat({key: batch[key][place] for key in batch if key != column})))
                    yield row
        except SelfguideError:
            raise
        except Exception as error:  # the network, the hub and a dataset's files can fail in any way
            raise SelfguideError(
                f"{self.name} broke off after {number:,} rows ({first_line(error)}): {_DOWNLOAD_IT}."
            ) from error

    def _checked(self, value: object, column: str, number: int) -> Row:
        if value is None:
            return None
        if not isinstance(value, str):
            raise SelfguideError(
                f"{self.name}, row {number}: column {column!r} holds {type(value).__name__} {shortened(value)}, "
                f"not text; set column to another."
            )
        return without_surrogates(value, f"{self.name}, row {number}", self._options)

    def _require_on_hub(self) -> None:
        """Query the hub once, with a time limit: ``load_dataset`` would retry for half a minute."""
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HFValidationError, OfflineModeIsEnabled, RepositoryNotFoundError

        try:
            HfApi().dataset_info(self._id, timeout=_HUB_TIMEOUT_S)
        except OfflineModeIsEnabled:
            return  # the dataset may be in the cache, and load_dataset does not wait in this mode
        except (RepositoryNotFoundError, HFValidationError) as error:
            raise SelfguideError(
                f"{self.name} does not exist on the Hugging Face hub, or is private: check the name, or {_DOWNLOAD_IT}."
            ) from error
        except Exception as error:  # the HTTP library's own errors, which differ between versions
            raise self._unreachable(error) from error

    def _opened(self) -> Any:
        from datasets import load_dataset

        try:
            return load_dataset(self._id, split=self._split, streaming=True)
        except ConnectionError as error:
            raise self._unreachable(error) from error
        except Exception as error:  # a missing split, a configuration to choose, a script: the message says which
            raise SelfguideError(
                f"{self.name} (split {self._split}) cannot be opened ({first_line(error)}): "
                f"check the name of the split, or {_DOWNLOAD_IT}."
            ) from error

    def _unreachable(self, error: Exception) -> SelfguideError:
        return SelfguideError(
            f"{self.name}: the Hugging Face hub cannot be reached ({first_line(error)}); {_DOWNLOAD_IT} instead."
        )
