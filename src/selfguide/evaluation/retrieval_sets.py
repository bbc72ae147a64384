"""Retrieval sets: documents, queries, and which documents answer which query.

A set is a folder, as the BEIR benchmark unpacks it or in our own form:

| | BEIR | ours |
|---|---|---|
| documents | ``corpus.jsonl``: ``_id``, ``title``, ``text`` | ``corpus.tsv``: id, text |
| queries | ``queries.jsonl``: ``_id``, ``text`` | ``queries.tsv``: id, text |
| judgements | ``qrels/test.tsv``: query, document, grade, with a header | ``qrels.tsv``: the same without a header |
| dropped from the ranking | | ``ignore.tsv``: query, document (optional) |

Documents are streamed, here and while they are scored: what is kept of each is its place in the order of the ids, four bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from selfguide.data.lines import TextLines
from selfguide.data.messages import shortened
from selfguide.data.sources import byte_source
from selfguide.errors import SelfguideError

_JSON, _TABLE = (".jsonl", ".jsonl.gz"), (".tsv", ".tsv.gz")
_IDS_AT_ONCE = 1 << 16
_LONGEST_ID = 512


class Document(NamedTuple):
    """A document, or a query."""

    id: str
    text: str
    """The text without the title."""
    title: str = ""

    @property
    def full_text(self) -> str:
        """The title and the text, joined as BEIR does it."""
        return f"{self.title} {self.text}".strip() if self.title else self.text


@dataclass(frozen=True)
class RetrievalSet:
    """The documents and judgements of a retrieval set.

    A document is known by its *rank*: its place when all ids are sorted by their bytes, from 0. Among documents of equal
    similarity the one of the higher rank comes first, as in trec_eval.
    """

    corpus: Path
    ranks: NDArray[np.uint32]
    """The rank of each document, in the order of the file."""
    queries: tuple[Document, ...]
    """The judged queries, in the order of their file."""
    grades: tuple[dict[int, int], ...]
    """For each query, the grade of each judged document by its rank; negative numbers denote missing documents."""
    ignored: tuple[frozenset[int], ...]
    """For each query, the ranks of the documents that are dropped from its ranking."""
    qrels: str
    """The name of the file of judgements."""
    missing: int
    """The number of judged documents that the corpus does not have."""

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.ranks)

    def documents(self) -> Iterator[Document]:
        """Yield the documents, read again in the order of the file."""
        return (document for _, document in _texts(self.corpus))


class ReadSet(NamedTuple):
    """A retrieval set, its digest, and the numbers of its rows by part."""

    retrieval: RetrievalSet
    digest: str
    counts: dict[str, int]


def is_retrieval_folder(folder: Path) -> bool:
    """Return whether a folder has the documents and the queries of a retrieval set."""
    return _find(folder, "corpus") is not None and _find(folder, "queries") is not None


def read_retrieval(folder: Path, advance: Callable[[int], None] = lambda count: None) -> ReadSet:
    """Read a retrieval set: its queries and judgements, and once through its documents.

    Args:
        folder: The folder.
        advance: Called with a number of documents that have been read.

    Returns:
        The set.

    Raises:
        SelfguideError: A file is missing, a row is faulty, an id occurs twice, or a judged query has no text.
    """
    corpus, queries = _find(folder, "corpus"), _find(folder, "queries")
    qrels = _qrels(folder)
    if corpus is None or queries is None:
        missing = "corpus" if corpus is None else "queries"
        raise SelfguideError(f"{folder} has no {missing}.jsonl (BEIR) and no {missing}.tsv (id<TAB>text).")
    digest = hashlib.sha256()
    ids, ranks = _sorted_ids(corpus, digest, advance)
    judged = _judgements(qrels)
    texts = _judged_queries(queries, qrels, judged)
    dropped = _ignored(folder)
    for query in texts:
        row = [*query, sorted(judged[query.id].items()), sorted(dropped.get(query.id, ()))]
        digest.update(json.dumps(row).encode() + b"\n")
    grades = []
    for query in texts:
        found = _ranks_of(list(judged[query.id]), ids)
        # Every document that is missing gets a number of its own, because the ideal ranking counts it.
        numbers = [rank if rank >= 0 else -1 - place for place, rank in enumerate(found)]
        grades.append(dict(zip(numbers, judged[query.id].values(), strict=True)))
    retrieval = RetrievalSet(
        corpus,
        ranks,
        tuple(texts),
        tuple(grades),
        tuple(
            frozenset(rank for rank in _ranks_of(sorted(dropped.get(query.id, ())), ids) if rank >= 0)
            for query in texts
        ),
        str(qrels.relative_to(folder).as_posix()),
        sum(number < 0 for known in grades for number in known),
    )
    counts = {"corpus": len(ranks), "queries": len(texts), "qrels": sum(map(len, judged.values()))}
    return ReadSet(retrieval, digest.hexdigest()[:16], counts)


def _find(folder: Path, stem: str) -> Path | None:
    names = (stem + suffix for suffix in (*_JSON, *_TABLE))
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _qrels(folder: Path) -> Path:
    """Return the file of judgements: ours, or of BEIR's splits the test split or the only one."""
    own = next((folder / f"qrels{suffix}" for suffix in _TABLE if (folder / f"qrels{suffix}").is_file()), None)
    if own is not None:
        return own
    splits = sorted(path for path in (folder / "qrels").glob("*") if path.name.endswith(_TABLE))
    if not splits:
        raise SelfguideError(f"{folder} has no qrels/test.tsv (BEIR) and no qrels.tsv (query<TAB>document<TAB>grade).")
    test = [path for path in splits if path.name.partition(".")[0] == "test"]
    if not test and len(splits) > 1:
        names = ", ".join(path.name for path in splits)
        raise SelfguideError(
            f"{folder / 'qrels'} has {names} and no test.tsv: rename the split to be scored to test.tsv."
        )
    return (test or splits)[0]


