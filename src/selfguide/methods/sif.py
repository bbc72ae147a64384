"""SIF: the frequency-weighted mean of a layer's tokens, calibrated on the user's text.

    w(t) = a / (a + p(t))                                       p(t): how often token t occurs; [CLS] and [SEP] weigh 0
    x(s) = Σ_t w(t) H_{k,t} / Σ_t w(t)                          H_{k,t}: token t's hidden state at layer k
    v(s) = diag(s^−1/2) Uᵀ (x(s) − μ)                           whitened (the default), or
    v(s) = x(s) − V Vᵀ x(s)                                     without the n leading directions V (``remove``)

The published method takes word vectors and removes one direction. Here the tokens are those of a Transformer layer, by
default the embedding layer (layer 0), whose tokens still stand for words, and whitening takes the place of removal. For word
vectors from a file see the method ``glove``.

Saved as stock modules: Transformer → WeightedLayerPooling (picks the layer) → WordWeights → Pooling (mean: divides by the sum
of the weights) → Dense. The whole Transformer is run, whatever the layer.

Reference: Arora, Liang and Ma, A Simple but Tough-to-Beat Baseline for Sentence Embeddings, ICLR 2017.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated

from sentence_transformers import SentenceTransformer
from torch import nn

from selfguide.calibration.frequencies import SOURCES, Vocabulary, sif_weights, word_weights
from selfguide.calibration.linear_maps import removal_map, whitening_map
from selfguide.calibration.moments import check_shrinkage, fit_moments
from selfguide.errors import UsageError
from selfguide.methods.base import Method
from selfguide.models.encoders import with_pooling
from selfguide.options import Above, AtLeast, CheckedOptions, OneOf
from selfguide.training.trainer import FitContext, TrainingOutcome

CITATION = """\
@inproceedings{arora-etal-2017-simple,
    title = "A Simple but Tough-to-Beat Baseline for Sentence Embeddings",
    author = "Arora, Sanjeev and Liang, Yingyu and Ma, Tengyu",
    booktitle = "International Conference on Learning Representations",
    year = "2017",
}"""


@dataclass(frozen=True)
class SifOptions(CheckedOptions):
    """Options of the frequency-weighted mean."""

    layer: int = 0
    """Layer whose tokens are averaged: 0 is the embedding layer, -1 the last."""
    a: Annotated[float, Above(0)] = 1e-3
    """a of the weight a / (a + p): the smaller, the less a frequent token counts."""
    frequencies: Annotated[str, OneOf(*SOURCES)] = "table"
    """Where token frequencies come from: table (general English, in the package), text (yours) or both."""
    whiten: bool = True
    """Whiten the embeddings: centre them and make their covariance on the text the identity."""
    remove: Annotated[int, AtLeast(0)] = 0
    """Number of leading directions to remove instead of whitening (the paper: 1); needs --no-whiten."""
    shrinkage: str = "auto"
    """Shrinkage of the covariance before whitening, 0 to 1; auto: Ledoit-Wolf for a small text."""

    def __post_init__(self) -> None:
        """Check the combination and the shrinkage too."""
        super().__post_init__()
        if self.remove and self.whiten:
            raise UsageError(
                "remove and whiten are two ways to calibrate the same vector: with --remove use --no-whiten."
            )
        check_shrinkage(self.shrinkage)


class Sif(Method):
    """``--method sif``."""

    name = "sif"
    family = "calibration"
    summary = "frequency-weighted mean of a layer's tokens, whitened on the text"
    reference = "Arora, Liang and Ma, ICLR 2017"
    cost = "one forward pass and a small matrix product"
    Options = SifOptions
    options: SifOptions
    citation = CITATION

    def fit(self, encoder: SentenceTransformer, context: FitContext) -> TrainingOutcome:
        """See :meth:`Method.fit`."""
        options, settings = self.options, context.settings
        started = time.monotonic()
        *layers, pooling = with_pooling(encoder, "mean", options.layer)
        vocabulary = Vocabulary.of_encoder(encoder)
        weights = sif_weights(vocabulary, context.text, options.frequencies, options.a, context.reporter)
        modules: list[nn.Module] = [*layers, word_weights(vocabulary, weights).requires_grad_(False), pooling]
        weighted = SentenceTransformer(modules=modules, device=str(encoder.device))
        weighted.eval()
        if not (options.whiten or options.remove):
            return TrainingOutcome(weighted, seconds=time.monotonic() - started)
        moments, shrinkage = fit_moments(
            weighted,
            context.text,
            options.shrinkage if options.whiten else "0",
            max(64, settings.batch_size),
            context.reporter,
        )
        if options.whiten:
            calibration = whitening_map(moments, shrinkage=shrinkage)
        else:
            calibration = removal_map(moments, options.remove)
        calibrated = SentenceTransformer(modules=[*weighted, calibration.dense()], device=str(encoder.device)).eval()
        seconds = time.monotonic() - started
        return TrainingOutcome(calibrated, seconds=seconds, sentences_per_second=len(context.text) / max(seconds, 1e-9))
