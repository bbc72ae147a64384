"""Write embeddings to ``.npy``, ``.parquet`` or ``.jsonl`` files, chunk by chunk, so that an interrupted writer can be resumed.

While it is written, ``vectors.npy`` is a folder ``vectors.npy.partial``, for its owner alone:

=====================  ====================================================================================================
``setting.json``       what decides the content; another setting cannot resume it
``data``               the embeddings so far: the body of a ``.npy`` file after its header, or lines of JSON
``sentences.jsonl``    for ``.parquet``, whose files cannot be added to: the sentences so far; the file is made at the end
``progress.json``      written after every chunk: how much of the others counts, with its digests
=====================  ====================================================================================================

Anything beyond the last ``progress.json`` was being written when the process was killed, and is truncated. The rest is the same
to the bit as if nothing had happened, because chunks begin where they would have begun.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np

from selfguide.engine.growing_file import GrowingFile
from selfguide.errors import InterruptedRun, SelfguideError, UsageError
from selfguide.files import atomic_path, json_digest, read_json, remove_leftovers, write_text
from selfguide.locks import beside, check_free, held
from selfguide.progress import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMATS = (".npy", ".parquet", ".jsonl")
_SETTING = "setting.json"
GROUP = 4096
"""Rows of a row group of a parquet file."""
_FLOAT = np.dtype(np.float32)


class Writer(Protocol):
    """Takes chunks of sentences and their embeddings."""

    @property
    def rows(self) -> int:
        """Sentences that are written."""

    @property
    def state(self) -> dict[str, Any]:
        """What the caller needs to resume, as JSON values."""

    def skip(self, sentences: Iterable[str]) -> Iterator[str]:
        """Return the sentences that come after those that are written."""

    def write(self, sentences: list[str], vectors: NDArray[Any]) -> None:
        """Write one chunk: sentences, and embeddings (sentences, dim); then ``state`` is kept."""


@contextmanager
def vector_file(
    output: Path | IO[str],
    width: int,
    dtype: np.dtype[Any] = _FLOAT,
    *,
    setting: dict[str, Any] | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> Iterator[Writer]:
    """Open a writer whose file appears under its name only when the block succeeds.

    Args:
        output: A file whose suffix is one of ``FORMATS``, or an open text file that gets JSON lines.
        width: Number of columns: the embedding dimension, or packed bytes.
        dtype: Numeric type of the embeddings.
        setting: What decides the embeddings, by name; a resumed writer must have the same.
        resume: Continue what an interrupted writer left.
        overwrite: Replace the file, and what an interrupted writer left.

    Yields:
        The writer.

    Raises:
        UsageError: The suffix is not supported, ``output`` is a folder or must not be replaced, or there is nothing to resume.
        FolderInUse: Another process is writing the file.
        SelfguideError: The file cannot be written, or what is to be resumed is damaged.
        InterruptedRun: The user stopped it; the message says what is kept.
    """
    if not isinstance(output, Path):
        yield _JsonLines(output)
        return
    check_output(output, resume, overwrite)
    try:
        with held(beside(output), output):
            check_output(output, resume, overwrite)
            remove_leftovers(output)
            partial = PartialVectors(output, width, dtype, setting or {}, overwrite)
            partial.open(resume)
            with partial.kept_if_interrupted():
                yield partial
                if partial.rows:
                    partial.finish()
    except OSError as error:
        raise SelfguideError(f"{output} cannot be written: {error.strerror or error}.") from None


def partial_folder(output: Path) -> Path:
    """Return the folder that holds a file of embeddings while it is being written."""
    return output.with_name(output.name + ".partial")


def check_output(output: Path, resume: bool, overwrite: bool) -> None:
    """Reject an unusable output before anything is computed.

    Args:
        output: The file.
        resume: Whether to go on with what an interrupted writer left.
        overwrite: Whether to replace the file.

    Raises:
        UsageError: See :func:`vector_file`.
        FolderInUse: Another process is writing the file.
        SelfguideError: There is no such folder.
    """
    if output.suffix not in FORMATS:
        raise UsageError(f"{output} ends in {output.suffix or 'nothing'}; selfguide writes {', '.join(FORMATS)}.")
    if output.is_dir():
        raise UsageError(f"{output} is a folder; name a file in it, such as {output / 'vectors.npy'}.")
    partial = partial_folder(output)
    try:
        os.scandir(output.parent).close()
    except OSError as error:
        raise SelfguideError(f"{output} cannot be written: {error.strerror}.") from None
    check_free(beside(output), output)  # what is half done there is not interrupted, then
    if resume and not (partial / _SETTING).is_file():
        state = "it is finished" if output.exists() else "there is no interrupted encoding there"
        raise UsageError(f"Nothing to resume at {output}: {state}. Leave --resume out to start one.")
    if resume or overwrite:
        return
    if output.exists():
        raise UsageError(f"{output} exists already; choose another --output, or use --overwrite to replace it.")
    if (partial / _SETTING).is_file():
        raise UsageError(f"An interrupted encoding is in {partial}: --resume continues it, --overwrite starts over.")


class PartialVectors:
    """The embeddings that are written so far; see the head of this module."""

    def __init__(
        self, output: Path, width: int, dtype: np.dtype[Any], setting: dict[str, Any], overwrite: bool
    ) -> None:
        self.output, self.folder = output, partial_folder(output)
        self.width, self.dtype = width, dtype.newbyteorder("<")
        self.setting = json.loads(json.dumps({**setting, "columns": width, "type": self.dtype.str}, default=str))
        self.overwrite = overwrite
        self.rows = 0
        self.state: dict[str, Any] = {}
        self._complete = False
        self._start = len(self._header(0)) if output.suffix == ".npy" else 0
        self._data = GrowingFile(self.folder / "data", self._start)
        self._sentences = GrowingFile(self.folder / "sentences.jsonl", 0) if output.suffix == ".parquet" else None
        self._text = hashlib.sha256()

    def open(self, resume: bool) -> None:
        """Make the folder, or open what an interrupted writer left.

        Args:
            resume: Which of the two.

        Raises:
            UsageError: What is there has another setting.
            SelfguideError: It is damaged.
        """
        if resume:
            self._reopen()
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o700)
        self._data.create(self._header(0) if self._start else b"")
        if self._sentences is not None:
            self._sentences.create(b"")
        self._keep_progress()
        content = {"setting": self.setting, "overwrite": self.overwrite}
        write_text(self.folder / _SETTING, json.dumps(content, indent=1))

    def _reopen(self) -> None:
        try:
            stored = read_json(self.folder / _SETTING)
            before, self.overwrite = stored["setting"], stored["overwrite"] or self.overwrite
            progress = read_json(self.folder / "progress.json")
            kept = progress["kept"]
            sound = progress["digest"] == json_digest(kept)
            if sound and kept["complete"] and not self._data.path.exists() and self.output.exists():
                self.rows, self._complete = kept["rows"], True
                return
            sound = sound and self._data.reopen(*kept["data"])
            if self._sentences is not None:
                sound = sound and self._sentences.reopen(*kept["sentences"])
        except (OSError, ValueError, KeyError, TypeError):
            sound = False
        if not sound:
            raise SelfguideError(f"The interrupted encoding in {self.folder} is damaged; start over with --overwrite.")
        for name, value in before.items():
            if self.setting.get(name) != value:
                raise UsageError(
                    f"This is not the encoding that was interrupted: there, {name} was {value!r}, here it is "
                    f"{self.setting.get(name)!r}. Give the former options, or start over with --overwrite."
                )
        if self.output.exists() and not (self.overwrite or kept["complete"]):
            raise UsageError(f"{self.output} exists already; use --overwrite to replace it.")
        self.rows, self.state, self._expected = kept["rows"], kept["state"], kept["text"]

    def skip(self, sentences: Iterable[str]) -> Iterator[str]:
        """Return the sentences that come after those that are written.

        Args:
            sentences: All of them.

        Returns:
            The rest.

        Raises:
            SelfguideError: The first ones are not those that were encoded.
        """
        rest = iter(sentences)
        if self._complete:
            return iter(())
        for _ in range(self.rows):
            sentence = next(rest, None)
            if sentence is None:
                break
            self._text.update(_framed(sentence))
        if self.rows and self._text.hexdigest() != self._expected:
            raise SelfguideError(
                f"The text has changed since the encoding in {self.folder} was interrupted: its first {self.rows:,} sentences "
                "are others. Give the former text, or start over with --overwrite."
            )
        return rest

    def write(self, sentences: list[str], vectors: NDArray[Any]) -> None:
        """Write one chunk, and keep what has been written."""
        if self.output.suffix == ".jsonl":
            self._data.append(_json_lines(sentences, vectors))
        else:
            self._data.append(np.ascontiguousarray(vectors, dtype=self.dtype).tobytes())
        if self._sentences is not None:
            self._sentences.append("".join(json.dumps(sentence) + "\n" for sentence in sentences).encode())
        for sentence in sentences:
            self._text.update(_framed(sentence))
        self.rows += len(sentences)
        self._keep_progress()

    def finish(self) -> None:
        """Give the file its name, and remove the folder."""
        if not self._complete:
            self._data.close()
            self._complete = True
            if self.output.suffix == ".npy":
                self._data.overwrite(0, self._header(self.rows))
            self._keep_progress()
            if self.output.suffix == ".parquet":
                with atomic_path(self.output) as temporary:
                    self._write_parquet(temporary)
            else:
                self._data.path.replace(self.output)
        (self.folder / _SETTING).unlink()  # from here on there is nothing to resume
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def kept_if_interrupted(self) -> Iterator[None]:
        """Report what is kept if the block fails; remove the folder if nothing is.

        Yields:
            Nothing.
        """
        try:
            yield
        except BaseException as error:
            self._data.close()
            if self._sentences is not None:
                self._sentences.close()
            kept = f" {counted(self.rows, 'sentence')} {'is' if self.rows == 1 else 'are'} kept; " if self.rows else ""
            if not self.rows:
                shutil.rmtree(self.folder, ignore_errors=True)
            if isinstance(error, KeyboardInterrupt):
                going_on = "go on with the same command and --resume." if kept else ""
                raise InterruptedRun(f"Interrupted.{kept}{going_on}") from None
            if isinstance(error, OSError) and kept:
                raise SelfguideError(
                    f"{self.output} cannot be written: {error.strerror or error}.{kept}make room, then go on with the same "
                    "command and --resume."
                ) from None
            raise
        else:
            if not self.rows:
                shutil.rmtree(self.folder, ignore_errors=True)

    def _keep_progress(self) -> None:
        kept = {
            "rows": self.rows,
            "complete": self._complete,
            "data": self._data.mark(),
            "sentences": self._sentences.mark() if self._sentences is not None else None,
            "text": self._text.hexdigest(),
            "state": self.state,
        }
        write_text(self.folder / "progress.json", json.dumps({"kept": kept, "digest": json_digest(kept)}))

    def _header(self, rows: int) -> bytes:
        """Return the header of a ``.npy`` file; numpy pads it with room for a growing first axis."""
        import io

        target = io.BytesIO()
        description = {"descr": self.dtype.str, "fortran_order": False, "shape": (rows, self.width)}
        np.lib.format.write_array_header_1_0(target, description)
        return target.getvalue()

    def _write_parquet(self, path: Path) -> None:
        """Write the columns ``sentence`` and ``embedding`` (a list of fixed size)."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        assert self._sentences is not None
        kind = pa.from_numpy_dtype(self.dtype)
        schema = pa.schema([("sentence", pa.string()), ("embedding", pa.list_(kind, self.width))])
        size = GROUP * self.width * self.dtype.itemsize
        with (
            pq.ParquetWriter(str(path), schema) as writer,
            self._data.path.open("rb") as data,
            self._sentences.path.open(encoding="utf-8") as lines,
        ):
            while block := data.read(size):
                flat = np.frombuffer(block, dtype=self.dtype)
                count = len(flat) // self.width
                sentences = [json.loads(next(lines)) for _ in range(count)]
                lists = pa.FixedSizeListArray.from_arrays(pa.array(flat, type=kind), self.width)
                writer.write_table(pa.table([pa.array(sentences, type=pa.string()), lists], schema=schema))


class _JsonLines:
    """JSON lines to an open file."""

    def __init__(self, file: IO[str]) -> None:
        self.file = file
        self.rows = 0
        self.state: dict[str, Any] = {}

    def skip(self, sentences: Iterable[str]) -> Iterator[str]:
        return iter(sentences)

    def write(self, sentences: list[str], vectors: NDArray[Any]) -> None:
        self.file.write(_json_lines(sentences, vectors).decode())
        self.rows += len(sentences)


def _json_lines(sentences: list[str], vectors: NDArray[Any]) -> bytes:
    """Return one object a line: ``{"sentence": …, "embedding": […]}``."""
    rows = zip(sentences, vectors.tolist(), strict=True)
    lines = (json.dumps({"sentence": text, "embedding": vector}, ensure_ascii=False) + "\n" for text, vector in rows)
    return "".join(lines).encode()


def _framed(sentence: str) -> bytes:
    return sentence.encode("utf-8", "surrogatepass") + b"\0"