def _texts(path: Path) -> Iterator[tuple[str, Document]]:
    """Yield the place and the content of every document or query of a file; blank lines are passed over."""
    lines = TextLines(byte_source(path))
    parse = _json_text if path.name.endswith(_JSON) else _table_text
    for line in lines:
        if line.strip():
            document = parse(lines, line)
            if not document.id or len(document.id.encode()) > _LONGEST_ID:
                raise lines.error(f"has the id {shortened(document.id)}: an id has 1 to {_LONGEST_ID} bytes.")
            yield f"{path}, line {lines.number}", document


def _json_text(lines: TextLines, line: str) -> Document:
    try:
        row = json.loads(line)
        return Document(str(row["_id"]), _string(row["text"]), _string(row.get("title") or ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise lines.error('is not a JSON object with "_id" and "text", as BEIR has them.') from None


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _table_text(lines: TextLines, line: str) -> Document:
    cells = line.rstrip("\r").split("\t")
    if len(cells) != 2:
        raise lines.column_error(cells, "id<TAB>text")
    return Document(cells[0].strip(), cells[1])


def _sorted_ids(
    corpus: Path, digest: Any, advance: Callable[[int], None]
) -> tuple[NDArray[np.bytes_], NDArray[np.uint32]]:
    """Return all ids sorted by their bytes, and the rank of each document in the order of the file."""
    blocks: list[NDArray[np.bytes_]] = []
    waiting: list[bytes] = []
    for _, document in _texts(corpus):
        digest.update(json.dumps(document).encode() + b"\n")
        waiting.append(document.id.encode())
        if len(waiting) == _IDS_AT_ONCE:
            blocks.append(np.array(waiting))
            advance(len(waiting))
            waiting = []
    if waiting:
        blocks.append(np.array(waiting))
    if not blocks:
        raise SelfguideError(f"{corpus} has no documents: copy or download it again.")
    ids = np.concatenate(blocks)
    order = np.argsort(ids, kind="stable")
    ranks = np.empty(len(ids), dtype=np.uint32)
    ranks[order] = np.arange(len(ids), dtype=np.uint32)
    ids = ids[order]
    twice = np.flatnonzero(ids[1:] == ids[:-1])
    if len(twice):
        raise SelfguideError(
            f"{corpus} has the id {ids[twice[0]].decode()!r} twice: every document needs an id of its own."
        )
    return ids, ranks


def _ranks_of(wanted: list[str], ids: NDArray[np.bytes_]) -> list[int]:
    """Return the ranks of documents by their ids; -1 for those that the corpus does not have."""
    if not wanted:
        return []
    names = np.array([name.encode() for name in wanted])
    places = np.searchsorted(ids, names)
    known = ids[np.minimum(places, len(ids) - 1)] == names
    return [int(place) if good else -1 for place, good in zip(places, known, strict=True)]


def _judgements(path: Path) -> dict[str, dict[str, int]]:
    """Read the grades by query and document; a first line without a number as its grade is a header."""
    judged: dict[str, dict[str, int]] = {}
    lines = TextLines(byte_source(path))
    for line in lines:
        cells = [cell.strip() for cell in line.split("\t")]
        if cells == [""]:
            continue
        if len(cells) != 3:
            raise lines.column_error(cells, "query<TAB>document<TAB>grade")
        grade = _whole_number(cells[2])
        if grade is None:
            if lines.number == 1:
                continue
            raise lines.error(f"has the grade {shortened(cells[2])}, where a whole number is wanted.")
        if judged.setdefault(cells[0], {}).setdefault(cells[1], grade) != grade:
            raise lines.error(f"grades document {cells[1]!r} of query {cells[0]!r} a second time, and otherwise.")
    if not judged:
        raise SelfguideError(f"{path} has no judgements: copy or download it again.")
    return judged


def _whole_number(text: str) -> int | None:
    try:
        return int(text.replace("_", "?"))  # Python would read 1_0 as ten
    except ValueError:
        return None


def _judged_queries(path: Path, qrels: Path, judged: dict[str, dict[str, int]]) -> list[Document]:
    queries: dict[str, Document] = {}
    for where, query in _texts(path):
        if query.id in queries:
            raise SelfguideError(
                f"{where} has the id {query.id!r} of an earlier query: every query needs an id of its own."
            )
        queries[query.id] = query
    unknown = [name for name in judged if name not in queries]
    if unknown:
        raise SelfguideError(
            f"{qrels} judges {len(unknown):,} {'query' if len(unknown) == 1 else 'queries'} that {path.name} does not have, "
            f"such as {unknown[0]!r}: are the two files of one set?"
        )
    return [query for query in queries.values() if query.id in judged]


def _ignored(folder: Path) -> dict[str, set[str]]:
    path = next((folder / f"ignore{suffix}" for suffix in _TABLE if (folder / f"ignore{suffix}").is_file()), None)
    ignored: dict[str, set[str]] = {}
    if path is not None:
        lines = TextLines(byte_source(path))
        for line in lines:
            cells = [cell.strip() for cell in line.split("\t")]
            if cells == [""]:
                continue
            if len(cells) != 2:
                raise lines.column_error(cells, "query<TAB>document")
            ignored.setdefault(cells[0], set()).add(cells[1])
    return ignored
