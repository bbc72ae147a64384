"""The sentences that scores are computed on, their words, and how much each word says.

A text is made a set: blanks evened out, repeats dropped, and at most ``MOST_SENTENCES`` drawn by the seed. The draw starts from
the sorted sentences, so the order of the text changes nothing. How much a word w says is its inverse document frequency in the
sample of N sentences, df(w) of which have it:

    idf(w) = log((N + 1) / df(w))

"the" is then worth little and a rare word much, in every language and without a table.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from selfguide.errors import SelfguideError

MOST_SENTENCES = 2000
FEWEST_SENTENCES = 20
"""Below this no score is computed."""
ENOUGH_SENTENCES = 200
"""Below this a score is mostly chance; who shows it should say so."""
_WORD = re.compile(r"\w+(?:['’]\w+)*")


@dataclass(frozen=True)
class Sample:
    """Distinct sentences of a text in an order that the seed alone decides."""

    sentences: tuple[str, ...]
    seed: int

    def draw(self, purpose: str) -> np.random.Generator:
        """Random numbers for one purpose; those of others do not depend on how many were drawn here."""
        return np.random.default_rng([self.seed, zlib.crc32(purpose.encode())])

    @cached_property
    def document_frequency(self) -> Counter[str]:
        """In how many sentences each word is."""
        return Counter(word for sentence in self.sentences for word in set(words(sentence)))

    def idf(self, word: str) -> float:
        """How much a word says; an unknown one as much as one that was seen once."""
        return math.log((len(self.sentences) + 1) / self.document_frequency.get(word.lower(), 1))

    def long_enough(self, fewest_words: int, most: int) -> list[list[str]]:
        """Up to ``most`` sentences with so many words, each as its pieces between blanks."""
        found = [sentence.split() for sentence in self.sentences]
        return [pieces for pieces in found if len(pieces) >= fewest_words][:most]


def words(sentence: str) -> list[str]:
    """Lower-case words without marks."""
    return [word.lower() for word in _WORD.findall(sentence)]


def sampled(sentences: Iterable[str], seed: int = 1, most: int = MOST_SENTENCES) -> Sample:
    """The sample of a text; refused where there are too few different sentences to say anything."""
    if isinstance(sentences, str):
        raise SelfguideError("A text is a list of sentences here, not one string: pass [first, second, …].")
    distinct = sorted({" ".join(sentence.split()) for sentence in sentences} - {""})
    if len(distinct) < FEWEST_SENTENCES:
        raise SelfguideError(
            f"Encoders cannot be told apart on {len(distinct)} different "
            f"sentence{'' if len(distinct) == 1 else 's'}: {FEWEST_SENTENCES} are the least, and "
            f"{ENOUGH_SENTENCES} or more make the score trustworthy."
        )
    order = np.random.default_rng([seed, len(distinct)]).permutation(len(distinct))[:most]
    return Sample(tuple(distinct[index] for index in order), seed)


def require(found: Sequence[object], what: str, fewest: int = FEWEST_SENTENCES) -> None:
    """Refuse a text that has too few of what a score needs."""
    if len(found) < fewest:
        raise SelfguideError(
            f"The text has only {len(found)} {what}, and this score needs {fewest}: use another score, or more text."
        )
