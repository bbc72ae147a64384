"""ConSERT's loss: contrast two copies of each sentence that are augmented at the embedding layer.

The embedding layer turns a sentence into a matrix with one row for each token. Two copies of the matrix are changed in cheap
ways: tokens shuffled, tokens or dimensions set to zero (:mod:`selfguide.augment.embeddings`). The Transformer reads both
copies in one pass, and NT-Xent over the 2N embeddings of the batch pulls the copies of a sentence together and pushes all
others away. The encoder's own dropout is off during training, because the augmentations replace it.

Differences from the authors' released code: [CLS] and [SEP] are neither moved nor cut (theirs may be), tokens change places
instead of position ids (equal for the Transformer), and both copies run in one pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from torch import Tensor

from selfguide.augment.dropout import DROPOUT_RATE
from selfguide.augment.embeddings import DEFAULT_RATES, RATE, parse_augmentation
from selfguide.augment.encoding import Features, augmented, embedding_layer
from selfguide.losses import functional
from selfguide.losses.base import HeadedLoss, full_precision, single
from selfguide.losses.rules import TEMPERATURE
from selfguide.models.encoders import POOLINGS, backbone
from selfguide.options import CheckedOptions, OneOf, check

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

CITATION = """\
@inproceedings{yan-etal-2021-consert,
    title = "{ConSERT}: A Contrastive Framework for Self-Supervised Sentence Representation Transfer",
    author = "Yan, Yuanmeng and Li, Rumei and Wang, Sirui and Zhang, Fuzheng and Wu, Wei and Xu, Weiran",
    booktitle = "Proceedings of ACL-IJCNLP 2021",
    year = "2021",
}"""


@dataclass(frozen=True)
class ConSERTOptions(CheckedOptions):
    """Options of the methods that train with :class:`ConSERTLoss`; the defaults are the paper's."""

    first: str = "shuffle"
    """Augmentation of the first copy: none, shuffle, token-cutoff, feature-cutoff, dropout, or several joined by +."""
    second: str = "feature-cutoff"
    """Augmentation of the second copy."""
    temperature: Annotated[float, TEMPERATURE] = 0.1
    """τ: the smaller, the more the hardest negatives count."""
    token_cutoff_rate: Annotated[float, RATE] = 0.15
    """Fraction of the tokens that token-cutoff sets to zero."""
    feature_cutoff_rate: Annotated[float, RATE] = 0.2
    """Fraction of the dimensions that feature-cutoff sets to zero."""
    dropout_rate: Annotated[float, RATE] = 0.2
    """Fraction of the elements that the augmentation called dropout sets to zero."""
    dropout: Annotated[float, DROPOUT_RATE] = 0.0
    """Rate of the encoder's own dropout during training; -1: keep it."""
    freeze_layer_0: bool = False
    """Do not train the embedding layer."""
    pooling: Annotated[str, OneOf(*POOLINGS)] = "mean"
    """Pooling during training: cls, mean, max, last2 or first-last."""
    eval_pooling: Annotated[str, OneOf(*POOLINGS)] = "last2"
    """Pooling of the finished encoder: cls, mean, max, last2 or first-last."""

    def __post_init__(self) -> None:
        """Check the augmentations too."""
        super().__post_init__()
        for names in (self.first, self.second):
            self.check_augmentation(names)

    def check_augmentation(self, names: str) -> None:
        """Check the augmentation of one copy.

        Raises:
            UsageError: A name is unknown.
        """
        parse_augmentation(names, self.rates)

    @property
    def rates(self) -> dict[str, float]:
        """The rates by the names of the augmentations."""
        return {
            "token-cutoff": self.token_cutoff_rate,
            "feature-cutoff": self.feature_cutoff_rate,
            "dropout": self.dropout_rate,
        }

    def loss_settings(self) -> dict[str, Any]:
        """Return the arguments of :class:`ConSERTLoss` that these options describe."""
        return {name: getattr(self, name) for name in ConSERTLoss.config_names}


class ConSERTLoss(HeadedLoss):
    """Contrast two copies of each sentence, augmented at the embedding layer (ConSERT).

    Formula:
        With x_1 … x_2N the embeddings of both copies of a batch, and μ(m) the other copy of the sentence of x_m:

            loss = mean over m of −log exp(cos(x_m, x_μ(m)) / τ) / Σ_{n≠m} exp(cos(x_m, x_n) / τ)

    Args:
        model: The SentenceTransformer to be trained; ConSERT takes the mean of the last layer's tokens.
        first: Augmentation of the first copy, see :mod:`selfguide.augment.embeddings`.
        second: Augmentation of the second copy.
        temperature: τ.
        rates: Fractions that the augmentations set to zero, by their names.
        dropout: Rate of the Transformer's own dropout during training; −1 keeps the encoder's own.
        freeze_layer_0: Do not train the embedding layer.

    Raises:
        UsageError: An argument is out of range, or an augmentation unknown.
        SelfguideError: The encoder has no embedding layer that can be changed from outside.

    Inputs:
        | Texts    | Labels |
        |----------|--------|
        | sentence | none   |

    Relations:
        :class:`~selfguide.losses.DropoutContrastLoss` has dropout as its only augmentation; :class:`~selfguide.losses.JointLoss`
        adds the classification of labelled pairs.

    Example:
        ```python
        from datasets import Dataset
        from sentence_transformers import SentenceTransformerTrainer

        import selfguide
        from selfguide.losses import ConSERTLoss

        model = selfguide.load_encoder("mini", pooling="mean")
        loss = ConSERTLoss(model, first="shuffle", second="token-cutoff+feature-cutoff")
        text = Dataset.from_dict({"sentence": ["It rains.", "The train is late.", "She plays the cello."]})
        SentenceTransformerTrainer(model=model, train_dataset=text, loss=loss).train()
        ```

    Reference:
        Yan et al., ConSERT: A Contrastive Framework for Self-Supervised Sentence Representation Transfer, ACL 2021:
        https://arxiv.org/abs/2105.11741
    """

    citation = CITATION
    config_names = ("first", "second", "temperature", "rates", "dropout", "freeze_layer_0")

    def __init__(
        self,
        model: SentenceTransformer,
        first: str = "shuffle",
        second: str = "feature-cutoff",
        temperature: float = 0.1,
        rates: Mapping[str, float] = DEFAULT_RATES,
        dropout: float = 0.0,
        freeze_layer_0: bool = False,
    ) -> None:
        check("temperature", temperature, TEMPERATURE)
        augmentations = [parse_augmentation(names, rates) for names in (first, second)]
        embedding_layer(backbone(model))
        super().__init__(model, dropout, freeze_layer_0)
        self._augmentations = augmentations
        self.first, self.second, self.temperature, self.rates = first, second, temperature, dict(rates)

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; see the class."""
        features = next(iter(sentence_features))
        first, second = augmented(self.model, self.transformer, features, self._augmentations, self.frame_ids)
        with full_precision(first):
            return self.over_processes(functional.nt_xent_pairs, single(first), single(second), self.temperature)
