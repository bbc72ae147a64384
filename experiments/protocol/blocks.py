"""The rows of each block: which methods are tuned, which are fitted, and which are only looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.main_table.rows import NLI, PAIRS, UNTRAINED, VECTORS, label_of
from experiments.protocol.space import Budget, Trial, as_word, draw

PUBLISHED, TUNED = "published", "tuned"
_NLI, _PAIRS = f"nli={NLI}", f"pairs={PAIRS}"


@dataclass(frozen=True)
class Searched:
    """A method with two rows: as published, and tuned by dev."""

    method: str
    source: str = ""
    """The option that names the file the method needs."""
    published: Mapping[str, Any] = field(default_factory=dict)
    """What the published row is told besides: the choices that dev pairs would make, or the encoder's own pooling."""

    def as_published(self) -> str:
        """Return the row with the method's own settings, which are the published ones."""
        told = [f"{name}={as_word(value)}" for name, value in self.published.items()]
        return ":".join([f"{self.method}-{PUBLISHED}={self.method}", *filter(None, [self.source]), *told])

    def trials(self, count: int) -> tuple[Trial, ...]:
        """Return the trials of the tuned row, the published settings first."""
        return draw(self.method, count, first=self.published)

    def as_tuned(self, winner: Trial, budget: Budget) -> str:
        """Return the row with the settings that dev chose, under the budget of the trials."""
        return f"{self.method}-{TUNED}={winner.spec(self.source, budget)}"


@dataclass(frozen=True)
class Block:
    """Rows on one encoder and one text."""

    name: str
    searched: tuple[Searched, ...]
    single: tuple[str, ...] = ()
    """Rows that are run as they are: nothing is chosen for them."""
    budget: Budget = field(default_factory=Budget)


# fused chooses the weight of its two parts by dev pairs. As published it has its default without them; tuned, weights are
# drawn with the trials.
MAIN = Block(
    "main",
    (
        Searched("sg-opt"),
        Searched("sg"),
        Searched("sg-opt+bt", _PAIRS),
        Searched("tsdae"),
        Searched("ct"),
        Searched("ct-in-batch"),
        Searched("bt", _PAIRS),
        Searched("bt-cert", _PAIRS),
        Searched("is-bert"),
        Searched("consert"),
        Searched("fused", published={"weight": 0.5}),
        Searched("simcse"),
        Searched("clear"),
        Searched("mirror"),
        Searched("flow"),
        Searched("whitening"),
    ),
    tuple(row for row in UNTRAINED if label_of(row) not in ("flow", "whitening")),
)
# Two passes over the 44,237 pairs; methods with a second stage on the text have the same number of steps there.
LABELLED = Block(
    "labelled",
    (
        Searched("sbert-nli", _NLI),
        Searched("consert-joint", _NLI),
        Searched("consert-sup-unsup", _NLI),
        Searched("consert-joint-unsup", _NLI),
        Searched("infersent", f"{_NLI}:vectors={VECTORS}"),
    ),
    (
        "mean",
        f"sbert-nli-4-epochs=sbert-nli:{_NLI}:epochs=4",
        f"consert-joint-adversarial=consert-joint:{_NLI}:second=adversarial",
        f"sbert-nli+sg-opt=sbert-nli:{_NLI}+sg-opt:pooling=cls",
        f"sbert-nli+ct=sbert-nli:{_NLI}+ct",
        f"sbert-nli+flow=sbert-nli:{_NLI}+flow",
    ),
    Budget(sentences=88_474),
)
# On a sentence encoder whose vector is the mean, the methods that would start from [CLS] keep that vector.
SENTENCE_ENCODER = Block(
    "sentence-encoder",
    (
        Searched("sg-opt", published={"pooling": "mean"}),
        Searched("simcse", published={"pooling": "mean"}),
        Searched("consert", published={"eval_pooling": "mean"}),
        Searched("fused", published={"weight": 0.5}),
        Searched("flow", published={"pooling": "mean"}),
        Searched("whitening", published={"pooling": "mean"}),
    ),
    ("mean",),
)
BLOCKS = {block.name: block for block in (MAIN, LABELLED, SENTENCE_ENCODER)}
