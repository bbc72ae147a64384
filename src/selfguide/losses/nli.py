"""Natural language inference as a loss: classify a pair of sentences from its two embeddings.

Premise and hypothesis are embedded by the same encoder, in one pass where it is a Transformer. A classifier predicts the label
(entailment, neutral, contradiction) from both embeddings and their difference. SBERT has one linear layer; InferSent adds the
element-wise product and has three. The classifier lives in the loss and is not saved: what is kept is an encoder whose
embeddings tell the labels apart.

sentence-transformers has such a loss (``SoftmaxLoss``). This one also averages the classifier's gradients over the processes of
a distributed run, clears them with the model's, and embeds premises and hypotheses in one pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

import torch.nn.functional as F
from sentence_transformers.sentence_transformer.modules import Transformer
from torch import Tensor, nn

from selfguide.augment.encoding import Features, stacked
from selfguide.data.nli import LABELS
from selfguide.losses import functional
from selfguide.losses.base import HeadedLoss, full_precision, single
from selfguide.options import AtLeast, check

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

CITATION = """\
@inproceedings{reimers-gurevych-2019-sentence,
    title = "Sentence-{BERT}: Sentence Embeddings using {S}iamese {BERT}-Networks",
    author = "Reimers, Nils and Gurevych, Iryna",
    booktitle = "Proceedings of EMNLP-IJCNLP 2019",
    year = "2019",
}"""
HIDDEN = AtLeast(0)


class NLISoftmaxLoss(HeadedLoss):
    """Classify premise and hypothesis as entailment, neutral or contradiction (SBERT, InferSent).

    Formula:
        With u and v the embeddings of premise and hypothesis, W one linear layer and g three of them in a row:

            loss = mean over pairs of −log softmax(W (u, v, |u − v|))[label]            SBERT
            loss = mean over pairs of −log softmax(g(u, v, |u − v|, u ∘ v))[label]      InferSent (product, hidden)

    Args:
        model: The SentenceTransformer to be trained; it may start with word vectors instead of a Transformer.
        product: Add u ∘ v to the classifier's input.
        hidden: Width of two linear layers before the last one; 0 for a single layer.

    Raises:
        UsageError: An argument is out of range.

    Inputs:
        | Texts                 | Labels                                        |
        |-----------------------|-----------------------------------------------|
        | (premise, hypothesis) | 0: entailment, 1: neutral, 2: contradiction   |

    Relations:
        ``SoftmaxLoss`` of sentence-transformers has the same formula; see the module for the differences.
        :class:`~selfguide.losses.JointLoss` adds a contrast on the same sentences.

    Example:
        ```python
        from datasets import Dataset
        from sentence_transformers import SentenceTransformerTrainer

        import selfguide
        from selfguide.losses import NLISoftmaxLoss

        model = selfguide.load_encoder("mini", pooling="mean")
        loss = NLISoftmaxLoss(model)
        premises = ["A man plays the cello.", "The train is late.", "It rains."]
        hypotheses = ["A man makes music.", "The bus is full.", "The sun shines."]
        pairs = Dataset.from_dict({"premise": premises, "hypothesis": hypotheses, "label": [0, 1, 2]})
        SentenceTransformerTrainer(model=model, train_dataset=pairs, loss=loss).train()
        ```

    Reference:
        Reimers and Gurevych, Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks, EMNLP 2019:
        https://arxiv.org/abs/1908.10084; Conneau et al., EMNLP 2017 (InferSent): https://arxiv.org/abs/1705.02364
    """

    citation = CITATION
    config_names: ClassVar[tuple[str, ...]] = ("product", "hidden")
    needs_transformer = False

    def __init__(self, model: SentenceTransformer, product: bool = False, hidden: int = 0) -> None:
        check("hidden", hidden, HIDDEN)
        super().__init__(model)
        self.product, self.hidden = product, hidden
        width = int(model.get_embedding_dimension() or 0) * (4 if product else 3)
        self.classifier = _classifier(width, hidden).to(model.device)
        self.share_over_processes()

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; see the class."""
        self.begin_step()
        premises, hypotheses = tuple(sentence_features)
        if isinstance(self.encoder[0], Transformer):
            u, v = self.encode(self.both(premises, hypotheses))["sentence_embedding"].chunk(2)
        else:
            u, v = (self.model(dict(features))["sentence_embedding"] for features in (premises, hypotheses))
        return self.classify(u, v, labels)

    def both(self, premises: Features, hypotheses: Features) -> Features:
        """Concatenate the tokenised premises and hypotheses to one batch.

        Args:
            premises: The tokenised premises.
            hypotheses: The tokenised hypotheses.

        Returns:
            One batch, the premises first.
        """
        return stacked([premises, hypotheses], padding=self.padding_id)

    def classify(self, u: Tensor, v: Tensor, labels: Tensor | None) -> Tensor:
        """Compute the cross-entropy of the labels.

        Args:
            u: Embeddings of the premises (batch, dim).
            v: Embeddings of the hypotheses (batch, dim).
            labels: The labels (batch,).

        Returns:
            The loss, a scalar.

        Raises:
            ValueError: There are no labels.
        """
        if labels is None:
            raise ValueError("This loss needs labels: a dataset with the columns premise, hypothesis and label.")
        with full_precision(u):
            seen = functional.pair_features(single(u), single(v), self.product)
            return F.cross_entropy(self.classifier(seen), labels.view(-1))


def _classifier(width: int, hidden: int) -> nn.Module:
    if not hidden:
        return nn.Linear(width, len(LABELS))
    return nn.Sequential(nn.Linear(width, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, len(LABELS)))
