"""Exact search in blocks and the metrics of rankings, both as trec_eval has them.

Similarity and rank of a document are packed into one integer that sorts as trec_eval sorts: by the similarity in single
precision, and among equal similarities by the document's id, the last id first. Blocks of documents can therefore be merged in
any order, and memory does not grow with the corpus.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_NOTHING = 0
"""The key of no document: smaller than that of any finite similarity."""


class BestDocuments:
    """The best documents of some queries among all that have been added.

    Args:
        ignored: For each query, the ranks of the documents that its ranking leaves out.
        depth: The number of documents to keep for each query.
    """

    def __init__(self, ignored: Sequence[frozenset[int]], depth: int) -> None:
        self._ignored = ignored
        self._depth = depth
        self._keys = np.zeros((len(ignored), depth), dtype=np.uint64)

    def add(
        self,
        first: int,
        sims: NDArray[np.float32],
        ranks: NDArray[np.uint32],
        dropped: Iterable[tuple[int, int]] = (),
    ) -> None:
        """Add a block of documents for some of the queries.

        Args:
            first: The number of the first of these queries.
            sims: Similarities, (queries, documents).
            ranks: The rank of each document among the ids of the corpus.
            dropped: Rows and columns of pairs that are left out besides the ignored ones.
        """
        keys = _keys(sims, ranks)
        for row, column in dropped:
            keys[row, column] = _NOTHING
        for row, left_out in enumerate(self._ignored[first : first + len(sims)]):
            if left_out:
                keys[row, np.isin(ranks, list(left_out))] = _NOTHING
        together = np.concatenate([self._keys[first : first + len(sims)], keys], axis=1)
        together.partition(together.shape[1] - self._depth, axis=1)
        self._keys[first : first + len(sims)] = together[:, -self._depth :]

    def ranking(self, query: int) -> list[int]:
        """Return the ranks of a query's best documents, the best first."""
        keys = np.sort(self._keys[query])[::-1]
        return [int(key) & 0xFFFFFFFF for key in keys[keys != _NOTHING]]


def _keys(sims: NDArray[np.float32], ranks: NDArray[np.uint32]) -> NDArray[np.uint64]:
    # Of two floats of one sign the larger one has the larger bits, or with a minus the smaller ones; 0 + -0 is 0.
    bits = (sims.astype(np.float32) + np.float32(0)).view(np.uint32)
    ordered = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))
    return (ordered.astype(np.uint64) << np.uint64(32)) | ranks.astype(np.uint64)


@dataclass(frozen=True)
class RankingScores:
    """The metrics of one query, as fractions."""

    ndcg_10: float
    average_precision: float
    recall_100: float
    reciprocal_rank: float


def ranking_scores(ranking: Sequence[int], grades: Mapping[int, int]) -> RankingScores:
    """Score the ranking of one query.

    Args:
        ranking: Documents, the best first.
        grades: The grade of each judged document, those included that the ranking cannot have; relevant are grades above 0.

    Returns:
        nDCG@10 (gain: the grade; discount: the binary logarithm of the place plus one), average precision and reciprocal rank
        over the whole ranking, and recall@100. All are 0 where no document is relevant.
    """
    gains = sorted((grade for grade in grades.values() if grade > 0), reverse=True)
    if not gains:
        return RankingScores(0.0, 0.0, 0.0, 0.0)
    places = [(place, grades[document]) for place, document in enumerate(ranking, 1) if grades.get(document, 0) > 0]
    ideal = _discounted(list(enumerate(gains, 1)))
    return RankingScores(
        ndcg_10=_discounted(places) / ideal,
        average_precision=math.fsum(found / place for found, (place, _) in enumerate(places, 1)) / len(gains),
        recall_100=sum(place <= 100 for place, _ in places) / len(gains),
        reciprocal_rank=1 / places[0][0] if places else 0.0,
    )


def _discounted(gains: Sequence[tuple[int, int]]) -> float:
    return math.fsum(gain / math.log2(place + 1) for place, gain in gains if place <= 10)
