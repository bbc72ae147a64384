"""A score without labels: does a random half of a sentence's words find the whole sentence among the others of the text?

The score of an encoder is the mean reciprocal rank of the whole sentence, given half of its words:

    score = mean over sentences of 1 / rank of the sentence among all sentences of the sample

It is kept for each sentence, so that two encoders are compared sentence by sentence and the difference has a standard error.
Beside it stands how many of each sentence's nearest neighbours are still those of the other encoder: where an encoder has learnt
to tell a template's copies apart, the score rises a little while the neighbours become others.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from selfguide.engine.encode import sentence_vectors
from selfguide.words import count_words, join_words, split_at_spaces

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

NEIGHBOURS = 10
FEWEST_WORDS = 4
"""Of shorter sentences half is a word or two, which says nothing."""
_BLOCK = 1024


@dataclass(frozen=True)
class Measured:
    """What one encoder makes of a probe."""

    found: NDArray[np.float64]
    """For each sentence, the mean reciprocal rank at which halves of it find it."""
    near: NDArray[np.int64]
    """The nearest neighbours of each sentence."""

    def gain(self, before: Measured) -> float:
        """Return how much better sentences are found than by another encoder, in standard errors of the difference."""
        return paired_z(self.found - before.found)

    def overlap(self, before: Measured) -> float:
        """Return the share of another encoder's nearest neighbours that are still among the nearest."""
        if not self.near.size:
            return 1.0
        shared = [len(set(mine) & set(theirs)) for mine, theirs in zip(self.near, before.near, strict=True)]
        return float(np.mean(shared)) / self.near.shape[1]


@dataclass(frozen=True)
class Probe:
    """A sample of a text, and halves of its sentences."""

    sentences: list[str]
    halves: list[list[str]]
    """For each draw, half of the words of every sentence, in their order."""

    def __len__(self) -> int:
        return len(self.sentences)

    @classmethod
    def of(cls, text: Sequence[str], most: int, draws: int, seed: int) -> Probe:
        """Draw a sample of the sentences that are long enough.

        Args:
            text: The sentences.
            most: Sentences in the sample at most.
            draws: Halves of each sentence.
            seed: Seed of the sample and of the words that are kept.

        Returns:
            The probe; empty where no sentence is long enough.
        """
        draw = random.Random(seed)
        long = list(dict.fromkeys(sentence for sentence in text if count_words(sentence) >= FEWEST_WORDS))
        sample = draw.sample(long, min(most, len(long)))

        def half(sentence: str) -> str:
            words = split_at_spaces(sentence)
            return join_words([words[place] for place in sorted(draw.sample(range(len(words)), len(words) // 2))])

        return cls(sample, [[half(sentence) for sentence in sample] for _ in range(draws)])

    def measure(self, encoder: SentenceTransformer) -> Measured:
        """Measure an encoder.

        Args:
            encoder: The encoder.

        Returns:
            How well sentences are found, and their neighbours.
        """
        everything = [*self.sentences, *(half for halves in self.halves for half in halves)]
        vectors = sentence_vectors(encoder, everything, normalise=True)
        whole, *halves = vectors.reshape(1 + len(self.halves), len(self), -1)
        found = np.mean([reciprocal_ranks(part, whole) for part in halves], axis=0)
        return Measured(found, _neighbours(whole))


def paired_z(differences: NDArray[np.float64]) -> float:
    """Return the mean of paired differences in units of its standard error; 0 where nothing differs.

    Args:
        differences: One number for each sentence.

    Returns:
        The z value.
    """
    count = len(differences)
    spread = float(differences.std(ddof=1)) if count > 1 else 0.0
    return 0.0 if spread == 0 else float(differences.mean()) * math.sqrt(count) / spread


def reciprocal_ranks(queries: NDArray[np.float32], candidates: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return 1 / rank of the candidate of the same row for every query; of equal cosines, half count as nearer.

    Args:
        queries: Vectors of length 1 (count, dim).
        candidates: Vectors of length 1 (count, dim).

    Returns:
        One number for each query.
    """
    ranks = []
    for start in range(0, len(queries), _BLOCK):
        cosines = queries[start : start + _BLOCK] @ candidates.T
        own = cosines[np.arange(len(cosines)), start + np.arange(len(cosines))][:, None]
        nearer, equal = (cosines > own).sum(axis=1), (cosines == own).sum(axis=1) - 1
        ranks.append(1.0 + nearer + equal / 2)
    return 1.0 / np.concatenate(ranks) if ranks else np.zeros(0)


def _neighbours(vectors: NDArray[np.float32]) -> NDArray[np.int64]:
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    return np.argsort(-cosines, axis=1, kind="stable")[:, : min(NEIGHBOURS, len(vectors) - 1)]
