"""Adapt a sentence encoder to a text without labels, and give it back unchanged where the text gives no reason to change it.

The loss is :class:`~selfguide.losses.GuidedContrastLoss` on the encoder's own modules: its pooling, normalisation, prompts and
length stay as they are, nothing random is added, and the learning rate is small. How long training takes follows from the size
of the text. Afterwards the encoder as it was, the trained one and weight averages of the two are compared, and one of them is
kept (:mod:`selfguide.training.weight_averages`): with dev pairs the one with the best score; without, the furthest one whose
gain on held-out copies of the text's sentences is beyond doubt (:mod:`selfguide.training.self_retrieval`).

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
from selfguide.models.encoders import POOLINGS, with_pooling
from selfguide.models.starting_points import RAW, STATIC, default_prompt
from selfguide.options import CheckedOptions, OneOf
from selfguide.training.callbacks import DEV_METRIC, saveable_weights
from selfguide.training.self_retrieval import ThinnedCopies, paired_z
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
STEPS, MOST_EPOCHS, MOST_STEPS = 80, 10.0, 1000
"""A small text is read again until there are so many steps, but not more often than this; of a large one so much is read."""
SHARES = (0.5, TRAINED)
"""The candidates besides the encoder as it was."""
SAMPLE, FEWEST_IN_SAMPLE = 600, 50
"""Sentences that candidates are compared on, and below how many the comparison says nothing."""
CERTAIN, HARM = 2.0, 2.0
"""Standard errors by which a gain must differ from none, and a loss on other text too, to be counted."""
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
    defaults = TrainingSettings(batch_size=64, learning_rate=5e-6, epochs=BY_TEXT_SIZE)
    citation = CITATION

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
    """Return settings whose number of steps follows from the size of the text, unless one was asked for.

    Args:
        count: Sentences of the text.
        settings: The settings of the run.

    Returns:
        Settings with a number of epochs, and with a limit of steps for a large text.
    """
    if settings.epochs != BY_TEXT_SIZE:
        return settings
    per_epoch = max(1.0, count / (settings.batch_size * settings.gradient_accumulation))
    epochs = min(MOST_EPOCHS, max(1.0, STEPS / per_epoch))
    return replace(
        settings, epochs=epochs, max_steps=settings.max_steps or (MOST_STEPS if per_epoch > MOST_STEPS else 0)
    )


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
    """Choose without labels: the furthest average that is certainly better on the text and not certainly worse elsewhere."""
    reporter, seed = context.reporter, context.settings.seed
    text = ThinnedCopies.of(context.text["sentence"][:], SAMPLE, seed)
    by = "copies of the text's sentences finding each other"
    if len(text) < FEWEST_IN_SAMPLE:
        return Choice(
            AS_IT_WAS,
            by,
            (),
            None,
            f"The text has only {len(text)} sentences that are long enough to compare encoders on, which is no reason to change "
            "this one: it came back as it was.",
        )
    elsewhere = ThinnedCopies.of(demo_sentences(), SAMPLE // 2, seed)
    with reporter.bar("choosing", 1 + len(SHARES), "candidates") as advance:
        averages.load(AS_IT_WAS)
        before, general = text.reciprocal_ranks(averages.encoder), elsewhere.reciprocal_ranks(averages.encoder)
        advance(1, "")
        scores, kept, evidence = [(AS_IT_WAS, float(before.mean()))], AS_IT_WAS, 0.0
        for share in SHARES:
            encoder = averages.load(share)
            after = text.reciprocal_ranks(encoder)
            gain, loss = paired_z(after - before), paired_z(elsewhere.reciprocal_ranks(encoder) - general)
            scores.append((share, float(after.mean())))
            if gain > CERTAIN and loss > -HARM and after.mean() > dict(scores)[kept]:
                kept, evidence = share, gain
            advance(1, "")
    table = dict(scores)
    if kept == AS_IT_WAS:
        sentence = "The text gave no clear reason to change the encoder: it came back as it was."
    else:
        sentence = (
            f"Kept {_way(kept)}: thinned copies of the text's sentences find each other better than before "
            f"({table[AS_IT_WAS]:.3f} to {table[kept]:.3f}, {evidence:.1f} standard errors)."
        )
    return Choice(kept, by, tuple(scores), evidence, sentence)


def _way(share: float) -> str:
    """Say how far the kept weights are from the original ones."""
    return "what was trained" if share == TRAINED else f"weights {100 * share:.0f} % of the way to what was trained"
