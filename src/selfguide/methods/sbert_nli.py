"""SBERT-NLI: an encoder learns sentence vectors by telling entailment, neutral and contradiction apart.

Premise and hypothesis go through the same encoder; the means over their last layers' tokens are u and v. A linear map W and
a softmax guess the label from both and from the distance in every dimension:

    loss = mean over pairs of −log softmax(W (u, v, |u − v|))[label]

One pass over the labelled pairs. W is dropped afterwards (:mod:`selfguide.losses.nli`). The method needs labels, unlike most
here: it stands among them for comparison, and as a start for others (``--encoder`` with its folder and any method).

The run's text is not trained on: what is, is the file that ``nli`` names.

Differences from the authors' released code: premises and hypotheses of a batch share one pass; with dev pairs the best
checkpoint is kept by cosine; AdamW as everywhere here. The published encoder has seen all of SNLI and MultiNLI (about 940,000
pairs).

Reference: Reimers and Gurevych, Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks, EMNLP 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from selfguide.data.nli import NO_FILE, check_option, read_nli
from selfguide.errors import UsageError
from selfguide.losses.nli import PairLoss
from selfguide.methods.base import TuningMethod
from selfguide.models.encoders import POOLINGS, with_pooling
from selfguide.options import require_types
from selfguide.training.settings import TrainingSettings

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

CITATION = """\
@inproceedings{reimers-gurevych-2019-sentence,
    title = "Sentence-{BERT}: Sentence Embeddings using {S}iamese {BERT}-Networks",
    author = "Reimers, Nils and Gurevych, Iryna",
    booktitle = "Proceedings of EMNLP-IJCNLP 2019",
    year = "2019",
}"""


@dataclass(frozen=True)
class SbertNliOptions:
    """Options of SBERT-NLI."""

    nli: str = NO_FILE
    """Labelled pairs (a file must be named): label, premise, hypothesis, with tabs; patterns and commas make it several."""
    pooling: str = "mean"
    """The sentence vector: cls, mean, max, last2 or first-last."""

    def __post_init__(self) -> None:
        require_types(self)
        if self.pooling not in POOLINGS:
            raise UsageError(f"There is no pooling {self.pooling!r}; choose one of {', '.join(POOLINGS)}.")


class SbertNli(TuningMethod):
    """``--method sbert-nli``."""

    name = "sbert-nli"
    summary = "classification of labelled pairs: entailment, neutral or contradiction (SBERT)"
    reference = "Reimers and Gurevych, EMNLP 2019"
    needs_labels = True
    Options = SbertNliOptions
    options: SbertNliOptions
    defaults = TrainingSettings(batch_size=16, learning_rate=2e-5, warmup=0.1, epochs=1.0, max_length=128)
    citation = CITATION

    def check(self) -> None:
        check_option(self.options.nli, self.name)

    def dataset(self, text: Dataset) -> Dataset:
        return read_nli(self.options.nli, self.context.reporter)

    def student(self, encoder: SentenceTransformer) -> SentenceTransformer:
        return with_pooling(encoder, self.options.pooling)

    def loss(self, student: SentenceTransformer) -> PairLoss:
        return PairLoss(student)
