"""Adapt a sentence encoder to a text without labels, and give it back unchanged where the text gives no reason to change it.

Without labels nothing that was tried tells training that helps from training that harms (docs/results/adapt.md), so without dev
pairs nothing is trained. An encoder that gives any two sentences a high cosine is *centred* on the text
(:mod:`selfguide.calibration.centring`) by half of the mean of its embeddings. Any other comes back as it was. So does every
encoder where it hardly tells the text's sentences apart, because they repeat one template or are in a language that it does not
know.

With dev pairs there is something that can judge, so the encoder is trained, too. The loss is
:class:`~selfguide.losses.GuidedContrastLoss` on the encoder's own modules: its pooling, normalisation, prompts and length stay as
they are, nothing random is added, and the learning rate is small. It and the number of steps follow from the size of the text.
The encoder as it was, the trained one and their weight average (:mod:`selfguide.training.weight_averages`) are compared, each as
it is and centred, and the best one on the dev pairs is kept.

Asked to train without dev pairs, it keeps a candidate only where half of a sentence's words find the sentence clearly better
(:mod:`selfguide.training.self_retrieval`).

The contrast is SimCSE's: Gao, Yao and Chen, EMNLP 2021. Averaging weights with the original: Wortsman et al., Robust Fine-Tuning
of Zero-Shot Models, CVPR 2022.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import numpy as np

from selfguide.augment.dropout import DROPOUT_RATE, KEEP_DROPOUT, highest_dropout
from selfguide.calibration.centring import can_be_centred, centred, mean_cosine, one_sidedness
from selfguide.data.resources import demo_sentences
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
from selfguide.training.callbacks import DEV_METRIC, saveable_weights
from selfguide.training.self_retrieval import Probe
from selfguide.training.settings import BY_TEXT_SIZE, TrainingSettings
from selfguide.training.trainer import TrainingOutcome
from selfguide.training.weight_averages import AS_IT_WAS, TRAINED, Choice, WeightAverages

if TYPE_CHECKING:
    from datasets import Dataset
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

    from selfguide.models.starting_points import StartingPoint
    from selfguide.progress import Reporter
    from selfguide.training.trainer import FitContext

OWN = "own"
"""Pooling that leaves the encoder's modules as they are."""
FEWEST_SENTENCES = 20
FEWEST_STEPS, MOST_EPOCHS, MOST_STEPS = 16, 10.0, 48
"""A small text is read again until there are so many steps, but not more often than this; of a large one so much is read."""
DISTANCE, LOWEST_RATE, HIGHEST_RATE = 3.6e-4, 7.5e-6, 2e-5
"""Learning rate times steps, which says how far the weights may move, and the bounds of the rate: more steps, at a smaller rate,
would cost more time and move them no further."""
SHARES = (0.5, TRAINED)
"""The candidates besides the encoder as it was."""
SAMPLE, GENERAL, FEWEST_IN_SAMPLE = 1000, 300, 50
"""Sentences of the text, and of general English, that candidates are compared on, and below how many the comparison says
nothing."""
CLEAR, HARM = 1.0, 2.0
"""Standard errors by which a gain on the text must differ from none, and a loss on general English, to be counted."""
FEWEST_KEPT = 0.8
"""Share of each sentence's nearest neighbours that must stay: training on one repeated template replaces more."""
LEAST_COSINE, MOST_COMMON = 0.2, 0.35
"""An encoder is centred where two sentences, of the text and of general English alike, have at least this mean cosine, so that
its embeddings fill a cone; and where :func:`~selfguide.calibration.centring.one_sidedness` is at most the other: on development
texts it is below 0.3, of a repeated template and of an unknown language above 0.5."""
AUTO, ALWAYS, NEVER = "auto", "always", "never"
_DROPOUT = 0.1


