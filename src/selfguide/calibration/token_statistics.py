"""Statistics of a layer's token vectors on a text: their moments, and the mean vector of every token that occurs.

A mean over tokens is best whitened where it is made. With Σ = U diag(s) Uᵀ the covariance of the *tokens* and
W = diag(s^−1/2) Uᵀ,

    u(t) = W (h_t − μ) / ‖W (h_t − μ)‖

makes tokens that have nothing to do with each other nearly orthogonal and gives each of them the same length, so that a
sentence is a soft bag of its words: what two sentences share counts, and by how much is the weight's business alone. The
length of a token hardly depends on where it stands (in layer 0 not at all but for its position), so dividing by it can be part of
the token's weight, and the rest is one linear map after the pooling:

    Σ_t w(t) u(t)  ≈  W · Σ_t w(t) / n(t) · (h_t − μ)          n(t) = ‖W (mean of token t − μ)‖
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from selfguide.calibration.parted_statistics import Statistics
from selfguide.engine.encode import token_batches
from selfguide.errors import SelfguideError
from selfguide.models.encoders import backbone, depth, input_names
from selfguide.models.layers import hidden_states, model_inputs, parse_layers

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer
    from torch import Tensor

    from selfguide.calibration.frequencies import Vocabulary
    from selfguide.calibration.statistics import LinearMap
    from selfguide.progress import Reporter

States = Callable[[dict[str, "Tensor"]], "Tensor"]


class TokenMeans:
    """The mean vector of every token that has occurred; grows with the tokens that do, not with the vocabulary."""

    def __init__(self, vocabulary: int, width: int) -> None:
        self._row = np.full(vocabulary, -1)
        self._sums = np.zeros((0, width))
        self._counts = np.zeros(0)

    def add(self, ids: NDArray[np.int64], vectors: NDArray[np.floating]) -> None:
        """More tokens, by number, with a vector each."""
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

    def lengths(self, spread: LinearMap, unseen: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """n(t) of every token of the vocabulary; of one that has not occurred, ``unseen``'s or the mean of those that have."""
        known = self._row >= 0
        if not known.any():
            return np.ones(len(self._row)) if unseen is None else unseen
        means = self._sums / self._counts[:, None]
        own = np.linalg.norm(means @ spread.weight.T + spread.bias, axis=1)
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
    """The tokens of a layer on text that comes in batches; special tokens are left out."""
    width = int(backbone(encoder).config.hidden_size)
    states = layer_states(encoder, layer)
    statistics, means = Statistics.empty((width,)), TokenMeans(len(vocabulary.tokens), width)
    left_out = np.array(sorted(vocabulary.special), dtype=np.int64)
    with reporter.bar("reading tokens", total, "sentences") as advance:
        for sentences in batches:
            for ids, vectors in _tokens(encoder, states, sentences, batch_size):
                plain = ~np.isin(ids, left_out)
                if plain.any():
                    statistics = statistics.merge(Statistics.of(vectors[plain], (width,)))
                    means.add(ids[plain], vectors[plain])
            advance(len(sentences), "")
    if not np.isfinite(statistics.moments.scatter).all():
        raise SelfguideError(
            "The encoder gave token vectors that are not finite, so they have no covariance; choose another."
        )
    return statistics, means


@torch.inference_mode()
def _tokens(
    encoder: SentenceTransformer, states: States, sentences: list[str], batch_size: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Numbers and vectors of the real tokens, a batch of sentences at a time."""
    names = input_names(encoder)
    for batch in token_batches(encoder, sentences, batch_size):
        features = encoder.preprocess([sentences[index] for index in batch])
        inputs = {name: value.to(encoder.device) for name, value in model_inputs(features, names).items()}
        real = inputs["attention_mask"].bool()
        yield inputs["input_ids"][real].cpu().numpy(), states(inputs)[real].float().cpu().numpy()


def layer_states(encoder: SentenceTransformer, layer: int) -> States:
    """How to get a layer's states; layer 0 without running the layers above, where the model's embeddings are just that."""
    model: Any = backbone(encoder).eval()
    (number,) = parse_layers(layer, depth(encoder))

    def whole(inputs: dict[str, Tensor]) -> Tensor:
        return hidden_states(model, inputs)[number]

    def embeddings_alone(inputs: dict[str, Tensor]) -> Tensor:
        states: Tensor = model.embeddings(**{name: value for name, value in inputs.items() if name != "attention_mask"})
        return states

    if number != 0:
        return whole
    try:
        trial = _trial(encoder)
        with torch.inference_mode():
            same = torch.allclose(embeddings_alone(trial), whole(trial), atol=1e-5)
    except Exception:  # another family calls its embeddings otherwise; the long way is always right
        return whole
    return embeddings_alone if same else whole


def _trial(encoder: SentenceTransformer) -> dict[str, Tensor]:
    """Two short sentences, of different lengths."""
    features = encoder.preprocess(["a b", "a b c d e"])
    return {name: value.to(encoder.device) for name, value in model_inputs(features, input_names(encoder)).items()}
