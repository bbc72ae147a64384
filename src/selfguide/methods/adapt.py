"""Adapt a sentence encoder to a text without labels, and give it back unchanged where the text gives no reason to change it.

The loss is :class:`~selfguide.losses.GuidedContrastLoss` on the encoder's own modules: its pooling, normalisation, prompts and
length stay as they are, nothing random is added, and the learning rate is small. It and the number of steps follow from the size
of the text. Afterwards the encoder as it was, the trained one and their weight average are compared, and one of them is kept
(:mod:`selfguide.training.weight_averages`): with dev pairs the one with the best score; without, the one in whose eyes half of a
sentence's words find the sentence best, if the gain is clear and neither the sentences' neighbours nor general English have
suffered (:mod:`selfguide.training.self_retrieval`).

The contrast is SimCSE's: Gao, Yao and Chen, EMNLP 2021. Averaging weights with the original: Wortsman et al., Robust Fine-Tuning
of Zero-Shot Models, CVPR 2022.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from selfguide.augment.dropout import DROPOUT_RATE, KEEP_DROPOUT, highest_dropout
from selfguide.data.resources import demo_sentences
from selfguide.errors import SelfguideError, UsageError
from selfguide.losses.dropout_contrast import CITATION
from selfguide.losses.guided_contrast import GuidedContrastLoss
from selfguide.losses.rules import GRADIENT_CACHE, TEMPERATURE, WEIGHT
from selfguide.methods.base import TuningMethod
from selfguide.methods.search import BATCHES, LOW_DROPOUTS, RATES, SWITCH
from selfguide.models.encoders import POOLINGS, with_pooling
from selfguide.models.starting_points import RAW, STATIC, default_prompt
from selfguide.options import CheckedOptions, OneOf
from selfguide.training.callbacks import DEV_METRIC, saveable_weights
from selfguide.training.self_retrieval import Probe
from selfguide.training.settings import BY_TEXT_SIZE, TrainingSettings
from selfguide.training.weight_averages import AS_IT_WAS, TRAINED, Choice, WeightAverages

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    from selfguide.models.starting_points import StartingPoint
    from selfguide.progress import Reporter
    from selfguide.training.trainer import FitContext, TrainingOutcome

OWN = "own"
"""Pooling that leaves the encoder's modules as they are."""
FEWEST_SENTENCES = 20
FEWEST_STEPS, MOST_EPOCHS, MOST_STEPS = 16, 10.0, 1000
"""A small text is read again until there are so many steps, but not more often than this; of a large one so much is read."""
DISTANCE, LOWEST_RATE, HIGHEST_RATE = 3.6e-4, 5e-6, 2e-5
"""Learning rate times steps, which says how far the weights may move, and the bounds of the rate."""
SHARES = (0.5, TRAINED)
"""The candidates besides the encoder as it was."""
SAMPLE, FEWEST_IN_SAMPLE = 1000, 50
"""Sentences that candidates are compared on, and below how many the comparison says nothing."""
CLEAR, HARM = 1.0, 2.0
"""Standard errors by which a gain on the text must differ from none, and a loss on general English, to be counted."""
FEWEST_KEPT = 0.8
"""Share of each sentence's nearest neighbours that must stay: training on one repeated template replaces more."""
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
    choose: bool = True
    """Choose between the encoder as it was, the trained one and averages of the two; --no-choose keeps the trained one."""
    gradient_cache: Annotated[int, GRADIENT_CACHE] = 0
    """Sentences that pass through the encoder at a time, for batches larger than memory; 0: all. It costs a second forward
    pass."""


class Adapt(TuningMethod):
    """``--method adapt``."""

    name = "adapt"
    summary = "a sentence encoder moves a little towards the text, or stays as it is (ours; not for raw models)"
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
        if start.kind == RAW and self.options.pooling == OWN:
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
        settings = self.options.without("pooling", "choose")
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
        original = saveable_weights(encoder)
        outcome = super().fit(encoder, replace(context, settings=settings_for(count, context.settings)))
        if self.options.choose:
            averages = WeightAverages(outcome.encoder, original)
            choice = _by_dev(averages, context) if context.dev is not None else _by_text(averages, context)
            averages.load(choice.share)
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


def _by_dev(averages: WeightAverages, context: FitContext) -> Choice:
    """Choose the average with the best score on the dev pairs; of equal ones the nearest to the original."""
    assert context.dev is not None
    dev = context.dev
    scores = tuple((share, float(dev(averages.load(share))[f"dev_{DEV_METRIC}"])) for share in (AS_IT_WAS, *SHARES))
    share, best = max(scores, key=lambda item: (item[1], -item[0]))
    before = scores[0][1]
    if share == AS_IT_WAS:
        sentence = f"Nothing was better on the dev pairs ({100 * before:.2f}): the encoder came back as it was."
    else:
        sentence = f"Kept {_way(share)}: the dev pairs went from {100 * before:.2f} to {100 * best:.2f}."
    return Choice(share, "dev pairs", scores, None, sentence, best)


def _by_text(averages: WeightAverages, context: FitContext) -> Choice:
    """Choose without labels: the candidate that is best on the text, if the gain is clear and nothing else has changed much."""
    reporter, seed = context.reporter, context.settings.seed
    text = Probe.of(context.text["sentence"][:], SAMPLE, 2, seed)
    by = "half of a sentence's words finding the sentence"
    if len(text) < FEWEST_IN_SAMPLE:
        sentence = (
            f"The text has only {len(text)} sentences that are long enough to compare encoders on, which is no reason to change "
            "this one: it came back as it was."
        )
        return Choice(AS_IT_WAS, by, (), None, sentence)
    general = Probe.of(demo_sentences(), SAMPLE // 3, 1, seed)
    with reporter.bar("choosing", 1 + len(SHARES), "candidates") as advance:
        averages.load(AS_IT_WAS)
        before, general_before = text.measure(averages.encoder), general.measure(averages.encoder)
        advance(1, "")
        scores = [(AS_IT_WAS, float(before.found.mean()))]
        kept = scores[0]
        evidence: float | None = None
        for share in SHARES:
            encoder = averages.load(share)
            after = text.measure(encoder)
            scores.append((share, float(after.found.mean())))
            clear = after.gain(before) > CLEAR and after.overlap(before) >= FEWEST_KEPT
            harmless = general.measure(encoder).gain(general_before) > -HARM
            if clear and harmless and scores[-1][1] > kept[1]:
                kept, evidence = scores[-1], after.gain(before)
            advance(1, "")
    if kept[0] == AS_IT_WAS:
        sentence = "The text gave no clear reason to change the encoder: it came back as it was."
    else:
        sentence = (
            f"Kept {_way(kept[0])}: half of a sentence's words find the sentence in the text better than before "
            f"({scores[0][1]:.3f} to {kept[1]:.3f}, {evidence:.1f} standard errors)."
        )
    return Choice(kept[0], by, tuple(scores), evidence, sentence)


def _way(share: float) -> str:
    """Say how far the kept weights are from the original ones."""
    return "what was trained" if share == TRAINED else f"weights {100 * share:.0f} % of the way to what was trained"
