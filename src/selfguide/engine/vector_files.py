"""Write embeddings to ``.npy``, ``.parquet`` or ``.jsonl`` files, chunk by chunk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np

from selfguide.errors import SelfguideError, UsageError
from selfguide.files import atomic_path

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMATS = (".npy", ".parquet", ".jsonl")
_FLOAT = np.dtype(np.float32)


class Writer(Protocol):
    """Takes chunks of sentences and their embeddings."""

    def write(self, sentences: list[str], vectors: NDArray[Any]) -> None:
        """Write one chunk: sentences, and embeddings (sentences, dim)."""

    def close(self) -> None:
        """Complete the file."""


@contextmanager
def vector_file(output: Path | IO[str], width: int, dtype: np.dtype[Any] = _FLOAT) -> Iterator[Writer]:
    """Open a writer whose file appears under its name only when the block succeeds.

    Args:
        output: A file whose suffix is one of ``FORMATS``, or an open text file that gets JSON lines.
        width: Number of columns: the embedding dimension, or packed bytes.
        dtype: Numeric type of the embeddings.

    Yields:
        The writer.

    Raises:
        UsageError: The suffix is not supported, or ``output`` is a folder.
        SelfguideError: The file cannot be written.
    """
    if not isinstance(output, Path):
        yield _JsonLines(output)
        return
    if output.suffix not in FORMATS:
        raise UsageError(f"{output} ends in {output.suffix or 'nothing'}; selfguide writes {', '.join(FORMATS)}.")
    if output.is_dir():
        raise UsageError(f"{output} is a folder; name a file in it, such as {output / 'vectors.npy'}.")
    try:
        with atomic_path(output) as temporary:
            if output.suffix == ".jsonl":
                with temporary.open("w", encoding="utf-8") as file:
                    yield _JsonLines(file)
                return
            kind = _Npy if output.suffix == ".npy" else _Parquet
            writer: Writer = kind(temporary, width, dtype)
            try:
                yield writer
            except BaseException:
                with suppress(Exception):  # the file is discarded: the first error is the one to report
                    writer.close()
                raise
            writer.close()
    except OSError as error:
        raise SelfguideError(f"{output} cannot be written: {error.strerror or error}.") from None


class _Npy:
    """A ``.npy`` file whose number of rows is filled in at the end; padding keeps the header's length constant."""

    def __init__(self, path: Path, width: int, dtype: np.dtype[Any]) -> None:
        self.file = path.open("wb")
        self.width = width
        self.dtype = dtype.newbyteorder("<")
        self.rows = 0
        self._header()

    def _header(self) -> None:
        description = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.rows, self.width)}
        # numpy pads the header to a multiple of 64 bytes with room for a growing first axis.
        np.lib.format.write_array_header_1_0(self.file, description)

    def write(self, sentences: list[str], vectors: NDArray[Any]) -> None:
        self.file.write(np.ascontiguousarray(vectors, dtype=self.dtype).tobytes())
        self.rows += len(vectors)

    def close(self) -> None:
        body = self.file.tell()
        self.file.seek(0)
        self._header()
        expected = body - self.rows * self.width * self.dtype.itemsize
        if self.file.tell() != expected:  # the header outgrew its padding
            raise SelfguideError("The .npy header does not fit; write .parquet instead.")
        self.file.close()


class _Parquet:
    """Columns ``sentence`` and ``embedding`` (a list of fixed size)."""

    def __init__(self, path: Path, width: int, dtype: np.dtype[Any]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.pa = pa
        self.width = width
        self.type = pa.from_numpy_dtype(dtype)
        self.schema = pa.schema([("sentence", pa.string()), ("embedding", pa.list_(self.type, width))])
        self.file = pq.ParquetWriter(str(path), self.schema)

    def write(self, sentences: list[str], vectors: NDArray[Any]) -> None:
        flat = self.pa.array(vectors.reshape(-1), type=self.type)
        lists = self.pa.FixedSizeListArray.from_arrays(flat, self.width)
        self.file.write_table(self.pa.table([self.pa.array(sentences), lists], schema=self.schema))

    def close(self) -> None:
        self.file.close()


class _JsonLines:
    """One object a line: ``{"sentence": …, "embedding": […]}``."""

    def __init__(self, file: IO[str]) -> None:
        self.file = file

    def write(self, sentences: list[str], vectors: NDArray[Any]) -> None:
        for sentence, vector in zip(sentences, vectors.tolist(), strict=True):
            self.file.write(json.dumps({"sentence": sentence, "embedding": vector}, ensure_ascii=False) + "\n")

    def close(self) -> None:
        self.file.flush()
