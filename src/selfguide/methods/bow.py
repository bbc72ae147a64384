"""Bag of words: every token has a random vector, and a sentence is their frequency-weighted mean. The floor of a comparison.

    r_t ~ N(0, I)                                  drawn once from the seed, never trained
    w(t) = a / (a + p(t))                          rare tokens count for more (SIF's weight)
    v(s) = 1/|s| Σ_{t in s} w(t) r_t

Random vectors of different tokens are nearly orthogonal, so the cosine of two sentences is close to the weighted fraction of
tokens that they share: it counts words and knows nothing of their meaning. A method or an encoder that scores below it has
learned less than word counting gives.

Only the tokenizer of the encoder is used: no layer of it is run, and the finished encoder is a static embedding lookup (a stock
``StaticEmbedding``). Sentences are not truncated.

References: Arora, Liang and Ma, A Simple but Tough-to-Beat Baseline for Sentence Embeddings, ICLR 2017 (the weights); Wieting
and Kiela, No Training Required: Exploring Random Encoders for Sentence Classification, ICLR 2019 (random vectors as a floor).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer

from selfguide.calibration.frequencies import SOURCES, Vocabulary, sif_weights
from selfguide.errors import SelfguideError
from selfguide.methods.base import Method
from selfguide.options import Above, AtLeast, CheckedOptions, OneOf
from selfguide.training.trainer import FitContext, TrainingOutcome

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class BagOfWordsOptions(CheckedOptions):
    """Options of the bag of words."""

    size: Annotated[int, AtLeast(1)] = 256
    """Embedding dimension: the higher, the closer the cosine is to exact word counting."""
    a: Annotated[float, Above(0)] = 1e-3
    """a of the weight a / (a + p): the smaller, the less a frequent token counts."""
    frequencies: Annotated[str, OneOf(*SOURCES)] = "table"
    """Where token frequencies come from: table (general English, in the package), text (yours) or both."""


class BagOfWords(Method):
    """``--method bow``."""

    name = "bow"
    family = "pooling"
    summary = "bag of word pieces with random vectors, weighted by frequency: the floor"
    reference = "Wieting and Kiela, ICLR 2019; Arora, Liang and Ma, ICLR 2017"
    seeded = True
    is_floor = True
    cost = "a static embedding lookup"
    Options = BagOfWordsOptions
    options: BagOfWordsOptions

    def fit(self, encoder: SentenceTransformer, context: FitContext) -> TrainingOutcome:
        """See :meth:`Method.fit`."""
        vocabulary = Vocabulary.of_encoder(encoder)
        weights = sif_weights(
            vocabulary, context.text, self.options.frequencies, self.options.a, reporter=context.reporter
        )
        vectors = random_vectors(len(weights), self.options.size, context.settings.seed)
        rows = torch.tensor(weights, dtype=torch.float32).unsqueeze(1) * vectors
        table = StaticEmbedding(_own_tokenizer(encoder), embedding_weights=rows)
        return TrainingOutcome(SentenceTransformer(modules=[table], device=str(encoder.device)).eval())


def random_vectors(count: int, size: int, seed: int) -> Tensor:
    """Draw standard normal vectors (count, size), on the CPU so that a seed means the same on every device.

    Args:
        count: How many.
        size: Dimensions of each.
        seed: Random seed.

    Returns:
        The vectors.
    """
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed))


def _own_tokenizer(encoder: SentenceTransformer) -> Tokenizer:
    """Copy the encoder's tokenizer, without padding and truncation."""
    given: Any = encoder.tokenizer
    backend = getattr(given, "backend_tokenizer", given)
    if not isinstance(backend, Tokenizer):
        raise SelfguideError(
            f"The encoder's tokenizer, {type(given).__name__}, is not of the tokenizers library, which a static embedding "
            "needs; choose an encoder whose folder holds a tokenizer.json."
        )
    copied = Tokenizer.from_str(backend.to_str())
    copied.no_padding()
    copied.no_truncation()
    return copied
