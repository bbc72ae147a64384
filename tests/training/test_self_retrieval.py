"""The score without labels against a loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from selfguide.models.encoders import load_encoder
from selfguide.training.self_retrieval import ThinnedCopies, paired_z
from toys import toy_sentences


def test_copies_keep_half_of_the_words_in_their_order() -> None:
    sentences = [*toy_sentences(30), "too short here"]
    copies = ThinnedCopies.of(sentences, most=20, seed=3)
    assert len(copies) == 20
    assert copies == ThinnedCopies.of(sentences, most=20, seed=3)
    assert copies != ThinnedCopies.of(sentences, most=20, seed=4)
    assert copies.first != copies.second
    for first, second in zip(copies.first, copies.second, strict=True):
        assert any(
            all(_in_order(part.split(), sentence.split()) for part in (first, second))
            and len(first.split()) == (len(sentence.split()) + 1) // 2
            for sentence in sentences
        )


def test_reciprocal_ranks_are_those_of_a_loop(bert: Path) -> None:
    encoder = load_encoder(bert, device="cpu")
    copies = ThinnedCopies.of(toy_sentences(25), most=100, seed=1)
    first, second = (encoder.encode(part, normalize_embeddings=True) for part in (copies.first, copies.second))
    wanted = []
    for row in range(len(copies)):
        total = 0.0
        for queries, candidates in ((first, second), (second, first)):
            cosines = candidates @ queries[row]
            total += 1 / (1 + sum(cosines > cosines[row] + 1e-6))
        wanted.append(total / 2)
    found = copies.reciprocal_ranks(encoder)
    # Copies with the same words have the same cosine, where a loop without ties counts differently.
    distinct = [row for row in range(len(copies)) if copies.first.count(copies.first[row]) == 1]
    assert len(distinct) > 5
    assert found.shape == (25,)
    assert np.abs(found - wanted)[distinct].mean() < 0.1
    assert 0 < found.min() <= found.max() <= 1


def test_paired_z() -> None:
    assert paired_z(np.zeros(10)) == 0.0
    assert paired_z(np.ones(1)) == 0.0
    values = np.array([0.1, 0.3, -0.1, 0.2])
    assert paired_z(values) == values.mean() / (values.std(ddof=1) / 2)


def _in_order(part: list[str], whole: list[str]) -> bool:
    rest = iter(whole)
    return all(word in rest for word in part)
