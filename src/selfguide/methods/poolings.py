"""Poolings of the pre-trained Transformer's own token vectors. Nothing is trained.

With H_{k,t} the hidden state of token t at layer k = 0..l (0 is the embedding layer) and T the sentence's tokens:

    cls         H_{k,1}                                    the first token, [CLS]
    mean        1/|T| Σ_t H_{k,t}
    max         max_t H_{k,t}                              dimension by dimension
    last2       1/|T| Σ_t (H_{l−1,t} + H_{l,t}) / 2
    first-last  1/|T| Σ_t (H_{1,t} + H_{l,t}) / 2

[CLS] and [SEP] count as tokens, as in sentence-transformers. ``cls``, ``mean`` and ``max`` take the last layer by default.
These are the baselines that every other method has to beat.

References: Devlin et al., BERT, NAACL 2019; Reimers and Gurevych, Sentence-BERT, EMNLP 2019 (cls, mean, max); Li et al., On
the Sentence Embeddings from Pre-trained Language Models, EMNLP 2020 (last2); Su et al., Whitening Sentence Representations,
2021 (first-last).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from selfguide.methods.base import Method
from selfguide.models.encoders import POOLINGS, with_pooling
from selfguide.options import CheckedOptions, OneOf
from selfguide.training.trainer import FitContext, TrainingOutcome

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class PoolingOptions(CheckedOptions):
    """Options of the plain poolings."""

    pooling: Annotated[str, OneOf(*POOLINGS)] = "mean"
    """cls, mean, max, last2 or first-last."""
    layer: int = -1
    """Layer whose tokens are pooled: 0 is the embedding layer, -1 the last."""


class PlainPooling(Method):
    """``--method cls``, ``mean``, ``max``, ``last2`` and ``first-last``; the text is not used."""

    family = "pooling"
    Options = PoolingOptions
    options: PoolingOptions

    def fit(self, encoder: SentenceTransformer, context: FitContext) -> TrainingOutcome:
        """See :meth:`Method.fit`."""
        layer = None if self.options.layer == -1 else self.options.layer
        pooled = with_pooling(encoder, self.options.pooling, layer)
        return TrainingOutcome(pooled.eval())


class Cls(PlainPooling):
    """``--method cls``."""

    name = "cls"
    summary = "the pre-trained encoder's [CLS] vector"
    reference = "Devlin et al., NAACL 2019"
    preset = {"pooling": "cls"}


class Mean(PlainPooling):
    """``--method mean``."""

    name = "mean"
    summary = "the mean of the pre-trained encoder's tokens"
    reference = "Reimers and Gurevych, EMNLP 2019"
    preset = {"pooling": "mean"}


class Max(PlainPooling):
    """``--method max``."""

    name = "max"
    summary = "the element-wise maximum of the pre-trained encoder's tokens"
    reference = "Reimers and Gurevych, EMNLP 2019"
    preset = {"pooling": "max"}


class LastTwo(PlainPooling):
    """``--method last2``."""

    name = "last2"
    summary = "the mean of the tokens of the last two layers"
    reference = "Li et al., EMNLP 2020"
    preset = {"pooling": "last2", "layer": -1}


class FirstLast(PlainPooling):
    """``--method first-last``."""

    name = "first-last"
    summary = "the mean of the tokens of the first and the last layer"
    reference = "Su et al., 2021"
    preset = {"pooling": "first-last", "layer": -1}
