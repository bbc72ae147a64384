"""An index that is open: queries by meaning, by words, or by both."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from selfguide.errors import SelfguideError, UsageError
from selfguide.options import Between, OneOf, check
from selfguide.search.columns import KEY, SENTENCE, VECTOR, Value
from selfguide.search.filters import filter_sql
from selfguide.search.store import RECORD, IndexRecord, Store, read_record, translated

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

MODES = ("hybrid", "vector", "text")
EXACT_NUMBERS = 5_000_000
"""Rows × dimensions up to which a query is compared with every row: a few milliseconds more than by the vector index, and nothing
is missed; ``experiments.search sizes``."""
PROBES = 64
"""Partitions of the vector index that a query looks into, at least."""
REFINED = 5
"""How many times the wanted number of hits are compared with the query by their true vectors."""
_MOST_HITS = 1000
_FUSED = 100  # rows of each list that are fused, at least
_RANK_CONSTANT = 60.0  # of reciprocal rank fusion, as in the paper that proposed it
_LONGEST_QUERY = 5000


@dataclass(frozen=True)
class Hit:
    """A row that was found."""

    rank: int
    """From 1."""
    text: str
    score: float
    """What the hits are sorted by: the sum of reciprocal ranks (hybrid), the cosine (vector), or BM25 (text)."""
    cosine: float | None
    """The cosine of query and row; ``None`` in a search by words alone."""
    columns: dict[str, Value] = field(default_factory=dict)
    """The row's values by the columns' names; ``None`` where there is none."""


@dataclass(frozen=True)
class Answer:
    """What a query found."""

    hits: list[Hit]
    mode: str
    exact: bool
    """Whether the vectors of all rows were compared, not only those that a vector index proposes."""


class Index:
    """An index on disk; :func:`open_index` opens one.

    A change by another process is seen by the next query.

    Args:
        folder: The index.
        encoder: The encoder that it was made with, if it is not where it was then.
        device: For the encoder: ``"cpu"``, ``"cuda"`` or ``"mps"``; ``None`` for the best there is.
    """

    def __init__(
        self, folder: Path, encoder: str | Path | SentenceTransformer | None = None, device: str | None = None
    ) -> None:
        self.folder = folder
        self._source, self._device = encoder, device
        self._encoder: SentenceTransformer | None = None
        self._lock = threading.Lock()
        self._stamp: tuple[int, int] | None = None
        self.refresh()

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.record.rows

    def refresh(self, always: bool = False) -> None:
        """Reload what has changed on disk.

        Args:
            always: Open the table again even if nothing has.

        Raises:
            SelfguideError: The index is gone, or cannot be read.
        """
        with self._lock:
            try:
                status = (self.folder / RECORD).stat()
                stamp = (status.st_mtime_ns, status.st_ino)
            except OSError:
                stamp = None
            if stamp is not None and stamp == self._stamp and not always:
                return
            record = read_record(self.folder)
            if not record.version:
                raise SelfguideError(f"The index {self.folder} is not finished: make it again.")
            store = Store(self.folder, record.columns, record.dim)
            store.open(record.version)
            self.record: IndexRecord = record
            self.store, self._has_vectors = store, store.has_vector_index
            self._stamp = stamp

    def describe(self) -> dict[str, Any]:
        """Return what the index holds.

        Returns:
            ``rows``, ``columns`` with ``name`` and ``type`` of each, and the ``digest`` of the encoder that made it.
        """
        record = self.record
        columns = [{"name": column.name, "type": column.kind} for column in record.columns]
        return {"rows": record.rows, "columns": columns, "digest": record.digest}

    @property
    def encoder(self) -> SentenceTransformer:
        """The encoder that the index was made with.

        Raises:
            SelfguideError: It is not there any more, or it is another one.
        """
        if self._encoder is None:
            self._encoder = self._loaded_encoder()
        return self._encoder

    def _loaded_encoder(self) -> SentenceTransformer:
        from selfguide.engine.digest import model_digest
        from selfguide.models.encoders import load_encoder

        wanted = self._source if self._source is not None else self.record.encoder
        if wanted is None:
            raise UsageError(f"The index {self.folder} does not know where its encoder is: name it with --encoder.")
        try:
            model = load_encoder(wanted, device=self._device)
        except SelfguideError as error:
            if self._source is not None:
                raise
            raise SelfguideError(
                f"The encoder of the index {self.folder} cannot be loaded; if it has moved, name it with --encoder. {error}"
            ) from None
        self.check_digest(model_digest(model), str(wanted) if isinstance(wanted, str | Path) else "the given encoder")
        return model

    def check_digest(self, digest: str, name: str) -> None:
        """Refuse an encoder that did not make the index.

        Args:
            digest: Digest of the encoder.
            name: What to call it.

        Raises:
            SelfguideError: It is another one.
        """
        if digest != self.record.digest:
            made = f" ({self.record.encoder})" if self.record.encoder else ""
            raise SelfguideError(
                f"The index {self.folder} was made with another encoder{made} than {name}, whose vectors mean something else: "
                "give that one, or index the text anew."
            )

    def search(
        self, query: str, *, limit: int = 10, where: str | None = None, mode: str = "hybrid", exact: bool = False
    ) -> Answer:
        """Find the rows that are nearest to a query.

        Args:
            query: What to look for.
            limit: Maximum number of hits.
            where: A condition on the columns; see :mod:`selfguide.search.filters`.
            mode: ``hybrid``: by meaning and by words, fused by their reciprocal ranks; ``vector``: by meaning; ``text``: by
                words, which needs no encoder.
            exact: Compare the query with every row, even where a vector index would be faster.

        Returns:
            The hits, the best first.

        Raises:
            UsageError: The query is empty, or an option or the condition is wrong.
            SelfguideError: The encoder or the index cannot be read.

        Example::

            index = selfguide.open_index("notes.index")
            for hit in index.search("a late train", limit=3, where="year >= 2020").hits:
                print(hit.cosine, hit.text, hit.columns)
        """
        _check(query, limit, mode)
        if where is not None:
            filter_sql(where, self.record.columns)  # report a mistake before the encoder is loaded
        vector = None
        if mode != "text":
            from selfguide.engine.encode import encode

            vector = encode(self.encoder, query[:_LONGEST_QUERY], show_progress=False)
        return self.query(query, limit, where, mode, vector, exact)

    def query(
        self,
        text: str,
        limit: int,
        filter: str | None,
        mode: str,
        vector: NDArray[np.float32] | None,
        exact: bool = False,
    ) -> Answer:
        """Find rows by a query whose vector is known; see :meth:`search`.

        Args:
            text: The query.
            limit: Maximum number of hits.
            filter: A condition on the columns.
            mode: One of :data:`MODES`.
            vector: The query's vector, of any length; not needed where the mode is ``text``.
            exact: As for :meth:`search`.

        Returns:
            The hits.
        """
        _check(text, limit, mode)
        self.refresh()
        try:
            return self._answer(text, limit, filter, mode, vector, exact)
        except UsageError:
            raise
        except SelfguideError:  # the files of a version that has just been replaced are gone
            self.refresh(always=True)
            return self._answer(text, limit, filter, mode, vector, exact)

    def _answer(
        self, text: str, limit: int, filter: str | None, mode: str, vector: NDArray[np.float32] | None, exact: bool
    ) -> Answer:
        store = self.store
        sql = None if filter is None else filter_sql(filter, store.columns)
        unit = None if vector is None else _unit(vector, store.dim)
        depth = limit if mode != "hybrid" else max(limit, _FUSED)
        lists: list[_Found] = []
        with translated(self.folder, "read"):
            if mode != "text":
                if unit is None:
                    raise UsageError(f"A search of the mode {mode} needs the query's vector.")
                exact = exact or self._exact(store, sql)
                lists.append(_by_meaning(store, unit, depth, sql, exact))
            if mode != "vector":
                lists.append(_by_words(store, text, depth, sql))
        return Answer(_fused(lists, store, unit, mode, limit), mode, exact)

    def _exact(self, store: Store, sql: str | None) -> bool:
        """Return whether to compare with every row: there is no vector index, or a condition leaves few enough."""
        if not self._has_vectors:
            return True
        return sql is not None and store.count(sql) * store.dim <= EXACT_NUMBERS


def open_index(
    path: str | Path, *, encoder: str | Path | SentenceTransformer | None = None, device: str | None = None
) -> Index:
    """Open an index that :func:`selfguide.build_index` or ``selfguide index`` made.

    Args:
        path: Its folder.
        encoder: The encoder that it was made with, if it is not where it was then; by default the one that the index names, which
            is loaded when it is first needed.
        device: For the encoder: ``"cpu"``, ``"cuda"`` or ``"mps"``; ``None`` for the best there is.

    Returns:
        The index.

    Raises:
        SelfguideError: There is no index, or it cannot be read.

    Example::

        index = selfguide.open_index("notes.index")
        answer = index.search("a late train")
    """
    return Index(Path(path).expanduser(), encoder, device)


# -- lists of rows, and one of several -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """Rows that one way of searching found, the best first."""

    table: Any
    scores: list[float]
    keys: list[int]
    vectors: NDArray[np.float32]

    @classmethod
    def of(cls, query: Any, store: Store, sql: str | None, score: str, unit: NDArray[np.float32] | None) -> _Found:
        names = [SENTENCE, *[column.stored for column in store.columns], KEY, VECTOR, score]
        query = query.select(names)
        table = (query if sql is None else query.where(sql)).to_arrow()
        vectors = np.zeros((0, store.dim), dtype=np.float32)
        if table.num_rows:
            flat = table.column(VECTOR).combine_chunks().flatten()
            vectors = flat.to_numpy(zero_copy_only=False).reshape(-1, store.dim)
        scores = table.column("_score").to_pylist() if unit is None else _cosines(vectors, unit)
        keys = table.column(KEY).to_pylist()
        # Equal scores are sorted by the key, so that one query has one answer.
        order = sorted(range(len(keys)), key=lambda place: (-scores[place], keys[place]))
        sorted_rows = table.take(np.array(order, dtype=np.int64))
        return cls(sorted_rows, [scores[place] for place in order], [keys[place] for place in order], vectors[order])


def _by_meaning(store: Store, unit: NDArray[np.float32], depth: int, sql: str | None, exact: bool) -> _Found:
    query = store.table.search(unit, vector_column_name=VECTOR).limit(depth)
    if exact:
        query = query.distance_type("dot").bypass_vector_index()
    else:
        query = query.distance_type("cosine").nprobes(PROBES).refine_factor(REFINED)
    return _Found.of(query, store, sql, "_distance", unit)


def _by_words(store: Store, text: str, depth: int, sql: str | None) -> _Found:
    from lancedb.query import MatchQuery

    query = store.table.search(MatchQuery(text[:_LONGEST_QUERY], SENTENCE), query_type="fts").limit(depth)
    return _Found.of(query, store, sql, "_score", None)


def _fused(lists: list[_Found], store: Store, unit: NDArray[np.float32] | None, mode: str, limit: int) -> list[Hit]:
    """Return the best of one or several lists; of several by the sum of their reciprocal ranks."""
    scores: dict[int, float] = {}
    where: dict[int, tuple[_Found, int]] = {}
    cosines: dict[int, float] = {}
    for found in lists:
        for place, key in enumerate(found.keys):
            own = 1 / (_RANK_CONSTANT + place + 1) if mode == "hybrid" else found.scores[place]
            scores[key] = scores.get(key, 0.0) + own
            where[key] = found, place
        if unit is not None:
            cosines |= dict(zip(found.keys, _cosines(found.vectors, unit), strict=True))
    best = sorted(scores, key=lambda key: (-scores[key], -cosines.get(key, 0.0), key))[:limit]
    hits = []
    for rank, key in enumerate(best, start=1):
        found, place = where[key]
        columns = {column.name: found.table.column(column.stored)[place].as_py() for column in store.columns}
        hits.append(Hit(rank, found.table.column(SENTENCE)[place].as_py(), scores[key], cosines.get(key), columns))
    return hits


def _cosines(vectors: NDArray[np.float32], unit: NDArray[np.float32]) -> list[float]:
    found: list[float] = (vectors.astype(np.float64) @ unit.astype(np.float64)).clip(-1.0, 1.0).tolist()
    return found


def _unit(vector: NDArray[np.float32], dim: int) -> NDArray[np.float32]:
    if vector.shape != (dim,):
        raise SelfguideError(
            f"The query's vector has {vector.shape[-1]} dimensions, and those of the index have {dim}."
        )
    length = float(np.linalg.norm(vector.astype(np.float64)))
    unit: NDArray[np.float32] = (vector / (length if length > 0 else 1.0)).astype(np.float32)
    return unit


def _check(query: str, limit: int, mode: str) -> None:
    check("mode", mode, OneOf(*MODES))
    check("limit", limit, Between(1, _MOST_HITS))
    if not query.strip():
        raise UsageError("The query is empty: say what to look for.")
