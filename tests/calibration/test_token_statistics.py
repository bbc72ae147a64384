"""Statistics of tokens against loops over them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from selfguide.calibration.frequencies import Vocabulary, continues_a_word
from selfguide.calibration.linear_maps import LinearMap
from selfguide.calibration.token_statistics import TokenMeans, measure_tokens
from selfguide.models.encoders import backbone, input_names, load_encoder
from selfguide.models.layers import hidden_states, model_inputs
from selfguide.progress import Reporter
from toys import FAMILIES, toy_sentences

TEXT = toy_sentences(40)


@pytest.mark.parametrize(("family", "layer"), [*((family, 0) for family in FAMILIES), ("bert", 2), ("roberta", -1)])
def test_tokens_are_those_of_the_layer(tiny: Callable[[str], Path], family: str, layer: int) -> None:
    """Also where layer 0 is computed without the layers above."""
    encoder = load_encoder(tiny(family), device="cpu")
    vocabulary = Vocabulary.of_encoder(encoder)
    rows, numbers = [], []
    for sentence in TEXT:
        inputs = model_inputs(encoder.preprocess([sentence]), input_names(encoder))
        with torch.no_grad():
            states = hidden_states(backbone(encoder).eval(), inputs)[layer][0].double().numpy()
        for token, state in zip(inputs["input_ids"][0].tolist(), states, strict=True):
            if token not in vocabulary.special:
                rows.append(state)
                numbers.append(token)
    batches = [TEXT[:7], TEXT[7:]]
    found, means = measure_tokens(encoder, layer, batches, 8, Reporter(quiet=True), vocabulary)
    assert found.count == len(rows)
    np.testing.assert_allclose(found.moments.mean, np.mean(rows, axis=0), atol=1e-5)
    np.testing.assert_allclose(found.moments.covariance, np.cov(np.array(rows).T, bias=True), atol=1e-5)
    draw = np.random.default_rng(0)
    whitening = LinearMap(draw.normal(size=(5, len(rows[0]))), draw.normal(size=5))
    lengths = means.lengths(whitening)
    assert len(lengths) == len(vocabulary.tokens)
    expected = {
        token: np.linalg.norm(
            whitening.weight
            @ np.mean([row for row, other in zip(rows, numbers, strict=True) if other == token], axis=0)
            + whitening.bias
        )
        for token in set(numbers)
    }
    for token, length in expected.items():
        assert lengths[token] == pytest.approx(length, rel=1e-3)
    unseen = next(number for number in range(len(lengths)) if number not in expected)
    assert lengths[unseen] == pytest.approx(np.mean(list(expected.values())), rel=1e-3)


def test_token_means_grow_by_batches_and_have_a_length_without_tokens() -> None:
    draw = np.random.default_rng(1)
    ids, vectors = draw.integers(0, 20, 300), draw.normal(size=(300, 4))
    whole, chunked = TokenMeans(30, 4), TokenMeans(30, 4)
    whole.add(ids, vectors)
    for start in range(0, 300, 37):
        chunked.add(ids[start : start + 37], vectors[start : start + 37])
    chunked.add(ids[:0], vectors[:0])
    whitening = LinearMap(np.eye(4), np.zeros(4))
    np.testing.assert_allclose(chunked.lengths(whitening), whole.lengths(whitening))
    np.testing.assert_array_equal(TokenMeans(30, 4).lengths(whitening), np.ones(30))
    same = TokenMeans(3, 4)
    same.add(np.array([1, 1]), np.ones((2, 4)))
    assert (same.lengths(LinearMap(np.eye(4), -np.ones(4))) > 0).all()


@pytest.mark.parametrize(
    ("tokens", "continuing"),
    [
        (["[CLS]", "play", "##ing", "##s", "##", "#"], [2, 3]),
        (["<s>", "▁play", "ing", "▁", "▁the"], [0, 2, 3]),
        (["<s>", "Ġplay", "ing", "Ġthe"], [0, 2]),
        (["play", "ing"], []),
    ],
)
def test_pieces_that_continue_a_word(tokens: list[str], continuing: list[int]) -> None:
    vocabulary = Vocabulary(tokens, frozenset(), lambda texts: [[0] for _ in texts])
    assert np.flatnonzero(continues_a_word(vocabulary)).tolist() == continuing
