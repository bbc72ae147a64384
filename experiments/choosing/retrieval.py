"""Finding what belongs together: a sentence's other half, its thinned twin.

Both are the mean reciprocal rank of the right one among n candidates (both ways round, averaged):

    MRR = 1/n Σ_i 1 / rank_i

    halves       the second half of a sentence among all second halves, given the first: they hardly share a word, so that
                 only what they are about can tell
    thinned      two copies of a sentence, each with a random half of its words left out, independently: some words are shared,
                 some are not
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from experiments.choosing.sample import Sample, require
from experiments.choosing.vectors import Vectors, mean_reciprocal_rank

MOST = 600
FEWEST_WORDS = 6


def halves(vectors: Vectors, sample: Sample) -> float:
    """MRR of a sentence's half among all halves, given its other half."""
    chosen = sample.long_enough(FEWEST_WORDS, MOST)
    require(chosen, f"sentences of {FEWEST_WORDS} words or more")
    first = [" ".join(pieces[: len(pieces) // 2]) for pieces in chosen]
    second = [" ".join(pieces[len(pieces) // 2 :]) for pieces in chosen]
    return both_ways(vectors, first, second)


def thinned(vectors: Vectors, sample: Sample) -> float:
    """MRR of a thinned copy of a sentence among all sentences' thinned copies, given another one."""
    return both_ways(vectors, *thinned_copies(sample))


@lru_cache(maxsize=4)  # the same for all encoders of a text
def thinned_copies(sample: Sample) -> tuple[list[str], list[str]]:
    """Two copies of each sentence, each with a random half of its words, in their order."""
    chosen = sample.long_enough(FEWEST_WORDS, MOST)
    require(chosen, f"sentences of {FEWEST_WORDS} words or more")
    random = sample.draw("thinned")

    def thin(pieces: list[str]) -> str:
        kept = np.sort(random.choice(len(pieces), size=(len(pieces) + 1) // 2, replace=False))
        return " ".join(pieces[index] for index in kept)

    return [thin(pieces) for pieces in chosen], [thin(pieces) for pieces in chosen]


def both_ways(vectors: Vectors, first: Sequence[str], second: Sequence[str]) -> float:
    """The mean of looking for the second given the first, and for the first given the second."""
    one, two = vectors(first), vectors(second)
    return (mean_reciprocal_rank(one, two) + mean_reciprocal_rank(two, one)) / 2
