"""All label-free scores of one encoder by name, and the one function that computes them.

Each is a pure function of an encoder, sentences and a seed, and higher is better. What it costs is bounded: whatever the size of
the text, some six thousand short sentences are encoded for all of them together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from experiments.choosing import agreement, corruptions, geometry, retrieval
from experiments.choosing.sample import Sample, sampled
from experiments.choosing.vectors import Vectors
from selfguide.errors import SelfguideError, UsageError
from selfguide.evaluation.embedder import AnyEncoder, Embedder, embedder


@dataclass(frozen=True)
class Score:
    """A score of one encoder."""

    name: str
    idea: str
    of: Callable[[Vectors, Sample], float]


SCORES: tuple[Score, ...] = (
    Score("corruptions", "cosine follows how much of a sentence is left, on one scale", corruptions.corruptions),
    Score("corruptions-far", "the same for what has half in common or less", corruptions.corruptions_far),
    Score("corruptions-within", "the same within each sentence alone", corruptions.corruptions_within),
    Score("halves", "a sentence's half is found given the other", retrieval.halves),
    Score("thinned", "two thinned copies of a sentence find each other", retrieval.thinned),
    Score("words", "cosine follows that of the weighted words", agreement.agreement_words),
    Score("panel", "cosine follows three counted views of the text", agreement.agreement_panel),
    Score("alignment", "thinned copies are near each other", geometry.alignment),
    Score("uniformity", "sentences are spread over the sphere", geometry.uniformity),
    Score("align-uniform", "alignment and uniformity together", geometry.align_uniform),
    Score("isotropy", "different sentences have low cosines", geometry.isotropy),
    Score("effective-rank", "many directions are in use", geometry.effective_rank),
    Score("hubness", "no sentence is everybody's neighbour", geometry.hubness),
)

COMBINED: dict[str, tuple[str, ...]] = {
    "balanced": ("corruptions", "halves", "panel"),
    "found": ("halves", "thinned"),
    "scaled": ("corruptions", "panel"),
}
"""Plain means of scores that all lie between 0 and 1 for any sensible encoder, with equal weights, fixed before any was
compared with labels."""


def score_names() -> tuple[str, ...]:
    """Every score of one encoder, single and combined."""
    return (*(score.name for score in SCORES), *COMBINED)


def label_free_scores(
    encoder: AnyEncoder | Embedder, sentences: Iterable[str] | Sample, seed: int = 1, names: Iterable[str] | None = None
) -> dict[str, float]:
    """Several scores of an encoder on a text, each sentence being encoded once.

    Args:
        encoder: ``"mini"``, a folder, a SentenceTransformer, or a function of a list of sentences.
        sentences: the text, in any order; at most 2,000 sentences of it are used.
        seed: which sentences, and how they are damaged. Compare encoders under the same seed.
        names: which scores; None: all.
    """
    wanted = list(score_names() if names is None else names)
    for name in wanted:
        if name not in score_names():
            raise UsageError(f"There is no label-free score {name!r}; choose one of {', '.join(score_names())}.")
    sample = sentences if isinstance(sentences, Sample) else sampled(sentences, seed)
    vectors = encoder if isinstance(encoder, Embedder) else embedder(encoder)
    single = dict.fromkeys(member for name in wanted for member in COMBINED.get(name, (name,)))
    known = {score.name: _finite(score, vectors, sample) for score in SCORES if score.name in single}
    means = {name: float(np.mean([known[member] for member in COMBINED[name]])) for name in wanted if name in COMBINED}
    return {name: means[name] if name in means else known[name] for name in wanted}


def _finite(score: Score, vectors: Embedder, sample: Sample) -> float:
    value = score.of(vectors, sample)
    if not np.isfinite(value):
        raise SelfguideError(f"{vectors.info.name} has no score {score.name!r}: what came out is not a finite number.")
    return value
