"""Sentences → vectors: all at once as an array, or streamed to a file in constant memory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np

from selfguide.encoders import load_encoder
from selfguide.errors import SelfguideError, UsageError
from selfguide.reporting import Reporter

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

FORMATS = (".npy", ".parquet", ".jsonl")
_CPU_TOKENS = 1024


def encode(
    encoder: str | Path | SentenceTransformer,
    sentences: str | Sequence[str],
    *,
    batch_size: int = 64,
    normalise: bool = False,
    device: str | None = None,
    show_progress: bool | None = None,
) -> NDArray[np.float32]:
    """Encode sentences, in order, into an array (count, dim); one sentence gives one vector.

    Args:
        encoder: ``"mini"``, a folder, a hub name or a loaded SentenceTransformer.
        sentences: one sentence or a sequence of them.
        batch_size: sentences a forward pass.
        normalise: scale each vector to length 1, so that dot products are cosines.
        show_progress: ``None`` shows a bar on a terminal when there is more than a little to do.
    """
    model = load_encoder(encoder, device=device)
    reporter = Reporter(quiet=show_progress is False)
    if isinstance(sentences, str):
        return sentence_vectors(model, [sentences], batch_size, normalise)[0]
    if not len(sentences):
        return np.zeros((0, int(model.get_embedding_dimension() or 0)), dtype=np.float32)
    with reporter.bar("encoding", len(sentences), "sentences") as advance:
        chunks = []
        for start in range(0, len(sentences), 4096):
            chunk = list(sentences[start : start + 4096])
            chunks.append(sentence_vectors(model, chunk, batch_size, normalise))
            advance(len(chunk), "")
    return np.concatenate(chunks)


def encode_to_file(
    encoder: SentenceTransformer,
    sentences: Iterable[str],
    output: Path | IO[str],
    *,
    batch_size: int = 64,
    normalise: bool = False,
    chunk: int = 4096,
    reporter: Reporter | None = None,
) -> int:
    """Encode a stream of sentences to ``.npy``, ``.parquet`` or ``.jsonl`` (or to an open text file, as JSON lines).

    Memory does not grow with the number of sentences; the file gets its name only when it is complete. Returns the count.
    """
    reporter = reporter or Reporter(quiet=True)
    count = 0
    with _writer(output, int(encoder.get_embedding_dimension() or 0)) as writer:
        with reporter.bar("encoding", None, "sentences") as advance:
            for batch in _batched(sentences, chunk):
                vectors = sentence_vectors(encoder, batch, batch_size, normalise)
                writer.write(batch, vectors)
                count += len(batch)
                advance(len(batch), "")
        if count == 0:
            raise SelfguideError("There was no sentence to encode: the input is empty.")
    return count


def cosine(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """Row by row cosine of two arrays of the same shape; 0 where a vector has no length."""
    norms = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return (first * second).sum(axis=-1) / np.where(norms > 0, norms, 1.0)


def sentence_vectors(
    model: SentenceTransformer, sentences: list[str], batch_size: int = 64, normalise: bool = False
) -> NDArray[np.float32]:
    """The stock ``encode`` over batches of sentences with equally many tokens, so that hardly any padding is computed.

    On a CPU a batch holds about a thousand tokens: more gain nothing, and memory stays small.
    """
    batches = token_batches(model, sentences, batch_size)
    vectors: NDArray[np.float32] | None = None
    for batch in batches:
        found = model.encode(
            [sentences[index] for index in batch],
            batch_size=len(batch),
            normalize_embeddings=normalise,
            show_progress_bar=False,
        )
        if vectors is None:
            vectors = np.empty((len(sentences), np.shape(found)[1]), dtype=np.float32)
        vectors[batch] = found
    assert vectors is not None
    return vectors


def token_batches(model: SentenceTransformer, sentences: list[str], batch_size: int) -> list[list[int]]:
    """Numbers of sentences, a batch each, the longest first."""
    tokenizer = model.tokenizer
    if model.device.type != "cpu" or not callable(tokenizer):  # the stock order, by characters, will do
        order = sorted(range(len(sentences)), key=lambda index: -len(sentences[index]))
        return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    limit = model.max_seq_length or 512
    lengths = [len(ids) for ids in tokenizer(sentences, truncation=True, max_length=limit)["input_ids"]]
    batches: list[list[int]] = []
    room = 0
    for index in sorted(range(len(sentences)), key=lambda number: -lengths[number]):
        if not room:
            room = min(batch_size, max(1, _CPU_TOKENS // max(1, lengths[index])))
            batches.append([])
        batches[-1].append(index)
        room -= 1
    return batches


def _batched(sentences: Iterable[str], size: int) -> Iterator[list[str]]:
    batch: list[str] = []
    for sentence in sentences:
        batch.append(sentence)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


class _Writer(Protocol):
    def write(self, sentences: list[str], vectors: NDArray[np.float32]) -> None: ...
    def close(self) -> None: ...


@contextmanager
def _writer(output: Path | IO[str], width: int) -> Iterator[_Writer]:
    """A writer whose file appears under its name only when all went well."""
    if not isinstance(output, Path):
        yield _JsonLines(output)
        return
    if output.suffix not in FORMATS:
        raise UsageError(f"{output} ends in {output.suffix or 'nothing'}; selfguide writes {', '.join(FORMATS)}.")
    if output.is_dir():
        raise UsageError(f"{output} is a folder; name a file in it, such as {output / 'vectors.npy'}.")
    fresh = output.with_name(f".{output.name}.{os.getpid()}.tmp")
    try:
        if output.suffix == ".jsonl":
            with fresh.open("w", encoding="utf-8") as file:
                yield _JsonLines(file)
        else:
            writer: _Writer = _Npy(fresh, width) if output.suffix == ".npy" else _Parquet(fresh, width)
            try:
                yield writer
            except BaseException:
                with suppress(Exception):  # the file is given up: what went wrong first is what to report
                    writer.close()
                raise
            writer.close()
        fresh.replace(output)
    except OSError as error:
        raise SelfguideError(f"{output} cannot be written: {error.strerror or error}.") from None
    finally:
        with suppress(OSError):  # a folder that is none cannot be cleared up in either
            fresh.unlink(missing_ok=True)


class _Npy:
    """A ``.npy`` file whose number of rows is filled in at the end; the header is padded, so its length does not change."""

    def __init__(self, path: Path, width: int) -> None:
        self.file = path.open("wb")
        self.width = width
        self.rows = 0
        self._header()

    def _header(self) -> None:
        description = {"descr": "<f4", "fortran_order": False, "shape": (self.rows, self.width)}
        # numpy pads the header to a multiple of 64 bytes with room for a growing first axis.
        np.lib.format.write_array_header_1_0(self.file, description)

    def write(self, sentences: list[str], vectors: NDArray[np.float32]) -> None:
        self.file.write(np.ascontiguousarray(vectors, dtype="<f4").tobytes())
        self.rows += len(vectors)

    def close(self) -> None:
        body = self.file.tell()
        self.file.seek(0)
        self._header()
        expected = body - self.rows * self.width * 4
        if self.file.tell() != expected:  # would need a header that outgrew its padding
            raise SelfguideError("The .npy header does not fit; write .parquet instead.")
        self.file.close()


class _Parquet:
    """Columns ``sentence`` and ``embedding`` (a list of float32)."""

    def __init__(self, path: Path, width: int) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.pa = pa
        self.width = width
        self.schema = pa.schema([("sentence", pa.string()), ("embedding", pa.list_(pa.float32(), width))])
        self.file = pq.ParquetWriter(str(path), self.schema)

    def write(self, sentences: list[str], vectors: NDArray[np.float32]) -> None:
        flat = self.pa.array(vectors.reshape(-1), type=self.pa.float32())
        lists = self.pa.FixedSizeListArray.from_arrays(flat, self.width)
        self.file.write_table(self.pa.table([self.pa.array(sentences), lists], schema=self.schema))

    def close(self) -> None:
        self.file.close()


class _JsonLines:
    """One object a line: ``{"sentence": …, "embedding": […]}``."""

    def __init__(self, file: IO[str]) -> None:
        self.file = file

    def write(self, sentences: list[str], vectors: NDArray[np.float32]) -> None:
        for sentence, vector in zip(sentences, vectors.tolist(), strict=True):
            self.file.write(json.dumps({"sentence": sentence, "embedding": vector}, ensure_ascii=False) + "\n")

    def close(self) -> None:
        self.file.flush()
