"""Adapt a sentence encoder to a text without labels, and give it back unchanged where the text gives no reason to change it.

Training on raw text helps some encoders and harms others (docs/results/adapt.md). It helps those that give any two sentences a
high cosine, so that their embeddings fill a cone, and it gains points with most others too, but without labels nothing tells
there which text it would harm. So without dev pairs an encoder with a cone is trained, and any other comes back as it was. So
does every encoder where it hardly tells the text's sentences apart, because they repeat one template or are in a language that
it does not know. With dev pairs there is something that can judge, and every encoder is trained.

The loss is :class:`~selfguide.losses.GuidedContrastLoss` on the encoder's own modules: its pooling, normalisation, prompts and
length stay as they are and nothing random is added. The learning rate is small, and ten times as large for an encoder with a
cone, which has further to go. The number of steps follows from the size of the text. With dev pairs, the encoder as it was, the
trained one and their weight average half-way (:mod:`selfguide.training.weight_averages`) are compared on them, each as it is and
centred on the text (:mod:`selfguide.calibration.centring`). Without them, an encoder with a cone goes half-way, if graded pairs
of general English that are part of the package gain clearly by it; otherwise it comes back as it was.

The contrast is SimCSE's: Gao, Yao and Chen, EMNLP 2021. Averaging weights with the original: Wortsman et al., Robust Fine-Tuning
of Zero-Shot Models, CVPR 2022.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import numpy as np

from selfguide.augment.dropout import DROPOUT_RATE
from selfguide.calibration.centring import can_be_centred, centred
from selfguide.calibration.spread import Spread
from selfguide.correlation import spearman
from selfguide.data.resources import demo_pairs
from selfguide.engine.encode import sentence_vectors
from selfguide.errors import SelfguideError, UsageError
from selfguide.losses.dropout_contrast import CITATION
from selfguide.losses.guided_contrast import GuidedContrastLoss
from selfguide.losses.rules import GRADIENT_CACHE, TEMPERATURE, WEIGHT
from selfguide.methods.base import TuningMethod
from selfguide.methods.search import BATCHES, LOW_DROPOUTS, RATES, SWITCH
from selfguide.models.encoders import POOLINGS, with_pooling
from selfguide.models.starting_points import RAW, STATIC, default_prompt
from selfguide.options import Between, CheckedOptions, OneOf
from selfguide.progress import quiet_datasets
from selfguide.training.callbacks import DEV_METRIC, saveable_weights
from selfguide.training.settings import BY_METHOD, TrainingSettings
from selfguide.training.trainer import TrainingOutcome
from selfguide.training.weight_averages import AS_IT_WAS, TRAINED, Choice, WeightAverages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from datasets import Dataset
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

    from selfguide.models.starting_points import StartingPoint
    from selfguide.progress import Reporter
    from selfguide.training.trainer import FitContext

OWN = "own"
"""Pooling that leaves the encoder's modules as they are."""
FEWEST_SENTENCES = 20
FEWEST_STEPS, MOST_EPOCHS, MOST_STEPS = 16, 10.0, 80
"""A small text is repeated until there are this many steps, up to a limit; of a large text only a part is read."""
LEARNING_RATE, LEARNING_RATE_WITH_CONE = 1e-5, 1e-4
"""An encoder with a cone has far to go; one that spreads its embeddings well is soon harmed."""
HALF_WAY = 0.5
SHARES = (HALF_WAY, TRAINED)
"""The candidates besides the encoder as it was."""
LEAST_GAIN = 0.02
"""What the graded pairs of general English must gain (Spearman's correlation) where only the cone speaks for training. A cone
that is in the way costs several points there; where less is gained, so little is that a text may lose more."""
SAMPLE = 1000
"""Sentences of the text that show how the encoder spreads its embeddings."""
BY_GENERAL_PAIRS = "graded pairs of general English"
AUTO, ALWAYS, NEVER = "auto", "always", "never"


