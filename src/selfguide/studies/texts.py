"""The sentences that a study's grids and measurements run on: read once, and drawn from at random."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

from selfguide.comparison.texts import DatasetLocator, NamedText, text_of_sources
from selfguide.data import Sentences, TextOptions
from selfguide.studies.base import DEMO

_DRAW = 1  # of the random order from which all draws are taken
_AS_THEY_ARE = TextOptions(keep_duplicates=True, keep_blank=True, max_chars=2**31)


@dataclass(frozen=True)
class Drawn:
    """Clean sentences with a name."""

    name: str
    sentences: list[str]

    @property
    def fingerprint(self) -> str:
        """Of the sentences in their order."""
        return hashlib.sha256("".join(sentence + "\n" for sentence in self.sentences).encode()).hexdigest()

    def named(self) -> NamedText:
        """As :func:`selfguide.compare` takes it; nothing is cleaned a second time."""
        return NamedText(Sentences.from_strings(self.sentences, _AS_THEY_ARE), (self.name,))


class Texts:
    """Texts by their names, each read once."""

    def __init__(self, locator: DatasetLocator) -> None:
        self._locator = locator
        self._read: dict[str, Drawn] = {}

    def draw(self, name: str, limit: int | None) -> Drawn:
        """So many sentences in a random order that is always the same; None: all of them, in their own order."""
        whole = self._whole(name)
        if limit is None or limit >= len(whole.sentences):
            return whole
        order = random.Random(_DRAW).sample(range(len(whole.sentences)), len(whole.sentences))
        return Drawn(f"{limit:,} of {whole.name}, drawn at random", [whole.sentences[place] for place in order[:limit]])

    def _whole(self, name: str) -> Drawn:
        if name not in self._read:
            if name == DEMO:
                from selfguide.data.resources import demo_sentences

                self._read[name] = Drawn("demo sentences", list(Sentences.from_strings(demo_sentences())))
            else:
                found = text_of_sources([name], self._locator, TextOptions())
                self._read[name] = Drawn(", ".join(found.names), list(found.sentences))
        return self._read[name]
