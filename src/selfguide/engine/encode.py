"""Sentences → vectors: all at once as an array, or streamed to a file in constant memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from selfguide.engine.backends import check_backend, runner
from selfguide.engine.torch_runner import token_batches
from selfguide.engine.vector_files import FORMATS, vector_file
from selfguide.errors import SelfguideError
from selfguide.models.encoders import load_encoder
from selfguide.progress import Reporter

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

__all__ = [
    "FORMATS",
    "cosine",
    "encode",
    "encode_to_file",
    "sentence_vectors",
    "token_batches",
    "vector_chunks",
]

# Sentences that are sorted by length together: enough for full batches of one length, and few enough to hold.
_CPU_CHUNK = 4096
_GPU_CHUNK = 8192


def encode(
    encoder: str | Path | SentenceTransformer,
    sentences: str | Sequence[str],
    *,
    backend: str = "torch",
    batch_size: int | None = None,
    normalise: bool = False,
    device: str | None = None,
    show_progress: bool | None = None,
) -> NDArray[np.float32]:
    """Encode sentences, in order, into an array (count, dim); one sentence gives one vector.

    Args:
        encoder: ``"mini"``, a folder, a hub name or a loaded SentenceTransformer.
        sentences: one sentence or a sequence of them.
        backend: ``torch``, ``bf16``, ``onnx`` or ``int8``; see :mod:`selfguide.engine.backends`.
        batch_size: sentences a forward pass at most. ``None``: as many as make a pass of a good size where it runs.
        normalise: scale each vector to length 1, so that dot products are cosines.
        show_progress: ``None`` shows a bar on a terminal when there is more than a little to do.
    """
    check_backend(backend)
    model = load_encoder(encoder, device=device)
    reporter = Reporter(quiet=show_progress is False)
    if isinstance(sentences, str):
        return sentence_vectors(model, [sentences], batch_size, normalise, backend)[0]
    if not len(sentences):
        return np.zeros((0, int(model.get_embedding_dimension() or 0)), dtype=np.float32)
    with reporter.bar("encoding", len(sentences), "sentences") as advance:
        found: NDArray[np.float32] | None = None
        start = 0
        for chunk, vectors in vector_chunks(model, sentences, batch_size, normalise, backend):
            if found is None:
                found = np.empty((len(sentences), vectors.shape[1]), dtype=np.float32)
            found[start : start + len(chunk)] = vectors
            start += len(chunk)
            advance(len(chunk), "")
    assert found is not None
    return found


def encode_to_file(
    encoder: SentenceTransformer,
    sentences: Iterable[str],
    output: Path | IO[str],
    *,
    backend: str = "torch",
    batch_size: int | None = None,
    normalise: bool = False,
    reporter: Reporter | None = None,
) -> int:
    """Encode a stream of sentences to ``.npy``, ``.parquet`` or ``.jsonl`` (or to an open text file, as JSON lines).

    Memory does not grow with the number of sentences; the file gets its name only when it is complete. Returns the count.
    """
    reporter = reporter or Reporter(quiet=True)
    count = 0
    with vector_file(output, int(encoder.get_embedding_dimension() or 0)) as writer:
        with reporter.bar("encoding", None, "sentences") as advance:
            for chunk, vectors in vector_chunks(encoder, sentences, batch_size, normalise, backend):
                writer.write(chunk, vectors)
                count += len(chunk)
                advance(len(chunk), "")
        if count == 0:
            raise SelfguideError("There was no sentence to encode: the input is empty.")
    return count


def sentence_vectors(
    model: SentenceTransformer,
    sentences: list[str],
    batch_size: int | None = None,
    normalise: bool = False,
    backend: str = "torch",
) -> NDArray[np.float32]:
    """The vectors of sentences that are sorted by length all together."""
    run = runner(model, backend)
    return _finished(run.start(run.tokenise(sentences), batch_size)(), normalise)


def vector_chunks(
    model: SentenceTransformer,
    sentences: Iterable[str],
    batch_size: int | None = None,
    normalise: bool = False,
    backend: str = "torch",
) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
    """Chunks of sentences with their vectors, in order.

    On a GPU three chunks are under way at a time: while one is computed, the next is read and cut into tokens, and the one
    before is handed out. Nothing waits for the GPU until its vectors are wanted.
    """
    if model.device.type == "cpu":
        for chunk in _batched(sentences, _CPU_CHUNK):
            yield chunk, sentence_vectors(model, chunk, batch_size, normalise, backend)
        return
    run = runner(model, backend)
    with ThreadPoolExecutor(1) as ahead:
        chunks = _batched(sentences, _GPU_CHUNK)

        def fetch() -> tuple[list[str], Any] | None:
            chunk = next(chunks, None)
            return None if chunk is None else (chunk, run.tokenise(chunk))

        coming = ahead.submit(fetch)
        started: tuple[list[str], Any] | None = None
        while (fetched := coming.result()) is not None:
            coming = ahead.submit(fetch)
            chunk, tokens = fetched
            before, started = started, (chunk, run.start(tokens, batch_size))
            if before is not None:
                yield before[0], _finished(before[1](), normalise)
        if started is not None:
            yield started[0], _finished(started[1](), normalise)


def cosine(first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.float64]:
    """Row by row cosine of two arrays of the same shape; 0 where a vector has no length.

    In double precision: vectors that are all alike have cosines near 1, where single precision rounds neighbours together
    and a rank correlation would be one of the rounding.
    """
    first, second = first.astype(np.float64), second.astype(np.float64)
    norms = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return (first * second).sum(axis=-1) / np.where(norms > 0, norms, 1.0)


def _finished(vectors: NDArray[np.float32], normalise: bool) -> NDArray[np.float32]:
    if not normalise:
        return vectors
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(norms > 0, norms, np.float32(1.0))


def _batched(sentences: Iterable[str], size: int) -> Iterator[list[str]]:
    rest = iter(sentences)
    while batch := list(islice(rest, size)):
        yield batch
