"""Measure what a run did to an encoder's vectors. The student is tuned in place, so "before" is measured before training."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from selfguide.engine.encode import sentence_vectors
from selfguide.errors import InterruptedRun, SelfguideError
from selfguide.models.encoders import with_pooling
from selfguide.progress import Reporter
from selfguide.report.evidence import BINS, Geometry, Neighbours, RunEvidence, Side
from selfguide.training.monitors import effective_rank

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

MEASURED, SHOWN, NEAREST = 300, 200, 5
_LONGEST = 200
START = "the untuned start encoder, mean of its last layer's tokens"
AS_GIVEN = "the start encoder as it was given"
FINISHED = "the finished encoder, as it is saved"


class Text(Protocol):
    """A dataset with a column ``sentence``."""

    def __len__(self) -> int: ...
    def __getitem__(self, place: int, /) -> Any: ...


@dataclass(frozen=True)
class Before:
    """What has to be known before training."""

    sentences: list[str]
    side: Side


def sample(text: Text, n: int = MEASURED, seed: int = 1) -> list[str]:
    """At most ``n`` different sentences drawn at random, the same ones for the same text and seed.

    A generator of its own, so that the run draws the same numbers with a report and without.
    """
    places = random.Random(seed).sample(range(len(text)), min(len(text), 4 * n))
    drawn = dict.fromkeys(str(text[place]["sentence"]) for place in places)
    return list(drawn)[:n]


def collect(
    before: SentenceTransformer, after: SentenceTransformer, sentences: Sequence[str], batch_size: int = 64
) -> RunEvidence:
    """Both at once, for two encoders that do not share their weights."""
    start = _before(before, list(sentences), batch_size)
    return _after(start, after, batch_size)


def collect_before(
    encoder: SentenceTransformer, sentences: Sequence[str], reporter: Reporter, batch_size: int = 64
) -> Before | None:
    """To be called before training; None, and a warning, where it cannot be done."""
    try:
        return _before(encoder, list(sentences), batch_size)
    except Exception as error:
        _warn(error, reporter)
        return None


def collect_after(
    before: Before | None, encoder: SentenceTransformer, reporter: Reporter, batch_size: int = 64
) -> RunEvidence | None:
    """To be called with the finished encoder; None, and a warning, where it cannot be done."""
    try:
        return _after(before, encoder, batch_size) if before is not None else None
    except Exception as error:
        _warn(error, reporter)
        return None


def _warn(error: Exception, reporter: Reporter) -> None:
    """A run of hours must not fail for its report, so nearly everything is caught; SELFGUIDE_DEBUG=1 lets it pass."""
    if isinstance(error, InterruptedRun) or os.environ.get("SELFGUIDE_DEBUG") == "1":
        raise error
    reason = " ".join(str(error).split()) or type(error).__name__
    reporter.warn(f"the report will not show what became of the vectors: {reason}")


def _before(encoder: SentenceTransformer, sentences: list[str], batch_size: int) -> Before:
    try:
        start, words = with_pooling(encoder, "mean"), START
    except SelfguideError:  # no Transformer in it: word vectors, say
        start, words = encoder, AS_GIVEN
    return Before(sentences, _side(start, words, sentences, batch_size))


def _after(before: Before, encoder: SentenceTransformer, batch_size: int) -> RunEvidence:
    return RunEvidence(
        measured=len(before.sentences),
        sentences=tuple(_cut(sentence) for sentence in before.sentences[:SHOWN]),
        before=before.side,
        after=_side(encoder, FINISHED, before.sentences, batch_size),
    )


def _side(encoder: SentenceTransformer, words: str, sentences: list[str], batch_size: int) -> Side:
    if len(sentences) < 2:
        raise SelfguideError("there are fewer than two different sentences to compare.")
    vectors = sentence_vectors(encoder, sentences, batch_size).astype(np.float64)
    if not np.isfinite(vectors).all():
        raise SelfguideError("some vectors are not finite.")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = vectors / np.where(lengths > 0, lengths, 1.0)
    return Side(words, geometry(units), nearest(units[:SHOWN]))


def geometry(units: NDArray[np.float64]) -> Geometry:
    """Of vectors of length 1, a row each."""
    import torch

    cosines = (units @ units.T)[np.triu_indices(len(units), 1)].clip(-1.0, 1.0)
    counts, _ = np.histogram(cosines, bins=BINS, range=(-1.0, 1.0))
    return Geometry(
        dimensions=units.shape[1],
        mean_cosine=round(float(cosines.mean()), 6),
        effective_rank=round(effective_rank(torch.from_numpy(units)), 4),
        # ‖u−v‖² = 2 − 2 cos for vectors of length 1.
        uniformity=round(float(np.log(np.exp(-4.0 * (1.0 - cosines)).mean())), 6),
        histogram=tuple(int(count) for count in counts),
    )


def nearest(units: NDArray[np.float64], count: int = NEAREST) -> tuple[Neighbours, ...]:
    """For each row, the others with the greatest cosines; rows equally near come in their order."""
    cosines = (units @ units.T).clip(-1.0, 1.0).round(4)
    np.fill_diagonal(cosines, -np.inf)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, : min(count, len(units) - 1)]
    return tuple(
        tuple((int(place), float(cosines[row, place])) for place in places) for row, places in enumerate(order)
    )


def _cut(sentence: str) -> str:
    """The page stays small, and a neighbour is recognised by its beginning."""
    return sentence if len(sentence) <= _LONGEST else sentence[: _LONGEST - 1].rstrip() + "…"
