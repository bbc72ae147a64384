"""How an encoder spreads its embeddings: whether they fill a cone, and whether it tells a text's sentences apart.

An encoder has a *cone* where any two sentences have a high cosine, those of one text and those of general English alike. Then a
part of every cosine says nothing about the two sentences. A text is *one-sided* where its sentences hardly differ for the
encoder, because they repeat one template or are in a language that it does not know.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from selfguide.calibration.centring import mean_cosine, one_sidedness
from selfguide.data.resources import demo_sentences
from selfguide.engine.encode import sentence_vectors
from selfguide.words import count_words

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

    from selfguide.progress import Reporter

GENERAL = 300
"""Sentences of general English that are read beside those of the text."""
LEAST_COSINE, MOST_COMMON = 0.2, 0.5
"""An encoder has a cone where two sentences, of the text and of general English alike, have at least this mean cosine; and a
text is one-sided where :func:`~selfguide.calibration.centring.one_sidedness` is above the other: on development texts it is below
0.35, of a repeated template and of an unknown language above 0.55."""
_FEWEST_WORDS = 4


@dataclass(frozen=True)
class Spread:
    """How an encoder spreads the embeddings of a text, and those of general English."""

    mean: NDArray[np.float64]
    """The mean of the text's embeddings at length 1."""
    text: float
    """Mean cosine of two sentences of the text."""
    general: float
    """Mean cosine of two sentences of general English."""
    common: float
    """See :func:`~selfguide.calibration.centring.one_sidedness`."""

    @classmethod
    def of(cls, encoder: SentenceTransformer, sentences: list[str], reporter: Reporter) -> Spread:
        """Measure an encoder.

        Args:
            encoder: The encoder.
            sentences: A sample of the text.
            reporter: Shows progress.

        Returns:
            The measurement.
        """
        others = general_sentences()
        with reporter.bar("reading", len(sentences) + len(others), "sentences") as advance:
            text = sentence_vectors(encoder, sentences, normalise=True)
            advance(len(sentences), "")
            general = sentence_vectors(encoder, others, normalise=True)
            advance(len(others), "")
        mean: NDArray[np.float64] = text.mean(axis=0, dtype=np.float64)
        return cls(mean, mean_cosine(text), mean_cosine(general), one_sidedness(text, general))

    @property
    def cosine(self) -> float:
        """The lower of both mean cosines."""
        return min(self.text, self.general)

    @property
    def has_cone(self) -> bool:
        """Whether any two sentences have a high cosine, and the text is not one-sided."""
        return self.cosine >= LEAST_COSINE and self.common <= MOST_COMMON

    @property
    def cone(self) -> str:
        """What is said of an encoder with a cone."""
        return (
            f"This encoder gives any two sentences a high cosine ({self.text:.2f} in the mean of the text, {self.general:.2f} in "
            "general English)"
        )

    @property
    def reason_to_stay(self) -> str:
        """Why an encoder is left as it is where no dev pairs judge."""
        if self.cosine < LEAST_COSINE:
            return (
                "The text gave no reason to change the encoder, whose embeddings are spread well already (two sentences have a "
                f"mean cosine of {self.text:.2f}, in general English {self.general:.2f}), and without graded pairs (--dev) "
                "nothing tells whether training helps"
            )
        if self.common > MOST_COMMON:
            return (
                f"The encoder hardly tells the sentences of this text apart ({100 * self.common:.0f} % of what sets them off "
                "from general English is common to all), as those of one template or of a language that it does not know"
            )
        return "Nothing was to be trained or centred"

    @property
    def scores(self) -> tuple[tuple[str, float], ...]:
        """The numbers by name, for ``run.json``."""
        return (("mean cosine", self.cosine), ("common", self.common))


def general_sentences() -> list[str]:
    """Return a sample of general English, always the same."""
    long = [sentence for sentence in dict.fromkeys(demo_sentences()) if count_words(sentence) >= _FEWEST_WORDS]
    return random.Random(1).sample(long, GENERAL)