@dataclass(frozen=True)
class AdaptOptions(CheckedOptions):
    """Options of adaptation."""

    temperature: Annotated[float, TEMPERATURE] = 0.07
    """τ of the contrast: the smaller, the more the hardest negatives count."""
    stay_close: Annotated[float, WEIGHT] = 0.0
    """λ: weight of the original encoder's similarities between the sentences of a batch; 0 leaves them out."""
    guide_temperature: Annotated[float, TEMPERATURE] = 0.05
    """τ of those similarities: the smaller, the more the nearest sentences count."""
    dropout: Annotated[float, DROPOUT_RATE] = 0.2
    """Rate of every dropout during training; -1: the encoder's own."""
    freeze_layer_0: bool = False
    """Do not train the embedding layer."""
    pooling: Annotated[str, OneOf(OWN, *POOLINGS)] = OWN
    """own keeps the encoder's modules; cls, mean, max, last2 or first-last names the pooling of a sentence encoder whose folder
    does not say it."""
    tune: Annotated[str, OneOf(AUTO, ALWAYS, NEVER)] = AUTO
    """auto: train with dev pairs, which can judge it, or where the encoder gives any two sentences a high cosine; always or
    never."""
    centring: Annotated[float, Between(0, 1)] = 0.5
    """Share of the mean of the text's embeddings that is subtracted from centred candidates; 0: there are none."""
    choose: bool = True
    """Choose between the encoder as it was and what was made of it; --no-choose trains, and keeps the trained one."""
    gradient_cache: Annotated[int, GRADIENT_CACHE] = 0
    """Sentences that pass through the encoder at a time, for batches larger than memory; 0: all. It costs a second forward
    pass."""

    def __post_init__(self) -> None:
        """Check the combination too."""
        super().__post_init__()
        if self.tune == NEVER and not self.choose:
            raise UsageError(
                "--no-choose keeps what was trained, and --tune never trains nothing: leave one of them out."
            )


class Adapt(TuningMethod):
    """``--method adapt``."""

    name = "adapt"
    summary = (
        "a sentence encoder is tuned where dev pairs judge it or its cosines are all high (ours; not for raw models)"
    )
    reference = "builds on simcse"
    made_for = "sentence encoder"
    is_default = True
    Options = AdaptOptions
    options: AdaptOptions
    defaults = TrainingSettings(batch_size=64, learning_rate=BY_METHOD, epochs=BY_METHOD)
    citation = CITATION
    search = {
        "learning_rate": (2e-6, *RATES),
        "batch_size": BATCHES,
        "temperature": (0.03, 0.05, 0.07, 0.1),
        "stay_close": (0.0, 1.0),
        "dropout": LOW_DROPOUTS,
        "freeze_layer_0": SWITCH,
    }

    def check_start(self, start: StartingPoint, name: str, reporter: Reporter) -> None:
        """See :meth:`Method.check_start`: static embeddings and raw language models are refused."""
        if start.kind == STATIC:
            raise SelfguideError(
                f"{start.describe(name)[:-1]}, so there is nothing that {self.name} could tune. Choose an encoder with a "
                "Transformer, or fit a map on its embeddings (--method whitening --pooling keep)."
            )
        if start.kind == RAW and not start.missing and self.options.pooling == OWN:
            raise UsageError(
                f"{start.describe(name)[:-1]}, and {self.name} keeps what a sentence encoder knows. Leave the method out to "
                "train it from the start (selfguide train); if it is a sentence encoder all the same, name its pooling "
                "(--pooling mean, or cls)."
            )

    def student(self, encoder: SentenceTransformer) -> SentenceTransformer:
        """See :meth:`TuningMethod.student`: the encoder's own modules, unless a pooling is named."""
        return encoder if self.options.pooling == OWN else with_pooling(encoder, self.options.pooling)

    def dataset(self, text: Dataset) -> Dataset:
        """See :meth:`TuningMethod.dataset`: with the encoder's default prompt, which ``encode`` adds and a trainer does not."""
        if not self._prompt:
            return text
        with quiet_datasets():
            return text.map(lambda rows: {"sentence": [self._prompt + one for one in rows["sentence"]]}, batched=True)

    def loss(self, student: SentenceTransformer) -> GuidedContrastLoss:
        """See :meth:`TuningMethod.loss`."""
        return GuidedContrastLoss(student, **self.options.without("pooling", "choose", "tune", "centring"))

    def fit(self, encoder: SentenceTransformer, context: FitContext) -> TrainingOutcome:
        """See :meth:`Method.fit`."""
        count = len(context.text)
        if count < FEWEST_SENTENCES:
            raise SelfguideError(
                f"{count} usable sentences are too few to adapt to: at least {FEWEST_SENTENCES} different ones are needed, and "
                "some hundreds are good."
            )
        encoder = self.student(encoder)
        self._prompt = default_prompt(encoder)
        if not self.options.choose:
            return self._trained(encoder, context, Spread.of(encoder, _sample(context), context.reporter))
        started = time.monotonic()
        outcome, choice = self._chosen(encoder, context)
        if not outcome.steps:
            outcome.seconds = time.monotonic() - started
        outcome.choice = choice
        if choice.best is not None:
            outcome.best_score = choice.best
        context.reporter.note(choice.sentence)
        return outcome

    def _trained(self, encoder: SentenceTransformer, context: FitContext, spread: Spread) -> TrainingOutcome:
        settings = settings_for(len(context.text), spread.has_cone, context.settings)
        return super().fit(encoder, replace(context, settings=settings))

    def _chosen(self, encoder: SentenceTransformer, context: FitContext) -> tuple[TrainingOutcome, Choice]:
        """Train where there is evidence for it, and choose between the result and the encoder as it was."""
        tune, dev = self.options.tune, context.dev
        share = self.options.centring if can_be_centred(encoder) else 0.0
        spread = Spread.of(encoder, _sample(context), context.reporter)
        if dev is not None:
            if tune == NEVER:
                outcome, averages = TrainingOutcome(encoder.eval()), None
            else:
                original = saveable_weights(encoder)
                outcome = self._trained(encoder, context, spread)
                averages = WeightAverages(outcome.encoder, original)
            choice, outcome.encoder = _by_dev(outcome.encoder, averages, share, context)
            return outcome, choice
        if tune == ALWAYS or (tune == AUTO and spread.has_cone):
            reason = f"{spread.cone}, which training on the text spreads" if spread.has_cone else "Trained as asked for"
            original = saveable_weights(encoder)
            outcome = self._trained(encoder, context, spread)
            # All the way at the larger rate harms some texts, and general pairs cannot see which: they gain all the way.
            shares = (HALF_WAY,) if spread.has_cone else SHARES
            least = LEAST_GAIN if tune == AUTO else 0.0
            return outcome, _by_general_pairs(WeightAverages(outcome.encoder, original), shares, least, reason)
        _warn_if_without_effect(context.settings, self.defaults, context.reporter)
        outcome = TrainingOutcome(encoder.eval())
        if tune == NEVER and share and spread.has_cone:
            choice, outcome.encoder = _centred(encoder, share, spread)
            return outcome, choice
        why = f"{spread.reason_to_stay}: the encoder came back as it was."
        return outcome, Choice(AS_IT_WAS, "how the embeddings are spread", spread.scores, why)


