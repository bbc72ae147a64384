"""Label-free scores that may decide between the original and what was trained on a text.

All are computed on a sample of the text itself. The *found* scores hide a part of each sentence and see whether what is left
still finds its own: the second half given the first (``halves``), one random half of the words given the other (``thinned``),
the whole sentence given a random half of its words (``whole``). Each is a list of reciprocal ranks, one a sentence, so that two
encoders are compared sentence by sentence, and the difference has a standard error: whoever chooses can ask for evidence, not
for a sign.

The others describe how far an encoder has moved: the overlap of nearest neighbours with the original's, and the rank correlation
of random pairs' cosines with the original's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selfguide.correlation import spearman

Vectors = NDArray[np.float32]
Encode = Callable[[Sequence[str]], Vectors]
FOUND = ("halves", "thinned", "whole")
NEIGHBOURS = 10
_LEAST_WORDS = 4


@dataclass(frozen=True)
class Probe:
    """Sentences of a text and damaged copies of them, the same for every encoder that is compared."""

    sentences: tuple[str, ...]
    """The sample; the first ``len(halves)`` are those that have copies."""
    halves: tuple[tuple[str, str], ...]
    thinned: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, text: Sequence[str], most: int = 1000, copies: int = 400, seed: int = 1) -> Probe:
        """Sample a text.

        Args:
            text: Distinct sentences.
            most: Sentences of the sample.
            copies: How many of them get damaged copies; those with fewer than four words get none.
            seed: Seed of the sample and of the copies.

        Returns:
            The probe.
        """
        draw = np.random.default_rng(seed)
        sample = [text[index] for index in draw.permutation(len(text))[:most]]
        long = [sentence for sentence in sample if len(sentence.split()) >= _LEAST_WORDS][:copies]
        sentences = tuple(dict.fromkeys([*long, *sample]))
        halves, thinned = [], []
        for sentence in long:
            words = sentence.split()
            middle = len(words) // 2
            halves.append((" ".join(words[:middle]), " ".join(words[middle:])))
            first = np.zeros(len(words), dtype=bool)
            first[draw.permutation(len(words))[:middle]] = True
            one, two = ([w for w, f in zip(words, first, strict=True) if f == kept] for kept in (True, False))
            thinned.append((" ".join(one), " ".join(two)))
        return cls(sentences, tuple(halves), tuple(thinned))

    def measure(self, encode: Encode) -> Measured:
        """Encode everything, and return what the scores need.

        Args:
            encode: Returns one vector a sentence.

        Returns:
            The measurements of this encoder.
        """
        copies = [copy for pair in (*self.halves, *self.thinned) for copy in pair]
        vectors = _unit(encode([*self.sentences, *copies]))
        text, copied = vectors[: len(self.sentences)], vectors[len(self.sentences) :]
        count = len(self.halves)
        halves, thinned = copied[: 2 * count], copied[2 * count :]
        ranks = {
            "halves": reciprocal_ranks(halves[0::2], halves[1::2]),
            "thinned": reciprocal_ranks(thinned[0::2], thinned[1::2]),
            "whole": reciprocal_ranks(thinned[0::2], text),
        }
        cosines = text @ text.T
        np.fill_diagonal(cosines, -np.inf)
        near = np.argsort(-cosines, axis=1)[:, : min(NEIGHBOURS, len(text) - 1)]
        rows, columns = np.triu_indices(len(text), 1)
        chosen = np.random.default_rng(0).permutation(len(rows))[:20_000]
        return Measured(ranks, near, cosines[rows[chosen], columns[chosen]], np.sort(cosines, axis=1)[:, -1])


@dataclass(frozen=True)
class Measured:
    """What one encoder makes of a probe."""

    ranks: dict[str, NDArray[np.float64]]
    near: NDArray[np.int64]
    random: Vectors
    """Cosines of random pairs."""
    nearest: Vectors
    """The cosine of each sentence's nearest neighbour."""

    def against(self, original: Measured) -> dict[str, Any]:
        """Compare with the original encoder.

        Args:
            original: Its measurements on the same probe.

        Returns:
            For every found score the mean, the mean difference and its standard error; and how far the encoder has moved.
        """
        found: dict[str, Any] = {}
        together = np.mean([self.ranks[name] for name in FOUND], axis=0)
        before = np.mean([original.ranks[name] for name in FOUND], axis=0)
        pairs = {name: (self.ranks[name], original.ranks[name]) for name in FOUND} | {"found": (together, before)}
        for name, (mine, theirs) in pairs.items():
            change = mine - theirs
            error = float(change.std(ddof=1) / np.sqrt(len(change))) if len(change) > 1 else 0.0
            found[name] = {
                "value": float(mine.mean()) if len(mine) else 0.0,
                "change": float(change.mean()) if len(mine) else 0.0,
                "error": error,
            }
        shared = [len(set(mine) & set(theirs)) for mine, theirs in zip(self.near, original.near, strict=True)]
        return found | {
            "overlap": float(np.mean(shared) / max(1, self.near.shape[1])),
            "order": float(spearman(self.random, original.random)),
            "random": [float(self.random.mean()), float(self.random.std())],
            "nearest": float(self.nearest.mean()),
        }


def reciprocal_ranks(queries: Vectors, candidates: Vectors) -> NDArray[np.float64]:
    """Return 1 / rank of candidate i for query i among all candidates; equal cosines count half."""
    if not len(queries):
        return np.zeros(0)
    cosines = queries @ candidates.T
    own = cosines[np.arange(len(queries)), np.arange(len(queries))][:, None]
    better = (cosines > own).sum(axis=1)
    equal = (cosines == own).sum(axis=1) - 1
    return np.asarray(1.0 / (1.0 + better + equal / 2), dtype=np.float64)


def _unit(vectors: Vectors) -> Vectors:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(norms, 1e-12), dtype=np.float32)
