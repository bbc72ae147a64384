"""Recipes: what is tried on an encoder that is good already, written as one word each.

    contrast                                 the baseline: SimCSE, own pooling, no head, full length, rate 5e-6
    contrast:stay=1:learning_rate=2e-5       options of the method and training settings, as in `selfguide compare`
    tsdae:pooling=mean:learning_rate=1e-5    any method of the package by its name

The word is the recipe's name in files and tables, so two cells with the same word are the same cell.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from experiments.adapt.loss import GuidedContrastLoss
from experiments.adapt.matching import rarity
from selfguide.augment.dropout import DROPOUT_RATE, KEEP_DROPOUT
from selfguide.engine.encode import sentence_vectors
from selfguide.losses.rules import TEMPERATURE, WEIGHT
from selfguide.methods import registry
from selfguide.methods.base import Method, TuningMethod
from selfguide.options import AtLeast, Between, CheckedOptions
from selfguide.training.settings import TrainingSettings

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    from selfguide.training.trainer import FitContext, TrainingOutcome


FEWEST_STEPS, MOST_STEPS, MOST_EPOCHS = 16, 80, 10.0
"""A small text is read again until there are so many steps, but not more often than the last; of a large one so much is read."""


@dataclass(frozen=True)
class ContrastOptions(CheckedOptions):
    """Options of the guided contrast."""

    temperature: Annotated[float, TEMPERATURE] = 0.05
    """τ: the smaller, the more the hardest negatives count."""
    dropout: Annotated[float, DROPOUT_RATE] = KEEP_DROPOUT
    """Rate of every dropout during training; -1: the encoder's own."""
    contrast: Annotated[float, WEIGHT] = 1.0
    """Weight of the contrast between two dropout passes."""
    stay: Annotated[float, WEIGHT] = 0.0
    """Weight of the divergence from the original's in-batch similarities."""
    guide_temperature: Annotated[float, TEMPERATURE] = 0.05
    """τ_g of the original's in-batch similarities."""
    anchor: Annotated[float, WEIGHT] = 0.0
    """Weight of the contrast with the original's embedding of the same sentence."""
    thin: Annotated[float, DROPOUT_RATE] = 0.0
    """Share of the tokens that the second embedding does not see; -1 and 0: none."""
    match: Annotated[float, WEIGHT] = 0.0
    """Weight of the original's similarities with token matches as targets."""
    match_share: Annotated[float, Between(0, 1)] = 0.3
    """Share of the match in those targets."""
    neighbours: Annotated[int, AtLeast(0)] = 0
    """Each sentence of a batch has one of so many nearest neighbours of the original beside it; 0: none."""


class Contrast(TuningMethod):
    """Contrast over dropout with the encoder's own modules, guided by the original's similarities."""

    name = "contrast"
    Options = ContrastOptions
    options: ContrastOptions
    defaults = TrainingSettings(batch_size=64, learning_rate=5e-6)

    def fit(self, encoder: SentenceTransformer, context: FitContext) -> TrainingOutcome:
        """See :meth:`Method.fit`; the encoder as it is finds the neighbours, and a small text is read several times."""
        self._original = encoder
        settings = context.settings
        if settings.epochs == 1 and not settings.max_steps:
            per_epoch = max(1.0, len(context.text) / settings.batch_size)
            epochs = min(MOST_EPOCHS, max(1.0, FEWEST_STEPS / per_epoch))
            settings = replace(settings, epochs=epochs, max_steps=MOST_STEPS if per_epoch > MOST_STEPS else 0)
        return super().fit(encoder, replace(context, settings=settings))

    def dataset(self, text: Dataset) -> Dataset:
        """See :meth:`TuningMethod.dataset`: with one of its nearest neighbours beside each sentence, if asked for."""
        count = self.options.neighbours
        if not count:
            return text
        rows = text["sentence"][:]
        vectors = sentence_vectors(self._original, rows, normalise=True)
        draw = np.random.default_rng(self.context.settings.seed)
        chosen = []
        for start in range(0, len(rows), 1000):
            cosines = vectors[start : start + 1000] @ vectors.T
            cosines[np.arange(len(cosines)), start + np.arange(len(cosines))] = -1
            nearest = np.argpartition(-cosines, count, axis=1)[:, :count]
            chosen += [rows[row[draw.integers(count)]] for row in nearest]
        return text.add_column("neighbour", chosen)

    def loss(self, student: SentenceTransformer) -> GuidedContrastLoss:
        """See :meth:`TuningMethod.loss`."""
        settings = asdict(self.options)
        del settings["neighbours"]
        idf = rarity(student, self.context.text["sentence"][:]) if self.options.match else None
        return GuidedContrastLoss(student, **settings, idf=idf)


@dataclass(frozen=True)
class Recipe:
    """A method with its options, and training settings."""

    method: Method
    settings: dict[str, Any]


def recipe(word: str) -> Recipe:
    """Read a recipe.

    Args:
        word: The method's name and ``name=value`` parts, joined by colons.

    Returns:
        The recipe.

    Raises:
        UsageError: There is no such method, option or setting.
    """
    name, *parts = word.split(":")
    given = {key: _plain(value) for key, _, value in (part.partition("=") for part in parts)}
    kind = Contrast if name == Contrast.name else registry.method_class(name)
    training = {item.name for item in fields(TrainingSettings)}
    options = {key: value for key, value in given.items() if key not in training}
    return Recipe(kind(**options), {key: value for key, value in given.items() if key in training})


def _plain(word: str) -> int | float | bool | str:
    if word in ("true", "false"):
        return word == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
