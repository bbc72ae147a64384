"""Statistics of a layer's token vectors on a text: their moments, and the mean vector of every token that occurs.

The mean over a sentence's tokens is best whitened by the covariance of the *tokens*, Σ = U diag(s) Uᵀ. With
W = diag(s^−1/2) Uᵀ,

    u(t) = W (h_t − μ) / ‖W (h_t − μ)‖

makes unrelated tokens nearly orthogonal and gives all of them the same length, so that a sentence is a soft bag of words:
two sentences are similar by the tokens they share, each by its weight. The length of a token hardly depends on its context
(in layer 0 only on its position), so the division by it can be part of the token's weight, and the rest is one linear map
after the pooling:

    Σ_t w(t) u(t)  ≈  W · Σ_t w(t) / n(t) · (h_t − μ)          n(t) = ‖W (mean of token t − μ)‖
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from selfguide.calibration.moments import check_finite
from selfguide.calibration.text_statistics import Statistics
from selfguide.engine.encode import token_batches
from selfguide.models.encoders import backbone, depth, input_names
from selfguide.models.layers import hidden_states, model_inputs, parse_layers

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer
    from torch import Tensor

    from selfguide.calibration.frequencies import Vocabulary
    from selfguide.calibration.linear_maps import LinearMap
    from selfguide.progress import Reporter

States = Callable[[dict[str, "Tensor"]], "Tensor"]


class TokenMeans:
    """The mean vector of every token that has occurred; memory grows with these, not with the vocabulary.

    Args:
        vocabulary: Number of tokens in the vocabulary.
        width: Dimension of the token vectors.
    """

    def __init__(self, vocabulary: int, width: int) -> None:
        self._row = np.full(vocabulary, -1)
        self._sums = np.zeros((0, width))
        self._counts = np.zeros(0)

    def add(self, ids: NDArray[np.int64], vectors: NDArray[np.floating]) -> None:
        """Add tokens.

        Args:
            ids: Their ids.
            vectors: Their vectors, (tokens, width).
        """
        if not len(ids):
            return
        order = np.argsort(ids, kind="stable")
        found, starts, counts = np.unique(ids[order], return_index=True, return_counts=True)
        fresh = found[self._row[found] < 0]
        self._row[fresh] = len(self._counts) + np.arange(len(fresh))
        self._sums = np.concatenate([self._sums, np.zeros((len(fresh), self._sums.shape[1]))])
        self._counts = np.concatenate([self._counts, np.zeros(len(fresh))])
        rows = self._row[found]
        self._sums[rows] += np.add.reduceat(np.asarray(vectors, dtype=np.float64)[order], starts, axis=0)
        self._counts[rows] += counts

    def lengths(self, whitening: LinearMap, unseen: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Return the length n(t) of every token of the vocabulary.

        Args:
            whitening: The map W (h − μ).
            unseen: Lengths of tokens that have not occurred; the mean length of the others if not given.
        """
        known = self._row >= 0
        if not known.any():
            return np.ones(len(self._row)) if unseen is None else unseen
        means = self._sums / self._counts[:, None]
        own = np.linalg.norm(means @ whitening.weight.T + whitening.bias, axis=1)
        own = np.maximum(own, 1e-3 * own.mean()) if own.any() else np.ones_like(own)
        lengths = np.full(len(self._row), own.mean()) if unseen is None else np.maximum(unseen, 1e-3 * own.mean())
        lengths[known] = own[self._row[known]]
        return lengths


def measure_tokens(
    encoder: SentenceTransformer,
    layer: int,
    batches: Iterable[list[str]],
    batch_size: int,
    reporter: Reporter,
    vocabulary: Vocabulary,
    total: int | None = None,
) -> tuple[Statistics, TokenMeans]:
    """Measure the tokens of a layer on a text; special tokens are left out.

    Args:
        encoder: The encoder.
        layer: The layer; 0 is the embedding layer, −1 the last.
        batches: The text, in chunks of sentences.
        batch_size: Sentences in a forward pass.
        reporter: Shows progress.
        vocabulary: The encoder's vocabulary.
        total: Number of sentences, if it is known.

    Returns:
        Statistics of all tokens, and the mean vector of each.

    Raises:
        SelfguideError: The vectors are not finite.
    """
    width = int(backbone(encoder).config.hidden_size)
    states = layer_states(encoder, layer)
    statistics, means = Statistics.empty((width,)), TokenMeans(len(vocabulary.tokens), width)
    special = np.array(sorted(vocabulary.special), dtype=np.int64)
    with reporter.bar("reading tokens", total, "sentences") as advance:
        for sentences in batches:
            for ids, vectors in _tokens(encoder, states, sentences, batch_size):
                plain = ~np.isin(ids, special)
                if plain.any():
                    statistics = statistics.merge(Statistics.of(vectors[plain], (width,)))
                    means.add(ids[plain], vectors[plain])
            advance(len(sentences), "")
    check_finite(statistics.moments, "token vectors")
    return statistics, means


@torch.inference_mode()
def _tokens(
    encoder: SentenceTransformer, states: States, sentences: list[str], batch_size: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Yield ids and vectors of the tokens of each batch, without padding."""
    names = input_names(encoder)
    for batch in token_batches(encoder, sentences, batch_size):
        features = encoder.preprocess([sentences[index] for index in batch])
        inputs = {name: value.to(encoder.device) for name, value in model_inputs(features, names).items()}
        real = inputs["attention_mask"].bool()
        yield inputs["input_ids"][real].cpu().numpy(), states(inputs)[real].float().cpu().numpy()


def layer_states(encoder: SentenceTransformer, layer: int) -> States:
    """Return a function that computes a layer's states from model inputs.

    Layer 0 is computed without the layers above where the model's ``embeddings`` module gives it, which is tried once.

    Args:
        encoder: The encoder.
        layer: The layer.

    Returns:
        The function.
    """
    model: Any = backbone(encoder).eval()
    (number,) = parse_layers(layer, depth(encoder))

    def full_pass(inputs: dict[str, Tensor]) -> Tensor:
        return hidden_states(model, inputs)[number]

    def embeddings_only(inputs: dict[str, Tensor]) -> Tensor:
        states: Tensor = model.embeddings(**{name: value for name, value in inputs.items() if name != "attention_mask"})
        return states

    if number != 0:
        return full_pass
    try:
        inputs = _short_batch(encoder)
        with torch.inference_mode():
            same = torch.allclose(embeddings_only(inputs), full_pass(inputs), atol=1e-5)
    except Exception:  # an architecture that names or calls its embeddings differently
        return full_pass
    return embeddings_only if same else full_pass


def _short_batch(encoder: SentenceTransformer) -> dict[str, Tensor]:
    features = encoder.preprocess(["a b", "a b c d e"])
    return {name: value.to(encoder.device) for name, value in model_inputs(features, input_names(encoder)).items()}
