"""Make an index, add to it, remove from it.

Every change first looks up which rows the index has, and encodes only the others. A command that was killed can
therefore be repeated at any point, and no row is stored twice.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from selfguide.data import Sentences, TextOptions, open_text
from selfguide.errors import InterruptedRun, SelfguideError, UsageError
from selfguide.files import private_folder, read_json, remove_leftovers, replace_folder, restore_folder, write_text
from selfguide.locks import beside, held
from selfguide.progress import Reporter, counted
from selfguide.search.columns import KEY, SENTENCE, check_fit, new_columns, wanted_columns
from selfguide.search.filters import filter_sql
from selfguide.search.index import EXACT_NUMBERS, Index, open_index
from selfguide.search.spool import Row, Spool, row_key
from selfguide.search.store import (
    RECORD,
    IndexRecord,
    Store,
    check_words,
    partial_folder,
    read_record,
    require_lancedb,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

Text = str | Path | Iterable[str] | Iterable[Path] | Sentences

_CHANGE = "change.json"
"""Says what a change is that is not finished: rows that were added are kept for it, anything else is undone."""
_CHUNK = 2048
_TRAINED_AGAIN = 2.0  # times the rows that the vector index was trained on


def build_index(
    text: Text,
    encoder: str | Path | SentenceTransformer = "mini",
    *,
    output: str | Path,
    columns: str | None = None,
    words: str = "english",
    overwrite: bool = False,
    device: str | None = None,
    text_options: TextOptions | None = None,
    reporter: Reporter | None = None,
) -> Index:
    """Make an index of a text on disk.

    Args:
        text: As for :func:`selfguide.train`; of tables, JSON lines and datasets, the other columns are kept as well.
        encoder: ``"mini"``, a folder, a hub name or a loaded SentenceTransformer.
        output: The folder of the index, which gets its name when it is complete.
        columns: Which columns to keep: names separated by commas, ``all`` (``None``) or ``none``.
        words: Language whose words the full-text index reduces to their stems, or ``any``.
        overwrite: Replace an index of that name.
        device: ``"cpu"``, ``"cuda"`` or ``"mps"``; ``None`` for the best there is.
        text_options: How the text is read and cleaned; repeated rows are left out in any case.
        reporter: Shows progress.

    Returns:
        The index.

    Raises:
        UsageError: There is an index already, or what is left of one that was interrupted has another setting.
        SelfguideError: There is no sentence, or the index cannot be written.
        InterruptedRun: The user stopped it; the same call continues it.

    Example::

        index = selfguide.build_index("notes.csv", "notes-encoder", output="notes.index")
        answer = index.search("a late train")
    """
    check_words(words)
    target = _target(output)
    check_new(target, overwrite)
    kept = wanted_columns(columns)
    sentences = open_text(text, _reading(text_options))
    reporter = reporter or Reporter(quiet=True)
    require_lancedb()
    with _changing(target), private_folder("selfguide-index-") as work:
        restore_folder(target)
        check_new(target, overwrite)
        rows = Spool(sentences, work, kept, reporter)
        reporter.note(sentences.summary.describe() + ".")
        model, digest = _loaded(encoder, device)
        dim = int(model.get_embedding_dimension() or 0)
        record = IndexRecord(_place(encoder), digest, dim, tuple(new_columns(rows.kinds)), words)
        partial = partial_folder(target)
        _begin(partial, record, overwrite)
        store = Store(partial, record.columns, dim)
        store.create()
        _drop_unwanted(store, rows, store.keys())
        _add(store, rows, store.keys(), model, reporter)
        _finish(store, record, reporter)
        partial.chmod(_usual_mode())
        replace_folder(partial, target)
    return open_index(target, encoder=model)


def add_to_index(
    path: str | Path,
    text: Text,
    *,
    encoder: str | Path | SentenceTransformer | None = None,
    columns: str | None = None,
    device: str | None = None,
    text_options: TextOptions | None = None,
    reporter: Reporter | None = None,
) -> int:
    """Add the rows of a text that an index does not have; only they are encoded.

    Args:
        path: The index.
        text: As for :func:`build_index`.
        encoder: The encoder that the index was made with, if it is not where it was then.
        columns: As for :func:`build_index`.
        device: As for :func:`build_index`.
        text_options: As for :func:`build_index`.
        reporter: Shows progress.

    Returns:
        How many rows were added.

    Raises:
        SelfguideError: There is no index, the encoder is another one, a column does not fit, or it cannot be written.
        InterruptedRun: The user stopped it; the same call continues it.
    """
    target = _target(path)
    kept = wanted_columns(columns)
    sentences = open_text(text, _reading(text_options))
    reporter = reporter or Reporter(quiet=True)
    read_record(target)
    with _changing(target), private_folder("selfguide-index-") as work:
        index = Index(target, encoder, device)
        record = index.record
        rows = Spool(sentences, work, kept, reporter)
        reporter.note(sentences.summary.describe() + ".")
        check_fit(record.columns, rows.kinds)
        model = index.encoder
        visible = index.store.keys()
        store, pending = _opened(target, record, "add")
        if pending:
            left = store.keys()
            _drop_unwanted(store, rows, left[~np.isin(left, visible)])
        present = store.keys()
        if len(present) == len(visible) and np.isin(rows.keys(list(record.columns)), present).all():
            _unmark(store)
            return 0
        _add(store, rows, present, model, reporter)
        return _finish(store, record, reporter).rows - len(visible)


def remove_from_index(
    path: str | Path,
    text: Text | None = None,
    *,
    where: str | None = None,
    text_options: TextOptions | None = None,
    reporter: Reporter | None = None,
) -> int:
    """Remove rows from an index.

    Args:
        path: The index.
        text: Sentences whose rows are removed, whatever their columns.
        where: A condition on the rows to be removed; with ``text``, both must hold.
        text_options: How the text is read and cleaned.
        reporter: Shows progress.

    Returns:
        How many rows were removed.

    Raises:
        UsageError: Neither is given, or the condition is wrong.
        SelfguideError: There is no index, or it cannot be written.
    """
    if text is None and where is None:
        raise UsageError("Say which rows to remove: a text with their sentences, or a condition (--where).")
    target = _target(path)
    record = read_record(target)
    sql = None if where is None else filter_sql(where, record.columns)
    sentences = None if text is None else open_text(text, _reading(text_options))
    reporter = reporter or Reporter(quiet=True)
    with _changing(target), private_folder("selfguide-index-") as work:
        record = read_record(target)
        hashes = None if sentences is None else Spool(sentences, work, frozenset(), reporter).sentence_hashes()
        store, _ = _opened(target, record, "remove")
        doomed: list[int] = []
        with reporter.bar("looking for rows", record.rows, "rows") as advance:
            for batch in store.batches(KEY, *([] if hashes is None else [SENTENCE]), where=sql):
                keys = batch.column(KEY).to_numpy(zero_copy_only=False)
                if hashes is not None:
                    found = [row_key(sentence, {}) for sentence in batch.column(SENTENCE).to_pylist()]
                    keys = keys[np.isin(np.array(found, dtype=np.int64), hashes)]
                doomed.extend(keys.tolist())
                advance(batch.num_rows, "")
        if doomed:
            store.delete_keys(np.array(doomed, dtype=np.int64))
            _finish(store, record, reporter)
        else:
            _unmark(store)
    return len(doomed)


def check_new(target: Path, overwrite: bool) -> None:
    """Refuse an output before anything is made.

    Args:
        target: The folder of the index.
        overwrite: Whether an index there may be replaced.

    Raises:
        UsageError: Something is there that is not to be replaced.
        SelfguideError: There is no such folder to write to.
    """
    if not target.parent.is_dir():
        raise SelfguideError(f"There is no folder {target.parent} to write the index to.")
    if not target.exists():
        return
    made = (target / RECORD).is_file()
    if not made and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} exists and is no index; choose another --output.")
    if made and not overwrite:
        raise UsageError(
            f"There is an index at {target} already: --add adds to it, --overwrite replaces it; or choose another --output."
        )


# -- steps -----------------------------------------------------------------------------------------------------------------


def _target(path: str | Path) -> Path:
    if not str(path):
        raise UsageError("Name the index: a folder that it is written to.")
    return Path(path).expanduser()


def _reading(options: TextOptions | None) -> TextOptions:
    # A repeat is a row that is equal as a whole; a long text is truncated rather than dropped.
    return replace(options or TextOptions(), keep_duplicates=True, keep_blank=False, long_lines="cut")


def _loaded(encoder: str | Path | SentenceTransformer, device: str | None) -> tuple[SentenceTransformer, str]:
    from selfguide.engine.digest import model_digest
    from selfguide.models.encoders import load_encoder

    model = load_encoder(encoder, device=device)
    return model, model_digest(model)


def _place(encoder: str | Path | SentenceTransformer) -> str | None:
    """Return where the encoder will be found again."""
    if not isinstance(encoder, str | Path):
        return None
    return str(Path(encoder).resolve()) if Path(encoder).is_dir() else str(encoder)


@contextmanager
def _changing(target: Path) -> Iterator[None]:
    """Own the index while the block runs."""
    try:
        with held(beside(target), target):
            if target.is_dir():
                remove_leftovers(target / RECORD)
            yield
    except KeyboardInterrupt:
        raise InterruptedRun("Interrupted. Give the same command again to go on; what is encoded is kept.") from None
    except OSError as error:
        raise SelfguideError(f"The index {target} cannot be written: {error.strerror or error}.") from None


def _begin(partial: Path, record: IndexRecord, overwrite: bool) -> None:
    """Make the folder of an index that is being made, or go on with what a killed process left there."""
    if partial.exists():
        try:
            former = read_record(partial)
        except SelfguideError:
            shutil.rmtree(partial)  # killed before the first row
        else:
            different = [name for name, value in record.setting.items() if former.setting[name] != value]
            if different and not overwrite:
                name = different[0]
                former_value, value = former.setting[name], record.setting[name]
                raise UsageError(
                    f"An interrupted index is in {partial}, and {name} was {former_value} there, here {value}. Give the former "
                    "command to go on with it, or --overwrite to start over."
                )
            if different:
                shutil.rmtree(partial)
    partial.mkdir(mode=0o700, exist_ok=True)
    record.write(partial)


def _opened(target: Path, record: IndexRecord, change: str) -> tuple[Store, bool]:
    """Open the latest version of the table to change it.

    Returns:
        The store, and whether there is something of the same kind of change that was not finished.
    """
    store = Store(target, record.columns, record.dim)
    store.open()
    try:
        unfinished = read_json(target / _CHANGE)["change"]
    except (OSError, ValueError, KeyError, TypeError):
        unfinished = None
    pending = store.table.version != record.version
    if pending and not (unfinished == "add" == change and _is_whole(store)):
        store.go_back(record.version)
        pending = False
    write_text(target / _CHANGE, f'{{"change": "{change}"}}\n')
    return store, pending


def _is_whole(store: Store) -> bool:
    try:
        store.read_back()
    except SelfguideError:
        return False
    return True


def _usual_mode() -> int:
    """Return the permissions that a new folder has by default."""
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o777 & ~mask


def _unmark(store: Store) -> None:
    (store.folder / _CHANGE).unlink(missing_ok=True)


def _drop_unwanted(store: Store, rows: Spool, present: NDArray[np.int64]) -> None:
    """Remove what an interrupted change of another text left."""
    if len(present):
        store.delete_keys(present[~np.isin(present, rows.keys(store.columns))])


def _add(store: Store, rows: Spool, present: NDArray[np.int64], model: SentenceTransformer, reporter: Reporter) -> None:
    """Encode the rows that are not there, chunk by chunk, each of which is there as a whole or not at all."""
    from selfguide.engine.encode import check_finite, sentence_vectors

    known = np.sort(present)
    if len(known):
        reporter.note(f"{counted(len(known), 'row', 'is', 'are')} there already.")
    with reporter.bar("encoding", rows.count, "rows") as advance:
        stream = rows.rows(store.columns)
        while chunk := list(islice(stream, _CHUNK)):
            new = _absent(chunk, known)
            if new:
                texts = [row.text for row in new]
                vectors = sentence_vectors(model, texts, normalise=True)
                check_finite(vectors, texts)
                store.append(new, vectors)
            advance(len(chunk), "")


def _absent(chunk: list[Row], known: NDArray[np.int64]) -> list[Row]:
    if not len(known):
        return chunk
    keys = np.array([row.key for row in chunk], dtype=np.int64)
    places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return [row for row, there in zip(chunk, (known[places] == keys).tolist(), strict=True) if not there]


def _finish(store: Store, record: IndexRecord, reporter: Reporter) -> IndexRecord:
    """Bring the indexes up to date, and make the rows visible."""
    count = store.count()
    with reporter.bar("indexing words", None, "rows"):
        store.index_words(record.words)
        store.tidy()
    trained = record.trained
    if count * record.dim > EXACT_NUMBERS and (not store.has_vector_index or count > _TRAINED_AGAIN * trained):
        with reporter.bar("indexing vectors", None, "rows"):
            store.index_vectors()
        trained = count
    try:
        store.read_back()
    except SelfguideError as error:
        if record.version:
            with suppress(SelfguideError):
                store.go_back(record.version)
            _unmark(store)
        else:
            shutil.rmtree(store.folder, ignore_errors=True)
        kept = "; the former rows are as they were" if record.version else ""
        raise SelfguideError(
            f"What was written cannot be read back{kept}. Check the disk, then give the command again. {error}"
        ) from error
    done = store.publish(replace(record, trained=trained))
    _unmark(store)
    return done
