"""A folder of numbered Parquet files with the embeddings of a text, which any number of processes and machines fill together.

=====================  ====================================================================================================
``manifest.json``      written first: the text in slices with their rows and digests, the digest of the encoder, the form
``part-00007.parquet``  the rows of slice 7: ``id`` (number of the row in the text), ``sentence``, ``embedding``
=====================  ====================================================================================================

What a part holds depends on the text, the encoder and the form alone, never on which process made it, on how many there
were, or in which order. A part gets its name when it is complete, and says in its metadata which manifest it belongs to. So a
process that was killed is simply started again: finished parts are skipped, half-written ones are made again. A lock beside each
part keeps two processes from making the same one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from selfguide.data.options import TextOptions
from selfguide.data.slices import Slice, plan, read, text_digest
from selfguide.engine.digest import model_digest
from selfguide.engine.encode import check_finite, vector_chunks
from selfguide.engine.vector_form import VectorForm
from selfguide.errors import SelfguideError, UsageError
from selfguide.files import atomic_path, json_digest, read_json, remove_leftovers, write_text
from selfguide.locks import claimed, waited_for
from selfguide.models.encoders import load_encoder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

MANIFEST = "manifest.json"
PART_ROWS = 100_000
"""Rows of a part, unless a number is asked for."""
_FORMAT = 1
_METADATA = b"selfguide"


@dataclass(frozen=True)
class Manifest:
    """The content of a folder of parts, and the text that it was made from."""

    rows: int
    """Rows of the text, and of all parts together."""
    text_digest: str
    encoder_digest: str
    setting: dict[str, Any]
    """What else decides the embeddings, by the names of the options."""
    columns: int
    """Columns of an embedding: its dimension, or packed bytes."""
    type: str
    """Numeric type of a column."""
    part_rows: int
    text_options: dict[str, Any]
    slices: list[Slice]

    @property
    def options(self) -> TextOptions:
        """How the text is read."""
        return TextOptions(**self.text_options)

    @cached_property
    def digest(self) -> str:
        """Identifies the manifest."""
        return json_digest(asdict(self))

    @classmethod
    def from_folder(cls, folder: Path) -> Manifest:
        """Read the manifest of a folder.

        Args:
            folder: The folder of parts.

        Returns:
            The manifest.

        Raises:
            SelfguideError: There is none, or it is damaged.
        """
        path = folder / MANIFEST
        try:
            content = read_json(path)
            known = content["manifest"]
            made = cls(**{**known, "slices": [Slice(**part) for part in known["slices"]]})
            sound = content["digest"] == made.digest and content["format"] == _FORMAT
        except FileNotFoundError:
            raise SelfguideError(f"{folder} has no {MANIFEST}: it is not a folder of parts.") from None
        except (OSError, ValueError, KeyError, TypeError, UsageError):
            sound = False
        if not sound:
            raise SelfguideError(f"{path} is damaged, or another version wrote it; start over in another folder.")
        return made

    def write(self, folder: Path) -> None:
        """Write the manifest into a folder."""
        content = {"format": _FORMAT, "digest": self.digest, "manifest": asdict(self)}
        write_text(folder / MANIFEST, json.dumps(content, indent=1))


@dataclass(frozen=True)
class PartsJob:
    """All that a process needs to make parts; it can be sent to another machine that sees the same files."""

    folder: Path
    encoder: str
    """``"mini"``, a folder or a hub name."""
    pooling: str | None = None
    layer: int | None = None
    max_length: int | None = None
    device: str = "auto"
    backend: str = "torch"
    batch_size: int | None = None
    form: VectorForm = field(default_factory=VectorForm)

    def load(self) -> SentenceTransformer:
        """Return the encoder, loaded."""
        return load_encoder(self.encoder, self.pooling, self.layer, self.max_length, self.device)

    @property
    def setting(self) -> dict[str, Any]:
        """What decides the embeddings besides the encoder, by the names of the options."""
        return {"backend": self.backend, "batch size": self.batch_size, **self.form.setting}


def check_job(job: PartsJob) -> None:
    """Refuse what cannot be encoded in parts, before anything is loaded.

    Args:
        job: The job.

    Raises:
        UsageError: The form needs ranges of the whole text, or the folder is a file.
    """
    if job.form.needs_ranges:
        raise UsageError(
            f"Parts of {job.form.precision} must share their ranges: encode a sample to one file first, and give the "
            ".ranges.npy that it leaves with --ranges."
        )
    if job.folder.exists() and not job.folder.is_dir():
        raise UsageError(f"{job.folder} is a file; parts are written into a folder.")


def make_manifest(
    job: PartsJob,
    model: SentenceTransformer,
    sources: Sequence[str | Path],
    options: TextOptions,
    rows: int | None = None,
    advance: Callable[[int, str], None] = lambda count, extra: None,
) -> Manifest:
    """Write the manifest of a folder, or read the one that is there; of several processes one writes it, and the others wait.

    Args:
        job: What to make.
        model: Its encoder.
        sources: The text.
        options: How it is read.
        rows: Rows of a part; ``None``: those of the manifest, or :data:`PART_ROWS`.
        advance: Called with the number of rows that have been counted.

    Returns:
        The manifest.

    Raises:
        UsageError: The folder holds something else: other parts, or files of another kind.
        SelfguideError: The text or the folder cannot be read.
    """
    width = int(model.get_embedding_dimension() or 0)
    job.form.check_width(width)
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
        with waited_for(job.folder / f".{MANIFEST}.lock"):
            if (job.folder / MANIFEST).exists():
                there = Manifest.from_folder(job.folder)
                _require_same(there, job, model_digest(model), options, rows)
                _require_same_files(there, sources, options)
                return there
            others = [path.name for path in job.folder.iterdir() if not path.name.startswith(".")]
            if others:
                raise UsageError(
                    f"{job.folder} holds {others[0]} and no {MANIFEST}: name an empty folder for the parts."
                )
            slices = plan(sources, options, rows or PART_ROWS, advance)
            made = Manifest(
                rows=sum(part.rows for part in slices),
                text_digest=text_digest(slices),
                encoder_digest=model_digest(model),
                setting=job.setting,
                columns=job.form.width(width),
                type=job.form.dtype.newbyteorder("<").str,
                part_rows=rows or PART_ROWS,
                text_options=asdict(options),
                slices=slices,
            )
            made.write(job.folder)
            return made
    except OSError as error:
        raise SelfguideError(f"{job.folder} cannot be written: {error.strerror or error}.") from None


def _require_same(there: Manifest, job: PartsJob, encoder: str, options: TextOptions, rows: int | None) -> None:
    found = {**job.setting, "encoder": encoder, "part rows": rows or there.part_rows, **asdict(options)}
    before = {**there.setting, "encoder": there.encoder_digest, "part rows": there.part_rows, **there.text_options}
    for name, value in found.items():
        if before.get(name) != value:
            raise UsageError(
                f"The parts in {job.folder} are others: there, {name} is {before.get(name)!r}, here it is {value!r}. Give the "
                "former options, or name another folder."
            )


def _require_same_files(there: Manifest, sources: Sequence[str | Path], options: TextOptions) -> None:
    """Compare names and sizes; contents are compared slice by slice as they are read."""
    from selfguide.data.slices import paths_of

    ends = {part.path: part.stop for part in there.slices if part.kind != "parquet"}
    found = [str(path) for path in paths_of(sources, options)]
    known = list(dict.fromkeys(part.path for part in there.slices))
    changed = [path for path in found if ends.get(path, -1) >= 0 and Path(path).stat().st_size != ends[path]]
    if found != known or changed:
        what = f"{changed[0]} has another size" if changed else "it comes from other files"
        raise UsageError(
            f"The parts in the folder are those of another text ({what} now). Give the former text, or name another folder."
        )


def part_path(folder: Path, number: int) -> Path:
    """Return the file of a part."""
    return folder / f"part-{number:05d}.parquet"


def is_finished(folder: Path, manifest: Manifest, number: int) -> bool:
    """Return whether a part is there: complete, and of this manifest.

    Args:
        folder: The folder of the parts.
        manifest: Its manifest.
        number: The part.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(part_path(folder, number))
        mark = json.loads((metadata.metadata or {}).get(_METADATA, b"{}"))
    except (OSError, ValueError, pa.ArrowException):
        return False
    return bool(
        mark == {"manifest": manifest.digest, "part": number} and metadata.num_rows == manifest.slices[number].rows
    )


