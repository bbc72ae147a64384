"""Groups and their words; nearest neighbours against a naive loop."""

from __future__ import annotations

import numpy as np
import pytest

from selfguide.mapping.clusters import _best, characteristic_words, find_clusters
from selfguide.mapping.layout import nearest_neighbours
from selfguide.progress import Reporter


def _units(count: int, dim: int, seed: int = 0) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize(("count", "k"), [(2, 14), (9, 3), (1500, 14)])
def test_neighbours_are_those_of_a_naive_search(count: int, k: int) -> None:
    vectors = _units(count, 6)
    found = nearest_neighbours(vectors, k, Reporter(quiet=True))
    assert found.indices.shape == (count, min(k, count - 1))
    for row in range(0, count, 97):
        near = vectors.astype(np.float64) @ vectors[row]
        near[row] = -np.inf
        expected = np.sort(near)[::-1][: min(k, count - 1)]
        np.testing.assert_allclose(found.cosines[row], expected, atol=1e-6)
        np.testing.assert_allclose(near[found.indices[row]], expected, atol=1e-6)
        assert row not in found.indices[row]


def test_three_heaps_are_three_groups_with_their_words_and_a_typical_sentence() -> None:
    topics = {"train": (0.1, 0.1), "bread": (0.9, 0.2), "moon": (0.5, 0.9)}
    generator = np.random.default_rng(1)
    sentences, places, vectors = [], [], []
    for number, (word, middle) in enumerate(topics.items()):
        for row in range(30 + 10 * number):
            sentences.append(f"The {word} is {'very ' if row % 2 else ''}nice, and the {word} comes at {row}.")
            places.append(np.array(middle) + generator.normal(scale=0.01, size=2))
            vectors.append(np.eye(3)[number] + generator.normal(scale=0.05, size=3))
    labels, clusters = find_clusters(np.array(places, np.float32), np.array(vectors, np.float32), sentences)
    assert [cluster.size for cluster in clusters] == [50, 40, 30]
    assert [cluster.words[0] for cluster in clusters] == ["moon", "bread", "train"]
    assert all("the" not in cluster.words for cluster in clusters)
    assert labels.tolist() == [2] * 30 + [1] * 40 + [0] * 50
    for number, cluster in enumerate(clusters):
        assert labels[cluster.example] == number


def test_weights_follow_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    # By the share alone "the" would be the first word of its group; general English knows it.
    monkeypatch.setattr("selfguide.mapping.clusters.english_table", lambda: ({"the": 60, "red": 1}, 1000))
    sentences = ["the red red apple", "the red apple pie", "blue sky today", "blue blue sky"]
    labels = np.array([0, 0, 1, 1])
    words = characteristic_words(sentences, labels, 2)
    # 7 words a group on average, 14 in all; 8 in the first, in which "pie" stands in one sentence only.
    weights = {
        word: often / 8 * np.log(1 + (7 - often + 0.5) / (often + 0.5)) * 1e-3 / (1e-3 + max(often / 14, english))
        for word, often, english in (("red", 3, 0.001), ("apple", 2, 0), ("the", 2, 0.06))
    }
    assert words[0] == tuple(sorted(weights, key=lambda word: -weights[word]))
    assert words[1] == ("sky", "blue")


def test_of_the_forms_of_a_word_one_is_named() -> None:
    names = ["vote", "votes", "heat", "heart", "on", "one", "mayor", "unweighted"]
    assert _best(np.array([3.0, 4.0, 2.0, 1.5, 1.0, 0.9, 0.1, 0.0]), names) == ("votes", "heat", "heart", "on", "one")


@pytest.mark.parametrize(
    "sentences",
    [["…", "!!", "12"], ["今天天气很好我们去公园散步吧", "今天天气很好我们去河边钓鱼吧", "火车晚点了我们等了一个小时"]],
)
def test_writing_without_words_or_spaces(sentences: list[str]) -> None:
    found = characteristic_words(sentences * 2, np.zeros(6, dtype=np.int64), 1)
    assert len(found) == 1
    assert all(len(word) <= 2 for word in found[0])
