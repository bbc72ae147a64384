"""Search in blocks and the metrics of rankings, against pytrec_eval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import pytrec_eval

from selfguide.evaluation.ranking import BestDocuments, ranking_scores

METRICS = {
    "ndcg_cut_10": "ndcg_10",
    "map": "average_precision",
    "recall_100": "recall_100",
    "recip_rank": "reciprocal_rank",
}


def case(seed: int, levels: int, documents: int = 400, queries: int = 12) -> Any:
    """Similarities with many ties, ids whose order is not that of the documents, and grades from -1 to 3."""
    draw = np.random.default_rng(seed)
    ids = [f"{word}{number}" for number, word in enumerate(draw.choice(["d", "D", "é", "中", "9", "doc-"], documents))]
    order = np.argsort(np.array([name.encode() for name in ids]))
    ranks = np.empty(documents, np.uint32)
    ranks[order] = np.arange(documents, dtype=np.uint32)
    sims = (draw.integers(-levels, levels, (queries, documents)) / levels).astype(np.float32)
    grades = []
    for _ in range(queries):
        judged = draw.choice(documents, 30, replace=False)
        grades.append({int(number): int(draw.integers(-1, 4)) for number in judged})
    return ids, ranks, sims, grades


def expected(ids: list[str], sims: Any, grades: list[dict[int, int]], missing: int = 0) -> dict[str, dict[str, float]]:
    qrels = {
        str(number): {**{ids[d]: grade for d, grade in known.items()}, **{f"missing{m}": 2 for m in range(missing)}}
        for number, known in enumerate(grades)
    }
    run = {str(number): dict(zip(ids, map(float, row), strict=True)) for number, row in enumerate(sims)}
    return pytrec_eval.RelevanceEvaluator(qrels, set(METRICS)).evaluate(run)


@pytest.mark.parametrize("levels", [1, 5, 1000])
@pytest.mark.parametrize("block", [7, 400])
def test_rankings_and_metrics_are_those_of_trec_eval(levels: int, block: int) -> None:
    ids, ranks, sims, grades = case(levels, levels)
    best = BestDocuments([frozenset()] * len(sims), depth=len(ids))
    for start in range(0, len(ids), block):
        columns = slice(start, start + block)
        for first in range(0, len(sims), 5):  # some queries at a time
            best.add(first, sims[first : first + 5, columns], ranks[columns])
    wanted = expected(ids, sims, grades, missing=2)
    for number, known in enumerate(grades):
        by_rank = {int(ranks[document]): grade for document, grade in known.items()} | {-1: 2, -2: 2}
        found = ranking_scores(best.ranking(number), by_rank)
        for theirs, ours in METRICS.items():
            assert getattr(found, ours) == pytest.approx(wanted[str(number)][theirs], abs=1e-12), theirs


def test_the_best_few_are_the_head_of_the_whole_ranking() -> None:
    ids, ranks, sims, _ = case(3, 4)
    whole, few = (BestDocuments([frozenset()] * len(sims), depth=depth) for depth in (len(ids), 25))
    whole.add(0, sims, ranks)
    for start in range(0, len(ids), 33):
        few.add(0, sims[:, start : start + 33], ranks[start : start + 33])
    for number in range(len(sims)):
        assert few.ranking(number) == whole.ranking(number)[:25]


def test_left_out_documents_are_not_ranked_at_all() -> None:
    _, ranks, sims, _ = case(4, 2, documents=40, queries=2)
    best = BestDocuments([frozenset({int(ranks[3])}), frozenset()], depth=40)
    best.add(0, sims, ranks, dropped=[(1, 5)])
    assert set(best.ranking(0)) == set(map(int, ranks)) - {int(ranks[3])}
    assert set(best.ranking(1)) == set(map(int, ranks)) - {int(ranks[5])}


def test_zero_and_minus_zero_are_tied() -> None:
    best = BestDocuments([frozenset()], depth=3)
    best.add(0, np.array([[0.0, -0.0, -1.0]], np.float32), np.array([0, 1, 2], np.uint32))
    assert best.ranking(0) == [1, 0, 2]


def test_a_query_without_relevant_documents_is_0_as_in_trec_eval() -> None:
    assert ranking_scores([0, 1], {0: 0, 1: -1}) == ranking_scores([], {})
    assert ranking_scores([0, 1], {0: 0}).ndcg_10 == 0.0