def settings_for(count: int, has_cone: bool, settings: TrainingSettings) -> TrainingSettings:
    """Return settings whose number of steps follows from the size of the text, and whose rate follows from the encoder.

    Args:
        count: Sentences of the text.
        has_cone: Whether the encoder gives any two sentences a high cosine.
        settings: The settings of the run; what they give is kept.

    Returns:
        Complete settings, with a limit of steps for a large text.
    """
    per_epoch = max(1.0, count / (settings.batch_size * settings.gradient_accumulation))
    if settings.epochs == BY_METHOD:
        most = MOST_STEPS if per_epoch > MOST_STEPS else 0
        epochs = min(MOST_EPOCHS, max(1.0, FEWEST_STEPS / per_epoch))
        settings = replace(settings, epochs=epochs, max_steps=settings.max_steps or most)
    if settings.learning_rate == BY_METHOD:
        settings = replace(settings, learning_rate=LEARNING_RATE_WITH_CONE if has_cone else LEARNING_RATE)
    return settings


def _warn_if_without_effect(settings: TrainingSettings, defaults: TrainingSettings, reporter: Reporter) -> None:
    """Warn about settings of a training that will not take place."""
    names = ("epochs", "max_steps", "learning_rate")
    asked = [f"--{name.replace('_', '-')}" for name in names if getattr(settings, name) != getattr(defaults, name)]
    if asked:
        reporter.warn(
            f"nothing is trained here without --dev, so {' and '.join(asked)} {'has' if len(asked) == 1 else 'have'} no effect: "
            "give dev pairs, or say --tune always."
        )


