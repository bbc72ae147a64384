"""Whitening: centre the embeddings and make their covariance the identity.

Embeddings of a pre-trained Transformer fill a narrow cone: a few directions hold most of the variance, and all cosines are
high. With μ and Σ = U diag(s) Uᵀ the mean and covariance of the pooled embeddings x of the user's text:

    y = diag(s^−1/2) Uᵀ (x − μ)

so that no direction counts more than another. Optionally only the k directions of the largest variance are kept (the paper
keeps 256 of 768). An exponent below 1/2 equalises the directions less. Directions whose variance is only rounding error are
dropped.

On few sentences the covariance is shrunk towards a multiple of the identity first, Σ' = (1 − ρ) Σ + ρ tr(Σ)/d · I, with ρ by
Ledoit and Wolf unless it is given. Statistics are exact, in double precision and in one pass over the text. The map is saved
as a stock ``Dense`` module.

References: Su, Cao, Liu and Ou, Whitening Sentence Representations for Better Semantics and Faster Retrieval, 2021; Ledoit and
Wolf, A well-conditioned estimator for large-dimensional covariance matrices, 2004.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from sentence_transformers import SentenceTransformer

from selfguide.calibration.linear_maps import LinearMap, whitening_map
from selfguide.calibration.moments import check_shrinkage, fit_moments
from selfguide.calibration.text_statistics import TextStatistics, measure, warn_if_few
from selfguide.errors import UsageError
from selfguide.methods.base import CalibratedMethod
from selfguide.models.encoders import POOLINGS, with_pooling
from selfguide.options import AtLeast, Between, CheckedOptions, OneOf
from selfguide.training.trainer import FitContext, TrainingOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import nn

    from selfguide.progress import Reporter

KEEP = "keep"

CITATION = """\
@article{su-etal-2021-whitening,
    title = "Whitening Sentence Representations for Better Semantics and Faster Retrieval",
    author = "Su, Jianlin and Cao, Jiarun and Liu, Weijie and Ou, Yangyiwen",
    journal = "arXiv:2103.15316",
    year = "2021",
}"""


@dataclass(frozen=True)
class WhiteningOptions(CheckedOptions):
    """Options of whitening."""

    pooling: Annotated[str, OneOf(*POOLINGS, KEEP)] = "mean"
    """Pooling of what is whitened: cls, mean, max, last2, first-last, or keep for the encoder's own embedding."""
    layer: int = -1
    """Layer whose tokens cls, mean or max pool: 0 is the embedding layer, -1 the last."""
    k: Annotated[int, AtLeast(0)] = 0
    """Number of directions to keep, the largest variance first; 0: all."""
    exponent: Annotated[float, Between(0, 1)] = 0.5
    """Power of the variances that is divided out: 0.5 whitens, 0 only centres and rotates."""
    shrinkage: str = "auto"
    """Shrinkage of the covariance, 0 to 1; auto: none for a large text, Ledoit-Wolf for a small one."""

    def __post_init__(self) -> None:
        """Check the combination and the shrinkage too."""
        super().__post_init__()
        if self.pooling == KEEP and self.layer != -1:
            raise UsageError(f"pooling keep takes the encoder's embedding as it is: leave layer={self.layer} out.")
        check_shrinkage(self.shrinkage)


class Whitening(CalibratedMethod):
    """``--method whitening``."""

    name = "whitening"
    family = "calibration"
    summary = "embeddings centred and whitened with the mean and covariance of the text"
    reference = "Su et al., 2021"
    cost = "one forward pass and a small matrix product"
    Options = WhiteningOptions
    options: WhiteningOptions
    citation = CITATION
    search = {
        "pooling": ("mean", "last2", "first-last"),
        "k": (0, 128, 256),
        "exponent": (0.25, 0.4, 0.5),
    }

    def fit(self, encoder: SentenceTransformer, context: FitContext) -> TrainingOutcome:
        """See :meth:`Method.fit`."""
        options, settings = self.options, context.settings
        started = time.monotonic()
        pooled = self._pooled(encoder).eval()
        moments, shrinkage = fit_moments(
            pooled, context.text, options.shrinkage, max(64, settings.batch_size), context.reporter
        )
        whitening = whitening_map(moments, options.k, shrinkage, options.exponent)
        modules: list[nn.Module] = [*pooled, whitening.dense()]
        whitened = SentenceTransformer(modules=modules, device=str(pooled.device)).eval()
        seconds = time.monotonic() - started
        return TrainingOutcome(whitened, seconds=seconds, sentences_per_second=len(context.text) / max(seconds, 1e-9))

    def part_widths(self, width: int) -> tuple[int, ...]:
        """See :meth:`CalibratedMethod.part_widths`: one part."""
        return (width,)

    def text_statistics(
        self, encoder: SentenceTransformer, text: Iterable[list[str]], batch_size: int, reporter: Reporter
    ) -> TextStatistics:
        """See :meth:`CalibratedMethod.text_statistics`."""
        widths = self.part_widths(int(encoder[-1].in_features))
        return TextStatistics(measure(self.without_map(encoder), text, widths, batch_size, reporter))

    def refit(
        self,
        encoder: SentenceTransformer,
        statistics: TextStatistics,
        reporter: Reporter,
        chosen: Mapping[str, float],
    ) -> LinearMap:
        """See :meth:`CalibratedMethod.refit`."""
        options, of_text = self.options, statistics.sentences
        warn_if_few(statistics, options.shrinkage, reporter, by_sentences=True, with_prior=False)
        return whitening_map(of_text.moments, options.k, of_text.shrinkage(0, options.shrinkage), options.exponent)

    def _pooled(self, encoder: SentenceTransformer) -> SentenceTransformer:
        if self.options.pooling == KEEP:
            return encoder
        return with_pooling(encoder, self.options.pooling, None if self.options.layer == -1 else self.options.layer)
