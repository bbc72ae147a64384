"""CLEAR: contrast of two rewritten copies of each sentence, beside masked language modelling.

The loss is :class:`~selfguide.losses.ClearLoss`, on the [CLS] vectors of the last layer.

The paper pre-trains from scratch, so nothing about the training of an existing encoder is published: batch size, learning rate,
warm-up over a tenth of the steps, linear decay, clipping at a norm of 1 and a stop after ten dev evaluations without a new best
are this package's.

Reference: Wu et al., CLEAR: Contrastive Learning for Sentence Representation, 2020 (arXiv:2012.15466).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from selfguide.augment.dropout import DROPOUT_RATE, KEEP_DROPOUT
from selfguide.losses.clear import CITATION, NEIGHBOURS, SPANS, ClearLoss, check_rewriting
from selfguide.losses.rules import FRACTION, TEMPERATURE, WEIGHT
from selfguide.methods.base import TuningMethod
from selfguide.methods.search import BATCHES, DROPOUTS, POOLED, RATES, SWITCH
from selfguide.options import CheckedOptions, OneOf
from selfguide.training.settings import TrainingSettings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class ClearOptions(CheckedOptions):
    """Options of CLEAR."""

    first: str = "substitute"
    """Rewriting of the first copy: none, delete-words, delete-spans, reorder, substitute, or several joined by +."""
    second: str = "delete-spans"
    """Rewriting of the second copy."""
    temperature: Annotated[float, TEMPERATURE] = 0.1
    """τ: the smaller, the more the hardest negatives count."""
    delete_rate: Annotated[float, FRACTION] = 0.7
    """Fraction of the tokens that delete-words deletes."""
    spans: Annotated[int, SPANS] = 5
    """Spans that delete-spans deletes; pairs of them that reorder swaps."""
    span_length: Annotated[float, FRACTION] = 0.05
    """Length of a span as a fraction of the sentence; at least one token."""
    substitute_rate: Annotated[float, FRACTION] = 0.3
    """Fraction of the tokens that substitute replaces."""
    neighbours: Annotated[int, NEIGHBOURS] = 5
    """Nearest tokens in the input embeddings to draw a substitute from."""
    synonyms: str = ""
    """File of synonyms (word TAB synonym TAB synonym ...) to use instead of neighbours in the input embeddings."""
    mlm_weight: Annotated[float, WEIGHT] = 1.0
    """Weight of masked language modelling; 0 switches it off."""
    mlm_rate: Annotated[float, FRACTION] = 0.15
    """Fraction of the tokens that are hidden for it."""
    head: bool = True
    """Compare through a head of two layers, which is dropped after training."""
    dropout: Annotated[float, DROPOUT_RATE] = KEEP_DROPOUT
    """Rate of every dropout during training; -1: the encoder's own."""
    # The language-model head reads the last layer, so poolings over two layers are not offered.
    pooling: Annotated[str, OneOf("cls", "mean", "max")] = "cls"
    """Pooling: cls, mean or max."""

    def __post_init__(self) -> None:
        """Check the rewritings too."""
        super().__post_init__()
        check_rewriting(self.first)
        check_rewriting(self.second)


class Clear(TuningMethod):
    """``--method clear``."""

    name = "clear"
    summary = "two rewritten copies (deletion, reordering, substitution) beside masked-language modelling (NT-Xent)"
    reference = "Wu et al., 2020"
    made_for = "raw language model"
    Options = ClearOptions
    options: ClearOptions
    defaults = TrainingSettings(batch_size=64, learning_rate=3e-5)
    citation = CITATION
    search = {
        "learning_rate": RATES,
        "batch_size": BATCHES,
        "temperature": (0.05, 0.1, 0.2),
        "first": ("substitute", "delete-words", "delete-spans", "reorder"),
        "second": ("substitute", "delete-words", "delete-spans", "reorder"),
        "mlm_weight": (0.0, 0.1, 1.0),
        "head": SWITCH,
        "dropout": DROPOUTS,
        "pooling": POOLED,
    }

    def loss(self, student: SentenceTransformer) -> ClearLoss:
        """See :meth:`TuningMethod.loss`."""
        return ClearLoss(student, **self.options.without("pooling"))
