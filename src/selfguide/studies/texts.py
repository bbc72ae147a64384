"""The sentences that a study's grids and measurements run on: each text is read once and sampled."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

from selfguide.comparison.texts import DatasetLocator, NamedText, text_of_sources
from selfguide.data import Sentences, TextOptions
from selfguide.data.resources import demo_sentences
from selfguide.studies.base import DEMO

_ORDER_SEED = 1  # of the random order that all samples are prefixes of
_UNCHANGED = TextOptions(keep_duplicates=True, keep_blank=True, max_chars=2**31)


@dataclass(frozen=True)
class TextSample:
    """Clean sentences with a name."""

    name: str
    sentences: list[str]

    @property
    def content(self) -> str:
        """The sentences, one a line."""
        return "".join(sentence + "\n" for sentence in self.sentences)

    @property
    def fingerprint(self) -> str:
        """A digest of the sentences in their order."""
        return hashlib.sha256(self.content.encode()).hexdigest()

    def named(self) -> NamedText:
        """Return the text as :func:`selfguide.compare` takes it, without cleaning it a second time."""
        return NamedText(Sentences.from_strings(self.sentences, _UNCHANGED), (self.name,))


class TextSampler:
    """Samples of texts by name; each text is read once.

    Args:
        locator: Where the data of tasks are found.
    """

    def __init__(self, locator: DatasetLocator) -> None:
        self._locator = locator
        self._read: dict[str, TextSample] = {}

    def sample(self, name: str, limit: int | None) -> TextSample:
        """Return a random sample that is always the same; smaller samples are prefixes of larger ones.

        Args:
            name: ``demo``, ``data:TASK``, or anything that `selfguide train` reads.
            limit: How many sentences; None: all of them, in their own order.
        """
        whole = self._whole(name)
        if limit is None or limit >= len(whole.sentences):
            return whole
        order = random.Random(_ORDER_SEED).sample(range(len(whole.sentences)), len(whole.sentences))
        sentences = [whole.sentences[index] for index in order[:limit]]
        return TextSample(f"{limit:,} of {whole.name}, drawn at random", sentences)

    def _whole(self, name: str) -> TextSample:
        if name not in self._read:
            if name == DEMO:
                self._read[name] = TextSample("demo sentences", list(Sentences.from_strings(demo_sentences())))
            else:
                found = text_of_sources([name], self._locator, TextOptions())
                self._read[name] = TextSample(", ".join(found.names), list(found.sentences))
        return self._read[name]
