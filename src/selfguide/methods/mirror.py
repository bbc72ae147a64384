"""Mirror-BERT: a sentence and a copy of it in which a few characters are masked; dropout adds to the difference.

The loss is :class:`~selfguide.losses.MirrorLoss`, on the mean of the last layer's tokens.

Training as in the authors' released script: AdamW with betas (0.9, 0.999) and a weight decay of 0.01, a constant learning rate
without a warm-up, no clipping, no early stopping.

Differences from the script: biases and norms do not decay, and with dev pairs the best checkpoint is kept (the script has none).

Reference: Liu, Vulić, Korhonen and Collier, Fast, Effective, and Self-Supervised: Transforming Masked Language Models into
Universal Lexical and Sentence Encoders, EMNLP 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from selfguide.augment.dropout import DROPOUT_RATE, KEEP_DROPOUT
from selfguide.augment.words import MASKABLE, maskable
from selfguide.losses.mirror import CITATION, SPAN, MirrorLoss
from selfguide.losses.rules import TEMPERATURE
from selfguide.methods.base import TuningMethod
from selfguide.methods.search import BATCHES, LOW_DROPOUTS, POOLED, RATES, SWITCH
from selfguide.models.encoders import POOLINGS, with_pooling
from selfguide.options import CheckedOptions, OneOf
from selfguide.training.settings import TrainingSettings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


_SAMPLED = 500


@dataclass(frozen=True)
class MirrorOptions(CheckedOptions):
    """Options of Mirror-BERT; the defaults are those of the authors' script for sentences."""

    temperature: Annotated[float, TEMPERATURE] = 0.04
    """τ: the smaller, the more the hardest negatives count."""
    span: Annotated[int, SPAN] = 5
    """Characters that are masked in the second copy; 0: none, dropout alone makes the difference."""
    dropout: Annotated[float, DROPOUT_RATE] = KEEP_DROPOUT
    """Rate of every dropout during training; -1: the encoder's own (0.1 for most)."""
    freeze_layer_0: bool = False
    """Do not train the embedding layer."""
    pooling: Annotated[str, OneOf(*POOLINGS)] = "mean"
    """Pooling: cls, mean, max, last2 or first-last."""


class Mirror(TuningMethod):
    """``--method mirror``."""

    name = "mirror"
    summary = "a copy with a few characters masked, and dropout (Mirror-BERT; NT-Xent)"
    reference = "Liu et al., EMNLP 2021"
    made_for = "raw language model"
    Options = MirrorOptions
    options: MirrorOptions
    defaults = TrainingSettings(
        batch_size=200,
        learning_rate=2e-5,
        weight_decay=0.01,
        warmup=0.0,
        schedule="constant",
        gradient_clip=0.0,
        patience=0,
    )
    citation = CITATION
    search = {
        "learning_rate": RATES,
        "batch_size": (*BATCHES, 200),
        "temperature": (0.02, 0.04, 0.1),
        "span": (2, 5, 10),
        "dropout": LOW_DROPOUTS,
        "freeze_layer_0": SWITCH,
        "pooling": POOLED,
        "schedule": ("linear", "constant"),
    }

    def student(self, encoder: SentenceTransformer) -> SentenceTransformer:
        """See :meth:`TuningMethod.student`."""
        self._warn_of_short_sentences(encoder)
        return with_pooling(encoder, self.options.pooling)

    def loss(self, student: SentenceTransformer) -> MirrorLoss:
        """See :meth:`TuningMethod.loss`."""
        return MirrorLoss(student, **self.options.without("pooling"))

    def _warn_of_short_sentences(self, encoder: SentenceTransformer) -> None:
        """Warn where most sentences are too short for a span of them to be masked."""
        span, tokenizer, text = self.options.span, encoder.tokenizer, self.context.text
        if span == 0:
            return
        sample = [text[place]["sentence"] for place in range(0, len(text), max(1, len(text) // _SAMPLED))]
        # The loss masks what the tokenizer makes of a sentence; one for Chinese puts a space beside every character.
        rows = tokenizer(sample, add_special_tokens=False, verbose=False)["input_ids"]
        short = sum(not maskable(tokenizer.decode(ids, clean_up_tokenization_spaces=False), span) for ids in rows)
        if 2 * short > len(sample):
            self.context.reporter.warn(
                f"mirror masks nothing in {100 * short / len(sample):.0f} % of these sentences, which have fewer than "
                f"{max(MASKABLE, span + 1)} characters: dropout alone makes their copies differ, as in simcse."
            )
