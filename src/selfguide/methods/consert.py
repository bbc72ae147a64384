"""ConSERT without labels: two augmented copies of each sentence, changed at the embedding layer.

The loss is :class:`~selfguide.losses.ConSERTLoss`, on the mean of the last layer's tokens. The finished encoder has the mean
of the last *two* layers as its embedding, which is also what dev pairs score.

The published learning rate, 5e-7, belongs to long training of a large encoder on all STS text; see the documentation.

Reference: Yan et al., ConSERT: A Contrastive Framework for Self-Supervised Sentence Representation Transfer, ACL 2021.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from selfguide.losses.consert import CITATION, ConSERTLoss, ConSERTOptions
from selfguide.methods.base import TuningMethod
from selfguide.models.encoders import with_pooling
from selfguide.training.settings import TrainingSettings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class Consert(TuningMethod):
    """``--method consert``."""

    name = "consert"
    summary = "two copies changed at the embedding layer: tokens shuffled, dimensions cut (NT-Xent)"
    reference = "Yan et al., ACL 2021"
    made_for = "raw language model"
    Options = ConSERTOptions
    options: ConSERTOptions
    defaults = TrainingSettings(batch_size=96, learning_rate=5e-7, epochs=10.0)
    citation = CITATION

    def student(self, encoder: SentenceTransformer) -> SentenceTransformer:
        """See :meth:`TuningMethod.student`."""
        return with_pooling(encoder, self.options.pooling)

    def loss(self, student: SentenceTransformer) -> ConSERTLoss:
        """See :meth:`TuningMethod.loss`."""
        return ConSERTLoss(student, **self.options.loss_settings())

    def deployable(self, student: SentenceTransformer) -> SentenceTransformer:
        """See :meth:`TuningMethod.deployable`."""
        return with_pooling(student, self.options.eval_pooling)
