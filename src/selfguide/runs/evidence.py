"""Measure how a run changed an encoder's embeddings, for the page of the run.

The student is tuned in place, so "before" is measured before training.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from selfguide.engine.encode import sentence_vectors
from selfguide.engine.vector_form import normalised
from selfguide.errors import InterruptedRun, SelfguideError, one_line
from selfguide.models.encoders import with_pooling
from selfguide.progress import Reporter
from selfguide.report.evidence import BINS, Geometry, Neighbours, RunEvidence, Side
from selfguide.system import debugging
from selfguide.training.monitors import effective_rank
from selfguide.words import abridged

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

MEASURED, SHOWN, NEAREST = 300, 200, 5
"""How many sentences are measured, how many of them the page shows, and how many neighbours of each."""
PRINTED = 5
_LONGEST, _LINE = 200, 90
_UNTUNED = "the untuned start encoder, mean of its last layer's tokens"
_AS_GIVEN = "the start encoder as it was given"
_FINISHED = "the finished encoder, as it is saved"


class Text(Protocol):
    """A dataset with a column ``sentence``."""

    def __len__(self) -> int: ...
    def __getitem__(self, place: int, /) -> Any: ...


@dataclass(frozen=True)
class Before:
    """What is measured before training."""

    sentences: list[str]
    side: Side


def sample(text: Text, n: int = MEASURED, seed: int = 1) -> list[str]:
    """Draw different sentences at random.

    The generator is separate, so that a run draws the same numbers with a report and without.

    Args:
        text: The training text.
        n: The most sentences to draw.
        seed: Seed of the draw; the same text and seed give the same sentences.

    Returns:
        The sentences.
    """
    places = random.Random(seed).sample(range(len(text)), min(len(text), 4 * n))
    drawn = dict.fromkeys(str(text[place]["sentence"]) for place in places)
    return list(drawn)[:n]


def collect_before(
    encoder: SentenceTransformer,
    sentences: Sequence[str],
    reporter: Reporter,
    batch_size: int = 64,
    as_given: bool = False,
) -> Before | None:
    """Measure an encoder before it is trained.

    Args:
        encoder: The encoder that the run starts from.
        sentences: What to embed.
        reporter: Gets a warning where it cannot be measured.
        batch_size: Sentences in a forward pass.
        as_given: Whether the encoder has a sentence embedding of its own; otherwise the mean of its tokens is measured.

    Returns:
        The measurements; None where it cannot be measured.
    """
    try:
        try:
            start, description = (encoder, _AS_GIVEN) if as_given else (with_pooling(encoder, "mean"), _UNTUNED)
        except SelfguideError:  # static embeddings have no Transformer to pool
            start, description = encoder, _AS_GIVEN
        return Before(list(sentences), _side(start, description, list(sentences), batch_size))
    except Exception as error:
        _warn(error, reporter)
        return None


def collect_after(
    before: Before | None, encoder: SentenceTransformer, reporter: Reporter, batch_size: int = 64
) -> RunEvidence | None:
    """Measure the finished encoder on the same sentences.

    Args:
        before: What :func:`collect_before` returned.
        encoder: The finished encoder.
        reporter: Gets a warning where it cannot be measured.
        batch_size: Sentences in a forward pass.

    Returns:
        The measurements before and after; None where one of them is missing.
    """
    if before is None:
        return None
    try:
        return RunEvidence(
            measured=len(before.sentences),
            sentences=tuple(abridged(sentence, _LONGEST) for sentence in before.sentences[:SHOWN]),
            before=before.side,
            after=_side(encoder, _FINISHED, before.sentences, batch_size),
        )
    except Exception as error:
        _warn(error, reporter)
        return None


def neighbour_lines(evidence: RunEvidence) -> list[str]:
    """Return a few sentences of the text with the nearest one before and after the run, as lines for a terminal.

    They are the first of those drawn from the text at random, whatever their neighbours are.

    Args:
        evidence: The measurements.

    Returns:
        A heading, and two or three lines for each sentence; nothing where there are too few sentences.
    """
    sides = [side.nearest for side in (evidence.before, evidence.after)]
    if not all(len(side) >= PRINTED and side[0] for side in sides):
        return []
    drawn = len(evidence.sentences)
    lines = [f"Five sentences drawn from the text, and the nearest of {drawn - 1} others before and after:"]
    for place, sentence in enumerate(evidence.sentences[:PRINTED]):
        before, after = (evidence.sentences[side[place][0][0]] for side in sides)
        lines.append(f"  {abridged(sentence, _LINE)}")
        if before == after:
            lines.append(f"    before and after  {abridged(after, _LINE)}")
        else:
            lines += [f"    before  {abridged(before, _LINE)}", f"    after   {abridged(after, _LINE)}"]
    return lines


def geometry(units: NDArray[np.float64]) -> Geometry:
    """Measure how embeddings are distributed.

    Args:
        units: The embeddings, a row of length 1 each.

    Returns:
        The measures.
    """
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
    """Find the nearest neighbours of every embedding.

    Args:
        units: The embeddings, a row of length 1 each.
        count: How many neighbours.

    Returns:
        For each row, the others with the greatest cosines; rows equally near come in their order.
    """
    cosines = (units @ units.T).clip(-1.0, 1.0).round(4)
    np.fill_diagonal(cosines, -np.inf)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, : min(count, len(units) - 1)]
    return tuple(
        tuple((int(place), float(cosines[row, place])) for place in places) for row, places in enumerate(order)
    )


def _warn(error: Exception, reporter: Reporter) -> None:
    """Warn of nearly every error, since a run of hours must not fail for its report; SELFGUIDE_DEBUG=1 raises it."""
    if isinstance(error, InterruptedRun) or debugging():
        raise error
    reason = one_line(error) or type(error).__name__
    reporter.warn(f"the report will not show how the embeddings changed: {reason}")


def _side(encoder: SentenceTransformer, description: str, sentences: list[str], batch_size: int) -> Side:
    if len(sentences) < 2:
        raise SelfguideError("there are fewer than two different sentences to compare.")
    vectors = sentence_vectors(encoder, sentences, batch_size).astype(np.float64)
    if not np.isfinite(vectors).all():
        raise SelfguideError("some embeddings are not finite.")
    units = normalised(vectors)
    return Side(description, geometry(units), nearest(units[:SHOWN]))