def _by_dev(
    encoder: SentenceTransformer, averages: WeightAverages | None, centring: float, context: FitContext
) -> tuple[Choice, SentenceTransformer]:
    """Choose the candidate with the best score on the dev pairs; of equal ones the first, which is nearest to the original."""
    assert context.dev is not None
    dev, key = context.dev, f"dev_{DEV_METRIC}"
    text = _sample(context)
    scores: list[tuple[str, float]] = []
    best: tuple[float, float, NDArray[np.float64] | None] = (AS_IT_WAS, -math.inf, None)
    for share in (AS_IT_WAS, *(SHARES if averages is not None else ())):
        if averages is not None:
            averages.load(share)
        scores.append((_way(share), float(dev(encoder)[key])))
        if scores[-1][1] > best[1]:
            best = (share, scores[-1][1], None)
        if centring:
            mean = _mean(encoder, text)
            scores.append((f"{_way(share)}, centred", float(dev(centred(encoder, mean, centring))[key])))
            if scores[-1][1] > best[1]:
                best = (share, scores[-1][1], mean)
    share, score, chosen = best
    if averages is not None:
        averages.load(share)
    before, name = scores[0][1], next(name for name, value in scores if value == score)
    if name == _way(AS_IT_WAS):
        sentence = f"Nothing was better on the dev pairs ({100 * before:.2f}): the encoder came back as it was."
    else:
        sentence = f"Kept {name}: the dev pairs went from {100 * before:.2f} to {100 * score:.2f}."
    choice = Choice(share, "dev pairs", tuple(scores), sentence, score, centring if chosen is not None else 0.0)
    return choice, encoder if chosen is None else centred(encoder, chosen, centring)


def _by_general_pairs(averages: WeightAverages, shares: Sequence[float], least: float, reason: str) -> Choice:
    """Choose without labels of the text: the best candidate on the package's graded pairs, if it gains enough there."""
    # The dev half alone: the demonstration scores its table on the test half.
    pairs = demo_pairs("dev")
    count = len(pairs)
    scores: list[tuple[str, float]] = []
    kept, best = AS_IT_WAS, -math.inf
    for share in (AS_IT_WAS, *shares):
        vectors = sentence_vectors(averages.load(share), [*pairs.first, *pairs.second], normalise=True)
        cosines = (vectors[:count] * vectors[count:]).sum(axis=1)
        score = spearman(cosines, pairs.scores)
        scores.append((_way(share), score))
        if score > best and (share == AS_IT_WAS or score >= scores[0][1] + least):
            kept, best = share, score
    averages.load(kept)
    before, most = scores[0][1], max(score for _, score in scores[1:])
    if kept == AS_IT_WAS:
        changed = "made it worse" if most < before else "hardly changed it"
        what = (
            f"But training {changed} on {BY_GENERAL_PAIRS} ({100 * before:.2f} before, {100 * most:.2f} after): the encoder came "
            "back as it was."
        )
    else:
        what = f"Kept {_way(kept)}: {BY_GENERAL_PAIRS} went from {100 * before:.2f} to {100 * best:.2f}."
    return Choice(kept, BY_GENERAL_PAIRS, tuple(scores), f"{reason}. {what}")


def _centred(encoder: SentenceTransformer, share: float, spread: Spread) -> tuple[Choice, SentenceTransformer]:
    """Centre an encoder that has a cone and is not to be trained."""
    sentence = f"{spread.cone}, so {100 * share:.0f} % of the text's mean embedding was subtracted."
    choice = Choice(AS_IT_WAS, "how the embeddings are spread", spread.scores, sentence, None, share)
    return choice, centred(encoder, spread.mean, share)


def _sample(context: FitContext) -> list[str]:
    """Draw sentences of the text."""
    rows = context.text["sentence"][:]
    return random.Random(context.settings.seed).sample(rows, min(SAMPLE, len(rows)))


def _mean(encoder: SentenceTransformer, sentences: list[str]) -> NDArray[np.float64]:
    mean: NDArray[np.float64] = sentence_vectors(encoder, sentences, normalise=True).mean(axis=0, dtype=np.float64)
    return mean


def _way(share: float) -> str:
    """Say how far weights are from the original ones."""
    if share in (AS_IT_WAS, TRAINED):
        return "the encoder as it was" if share == AS_IT_WAS else "what was trained"
    return f"weights {100 * share:.0f} % of the way to what was trained"
