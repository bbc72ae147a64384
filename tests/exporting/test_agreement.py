"""The figures of agreement, against their definitions term by term."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from selfguide.engine.vector_form import VectorForm
from selfguide.exporting.agreement import NEIGHBOURS, compare, floats, sample


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / np.sqrt((one @ one) * (other @ other)))


@pytest.mark.parametrize("count", [5, 30])
def test_the_figures_follow_their_definitions(count: int) -> None:
    draw = np.random.default_rng(count)
    expected = draw.normal(size=(count, 6)).astype(np.float32)
    found = expected + 0.3 * draw.normal(size=expected.shape).astype(np.float32)
    agreement = compare(expected, found)
    cosines = [cosine(one, other) for one, other in zip(expected, found, strict=True)]
    assert agreement.cosine_mean == pytest.approx(np.mean(cosines), abs=1e-6)
    assert agreement.cosine_lowest == pytest.approx(min(cosines), abs=1e-6)
    pairs = [(i, j) for i in range(count) for j in range(i)]
    by_one, by_other = ([cosine(rows[i], rows[j]) for i, j in pairs] for rows in (expected, found))
    assert agreement.rank_agreement == pytest.approx(spearmanr(by_one, by_other).statistic, abs=1e-6)
    most = min(NEIGHBOURS, count - 2)
    shares = []
    for i in range(count):
        nearest = []
        for rows in (expected, found):
            others = sorted((j for j in range(count) if j != i), key=lambda j: -cosine(rows[i], rows[j]))
            nearest.append(set(others[:most]))
        shares.append(len(nearest[0] & nearest[1]) / most)
    assert agreement.same_neighbours == pytest.approx(np.mean(shares))


def test_the_same_embeddings_agree_and_fewer_dimensions_have_no_cosine() -> None:
    vectors = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    same = compare(vectors, 3 * vectors)
    assert same.rank_agreement == same.same_neighbours == 1
    assert same.cosine_lowest == pytest.approx(1)
    assert compare(vectors, vectors[:, :3]).cosine_mean is None
    assert compare(vectors, vectors[:, :3]).rank_agreement < 0.9


@pytest.mark.parametrize("precision", ["int8", "uint8", "binary", "ubinary"])
def test_quantised_embeddings_become_numbers_again(precision: str) -> None:
    vectors = np.random.default_rng(3).normal(size=(60, 16)).astype(np.float32)
    form = VectorForm(precision=precision).calibrated(vectors)
    found = floats(form.apply(vectors), form)
    if "binary" in precision:
        np.testing.assert_array_equal(found, np.where(vectors > 0, 1, -1))
    else:
        steps = (form.ranges[1] - form.ranges[0]) / 255
        assert (np.abs(found - vectors) <= 0.51 * steps).mean() > 0.99


@pytest.mark.parametrize("length", [0, 3, 10, 11, 25, 1000])
def test_a_sample_is_spread_over_the_text(length: int) -> None:
    sentences = [f"sentence {number}" for number in range(length)]
    kept, total = sample(iter(sentences), 10)
    assert total == length
    assert len(set(kept)) == len(kept) >= min(length, 5)
    assert len(kept) <= 10
    places = [sentences.index(sentence) for sentence in kept]
    assert places == sorted(places)
    if length > 20:
        assert len({place * 4 // length for place in places}) == 4  # something of every quarter


def test_a_sample_has_neither_repeats_nor_blank_lines() -> None:
    assert sample(["a", "", "a", "b", "  "], 10) == (["a", "b"], 5)