@dataclass(frozen=True)
class AdaptOptions(CheckedOptions):
    """Options of adaptation."""

    temperature: Annotated[float, TEMPERATURE] = 0.05
    """τ of the contrast: the smaller, the more the hardest negatives count."""
    stay_close: Annotated[float, WEIGHT] = 0.0
    """λ: weight of the original encoder's similarities between the sentences of a batch; 0 leaves them out."""
    guide_temperature: Annotated[float, TEMPERATURE] = 0.05
    """τ of those similarities: the smaller, the more the nearest sentences count."""
    dropout: Annotated[float, DROPOUT_RATE] = KEEP_DROPOUT
    """Rate of every dropout during training; -1: the encoder's own, or 0.1 where it has none."""
    freeze_layer_0: bool = False
    """Do not train the embedding layer."""
    pooling: Annotated[str, OneOf(OWN, *POOLINGS)] = OWN
    """own keeps the encoder's modules; cls, mean, max, last2 or first-last names the pooling of a sentence encoder whose folder
    does not say it."""
    tune: Annotated[str, OneOf(AUTO, ALWAYS, NEVER)] = AUTO
    """auto: train only with dev pairs, which can judge it; always or never."""
    centring: Annotated[float, Between(0, 1)] = 0.5
    """Share of the mean of the text's embeddings that is subtracted; 0: none."""
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
    summary = "a sentence encoder is centred on the text, or tuned where dev pairs judge it (ours; not for raw models)"
    reference = "builds on simcse"
    made_for = "sentence encoder"
    is_default = True
    Options = AdaptOptions
    options: AdaptOptions
    defaults = TrainingSettings(batch_size=64, learning_rate=BY_TEXT_SIZE, epochs=BY_TEXT_SIZE)
    citation = CITATION
    search = {
        "learning_rate": (2e-6, *RATES),
        "batch_size": BATCHES,
        "temperature": (0.02, 0.05, 0.1),
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
        with _quiet_datasets():
            return text.map(lambda rows: {"sentence": [self._prompt + one for one in rows["sentence"]]}, batched=True)

    def loss(self, student: SentenceTransformer) -> GuidedContrastLoss:
        """See :meth:`TuningMethod.loss`."""
        settings = self.options.without("pooling", "choose", "tune", "centring")
        if settings["dropout"] == KEEP_DROPOUT and highest_dropout(student) == 0:
            settings["dropout"] = _DROPOUT
        return GuidedContrastLoss(student, **settings)

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
        options = self.options
        tuned = not options.choose or options.tune == ALWAYS or (options.tune == AUTO and context.dev is not None)
        if not tuned:
            _warn_if_without_effect(context.settings, self.defaults, context.reporter)
            started = time.monotonic()
            outcome = TrainingOutcome(encoder.eval())
            averages = None
        else:
            original = saveable_weights(encoder)
            outcome = super().fit(encoder, replace(context, settings=settings_for(count, context.settings)))
            averages = WeightAverages(outcome.encoder, original)
        if not options.choose:
            return outcome
        share = options.centring if can_be_centred(outcome.encoder) else 0.0
        if context.dev is not None:
            choice, outcome.encoder = _by_dev(outcome.encoder, averages, share, context)
        else:
            rejected = None if averages is None else _by_text(averages, context)
            if rejected is not None and rejected.share != AS_IT_WAS:
                choice = rejected
            else:
                choice, outcome.encoder = _centred_by_text(outcome.encoder, share, options.centring, context)
            if rejected is not None and choice is not rejected:
                said = f"What was trained is not clearly better on this text. {choice.sentence}"
                choice = replace(choice, scores=rejected.scores + choice.scores, sentence=said)
        if not tuned:
            outcome.seconds = time.monotonic() - started
        outcome.choice = choice
        if choice.best is not None:
            outcome.best_score = choice.best
        context.reporter.note(choice.sentence)
        return outcome


@contextmanager
def _quiet_datasets() -> Iterator[None]:
    """Show no progress bar of the datasets library inside the block."""
    from datasets.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    shown = not are_progress_bars_disabled()
    disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            enable_progress_bars()


def settings_for(count: int, settings: TrainingSettings) -> TrainingSettings:
    """Return settings whose number of steps and learning rate follow from the size of the text, unless they were asked for.

    Args:
        count: Sentences of the text.
        settings: The settings of the run.

    Returns:
        Complete settings, with a limit of steps for a large text.
    """
    per_epoch = max(1.0, count / (settings.batch_size * settings.gradient_accumulation))
    if settings.epochs == BY_TEXT_SIZE:
        most = MOST_STEPS if per_epoch > MOST_STEPS else 0
        epochs = min(MOST_EPOCHS, max(1.0, FEWEST_STEPS / per_epoch))
        settings = replace(settings, epochs=epochs, max_steps=settings.max_steps or most)
    if settings.learning_rate == BY_TEXT_SIZE:
        steps = settings.max_steps or max(1.0, settings.epochs * per_epoch)
        settings = replace(settings, learning_rate=min(HIGHEST_RATE, max(LOWEST_RATE, DISTANCE / steps)))
    return settings


def _warn_if_without_effect(settings: TrainingSettings, defaults: TrainingSettings, reporter: Reporter) -> None:
    """Warn about settings of a training that will not take place."""
    names = ("epochs", "max_steps", "learning_rate")
    asked = [f"--{name.replace('_', '-')}" for name in names if getattr(settings, name) != getattr(defaults, name)]
    if asked:
        reporter.warn(
            f"nothing is trained without --dev, so {' and '.join(asked)} {'has' if len(asked) == 1 else 'have'} no effect: give "
            "dev pairs, or say --tune always."
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
    choice = Choice(share, "dev pairs", tuple(scores), None, sentence, score, centring if chosen is not None else 0.0)
    return choice, encoder if chosen is None else centred(encoder, chosen, centring)


def _centred_by_text(
    encoder: SentenceTransformer, share: float, wanted: float, context: FitContext
) -> tuple[Choice, SentenceTransformer]:
    """Centre the encoder, unless the text is no reason for it."""
    by = "what the sentences have in common"

    def kept(reason: str) -> tuple[Choice, SentenceTransformer]:
        return Choice(AS_IT_WAS, by, (), None, f"{reason}: the encoder came back as it was."), encoder.eval()

    if not wanted:
        return kept("Nothing was asked for")
    if not share:
        return kept(
            f"The lengths of embeddings count for its similarity ({encoder.similarity_fn_name}), so it is not centred"
        )
    drawn, others = _sample(context), Probe.of(demo_sentences(), GENERAL, 0, 1).sentences
    with context.reporter.bar("reading", len(drawn) + len(others), "sentences") as advance:
        text = sentence_vectors(encoder, drawn, normalise=True)
        advance(len(drawn), "")
        general = sentence_vectors(encoder, others, normalise=True)
        advance(len(others), "")
    common, cosines = one_sidedness(text, general), (mean_cosine(text), mean_cosine(general))
    cosine = min(cosines)
    if cosine < LEAST_COSINE:
        return kept(
            f"The text gave no reason to change the encoder, whose embeddings are spread well already (two sentences have a mean "
            f"cosine of {cosines[0]:.2f}, in general English {cosines[1]:.2f}), and without graded pairs (--dev) nothing tells "
            "whether training helps"
        )
    if common > MOST_COMMON:
        return kept(
            f"The encoder hardly tells the sentences of this text apart ({100 * common:.0f} % of what sets them off from general "
            "English is common to all), as those of one template or of a language that it does not know"
        )
    sentence = (
        f"Centred: this encoder gives any two sentences a high cosine ({cosines[0]:.2f} in the mean of the text, "
        f"{cosines[1]:.2f} in general English), so {100 * share:.0f} % of the text's mean embedding is subtracted. With graded "
        "pairs (--dev), training can compete."
    )
    scores = (("mean cosine", cosine), ("common", common))
    choice = Choice(AS_IT_WAS, by, scores, None, sentence, None, share)
    return choice, centred(encoder, text.mean(axis=0, dtype=np.float64), share)


def _sample(context: FitContext) -> list[str]:
    """Draw sentences of the text."""
    rows = context.text["sentence"][:]
    return random.Random(context.settings.seed).sample(rows, min(SAMPLE, len(rows)))


def _mean(encoder: SentenceTransformer, sentences: list[str]) -> NDArray[np.float64]:
    mean: NDArray[np.float64] = sentence_vectors(encoder, sentences, normalise=True).mean(axis=0, dtype=np.float64)
    return mean


def _by_text(averages: WeightAverages, context: FitContext) -> Choice:
    """Choose without labels: the candidate that is best on the text, if the gain is clear and nothing else has changed much."""
    reporter, seed = context.reporter, context.settings.seed
    text = Probe.of(context.text["sentence"][:], SAMPLE, 2, seed)
    by = "half of a sentence's words finding the sentence"
    if len(text) < FEWEST_IN_SAMPLE:
        return Choice(AS_IT_WAS, by, (), None, "")
    general = Probe.of(demo_sentences(), GENERAL, 1, seed)
    with reporter.bar("choosing", 1 + len(SHARES), "candidates") as advance:
        averages.load(AS_IT_WAS)
        before, general_before = text.measure(averages.encoder), general.measure(averages.encoder)
        advance(1, "")
        scores = [(_way(AS_IT_WAS), float(before.found.mean()))]
        kept = (AS_IT_WAS, scores[0][1])
        evidence: float | None = None
        for share in SHARES:
            encoder = averages.load(share)
            after = text.measure(encoder)
            scores.append((_way(share), float(after.found.mean())))
            clear = after.gain(before) > CLEAR and after.overlap(before) >= FEWEST_KEPT
            harmless = general.measure(encoder).gain(general_before) > -HARM
            if clear and harmless and scores[-1][1] > kept[1]:
                kept, evidence = (share, scores[-1][1]), after.gain(before)
            advance(1, "")
    averages.load(kept[0])
    sentence = ""
    if kept[0] != AS_IT_WAS:
        sentence = (
            f"Kept {_way(kept[0])}: half of a sentence's words find the sentence in the text better than before "
            f"({scores[0][1]:.3f} to {kept[1]:.3f}, {evidence:.1f} standard errors)."
        )
    return Choice(kept[0], by, tuple(scores), evidence, sentence)


def _way(share: float) -> str:
    """Say how far weights are from the original ones."""
    if share in (AS_IT_WAS, TRAINED):
        return "the encoder as it was" if share == AS_IT_WAS else "what was trained"
    return f"weights {100 * share:.0f} % of the way to what was trained"