def make_parts(
    job: PartsJob,
    manifest: Manifest,
    model: SentenceTransformer,
    numbers: Iterable[int],
    advance: Callable[[int, str], None] = lambda count, extra: None,
) -> Iterator[tuple[int, bool]]:
    """Make the parts that are not there yet.

    Args:
        job: What to make.
        manifest: The folder's manifest.
        model: The encoder.
        numbers: The parts.
        advance: Called with the number of rows that have been encoded.

    Yields:
        For each part that no other process is making: its number, and whether it was made now.

    Raises:
        UsageError: The encoder is another.
        SelfguideError: The text has changed, an embedding is not finite, or a part cannot be written.
    """
    if model_digest(model) != manifest.encoder_digest:
        raise UsageError(
            f"The encoder {job.encoder} here is not that of the parts in {job.folder}: its digest differs."
        )
    for number in numbers:
        if is_finished(job.folder, manifest, number):
            yield number, False
            continue
        path = part_path(job.folder, number)
        try:
            with claimed(path.with_name(f".{path.name}.lock")) as mine:
                if not mine:
                    continue
                if is_finished(job.folder, manifest, number):  # another process has just made it
                    yield number, False
                    continue
                remove_leftovers(path)
                _make(job, manifest, model, number, advance)
        except OSError as error:
            raise SelfguideError(
                f"{path} cannot be written: {error.strerror or error}. Finished parts are kept; the same command continues."
            ) from None
        yield number, True


