"""Whitening against numpy's plain computation, and the streaming statistics behind it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer

import selfguide
from selfguide.calibration.linear_maps import removal_map, whitening_map
from selfguide.calibration.moments import Moments, fit_moments
from selfguide.errors import SelfguideError, UsageError
from selfguide.methods import registry
from selfguide.models.encoders import load_encoder
from selfguide.progress import Reporter
from toys import toy_sentences


def _sentences(count: int) -> list[str]:
    """Words at random: more varied than the toy sentences, so that no direction is without variance."""
    words = sorted({word for sentence in toy_sentences(512) for word in sentence.split()})
    draw = random.Random(3)
    return list(dict.fromkeys(" ".join(draw.choices(words, k=draw.randint(3, 9))) for _ in range(count)))


SENTENCES = _sentences(400)  # more than ten for each of the tiny encoders' 32 numbers


def _vectors(count: int = 500, width: int = 6, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(count, width)) @ generator.normal(size=(width, width)) + 100


def _apply(mapping: object, vectors: np.ndarray) -> np.ndarray:
    return vectors @ mapping.weight.T + mapping.bias  # type: ignore[attr-defined]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6))
@settings(max_examples=25, deadline=None)
def test_streaming_equals_one_shot(sizes: list[int]) -> None:
    vectors = _vectors(sum(sizes))
    merged = Moments.empty(6)
    for chunk in np.split(vectors, np.cumsum(sizes)[:-1]):
        merged = merged.merge(Moments.of(chunk))
    np.testing.assert_allclose(merged.mean, vectors.mean(0), rtol=1e-12)
    np.testing.assert_allclose(merged.covariance, np.cov(vectors.T, bias=True), atol=1e-8)
    assert merged.count == len(vectors)


def test_merging_nothing_changes_nothing() -> None:
    nothing = Moments.empty(3)
    assert nothing.merge(Moments.empty(3)).count == 0
    some = Moments.of(_vectors(20, 3))
    np.testing.assert_allclose(nothing.merge(some).scatter, some.scatter)
    np.testing.assert_allclose(some.merge(nothing).mean, some.mean)


def test_the_map_is_numpys() -> None:
    vectors = _vectors()
    mapping = whitening_map(Moments.of(vectors))
    values, directions = np.linalg.eigh(np.cov(vectors.T, bias=True))
    expected = (vectors - vectors.mean(0)) @ directions[:, ::-1] / np.sqrt(values[::-1])
    ours = _apply(mapping, vectors)
    np.testing.assert_allclose(np.abs(ours), np.abs(expected), atol=1e-6)  # an axis may point either way
    np.testing.assert_allclose(np.cov(ours.T, bias=True), np.eye(6), atol=1e-8)
    three = whitening_map(Moments.of(vectors), keep=3)
    np.testing.assert_allclose(three.weight, mapping.weight[:3])
    half = _apply(whitening_map(Moments.of(vectors), exponent=0.25), vectors)
    np.testing.assert_allclose(np.cov(half.T, bias=True), np.diag(np.sqrt(values[::-1])), atol=1e-6)


def test_full_shrinkage_leaves_angles_and_none_whitens() -> None:
    vectors = _vectors()
    sphere = _apply(whitening_map(Moments.of(vectors), shrinkage=1.0), vectors)
    centred = vectors - vectors.mean(0)
    np.testing.assert_allclose(
        sphere @ sphere.T, centred @ centred.T / (np.trace(np.cov(vectors.T, bias=True)) / 6), atol=1e-6
    )


def test_directions_that_are_only_rounding_errors_are_dropped() -> None:
    vectors = _vectors()
    flat = np.concatenate([vectors, vectors[:, :1] + 1e-4 * _vectors(500, 1, seed=3)], axis=1)
    assert whitening_map(Moments.of(flat)).weight.shape == (6, 7)
    with pytest.raises(SelfguideError, match="nothing to whiten"):
        whitening_map(Moments.of(np.ones((9, 4))))


def test_removal_leaves_nothing_of_the_leading_directions() -> None:
    vectors = _vectors()
    _, _, directions = np.linalg.svd(vectors, full_matrices=False)
    cleaned = _apply(removal_map(Moments.of(vectors), 2), vectors)
    np.testing.assert_allclose(cleaned, vectors - vectors @ directions[:2].T @ directions[:2], atol=1e-7)
    for wrong in (0, 6):
        with pytest.raises(UsageError, match="remove must be at least 1 and below the embedding dimension, 6"):
            removal_map(Moments.of(vectors), wrong)


@pytest.mark.parametrize("pooling", ["mean", "last2", "max"])
def test_a_whitened_encoder(bert: Path, tmp_path: Path, pooling: str) -> None:
    text, output = tmp_path / "text.txt", tmp_path / "out"
    text.write_text("\n".join(SENTENCES))
    tuned = selfguide.train(bert, text, "whitening", output=output, pooling=pooling, quiet=True)
    loaded = SentenceTransformer(str(output))
    white = loaded.encode(SENTENCES).astype(np.float64)
    np.testing.assert_allclose(white, tuned.encode(SENTENCES), atol=1e-5)
    np.testing.assert_allclose(white.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(white.shape[1]), atol=1e-4)
    raw = load_encoder(bert, pooling=pooling).encode(SENTENCES).astype(np.float64)
    centred = raw - raw.mean(0)
    expected = centred @ np.linalg.pinv(np.cov(raw.T, bias=True), rcond=1e-8, hermitian=True) @ centred.T
    np.testing.assert_allclose(white @ white.T, expected, atol=2e-2)
    record = json.loads((output / "run.json").read_text())
    assert record["warnings"] == []
    assert "Whitening Sentence Representations" in (output / "README.md").read_text()
    kinds = [module["type"] for module in json.loads((output / "modules.json").read_text())]
    assert kinds[-1] == "sentence_transformers.base.modules.dense.Dense"


def test_k_keeps_the_leading_directions(bert: Path) -> None:
    every = selfguide.train(bert, SENTENCES, "whitening", quiet=True).encode(SENTENCES[:5])
    some = selfguide.train(bert, SENTENCES, "whitening", k=8, quiet=True)
    assert some.get_embedding_dimension() == 8
    np.testing.assert_allclose(some.encode(SENTENCES[:5]), every[:, :8], atol=1e-4)
    with pytest.raises(UsageError, match="more than the encoder's embedding dimension, 32"):
        selfguide.train(bert, SENTENCES, "whitening", k=33, quiet=True)


def test_few_sentences_are_shrunk_and_said(bert: Path, tmp_path: Path) -> None:
    few = toy_sentences(20)  # fewer than numbers: without shrinkage the covariance is singular
    output = tmp_path / "out"
    encoder = selfguide.train(bert, few, "whitening", output=output, quiet=True)
    vectors = encoder.encode(SENTENCES)
    assert np.isfinite(vectors).all()
    spread = vectors.std(axis=0)
    assert spread.max() < 20  # no direction blown up
    warnings = json.loads((output / "run.json").read_text())["warnings"]
    assert any("20 sentences are few for an embedding dimension of 32" in warning for warning in warnings)

    pooled = load_encoder(bert, pooling="mean")
    text = Dataset.from_dict({"sentence": few})
    _, share = fit_moments(pooled, text, "auto", 8, Reporter(quiet=True))
    from sklearn.covariance import ledoit_wolf

    raw = pooled.encode(few).astype(np.float64)
    assert share == pytest.approx(ledoit_wolf(raw)[1], rel=1e-3)
    assert 0 < share < 1
    assert fit_moments(pooled, text, "0.3", 8, Reporter(quiet=True))[1] == 0.3


def test_a_tuned_encoders_own_vector_can_be_whitened(bert: Path) -> None:
    """``keep`` leaves the encoder's modules as they are; whitening twice changes nothing but the axes."""
    once = selfguide.train(bert, SENTENCES, "whitening", pooling="max", quiet=True)
    twice = selfguide.train(once, SENTENCES, "whitening", pooling="keep", quiet=True)
    assert len(twice) == len(once) + 1
    first, second = once.encode(SENTENCES[:20]), twice.encode(SENTENCES[:20])
    np.testing.assert_allclose(second @ second.T, first @ first.T, atol=2e-2)


def test_wrong_options_are_refused_in_words() -> None:
    for wrong, words in (
        ({"pooling": "median"}, "pooling must be one of .*keep, got 'median'"),
        ({"pooling": "keep", "layer": 2}, "leave layer=2 out"),
        ({"k": -1}, "k must be"),
        ({"exponent": 2.0}, "exponent must be"),
        ({"shrinkage": "1.5"}, "shrinkage must be"),
        ({"shrinkage": "some"}, "shrinkage must be"),
    ):
        with pytest.raises(UsageError, match=words):
            registry.make("whitening", wrong)
