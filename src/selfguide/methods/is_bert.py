"""IS-BERT: a sentence's embedding should tell as much as possible about each of the sentence's own phrases.

The loss is :class:`~selfguide.losses.InfoMaxLoss`; convolutions are added to the encoder and kept
(:func:`~selfguide.losses.info_max.with_convolutions`).

Training as in the authors' released script: AdamW with betas (0.9, 0.999) and a weight decay of 0.01 (not of biases and
norms), a warm-up over a tenth of the steps and linear decay, gradients clipped at a norm of 1, no early stopping. Dev pairs
are scored every 50 steps (theirs: 1,000).

Reference: Zhang, He, Liu, Lim and Bing, An Unsupervised Sentence Embedding Method by Mutual Information Maximization,
EMNLP 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from sentence_transformers.sentence_transformer.modules import CNN

from selfguide.augment.dropout import DROPOUT_RATE, KEEP_DROPOUT
from selfguide.losses.info_max import CITATION, FILTERS, InfoMaxLoss, parse_windows, with_convolutions
from selfguide.methods.base import TuningMethod
from selfguide.methods.search import BATCHES, DROPOUTS, RATES
from selfguide.options import CheckedOptions
from selfguide.training.settings import TrainingSettings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class IsBertOptions(CheckedOptions):
    """Options of IS-BERT; the defaults are those of the authors' script."""

    windows: str = "1,3,5"
    """Widths of the convolutions in tokens: odd numbers, separated by commas."""
    filters: Annotated[int, FILTERS] = 0
    """Dimensions that each window adds to the embedding; 0: the encoder's width divided by the number of windows."""
    dropout: Annotated[float, DROPOUT_RATE] = KEEP_DROPOUT
    """Rate of every dropout during training; -1: the encoder's own."""

    def __post_init__(self) -> None:
        """Check the windows too."""
        super().__post_init__()
        parse_windows(self.windows)


class IsBert(TuningMethod):
    """``--method is-bert``."""

    name = "is-bert"
    summary = "mutual information between a sentence's embedding and its phrases, through convolutions (IS-BERT)"
    reference = "Zhang et al., EMNLP 2020"
    cost = "one forward pass and three small convolutions"
    made_for = "raw language model"
    Options = IsBertOptions
    options: IsBertOptions
    defaults = TrainingSettings(batch_size=32, learning_rate=1e-5, weight_decay=0.01, patience=0)
    citation = CITATION
    search = {
        "learning_rate": RATES,
        "batch_size": BATCHES,
        "windows": ("1,3,5", "1,3", "1"),
        "dropout": DROPOUTS,
    }

    def student(self, encoder: SentenceTransformer) -> SentenceTransformer:
        """See :meth:`TuningMethod.student`."""
        return with_convolutions(encoder, self.options.windows, self.options.filters)

    def loss(self, student: SentenceTransformer) -> InfoMaxLoss:
        """See :meth:`TuningMethod.loss`."""
        # The run's seed is set just before the loss is made, after the student: draw the convolutions' weights again.
        for module in student:
            if isinstance(module, CNN):
                for convolution in module.convs:
                    convolution.reset_parameters()
        return InfoMaxLoss(student, self.options.dropout)
