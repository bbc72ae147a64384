"""What a cosine means: the quantiles against a plain count of pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from selfguide.engine.similarity_scale import LEVELS, SCALE_FILE, measure_scale, read_scale
from selfguide.errors import SelfguideError


def some_vectors(count: int = 300, seed: int = 0) -> Any:
    draw = np.random.default_rng(seed)
    return draw.normal(size=(count, 12)).astype(np.float32) + 0.7


def sentences(count: int) -> list[str]:
    return [f"sentence {number}" for number in range(count)]


def all_cosines(vectors: Any) -> Any:
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return units @ units.T


def test_the_percentile_is_the_share_of_pairs_that_are_not_closer() -> None:
    vectors = some_vectors()
    scale = measure_scale(vectors, sentences(300), 900, 1)
    cosines = all_cosines(vectors)[np.triu_indices(300, 1)]
    assert scale.pairs == len(cosines) == 44_850
    for value in np.linspace(-0.5, 0.99, 40):
        closer = 1000 * np.mean(cosines > value)
        # Between two quantiles, which are ten pairs of 1,000 apart here, the curve is taken to be straight.
        assert scale.closer_of_thousand(value) == pytest.approx(closer, abs=1.5)
    tail = np.quantile(cosines, 0.9985)
    assert scale.closer_of_thousand(tail) == pytest.approx(1.5, abs=0.1)
    assert scale.mean == pytest.approx(cosines.mean(), abs=1e-4)
    assert scale.deviation == pytest.approx(cosines.std(), abs=1e-4)


def test_the_ends_are_exact() -> None:
    vectors = some_vectors(50)
    scale = measure_scale(vectors, sentences(50), 50, 1)
    cosines = all_cosines(vectors)[np.triu_indices(50, 1)]
    assert scale.percentile([cosines.max() + 1e-3, 1.0]).tolist() == [100, 100]
    assert scale.percentile([cosines.min() - 1e-3, -1.0]).tolist() == [0, 0]
    assert 0 < scale.closer_of_thousand(cosines.max() - 1e-3) < 1000 / len(cosines) + 1
    assert scale.random_pairs[-1] == pytest.approx(cosines.max(), abs=1e-5)


def test_nearest_neighbours_are_those_among_the_drawn_sentences() -> None:
    vectors = some_vectors(80)
    scale = measure_scale(vectors, sentences(80), 80, 1)
    cosines = all_cosines(vectors)
    np.fill_diagonal(cosines, -1)
    expected = np.percentile(cosines.max(axis=1), [5, 50, 100])
    assert [scale.at(level, nearest=True) for level in (5.0, 50.0, 100.0)] == pytest.approx(expected, abs=1e-4)


def test_equal_cosines_are_not_closer() -> None:
    scale = measure_scale(np.ones((10, 3)), sentences(10), 10, 1)
    assert scale.closer_of_thousand(1.0) == 0
    assert scale.closer_of_thousand(0.5) == 1000


def test_a_zero_vector_and_a_nan(tmp_path: Path) -> None:
    assert measure_scale(np.array([[0.0, 0], [1, 0], [0, 1]]), sentences(3), 3, 1).random_pairs[-1] == 0
    with pytest.raises(SelfguideError, match="not finite"):
        measure_scale(np.array([[np.nan, 0], [1, 0]]), sentences(2), 2, 1)
    with pytest.raises(SelfguideError, match="fewer than two"):
        measure_scale(np.ones((1, 2)), sentences(1), 1, 1)


def test_the_file_keeps_numbers_and_belongs_to_its_weights(tmp_path: Path) -> None:
    assert read_scale(tmp_path) is None
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    scale = measure_scale(some_vectors(40), sentences(40), 90, 7)
    scale.write(tmp_path)
    kept = read_scale(tmp_path)
    assert kept is not None
    assert (kept.random_pairs, kept.drawn, kept.seed, kept.sentences, kept.available) == (
        scale.random_pairs, scale.drawn, 7, 40, 90,
    )  # fmt: skip
    content = (tmp_path / SCALE_FILE).read_text()
    assert len(content) < 4000
    assert "sentence 1" not in content
    (tmp_path / "README.md").write_text("a card may change")
    assert read_scale(tmp_path) == kept
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    with pytest.raises(SelfguideError, match="was measured on other weights"):
        read_scale(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content | {"version": 2},
        lambda content: content | {"nearest": [0.0]},
        lambda content: content | {"random_pairs": [1.0] + [0.0] * (len(LEVELS) - 1)},
        lambda content: {},
        lambda content: [],
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, change: Any) -> None:
    measure_scale(some_vectors(40), sentences(40), 90, 7).write(tmp_path)
    content = json.loads((tmp_path / SCALE_FILE).read_text())
    (tmp_path / SCALE_FILE).write_text(json.dumps(change(content)))
    with pytest.raises(SelfguideError, match=r"similarity\.json is damaged"):
        read_scale(tmp_path)
