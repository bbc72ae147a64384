"""ConSERT without labels: two augmented copies of each sentence, changed at the embedding layer.

The embedding layer turns a sentence into a matrix, one row for each token. Two copies of the matrix are changed in cheap
ways (tokens shuffled, tokens or dimensions set to zero; :mod:`selfguide.augment.embeddings`), the Transformer reads both, and
the mean over the last layer's tokens gives r_i and r'_i. NT-Xent over all 2N vectors x_1 … x_2N of the batch pulls the two
copies together and pushes all others away:

    loss = mean over m of −log exp(cos(x_m, x_μ(m)) / τ) / Σ_{n≠m} exp(cos(x_m, x_n) / τ)        μ(m): the other copy

The encoder's own dropout is off while training: the augmentations stand in for it. Afterwards the encoder is handed out
with the mean of the last *two* layers as its vector, which is also what dev pairs score.

Differences from the authors' released code: [CLS] and [SEP] are neither moved nor cut (theirs may be), tokens change
places instead of position numbers (the same thing to the Transformer), and both copies run in one pass.
The published learning rate, 5e-7, goes with long training of a large encoder on all STS text; see the documentation.

Reference: Yan et al., ConSERT: A Contrastive Framework for Self-Supervised Sentence Representation Transfer, ACL 2021.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from selfguide.losses.consert import CITATION, ConsertLoss, ConsertOptions, consert_loss
from selfguide.methods.base import TuningMethod
from selfguide.models.encoders import with_pooling
from selfguide.training.settings import TrainingSettings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

__all__ = ["CITATION", "Consert", "ConsertLoss", "ConsertOptions"]


class Consert(TuningMethod):
    """``--method consert``."""

    name = "consert"
    summary = "two copies changed at the embedding layer: tokens shuffled, dimensions cut (NT-Xent)"
    reference = "Yan et al., ACL 2021"
    Options = ConsertOptions
    options: ConsertOptions
    defaults = TrainingSettings(batch_size=96, learning_rate=5e-7, max_length=64, epochs=10.0)
    citation = CITATION

    def student(self, encoder: SentenceTransformer) -> SentenceTransformer:
        return with_pooling(encoder, self.options.pooling)

    def loss(self, student: SentenceTransformer) -> ConsertLoss:
        return consert_loss(student, self.options)

    def finished(self, student: SentenceTransformer) -> SentenceTransformer:
        return with_pooling(student, self.options.eval_pooling)
