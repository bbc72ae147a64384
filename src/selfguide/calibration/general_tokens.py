"""What layer 0 makes of every token of a vocabulary, without a text: a prior for texts that are small.

Layer 0 sees a token and its place, no context, so that the whole vocabulary can be read off at once. Two things follow:

* every token's length after whitening is known, of those too that do not occur in the text;
* with the frequencies of general English, so are the moments that the tokens of a large general text would have:

    μ = Σ_t p(t) h_t          Σ = Σ_t p(t) (h_t − μ)(h_t − μ)ᵀ          h_t: token t at some places of a sentence, evenly

  Merged with the moments of the user's text as if they were ``TOKENS_A_DIMENSION`` tokens for each number of the vector, they
  keep the covariance of a small text sound; in a large one they do not show.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from selfguide.calibration.frequencies import Vocabulary, table_probabilities
from selfguide.calibration.parted_statistics import Statistics
from selfguide.calibration.statistics import SENTENCES_A_DIMENSION, Moments
from selfguide.calibration.token_statistics import layer_states
from selfguide.models.encoders import backbone, depth, input_names
from selfguide.models.layers import model_inputs, parse_layers

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

    from selfguide.calibration.statistics import LinearMap

TOKENS_A_DIMENSION = SENTENCES_A_DIMENSION
_ROW = 16
"""Tokens in a made-up sentence."""
_TURNS = 4
"""Places at which each token is read, a quarter of a row apart."""
_ROWS = 128
"""Made-up sentences that are read at a time."""


class GeneralTokens:
    """Layer 0 of the tokens of an encoder's vocabulary; special tokens are left out."""

    def __init__(self, encoder: SentenceTransformer, vocabulary: Vocabulary) -> None:
        self._encoder = encoder
        self._vocabulary = vocabulary
        model = backbone(encoder).eval()
        self._states = layer_states(encoder, 0)
        self._width = int(model.config.hidden_size)
        self._before, self._after = _frame(encoder, vocabulary)
        places = int(getattr(model.config, "max_position_embeddings", 0) or 512) - 2  # some families skip two places
        self._row = max(1, min(_ROW, places - len(self._before) - len(self._after)))
        known = min(len(vocabulary.tokens), int(getattr(model.config, "vocab_size", len(vocabulary.tokens))))
        self._plain = np.setdiff1d(np.arange(known), sorted(vocabulary.special))

    @cached_property
    def prior(self) -> Statistics:
        """The statistics of general English, worth ``TOKENS_A_DIMENSION`` tokens for each number of the vector."""
        chances = table_probabilities(self._vocabulary)
        tokens = self._plain[chances[self._plain] > 0]
        if not len(tokens):
            return Statistics.empty((self._width,))
        weights = chances / chances[tokens].sum()
        mean = sum(weights[ids] @ vectors.mean(axis=0) for ids, vectors in self._read(tokens))
        found = Statistics.empty((self._width,))
        for ids, vectors in self._read(tokens):
            for turned in vectors - mean:
                share = weights[ids] / len(vectors)
                squares = (turned**2).sum(axis=1)
                found.moments.scatter += (share[:, None] * turned).T @ turned
                found.cubes += (share * squares) @ turned
                found.fourths += share @ squares**2
        count = TOKENS_A_DIMENSION * self._width
        moments = Moments(count, np.asarray(mean), count * found.moments.scatter)
        return Statistics(found.widths, moments, count * found.cubes, count * found.fourths)

    def lengths(self, spread: LinearMap) -> NDArray[np.float64]:
        """n(t) = ‖W (h_t − μ)‖ of every token, h_t its mean over places; that of special tokens is 1."""
        lengths = np.ones(len(self._vocabulary.tokens))
        for ids, vectors in self._read(self._plain):
            lengths[ids] = np.linalg.norm(vectors.mean(axis=0) @ spread.weight.T + spread.bias, axis=1)
        return lengths

    @torch.inference_mode()
    def _read(self, tokens: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Tokens, some at a time, and their vectors (places, tokens, width)."""
        shifts = sorted({turn * self._row // _TURNS for turn in range(_TURNS)})
        for start in range(0, len(tokens), _ROWS * self._row):
            ids = tokens[start : start + _ROWS * self._row]
            rows = np.resize(ids, (-(-len(ids) // self._row), self._row))  # the last row is filled up from the first
            turned = [np.roll(self._states_of(np.roll(rows, shift, axis=1)), -shift, axis=1) for shift in shifts]
            yield ids, np.stack([one.reshape(-1, self._width)[: len(ids)] for one in turned])

    def _states_of(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Layer 0 of made-up sentences, without what stands before and after."""
        framed = [[*self._before, *row, *self._after] for row in rows.tolist()]
        ids = torch.tensor(framed, device=self._encoder.device)
        every = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
        states = self._states(model_inputs(every, input_names(self._encoder)))
        inner = states[:, len(self._before) : len(self._before) + rows.shape[1]]
        return np.asarray(inner.double().cpu().numpy())


def general_tokens(encoder: SentenceTransformer, vocabulary: Vocabulary, layer: int) -> GeneralTokens | None:
    """Where a layer can be read without a text: layer 0 alone."""
    return GeneralTokens(encoder, vocabulary) if parse_layers(layer, depth(encoder)) == (0,) else None


def _frame(encoder: SentenceTransformer, vocabulary: Vocabulary) -> tuple[list[int], list[int]]:
    """The special tokens that the tokenizer puts before and after a sentence."""
    ids = encoder.preprocess(["a"])["input_ids"][0].tolist()
    plain = [place for place, token in enumerate(ids) if token not in vocabulary.special]
    return (ids[: plain[0]], ids[plain[-1] + 1 :]) if plain else (ids, [])
