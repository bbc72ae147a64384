"""Encode sentences: all at once into an array, or streamed to a file in constant memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from selfguide.engine.backends import check_backend, runner
from selfguide.engine.digest import model_digest
from selfguide.engine.torch_runner import token_batches
from selfguide.engine.vector_files import FORMATS, vector_file
from selfguide.engine.vector_form import VectorForm, normalised, ranges_file, write_ranges
from selfguide.engine.vector_form import cosine as cosine
from selfguide.engine.workers import watched
from selfguide.errors import SelfguideError, UsageError
from selfguide.models.encoders import load_encoder
from selfguide.progress import Reporter, counted, share_of
from selfguide.words import abridged

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

# Sentences that are sorted by length together: enough for full batches of one length, few enough for memory.
_CPU_CHUNK = 4096
_GPU_CHUNK = 8192
# Share of clipped values above which int8 ranges do not fit the text: those of a first chunk that is like the rest leave
# less than a tenth of this outside.
_MOST_CLIPPED = 0.01


def encode(
    encoder: str | Path | SentenceTransformer,
    sentences: str | Sequence[str],
    *,
    backend: str = "torch",
    batch_size: int | None = None,
    normalise: bool = False,
    dim: int | None = None,
    precision: str = "float32",
    ranges: NDArray[np.float32] | None = None,
    device: str | None = None,
    show_progress: bool | None = None,
) -> NDArray[Any]:
    """Encode sentences.

    Args:
        encoder: ``"mini"``, a folder, a hub name or a loaded SentenceTransformer.
        sentences: One sentence or a sequence of them.
        backend: ``torch``, ``bf16``, ``onnx`` or ``int8``; see :mod:`selfguide.engine.backends`.
        batch_size: Maximal number of sentences in a forward pass; ``None`` chooses it by the number of tokens.
        normalise: Scale each embedding to length 1, so that dot products are cosines.
        dim: Keep only the first ``dim`` dimensions (before ``normalise``).
        precision: ``float32``, ``int8``, ``uint8``, ``binary`` or ``ubinary``; see :mod:`selfguide.engine.vector_form`.
        ranges: Minimum and maximum of each dimension, (2, dim), for int8 and uint8; ``None`` takes those of these sentences.
        device: ``"cpu"``, ``"cuda"`` or ``"mps"``; ``"auto"`` or ``None`` for the best device there is.
        show_progress: False shows no progress bar; otherwise there is one on a terminal.

    Returns:
        The embeddings, in order, (count, dim); of one sentence, a single vector.

    Raises:
        UsageError: There is no such backend, device or precision, or it does not support the encoder.
        SelfguideError: An embedding is not finite.
    """
    check_backend(backend)
    form = VectorForm(normalise, dim, precision, ranges)
    model = load_encoder(encoder, device=device)
    width = int(model.get_embedding_dimension() or 0)
    form.check_width(width)
    reporter = Reporter(quiet=show_progress is False)
    if isinstance(sentences, str):
        vectors = sentence_vectors(model, [sentences], batch_size, False, backend)
        check_finite(vectors, [sentences])
        return form.calibrated(vectors).apply(vectors)[0]
    if not len(sentences):
        return np.zeros((0, form.width(width)), dtype=form.dtype)
    with reporter.bar("encoding", len(sentences), "sentences") as advance:
        found: NDArray[np.float32] | None = None
        start = 0
        for chunk, vectors in vector_chunks(model, sentences, batch_size, False, backend, advance):
            check_finite(vectors, chunk)
            if found is None:
                found = np.empty((len(sentences), vectors.shape[1]), dtype=np.float32)
            found[start : start + len(chunk)] = vectors
            start += len(chunk)
    assert found is not None
    return form.calibrated(found).apply(found)


def encode_to_file(
    encoder: SentenceTransformer,
    sentences: Iterable[str],
    output: Path | IO[str],
    *,
    backend: str = "torch",
    batch_size: int | None = None,
    normalise: bool = False,
    dim: int | None = None,
    precision: str = "float32",
    ranges: NDArray[np.float32] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    reporter: Reporter | None = None,
) -> int:
    """Encode a stream of sentences to a file, in constant memory.

    Args:
        encoder: The encoder.
        sentences: The sentences.
        output: A ``.npy``, ``.parquet`` or ``.jsonl`` file, which gets its name only when it is complete, or an open text
            file that gets JSON lines.
        backend: As for :func:`encode`.
        batch_size: As for :func:`encode`.
        normalise: As for :func:`encode`.
        dim: As for :func:`encode`.
        precision: As for :func:`encode`.
        ranges: As for :func:`encode`; ``None`` takes those of the first chunk of sentences, and writes them beside the file.
        resume: Resume an interrupted encoding of the same text with the same options; the file is the same to the bit.
        overwrite: Replace the file, and what an interrupted encoding left.
        reporter: Shows progress.

    Returns:
        The number of sentences.

    Raises:
        SelfguideError: There are no sentences, an embedding is not finite, or the file cannot be written.
        UsageError: The precision needs ranges, and the output is not a file that they could be written beside; the file exists
            already; or there is nothing to resume.
        InterruptedRun: The user stopped it; the message says what is kept.
    """
    reporter = reporter or Reporter(quiet=True)
    form = VectorForm(normalise, dim, precision, ranges)
    width = int(encoder.get_embedding_dimension() or 0)
    form.check_width(width)
    if form.needs_ranges and not isinstance(output, Path):
        raise UsageError(
            f"Embeddings of {precision} can be compared only with others of the same ranges: name an --output file, beside "
            "which the ranges are kept, or give --ranges."
        )
    found_here = form.needs_ranges
    setting = {} if not isinstance(output, Path) else _setting(encoder, form, backend, batch_size)
    file = vector_file(output, form.width(width), form.dtype, setting=setting, resume=resume, overwrite=overwrite)
    with file as writer:
        rest = writer.skip(sentences)
        if writer.rows:
            reporter.note(f"Resuming after {counted(writer.rows, 'sentence')}.")
        clipped = float(writer.state.get("clipped", 0.0))
        if "ranges" in writer.state:
            form = replace(form, ranges=np.array(writer.state["ranges"], dtype=np.float32))
        with reporter.bar("encoding", None, "sentences", share_of(sentences)) as advance:
            for chunk, vectors in vector_chunks(encoder, rest, batch_size, False, backend, advance):
                check_finite(vectors, chunk)
                form = form.calibrated(vectors)
                clipped += len(chunk) * form.outside(vectors)
                if found_here and form.ranges is not None:
                    writer.state["ranges"] = form.ranges.tolist()
                writer.state["clipped"] = clipped
                writer.write(chunk, form.apply(vectors))
        count = writer.rows
        if count == 0:
            raise SelfguideError("There was no sentence to encode: the input is empty.")
        if found_here and isinstance(output, Path) and form.ranges is not None:
            write_ranges(ranges_file(output), form.ranges)
    if clipped > _MOST_CLIPPED * count:
        reporter.warn(
            f"{100 * clipped / count:.1f} % of the values are beyond the ranges of {precision} and were clipped: the ranges come "
            "from text unlike this one, or from its beginning alone. Give ranges of a sample that is like the whole."
        )
    return count


def _setting(encoder: SentenceTransformer, form: VectorForm, backend: str, batch_size: int | None) -> dict[str, Any]:
    """Return what decides the embeddings to the last bit, by the names of the options."""
    return {
        "encoder": model_digest(encoder),
        "backend": backend,
        "batch size": batch_size,
        "device": encoder.device.type,
        **form.setting,
    }


def check_finite(vectors: NDArray[np.float32], sentences: Sequence[str]) -> None:
    """Reject embeddings that are not finite, since every result computed from them is meaningless.

    Args:
        vectors: The embeddings, (count, dim).
        sentences: Their sentences.

    Raises:
        SelfguideError: One of them is not finite.
    """
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        sentence = sentences[bad[0]]
        shown = abridged(sentence, 60)
        raise SelfguideError(
            f"The encoder's embedding of {shown!r} is not finite (NaN or infinite), nor are those of {len(bad) - 1:,} other "
            "sentences: its weights are damaged, or its training diverged. Make or copy the encoder again."
        )


def sentence_vectors(
    model: SentenceTransformer,
    sentences: list[str],
    batch_size: int | None = None,
    normalise: bool = False,
    backend: str = "torch",
) -> NDArray[np.float32]:
    """Encode a list of sentences with a loaded encoder.

    Args:
        model: The encoder.
        sentences: The sentences, which are all sorted by length together.
        batch_size: As for :func:`encode`.
        normalise: As for :func:`encode`.
        backend: As for :func:`encode`.

    Returns:
        The embeddings, (count, dim).
    """
    run = runner(model, backend)
    vectors = run.start(run.tokenise(sentences), batch_size)()
    return normalised(vectors) if normalise else vectors


def vector_chunks(
    model: SentenceTransformer,
    sentences: Iterable[str],
    batch_size: int | None = None,
    normalise: bool = False,
    backend: str = "torch",
    advance: Callable[[int, str], None] | None = None,
) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
    """Encode a stream of sentences chunk by chunk.

    On a GPU three chunks are in flight: while one is computed, the next is read and tokenised, and the one before is yielded,
    so that the CPU waits for the GPU only when it needs the embeddings.

    Args:
        model: The encoder.
        sentences: The sentences.
        batch_size: As for :func:`encode`.
        normalise: As for :func:`encode`.
        backend: As for :func:`encode`.
        advance: What :meth:`Reporter.bar` yields; called whenever more sentences are computed, on a CPU many times a chunk.

    Yields:
        Chunks of sentences and their embeddings, in order.
    """
    if model.device.type == "cpu":
        for chunk in _batched(sentences, _CPU_CHUNK):
            count = _Count(len(chunk), advance)
            with watched(count.at):
                vectors = sentence_vectors(model, chunk, batch_size, normalise, backend)
            count.at(1.0)
            yield chunk, vectors
        return
    run = runner(model, backend)

    def finish(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        return normalised(vectors) if normalise else vectors

    with ThreadPoolExecutor(1) as ahead:
        chunks = _batched(sentences, _GPU_CHUNK)

        def fetch() -> tuple[list[str], Any] | None:
            chunk = next(chunks, None)
            return None if chunk is None else (chunk, run.tokenise(chunk))

        upcoming = ahead.submit(fetch)
        started: tuple[list[str], Any] | None = None
        while (fetched := upcoming.result()) is not None:
            upcoming = ahead.submit(fetch)
            chunk, tokens = fetched
            before, started = started, (chunk, run.start(tokens, batch_size))
            if before is not None:
                vectors = finish(before[1]())
                _Count(len(vectors), advance).at(1.0)
                yield before[0], vectors
        if started is not None:
            vectors = finish(started[1]())
            _Count(len(vectors), advance).at(1.0)
            yield started[0], vectors


class _Count:
    """Turns shares of a chunk into numbers of sentences, which add up to its size."""

    def __init__(self, size: int, advance: Callable[[int, str], None] | None) -> None:
        self._size, self._advance = size, advance
        self._given = 0

    def at(self, share: float) -> None:
        """Report what has been done since the last call."""
        now = int(share * self._size)
        if self._advance is not None and now > self._given:
            self._advance(now - self._given, "")
            self._given = now


def _batched(sentences: Iterable[str], size: int) -> Iterator[list[str]]:
    rest = iter(sentences)
    while batch := list(islice(rest, size)):
        yield batch
