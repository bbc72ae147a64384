"""Static encoders: one vector a token, no Transformer. A sentence's embedding is the mean of its tokens' vectors.

The table is made in two steps. The first is that of model2vec: the encoder's own embedding e(t) of every token of its vocabulary,
alone between the special tokens; the leading principal components of these; and SIF weights (Arora, Liang and Ma, ICLR 2017) with
token frequencies of the user's text, smoothed with general English:

    E₀(t) = w(t) · P (e(t) − mean e)                     w(t) = a / (a + p(t))

A token alone is not what it means in a sentence. The second step fits the table to the encoder on the user's sentences, without
labels. With X the sentences × tokens matrix of shares (each row sums to 1), and Y = P (encoder's embeddings − their mean), scaled
like X E₀:

    E = argmin ‖Y − X E‖² + λ ‖E − E₀‖²

so that tokens that the text lacks keep E₀. P then has the components of the sentences, not of the tokens. λ is chosen on
sentences left out of the fit, by the cosine of X E and Y.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from selfguide.calibration.frequencies import PRIOR_TOKENS, Vocabulary, weights_of
from selfguide.calibration.vocabulary_states import special_frame
from selfguide.engine.encode import sentence_vectors
from selfguide.models.encoders import input_names
from selfguide.models.layers import model_inputs

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from selfguide.progress import Reporter

DIMENSIONS = 256
"""As in model2vec."""
SIF_A = 1e-3
PENALTIES = (1.0, 0.1, 0.01)
"""Values of λ, times the mean squared share of a token that occurs."""
_STEPS = 100
_BATCH = 256

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Teacher:
    """What an encoder says of its tokens and of a text: all that a static encoder is made of."""

    vocabulary: Vocabulary
    tokens: Floats
    """The embedding of each token alone, (tokens, width)."""
    fit: list[str]
    fit_vectors: Floats
    """Embeddings of the sentences that the table is fitted to, of length 1."""
    held: list[str]
    """Sentences left out of the fit, on which λ is chosen."""
    held_vectors: Floats

    @classmethod
    def of(
        cls,
        model: SentenceTransformer,
        fit: list[str],
        held: list[str],
        reporter: Reporter,
        tokens: Floats | None = None,
    ) -> Teacher:
        """Run the encoder over its vocabulary and over the text.

        Args:
            model: The encoder.
            fit: The text.
            held: Other sentences of its kind.
            reporter: Shows progress.
            tokens: What it says of its vocabulary, where that is known from another text.

        Returns:
            What it says.
        """
        vocabulary = Vocabulary.of_encoder(model)
        if tokens is None:
            tokens = token_vectors(model, vocabulary, reporter)
        own = _encoded(model, [*fit, *held], reporter)
        return cls(vocabulary, tokens, fit, own[: len(fit)], held, own[len(fit) :])

    def projection(self, dim: int, *, of_tokens: bool = False) -> Projection:
        """Return the leading principal components of the sentences' embeddings, or of the tokens'."""
        plain = np.setdiff1d(np.arange(len(self.tokens)), sorted(self.vocabulary.special))
        return Projection.of(self.tokens[plain] if of_tokens else self.fit_vectors, dim)

    def table(self, dim: int, a: float = SIF_A, penalties: Sequence[float] = PENALTIES) -> tuple[Floats, float | None]:
        """Return the table of a static encoder, (tokens, dim), and the λ that was chosen for it.

        Args:
            dim: How many dimensions.
            a: a of the SIF weights.
            penalties: Values of λ; none leaves the fit out.
        """
        projection = self.projection(dim, of_tokens=not penalties)
        shares = Shares.of(self.vocabulary, self.fit)
        plain = np.setdiff1d(np.arange(len(self.tokens)), sorted(self.vocabulary.special))
        start = (
            projection.apply(self.tokens, self.tokens[plain].mean(axis=0)) * shares.weights(self.vocabulary, a)[:, None]
        )
        if not penalties:
            return start, None
        mean = self.fit_vectors.mean(axis=0)
        targets = projection.apply(self.fit_vectors, mean)
        before = shares.matrix @ start
        # The scale at which X E₀ is as close to Y as it can be.
        scale = float((before * targets).sum() / max(float((before**2).sum()), np.finfo(np.float64).tiny))
        held, wanted = Shares.of(self.vocabulary, self.held).matrix, projection.apply(self.held_vectors, mean)
        tried: dict[float, tuple[float, Floats]] = {}
        for penalty in penalties:
            table = fitted(scale * start, shares.matrix, targets, penalty)
            tried[penalty] = (likeness(held @ table, wanted), table)
        best = max(tried, key=lambda penalty: tried[penalty][0])
        return tried[best][1], best


def _encoded(model: SentenceTransformer, sentences: list[str], reporter: Reporter, chunk: int = 1024) -> Floats:
    parts = []
    with reporter.bar("encoding the text", len(sentences), "sentences") as advance:
        for start in range(0, len(sentences), chunk):
            parts.append(sentence_vectors(model, sentences[start : start + chunk], normalise=True))
            advance(len(parts[-1]), "")
    return np.concatenate(parts).astype(np.float64)


@torch.inference_mode()
def token_vectors(model: SentenceTransformer, vocabulary: Vocabulary, reporter: Reporter) -> Floats:
    """Return the encoder's embedding of every token, alone between the special tokens; 0 for special tokens.

    Args:
        model: The encoder.
        vocabulary: Its vocabulary.
        reporter: Shows progress.
    """
    before, after = special_frame(model, vocabulary)
    known = min(len(vocabulary.tokens), int(getattr(model[0].model.config, "vocab_size", len(vocabulary.tokens))))
    plain = np.setdiff1d(np.arange(known), sorted(vocabulary.special))
    found = np.zeros((len(vocabulary.tokens), int(model.get_embedding_dimension() or 0)))
    with reporter.bar("encoding the vocabulary", len(plain), "tokens") as advance:
        for start in range(0, len(plain), _BATCH):
            tokens = plain[start : start + _BATCH]
            ids = torch.tensor([[*before, token, *after] for token in tokens.tolist()], device=model.device)
            every = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
            features: dict[str, Any] = {**model_inputs(every, input_names(model)), "modality": "text"}
            found[tokens] = model(features)["sentence_embedding"].double().cpu().numpy()
            advance(len(tokens), "")
    return found


@dataclass(frozen=True)
class Projection:
    """Leading principal components of token vectors."""

    mean: Floats
    directions: Floats
    """(dimensions, width)."""

    @classmethod
    def of(cls, vectors: Floats, dim: int) -> Projection:
        """Return the leading components of vectors, (count, width)."""
        mean = vectors.mean(axis=0)
        _, directions = np.linalg.eigh(np.cov(vectors.T))
        return cls(mean, directions[:, ::-1][:, :dim].T)

    def apply(self, vectors: NDArray[np.floating[Any]], mean: Floats | None = None) -> Floats:
        """Return the components of vectors, minus their own mean or another one."""
        return np.asarray((vectors - (self.mean if mean is None else mean)) @ self.directions.T)


@dataclass(frozen=True)
class Shares:
    """Sentences as shares of their tokens."""

    matrix: csr_matrix
    """(sentences, tokens); each row sums to 1, one without tokens is 0."""
    counts: Floats
    """How often each token occurs."""

    @classmethod
    def of(cls, vocabulary: Vocabulary, sentences: list[str]) -> Shares:
        """Return the shares of sentences, tokenised by a vocabulary."""
        from scipy.sparse import csr_matrix

        rows = vocabulary.split(sentences)
        lengths = np.array([len(row) for row in rows])
        ids = np.fromiter((token for row in rows for token in row), dtype=np.int64, count=int(lengths.sum()))
        starts = np.concatenate([[0], np.cumsum(lengths)])
        values = np.repeat(1 / np.maximum(lengths, 1), lengths)
        matrix = csr_matrix((values, ids, starts), shape=(len(rows), len(vocabulary.tokens)))
        counts = np.bincount(ids, minlength=len(vocabulary.tokens)).astype(np.float64)
        matrix.sum_duplicates()
        return cls(matrix, counts)

    def weights(self, vocabulary: Vocabulary, a: float) -> Floats:
        """Return the SIF weight of every token, by the text's frequencies smoothed with those of general English."""
        counts = self.counts.copy()
        counts[list(vocabulary.special)] = 0.0
        p = (counts + PRIOR_TOKENS * vocabulary.english) / (counts.sum() + PRIOR_TOKENS)
        return weights_of(vocabulary, p, a)


