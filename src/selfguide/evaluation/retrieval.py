"""Retrieval: the documents of a set ranked for each query by similarity, and scored as trec_eval does it.

Documents are encoded and compared block by block, so that memory does not grow with the corpus, and the search is exact. An
encoder's own prompts for queries and for documents are used. The best 1,000 documents of each query are ranked, as in TREC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from selfguide.engine.vector_form import normalised
from selfguide.errors import SelfguideError
from selfguide.evaluation.metrics import draws, percentile_interval
from selfguide.evaluation.protocol import Protocol, Scored, Similarity
from selfguide.evaluation.ranking import BestDocuments, RankingScores, ranking_scores
from selfguide.evaluation.retrieval_sets import Document, RetrievalSet
from selfguide.evaluation.rows import TaskData
from selfguide.progress import counted

if TYPE_CHECKING:
    from selfguide.evaluation.embedder import Embedder

DEPTH = 1000
"""Documents in each ranking."""
BLOCK = 2048
"""Documents that are encoded and compared together."""
_QUERIES_AT_ONCE = 256


def score_retrieval(
    data: TaskData,
    vectors: Embedder,
    protocol: Protocol,
    advance: Callable[[int, str], None] = lambda count, extra: None,
) -> Scored:
    """Rank the documents for each query, and score the rankings.

    Args:
        data: A retrieval set.
        vectors: The encoder.
        protocol: The similarity, resamples and seed.
        advance: Called with the number of documents that have been compared.

    Returns:
        The mean nDCG@10 × 100; MAP, recall@100 and MRR are in the details.

    Raises:
        SelfguideError: The encoder does not return one finite vector for each text, or the corpus changed while it was read.
    """
    found = data.retrieval
    if found is None:
        raise SelfguideError(f"{data.task.title} is not a retrieval task.")
    # A document of the same id and text as a query is the query itself.
    own = {(query.id, query.text): number for number, query in enumerate(found.queries)}
    best = BestDocuments(found.ignored, min(DEPTH, len(found)))
    queries = vectors.queries([query.text for query in found.queries])
    start = dropped = 0
    for block in _blocks(found.documents()):
        ranks = found.ranks[start : start + len(block)]
        if len(ranks) < len(block):
            break
        documents = vectors.documents([document.full_text for document in block])
        pairs = [
            (number, column)
            for column, document in enumerate(block)
            if (number := own.get((document.id, document.text))) is not None
        ]
        dropped += len(pairs)
        for first in range(0, len(queries), _QUERIES_AT_ONCE):
            some = queries[first : first + _QUERIES_AT_ONCE]
            here = [(query - first, column) for query, column in pairs if first <= query < first + len(some)]
            best.add(first, _similarities(some, documents, protocol.similarity), ranks, here)
        start += len(block)
        advance(len(block), "")
    if start != len(found):
        raise SelfguideError(f"{found.corpus} changed while it was scored: run the evaluation again.")
    scores = [ranking_scores(best.ranking(number), grades) for number, grades in enumerate(found.grades)]
    return _scored(found, scores, vectors, protocol, dropped)


def _blocks(documents: Iterator[Document]) -> Iterator[list[Document]]:
    while block := list(islice(documents, BLOCK)):
        yield block


def _similarities(queries: NDArray[Any], documents: NDArray[Any], kind: Similarity) -> NDArray[np.float32]:
    """Compute in double precision, so that the rounding of a block's size does not order documents of the same vector."""
    queries, documents = queries.astype(np.float64), documents.astype(np.float64)
    if kind in ("euclidean", "manhattan"):
        from scipy.spatial.distance import cdist

        return -cdist(queries, documents, "cityblock" if kind == "manhattan" else "euclidean").astype(np.float32)
    if kind == "cosine":
        queries, documents = normalised(queries), normalised(documents)
    return (queries @ documents.T).astype(np.float32)


def _scored(
    found: RetrievalSet, scores: Sequence[RankingScores], vectors: Embedder, protocol: Protocol, dropped: int
) -> Scored:
    gains = np.array([score.ndcg_10 for score in scores])
    interval = None
    if protocol.bootstrap:
        generator = np.random.default_rng(protocol.seed)
        means = [counts @ gains / len(gains) for counts in draws(len(gains), protocol.bootstrap, generator)]
        interval = percentile_interval(100 * np.concatenate(means))
    without = sum(not any(grade > 0 for grade in grades.values()) for grades in found.grades)
    details: dict[str, Any] = {
        "map": 100 * float(np.mean([score.average_precision for score in scores])),
        "recall_100": 100 * float(np.mean([score.recall_100 for score in scores])),
        "mrr": 100 * float(np.mean([score.reciprocal_rank for score in scores])),
        "queries": len(scores),
        "documents": len(found),
        "judgements": sum(map(len, found.grades)),
        "qrels": found.qrels,
        "depth": DEPTH,
        "ignored": sum(map(len, found.ignored)),
        "query_itself_dropped": dropped,
        "prompts": {"query": vectors.query_prompt, "document": vectors.document_prompt},
        "ndcg_10_by_query": {
            query.id: round(100 * score.ndcg_10, 4) for query, score in zip(found.queries, scores, strict=True)
        },
    }
    notes = []
    if details["ignored"]:
        are = "is" if details["ignored"] == 1 else "are"
        notes.append(f"{counted(details['ignored'], 'pair')} of ignore.tsv {are} dropped from the rankings.")
    if dropped:
        notes.append(
            f"{counted(dropped, 'document', 'that is', 'that are')} the query itself (the same id and text) "
            f"{'is' if dropped == 1 else 'are'} dropped from its ranking."
        )
    if found.missing:
        notes.append(
            f"{counted(found.missing, 'judged document', 'is', 'are')} not in the corpus, and "
            f"{'counts' if found.missing == 1 else 'count'} as not found."
        )
    if without:
        have, count = ("query has", "counts") if without == 1 else ("queries have", "count")
        notes.append(f"{without:,} {have} no relevant document, and {count} as 0.")
    return Scored(f"nDCG@10 {protocol.similarity}", 100 * float(gains.mean()), interval, details, tuple(notes))
