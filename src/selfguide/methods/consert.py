"""ConSERT without labels: two augmented copies of each sentence, changed at the embedding layer.

The loss is :class:`~selfguide.losses.ConSERTLoss`, on the mean of the last layer's tokens. The finished encoder has the mean
of the last *two* layers as its embedding, which is also what dev pairs score.

Training as in the authors' released script: AdamW with betas (0.9, 0.999) and a weight decay of 0.01 (not of biases and norms), a
warm-up over a tenth of the steps and linear decay, gradients clipped at a norm of 1, a stop after ten dev evaluations without a
new best. The published learning rate, 5e-7, belongs to long training on all STS text; see the documentation.

Differences from the script: dev pairs are scored every 50 steps (theirs: 200); AdamW corrects the bias of its first steps and has
an ε of 1e-8 (theirs: no correction, 1e-6).

Reference: Yan et al., ConSERT: A Contrastive Framework for Self-Supervised Sentence Representation Transfer, ACL 2021.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from selfguide.losses.consert import CITATION, ConSERTLoss, ConSERTOptions
from selfguide.methods.base import TuningMethod
from selfguide.methods.search import CONSERT
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
    defaults = TrainingSettings(batch_size=96, learning_rate=5e-7, epochs=10.0, weight_decay=0.01, patience=10)
    citation = CITATION
    search = CONSERT

    def loss(self, student: SentenceTransformer) -> ConSERTLoss:
        """See :meth:`TuningMethod.loss`."""
        return ConSERTLoss(student, **self.options.loss_settings())