def _make(
    job: PartsJob,
    manifest: Manifest,
    model: SentenceTransformer,
    number: int,
    advance: Callable[[int, str], None],
) -> None:
    part = manifest.slices[number]
    row = part.first
    with atomic_path(part_path(job.folder, number)) as temporary:
        with _part_file(temporary, manifest, number) as write:
            sentences = read(part, manifest.options)
            for chunk, vectors in vector_chunks(model, sentences, job.batch_size, False, job.backend, advance):
                check_finite(vectors, chunk)
                write(np.arange(row, row + len(chunk)), chunk, job.form.apply(vectors))
                row += len(chunk)
        if row != part.first + part.rows:
            raise SelfguideError(
                f"{part.path} gave {row - part.first:,} rows where {part.rows:,} were counted: it has changed, or there is a "
                "mistake in selfguide."
            )


@contextmanager
def _part_file(path: Path, manifest: Manifest, number: int) -> Iterator[Callable[[Any, list[str], Any], None]]:
    """Open a part for writing; yields a function that takes ids, sentences and embeddings."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = pa.from_numpy_dtype(np.dtype(manifest.type))
    mark = json.dumps({"manifest": manifest.digest, "part": number}).encode()
    schema = pa.schema(
        [("id", pa.int64()), ("sentence", pa.string()), ("embedding", pa.list_(kind, manifest.columns))],
        metadata={_METADATA: mark},
    )
    with pq.ParquetWriter(str(path), schema, use_dictionary=False) as writer:

        def write(ids: Any, sentences: list[str], vectors: Any) -> None:
            flat = pa.array(np.ascontiguousarray(vectors, dtype=np.dtype(manifest.type)).ravel(), type=kind)
            embeddings = pa.FixedSizeListArray.from_arrays(flat, manifest.columns)
            columns = [pa.array(ids, type=pa.int64()), pa.array(sentences, type=pa.string()), embeddings]
            writer.write_table(pa.table(columns, schema=schema))

        yield write


def remove_abandoned_locks(folder: Path) -> None:
    """Remove the lock files of processes that were killed just after they had finished a part.

    Args:
        folder: The folder of the parts.
    """
    for lock in folder.glob(".part-*.lock"):
        with claimed(lock):  # who has a lock removes its file; that of a living process stays
            pass


def numbers_of(manifest: Manifest, shard: tuple[int, int]) -> list[int]:
    """Return the parts of one of several processes that share the work.

    Args:
        manifest: The manifest.
        shard: Which process, from 0, and of how many.
    """
    index, count = shard
    return list(range(index, len(manifest.slices), count))


def unfinished(folder: Path, manifest: Manifest) -> list[int]:
    """Return the parts that are not there yet."""
    return [number for number in range(len(manifest.slices)) if not is_finished(folder, manifest, number)]
