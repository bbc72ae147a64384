"""IS-BERT: a sentence's vector should tell as much as it can about each of the sentence's own phrases.

Convolutions with windows of 1, 3 and 5 tokens run over the Transformer's token vectors. Their outputs, joined, are a *local*
feature l_t for each token t, and the mean of these over a sentence's tokens is its *global* vector g_i, which is also the
vector of the finished encoder. A dot product t(l, g) = l · g tells pairs that belong together from pairs that do not; what
the objective adds up is the Jensen–Shannon estimate of the mutual information between l and g, and the loss is its negative:

    loss = mean over tokens t, sentences j≠i(t) of (softplus(l_t · g_j) − log 2)
         − mean over tokens t                   of (log 2 − softplus(−l_t · g_i(t)))        i(t): the sentence of token t

The finished encoder keeps the convolutions, as published. It is built of stock modules: Transformer, word weights that are
all 1, CNN, mean. The word weights are there because the stock CNN does not know padding: they set padding to zero first, so
that a sentence's vector does not depend on what it is batched with.

Differences: the paper has a ReLU after the convolutions; the authors' released code has none, nor has the stock module, and
we follow the code. Theirs lets the windows reach into padding. The number of filters is a third of the encoder's width for
each window (256 for BERT-base, as published), so that the vector stays as wide as the encoder's.

Reference: Zhang, He, Liu, Lim and Bing, An Unsupervised Sentence Embedding Method by Mutual Information Maximization,
EMNLP 2020.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import CNN, Pooling, WordWeights
from torch import Tensor, nn

from selfguide.augment.dropout import OWN, check_dropout, set_dropout
from selfguide.augment.encoding import embed
from selfguide.calibration.frequencies import Vocabulary
from selfguide.errors import UsageError
from selfguide.losses.base import single
from selfguide.methods.base import TuningMethod
from selfguide.models.encoders import backbone, freeze_unused, transformer_of
from selfguide.options import require_types
from selfguide.training.settings import TrainingSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

CITATION = """\
@inproceedings{zhang-etal-2020-unsupervised,
    title = "An Unsupervised Sentence Embedding Method by Mutual Information Maximization",
    author = "Zhang, Yan and He, Ruidan and Liu, Zuozhu and Lim, Kwan Hui and Bing, Lidong",
    booktitle = "Proceedings of EMNLP 2020",
    year = "2020",
}"""


@dataclass(frozen=True)
class IsBertOptions:
    """Options of IS-BERT; the defaults are those of the authors' script."""

    windows: str = "1,3,5"
    """Widths of the convolutions in tokens: odd numbers with commas."""
    filters: int = 0
    """Numbers that each window adds to the vector; 0: the encoder's width divided by the windows."""
    dropout: float = OWN
    """Rate of every dropout while training; -1: the encoder's own."""

    def __post_init__(self) -> None:
        require_types(self)
        check_dropout(self.dropout)
        parse_windows(self.windows)
        if self.filters < 0:
            raise UsageError(f"filters must be at least 0, got {self.filters}.")


class MutualInformationLoss(nn.Module):
    """IS-BERT as an ordinary sentence-transformers loss over one column of sentences, without labels.

    Args:
        model: the SentenceTransformer to be tuned, convolutions included (:func:`with_convolutions`).
        dropout: rate of every dropout in the Transformer while it is trained; −1 keeps the encoder's own.
    """

    def __init__(self, model: SentenceTransformer, dropout: float = OWN) -> None:
        super().__init__()
        if not any(isinstance(module, CNN) for module in model):
            raise UsageError("IS-BERT trains an encoder with convolutions; build one with with_convolutions(encoder).")
        self.dropout = dropout
        set_dropout(model, dropout)
        freeze_unused(model)
        self.model = model
        self._transformers = (backbone(model),)  # in a tuple, so that it is not registered a second time

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        features = next(iter(sentence_features))
        mask = features["attention_mask"].bool()
        output = embed(self.model, self._transformers[0], features)
        owners, places = mask.nonzero(as_tuple=True)
        with torch.autocast(mask.device.type, enabled=False):  # a dot product of long vectors is too coarse in bfloat16
            local = single(output["token_embeddings"])[owners, places]
            return local_global(local, single(output["sentence_embedding"]), owners)

    def get_config_dict(self) -> dict[str, Any]:
        """The loss's settings, as sentence-transformers' model cards show them."""
        return {"dropout": self.dropout}

    @property
    def citation(self) -> str:
        return CITATION


class IsBert(TuningMethod):
    """``--method is-bert``."""

    name = "is-bert"
    summary = "mutual information between a sentence's vector and its phrases, through convolutions (IS-BERT)"
    reference = "Zhang et al., EMNLP 2020"
    cost = "one forward pass and three small convolutions"
    Options = IsBertOptions
    options: IsBertOptions
    defaults = TrainingSettings(batch_size=32, learning_rate=1e-5, weight_decay=0.01)
    citation = CITATION

    def student(self, encoder: SentenceTransformer) -> SentenceTransformer:
        return with_convolutions(encoder, self.options.windows, self.options.filters)

    def loss(self, student: SentenceTransformer) -> MutualInformationLoss:
        # The run's seed is set just before the loss is made, after the student: draw the convolutions' weights again.
        for module in student:
            if isinstance(module, CNN):
                for convolution in module.convs:
                    convolution.reset_parameters()
        return MutualInformationLoss(student, self.options.dropout)


def with_convolutions(encoder: SentenceTransformer, windows: str = "1,3,5", filters: int = 0) -> SentenceTransformer:
    """The same Transformer with fresh convolutions over its tokens and their mean as the vector."""
    widths = parse_windows(windows)
    transformer = transformer_of(encoder)
    width = int(transformer.get_embedding_dimension())
    convolutions = CNN(width, out_channels=filters or _share(width, widths), kernel_sizes=list(widths))
    masking = WordWeights(Vocabulary.of_encoder(encoder).tokens, {}, unknown_word_weight=1).requires_grad_(False)
    pooling = Pooling(convolutions.get_embedding_dimension(), pooling_mode="mean")
    built = SentenceTransformer(modules=[transformer, masking, convolutions, pooling], device=str(encoder.device))
    built.max_seq_length = encoder.max_seq_length
    return built


def local_global(local: Tensor, whole: Tensor, owners: Tensor) -> Tensor:
    """The loss on local features (tokens, dim), global vectors (batch, dim) and the sentence of each token (tokens,)."""
    scores = local @ whole.T
    own = F.one_hot(owners, len(whole)).bool()
    together = math.log(2) - F.softplus(-scores[own])
    if len(whole) == 1:  # nothing to tell the sentence apart from
        return -together.mean()
    apart = F.softplus(scores[~own]) - math.log(2)
    return apart.mean() - together.mean()


def parse_windows(words: str) -> tuple[int, ...]:
    """``"1,3,5"`` as numbers; even ones are refused, because no token stands in their middle."""
    try:
        widths = tuple(int(part) for part in words.split(","))
    except ValueError:
        widths = ()
    if not widths or any(width < 1 or width % 2 == 0 for width in widths):
        raise UsageError(f"windows {words!r} is not understood; write odd numbers with commas, such as 1,3,5.")
    return widths


def _share(width: int, windows: Sequence[int]) -> int:
    """As many filters for each window as make the vector about as wide as the encoder's."""
    return max(1, round(width / len(windows)))
