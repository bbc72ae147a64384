"""Layer 0 of a whole vocabulary as a prior for small texts: compared with one token at a time, and its effect on a small text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

import selfguide
from selfguide.calibration import frequencies, vocabulary_states
from selfguide.calibration.frequencies import Vocabulary
from selfguide.calibration.linear_maps import LinearMap
from selfguide.calibration.vocabulary_states import VocabularyStates
from selfguide.models.encoders import backbone, input_names, load_encoder
from selfguide.models.layers import hidden_states, model_inputs
from toys import FAMILIES, toy_sentences

WORDS = sorted({word for sentence in toy_sentences(512) for word in sentence.split()})
TEXT = toy_sentences(512)


@pytest.fixture(autouse=True)
def _toy_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of the toy words, the first the most frequent."""
    counts = {word: 1000 // place for place, word in enumerate(WORDS, 1)}
    monkeypatch.setattr(frequencies, "english_table", lambda: (counts, sum(counts.values())))


def _one_by_one(encoder: SentenceTransformer) -> dict[int, NDArray[np.float64]]:
    """Layer 0 of each token at four positions of a sentence of sixteen, computed one by one."""
    vocabulary, model, names = Vocabulary.of_encoder(encoder), backbone(encoder).eval(), input_names(encoder)
    framed = encoder.preprocess(["a"])["input_ids"][0].tolist()
    before = next(place for place, token in enumerate(framed) if token not in vocabulary.special)
    plain = [token for token in range(len(vocabulary.tokens)) if token not in vocabulary.special]
    found = {}
    for number, token in enumerate(plain):
        rows = []
        for shift in (0, 4, 8, 12):
            place = before + (number % 16 + shift) % 16
            ids = torch.tensor([[*framed[:before], *[plain[0]] * 16, *framed[before + 1 :]]])
            ids[0, place] = token
            every = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
            with torch.no_grad():
                rows.append(hidden_states(model, model_inputs(every, names))[0][0, place].double().numpy())
        found[token] = np.array(rows)
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_lengths_are_those_of_one_token_at_a_time(tiny: Callable[[str], Path], family: str) -> None:
    encoder = load_encoder(tiny(family), device="cpu")
    vocabulary = Vocabulary.of_encoder(encoder)
    width = int(backbone(encoder).config.hidden_size)
    draw = np.random.default_rng(1)
    whitening = LinearMap(draw.normal(size=(width - 1, width)), draw.normal(size=width - 1))
    found = VocabularyStates(encoder, vocabulary).lengths(whitening)
    expected = np.ones(len(vocabulary.tokens))
    for token, rows in _one_by_one(encoder).items():
        expected[token] = np.linalg.norm(whitening.weight @ rows.mean(axis=0) + whitening.bias)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_the_prior_is_that_of_a_text_with_the_tables_frequencies(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The moments of a list with every token as often as in the table, at four positions."""
    monkeypatch.setattr(vocabulary_states, "_ROWS", 2)  # several batches, the last row filled up
    encoder = load_encoder(bert, device="cpu")
    vocabulary = Vocabulary.of_encoder(encoder)
    chances = frequencies.table_probabilities(vocabulary)
    prior = VocabularyStates(encoder, vocabulary).prior
    listed = [token for token in range(len(chances)) if chances[token] > 0]
    assert 10 < len(listed) < len(chances)
    every = _one_by_one_of(encoder, listed)
    weights = np.repeat([chances[token] for token in listed], 4)
    weights /= weights.sum()
    mean = weights @ every
    about = every - mean
    squares = (about**2).sum(axis=1)
    assert prior.count == 10 * every.shape[1]
    np.testing.assert_allclose(prior.moments.mean, mean, atol=1e-5)
    np.testing.assert_allclose(prior.moments.covariance, (weights[:, None] * about).T @ about, atol=1e-5)
    np.testing.assert_allclose(prior.cubes / prior.count, (weights * squares) @ about, atol=1e-4)
    np.testing.assert_allclose(prior.fourths / prior.count, [weights @ squares**2], rtol=1e-4)


def _one_by_one_of(encoder: SentenceTransformer, tokens: list[int]) -> NDArray[np.float64]:
    """As above, for some tokens, in the order of the list."""
    model = backbone(encoder).eval()
    framed = encoder.preprocess(["a"])["input_ids"][0].tolist()
    rows = []
    for number, token in enumerate(tokens):
        for shift in (0, 4, 8, 12):
            ids = torch.tensor([[framed[0], *[tokens[0]] * 16, framed[-1]]])
            place = 1 + (number % 16 + shift) % 16
            ids[0, place] = token
            with torch.no_grad():
                rows.append(
                    hidden_states(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})[0][0, place]
                )
    return torch.stack(rows).double().numpy()


def _view(encoder: Path, text: list[str], **options: Any) -> NDArray[np.float64]:
    settings: dict[str, Any] = {"tune": "none", "weight": 0.0, "device": "cpu", "quiet": True} | options
    made = selfguide.train(encoder, text, "fused", **settings)
    vectors = made.encode(TEXT[:100]).astype(np.float64)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(units @ units.T)


def test_of_a_small_text_the_view_is_nearer_to_that_of_all_text(bert: Path) -> None:
    """The table has the words of the text, so the prior stands for the rest of the text."""
    every = _view(bert, TEXT)
    few = TEXT[100:106]
    off = {source: np.abs(_view(bert, few, frequencies=source) - every).mean() for source in ("both", "text")}
    assert off["both"] < 0.6 * off["text"]


def test_a_layer_that_needs_a_text_has_no_prior(bert: Path) -> None:
    encoder = load_encoder(bert, device="cpu")
    vocabulary = Vocabulary.of_encoder(encoder)
    assert vocabulary_states.vocabulary_states(encoder, vocabulary, 1) is None
    assert vocabulary_states.vocabulary_states(encoder, vocabulary, 0) is not None


def test_a_vocabulary_without_a_word_of_the_table(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary_states, "table_probabilities", lambda vocabulary: np.zeros(len(vocabulary.tokens)))
    encoder = load_encoder(bert, device="cpu")
    assert VocabularyStates(encoder, Vocabulary.of_encoder(encoder)).prior.count == 0
