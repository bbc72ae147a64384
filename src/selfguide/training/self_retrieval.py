"""A score without labels: do two thinned copies of a sentence find each other among those of other sentences?

Each copy keeps a random half of the sentence's words, in their order. For one copy, the other sentences' copies are the
candidates, and the reciprocal rank of its own twin says how well it is found:

    score = mean over sentences of (1 / rank of the twin, given the first copy + the same given the second) / 2

The score of each sentence is kept, so that two encoders can be compared sentence by sentence. What is known about the score:
``docs/results/choosing.md``, where it is called ``thinned``.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from selfguide.engine.encode import sentence_vectors

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

FEWEST_WORDS = 4
"""Of shorter sentences half is a word or two, which says nothing."""
_BLOCK = 1024


@dataclass(frozen=True)
class ThinnedCopies:
    """Two thinned copies of each sentence."""

    first: list[str]
    second: list[str]

    def __len__(self) -> int:
        return len(self.first)

    @classmethod
    def of(cls, sentences: Sequence[str], most: int, seed: int) -> ThinnedCopies:
        """Thin a random sample of the sentences that are long enough.

        Args:
            sentences: The text.
            most: Sentences in the sample at most.
            seed: Seed of the sample and of the words that are kept.

        Returns:
            The copies; empty where no sentence is long enough.
        """
        draw = random.Random(seed)
        words = [split for sentence in sentences if len(split := sentence.split()) >= FEWEST_WORDS]
        if len(words) > most:
            words = draw.sample(words, most)

        def thin(pieces: list[str]) -> str:
            kept = sorted(draw.sample(range(len(pieces)), (len(pieces) + 1) // 2))
            return " ".join(pieces[place] for place in kept)

        return cls([thin(pieces) for pieces in words], [thin(pieces) for pieces in words])

    def reciprocal_ranks(self, encoder: SentenceTransformer) -> NDArray[np.float64]:
        """Return how well the copies of each sentence find each other.

        Args:
            encoder: The encoder.

        Returns:
            The mean reciprocal rank of each sentence's twin, both ways round; (sentences,).
        """
        both = sentence_vectors(encoder, [*self.first, *self.second], normalise=True)
        first, second = both[: len(self)], both[len(self) :]
        return (_reciprocal_ranks(first, second) + _reciprocal_ranks(second, first)) / 2


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


def _reciprocal_ranks(queries: NDArray[np.float32], candidates: NDArray[np.float32]) -> NDArray[np.float64]:
    """Rank the candidate of the same row; of candidates with the same cosine, half count as nearer."""
    ranks = []
    for start in range(0, len(queries), _BLOCK):
        cosines = queries[start : start + _BLOCK] @ candidates.T
        own = cosines[np.arange(len(cosines)), start + np.arange(len(cosines))][:, None]
        nearer, equal = (cosines > own).sum(axis=1), (cosines == own).sum(axis=1) - 1
        ranks.append(1.0 + nearer + equal / 2)
    return 1.0 / np.concatenate(ranks) if ranks else np.zeros(0)
