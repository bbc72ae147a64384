"""Agreement on graded damage: the more of a sentence is changed, the further away it should be.

For each of up to ``MOST`` sentences s, ``VARIANTS`` copies are made, in turn by

* dropping k words,
* replacing k words, each by a word of the text that is about as frequent,
* splicing: the last k words become those of another sentence,

with k spread from one word to all but one; and one comparison with another sentence altogether. The grade of a copy c is the
share of what the sentence says that was left alone,

    g(s, c) = 1 − Σ_{w changed} idf(w) / Σ_{w in s} idf(w)           0 for another sentence

so that losing "the" costs little and losing a name much. Three scores are made of the cosines:

    corruptions          Spearman of g and cosine over the copies of all sentences in one list
    corruptions-far      the same over the copies with g ≤ 1/2 alone, other sentences included
    corruptions-within   the mean over sentences of the Spearman over each sentence's own copies

Most encoders can order the copies of one sentence. Having one scale for all sentences, so that 0.8 means as much here as there,
is what similarity needs and what an anisotropic encoder lacks: the first score asks for it, the last does not and is here to
show the difference. Telling near copies apart is easy as well; the pairs that people grade have mostly little in common, and
the second score asks for the order of such. It was singled out on STS-B's dev pairs, the first and the last were not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from experiments.choosing.sample import Sample, require, words
from experiments.choosing.vectors import Floats, Vectors, or_nothing, row_cosines
from selfguide.correlation import spearman

MOST = 300
VARIANTS = 6
FEWEST_WORDS = 4
KINDS = ("drop", "replace", "splice")
_FAR = 0.5
_AS_FREQUENT = 25
"""A word's place may be taken by one of the so many words on each side of it in the list by frequency."""


@dataclass(frozen=True)
class Corrupted:
    """A sentence, a damaged copy, and how much of the sentence is left in it."""

    group: int
    sentence: str
    copy: str
    grade: float


def corruptions(vectors: Vectors, sample: Sample) -> float:
    """Spearman of grade and cosine over the damaged copies of all sentences."""
    pairs = corrupted(sample)
    return or_nothing(spearman([pair.grade for pair in pairs], _cosines(vectors, pairs)))


def corruptions_far(vectors: Vectors, sample: Sample) -> float:
    """The same over copies that have kept half of what their sentence says, or less."""
    pairs = [pair for pair in corrupted(sample) if pair.grade <= _FAR]
    require(pairs, "copies with half of their sentence left or less")
    return or_nothing(spearman([pair.grade for pair in pairs], _cosines(vectors, pairs)))


def corruptions_within(vectors: Vectors, sample: Sample) -> float:
    """The mean of the same within each sentence."""
    pairs = corrupted(sample)
    cosines = _cosines(vectors, pairs)
    grades, groups = np.array([pair.grade for pair in pairs]), np.array([pair.group for pair in pairs])
    each = [or_nothing(spearman(grades[groups == group], cosines[groups == group])) for group in np.unique(groups)]
    return float(np.mean(each))


def _cosines(vectors: Vectors, pairs: Sequence[Corrupted]) -> Floats:
    return row_cosines(vectors([pair.sentence for pair in pairs]), vectors([pair.copy for pair in pairs]))


@lru_cache(maxsize=4)  # the same for all encoders of a text
def corrupted(sample: Sample) -> tuple[Corrupted, ...]:
    """All sentences with their damaged copies."""
    chosen = sample.long_enough(FEWEST_WORDS, MOST)
    require(chosen, f"sentences of {FEWEST_WORDS} words or more")
    random = sample.draw("corruptions")
    substitutes = Substitutes(sample)
    found: list[Corrupted] = []
    for group, pieces in enumerate(chosen):
        sentence, weights = " ".join(pieces), piece_weights(sample, pieces)
        other = chosen[(group + int(random.integers(1, len(chosen)))) % len(chosen)]
        # One count in each of so many equal stretches from 1 to all but one, so that every grade is met.
        edges = np.linspace(1, len(pieces), VARIANTS + 1)
        counts = [
            int(random.integers(int(low), max(int(low), int(np.ceil(high)) - 1) + 1)) for low, high in _steps(edges)
        ]
        for number, count in enumerate(counts):
            kind = KINDS[(group + number) % len(KINDS)]
            copy, changed = damaged(pieces, min(count, len(pieces) - 1), kind, other, substitutes, random)
            grade = 1.0 - float(weights[changed].sum() / weights.sum())
            found.append(Corrupted(group, sentence, copy, grade))
        found.append(Corrupted(group, sentence, " ".join(other), 0.0))
    return tuple(found)


def piece_weights(sample: Sample, pieces: list[str]) -> Floats:
    """What each piece between blanks says: the sum over its words, and a little for a mark that stands alone."""
    return np.array([max(0.01, sum(sample.idf(word) for word in words(piece))) for piece in pieces])


def damaged(
    pieces: list[str], count: int, kind: str, other: list[str], substitutes: Substitutes, random: np.random.Generator
) -> tuple[str, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """A copy with ``count`` pieces changed in one of the ways, and which they were."""
    changed = np.zeros(len(pieces), dtype=bool)
    if kind == "splice":
        changed[len(pieces) - count :] = True
        return " ".join([*pieces[: len(pieces) - count], *other[-count:]]), changed
    changed[random.choice(len(pieces), size=count, replace=False)] = True
    if kind == "drop":
        return " ".join(piece for piece, gone in zip(pieces, changed, strict=True) if not gone), changed
    made = [substitutes.of(piece, random) if gone else piece for piece, gone in zip(pieces, changed, strict=True)]
    return " ".join(made), changed


class Substitutes:
    """Words of the text that are about as frequent as another."""

    def __init__(self, sample: Sample) -> None:
        counts = sample.document_frequency
        self._words = sorted(counts, key=lambda word: (-counts[word], word))
        self._place = {word: place for place, word in enumerate(self._words)}

    def of(self, piece: str, random: np.random.Generator) -> str:
        """Another word for a piece; a mark stays."""
        own = words(piece)
        if not own or len(self._words) < 2:
            return piece
        place = self._place.get(own[0], len(self._words) - 1)
        low, high = max(0, place - _AS_FREQUENT), min(len(self._words), place + _AS_FREQUENT + 1)
        near = [index for index in range(low, high) if index != place]
        return self._words[near[int(random.integers(len(near)))]]


def _steps(edges: Floats) -> list[tuple[float, float]]:
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
