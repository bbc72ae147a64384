"""Layer 0 of every token of a vocabulary, computed without a text: a general-English prior for small texts.

Layer 0 depends on a token and its position, not on context, so the whole vocabulary can be computed at once. This gives

* every token's length after whitening, also of tokens that do not occur in the text;
* with the frequencies of general English, the moments that the tokens of a large general text would have:

    μ = Σ_t p(t) h_t          Σ = Σ_t p(t) (h_t − μ)(h_t − μ)ᵀ          h_t: token t at some positions, in equal shares

  They are merged with the moments of the user's text as if they came from ``TOKENS_PER_DIMENSION`` tokens per embedding
  dimension, which smooths the covariance of a small text and hardly changes that of a large one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from selfguide.calibration.frequencies import Vocabulary, table_probabilities
from selfguide.calibration.moments import SENTENCES_PER_DIMENSION, Moments
from selfguide.calibration.text_statistics import Statistics
from selfguide.calibration.token_statistics import layer_states
from selfguide.models.encoders import backbone, depth, input_names
from selfguide.models.layers import model_inputs, parse_layers

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

    from selfguide.calibration.linear_maps import LinearMap

TOKENS_PER_DIMENSION = SENTENCES_PER_DIMENSION
_ROW = 16
"""Tokens in an artificial sentence."""
_POSITIONS = 4
"""Positions at which each token is computed, a quarter of a row apart."""
_ROWS = 128
"""Artificial sentences in a batch."""


class VocabularyStates:
    """Layer 0 of the tokens of an encoder's vocabulary; special tokens are left out.

    Args:
        encoder: The encoder.
        vocabulary: Its vocabulary.
    """

    def __init__(self, encoder: SentenceTransformer, vocabulary: Vocabulary) -> None:
        self._encoder = encoder
        self._vocabulary = vocabulary
        model = backbone(encoder).eval()
        self._states = layer_states(encoder, 0)
        self._width = int(model.config.hidden_size)
        self._before, self._after = special_frame(encoder, vocabulary)
        positions = int(getattr(model.config, "max_position_embeddings", 0) or 512) - 2  # some families reserve two
        self._row = max(1, min(_ROW, positions - len(self._before) - len(self._after)))
        known = min(len(vocabulary.tokens), int(getattr(model.config, "vocab_size", len(vocabulary.tokens))))
        self._plain = np.setdiff1d(np.arange(known), sorted(vocabulary.special))

    @cached_property
    def prior(self) -> Statistics:
        """Statistics of general English, with the weight of ``TOKENS_PER_DIMENSION`` tokens per embedding dimension."""
        probabilities = table_probabilities(self._vocabulary)
        tokens = self._plain[probabilities[self._plain] > 0]
        if not len(tokens):
            return Statistics.empty((self._width,))
        weights = probabilities / probabilities[tokens].sum()
        mean = sum(weights[ids] @ vectors.mean(axis=0) for ids, vectors in self._read(tokens))
        found = Statistics.empty((self._width,))
        for ids, vectors in self._read(tokens):
            for deviations in vectors - mean:
                share = weights[ids] / len(vectors)
                squares = (deviations**2).sum(axis=1)
                found.moments.scatter += (share[:, None] * deviations).T @ deviations
                found.cubes += (share * squares) @ deviations
                found.fourths += share @ squares**2
        count = TOKENS_PER_DIMENSION * self._width
        moments = Moments(count, np.asarray(mean), count * found.moments.scatter)
        return Statistics(found.widths, moments, count * found.cubes, count * found.fourths)

    def lengths(self, whitening: LinearMap) -> NDArray[np.float64]:
        """Return n(t) = ‖W (h_t − μ)‖ of every token, h_t averaged over positions; 1 for special tokens.

        Args:
            whitening: The map W (h − μ).
        """
        lengths = np.ones(len(self._vocabulary.tokens))
        for ids, vectors in self._read(self._plain):
            lengths[ids] = np.linalg.norm(vectors.mean(axis=0) @ whitening.weight.T + whitening.bias, axis=1)
        return lengths

    @torch.inference_mode()
    def _read(self, tokens: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Yield batches of token ids and their vectors, (positions, tokens, width)."""
        shifts = sorted({step * self._row // _POSITIONS for step in range(_POSITIONS)})
        for start in range(0, len(tokens), _ROWS * self._row):
            ids = tokens[start : start + _ROWS * self._row]
            rows = np.resize(ids, (-(-len(ids) // self._row), self._row))  # the last row is filled up from the first
            states = [np.roll(self._states_of(np.roll(rows, shift, axis=1)), -shift, axis=1) for shift in shifts]
            yield ids, np.stack([one.reshape(-1, self._width)[: len(ids)] for one in states])

    def _states_of(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Compute layer 0 of artificial sentences, and drop the special tokens around them."""
        framed = [[*self._before, *row, *self._after] for row in rows.tolist()]
        ids = torch.tensor(framed, device=self._encoder.device)
        every = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
        states = self._states(model_inputs(every, input_names(self._encoder)))
        inner = states[:, len(self._before) : len(self._before) + rows.shape[1]]
        return np.asarray(inner.double().cpu().numpy())


def vocabulary_states(encoder: SentenceTransformer, vocabulary: Vocabulary, layer: int) -> VocabularyStates | None:
    """Return the states of a layer that needs no text, which is layer 0; ``None`` for any other.

    Args:
        encoder: The encoder.
        vocabulary: Its vocabulary.
        layer: The layer.
    """
    return VocabularyStates(encoder, vocabulary) if parse_layers(layer, depth(encoder)) == (0,) else None


def special_frame(encoder: SentenceTransformer, vocabulary: Vocabulary) -> tuple[list[int], list[int]]:
    """Return the special tokens that the tokenizer puts before and after a sentence."""
    ids = encoder.preprocess(["a"])["input_ids"][0].tolist()
    plain = [place for place, token in enumerate(ids) if token not in vocabulary.special]
    return (ids[: plain[0]], ids[plain[-1] + 1 :]) if plain else (ids, [])