def fitted(start: Floats, shares: csr_matrix, targets: Floats, penalty: float) -> Floats:
    """Return E = argmin ‖Y − X E‖² + λ ‖E − E₀‖², by conjugate gradients.

    Args:
        start: E₀, (tokens, dimensions).
        shares: X, (sentences, tokens).
        targets: Y, (sentences, dimensions), scaled like X E₀.
        penalty: λ, times the mean squared share of a token that occurs.
    """
    every = np.asarray(shares.multiply(shares).sum(axis=0)).ravel()
    known = np.flatnonzero(every)  # the others keep their vectors
    shares, squares, table = shares[:, known], every[known], start.copy()
    start = start[known]
    ridge = penalty * float(squares.mean())
    # Divided by the diagonal first (Jacobi's preconditioner): frequent tokens would otherwise need many more steps.
    scale = 1 / np.sqrt(squares + ridge)[:, None]

    def product(change: Floats) -> Floats:
        change = scale * change
        return np.asarray(scale * (shares.T @ (shares @ change) + ridge * change))

    residual = np.asarray(scale * (shares.T @ (targets - shares @ start)))
    change, direction = np.zeros_like(start), residual.copy()
    norms = (residual**2).sum(axis=0)
    first = norms.copy()
    for _ in range(_STEPS):
        if (norms <= 1e-8 * first).all():
            break
        image = product(direction)
        step = norms / np.maximum((direction * image).sum(axis=0), np.finfo(np.float64).tiny)
        change += step * direction
        residual -= step * image
        before, norms = norms, (residual**2).sum(axis=0)
        direction = residual + norms / np.maximum(before, np.finfo(np.float64).tiny) * direction
    table[known] += scale * change
    return table


def likeness(found: Floats, targets: Floats) -> float:
    """Return the mean cosine of embeddings and targets; a sentence without tokens counts as 0."""
    norms = np.linalg.norm(found, axis=1) * np.linalg.norm(targets, axis=1)
    return float(np.mean((found * targets).sum(axis=1) / np.where(norms > 0, norms, 1.0)))
