"""Centre an encoder on a text: subtract a part of the mean of its embeddings, so that what all sentences share counts less.

Embeddings of one text lie on one side of the sphere: a part of every cosine says only that both sentences come from this text.
With u(s) the embedding of a sentence at length 1, μ the mean of u over the text and α the share that is subtracted,

    v(s) = (u(s) − α μ) / ‖u(s) − α μ‖

The embedding is scaled to length 1 *before* the subtraction, too. Encoders give long sentences short embeddings, because the
mean over many tokens cancels; without the scaling a vector would move long sentences much further than short ones. So no
embedding moves by more than α‖μ‖, which is below 1.

It is saved as the stock modules ``Normalize`` (unless the encoder ends in one), ``Dense`` with the identity as its weight, and
``Normalize``: one small matrix product a sentence, and the embedding dimension stays. Subtracting all of the mean is the first
step of Mu and Viswanath, All-but-the-Top, ICLR 2018.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize

from selfguide.calibration.linear_maps import LinearMap

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import nn

_BY_LENGTH_TOO = ("dot", "euclidean", "manhattan")


def one_sidedness(text: NDArray[np.float32], general: NDArray[np.float32]) -> float:
    """Return how much of the way from general sentences to those of a text is the same for all of the text.

    With m the mean of the general embeddings and x those of the text, it is ‖E[x − m]‖² / E‖x − m‖², without the bias of a small
    sample.

    Args:
        text: Embeddings of the text's sentences (count, dim).
        general: Embeddings of general sentences (count, dim).

    Returns:
        About 0 where the text is spread around general sentences, 1 where all its sentences have one embedding.
    """
    away = text.astype(np.float64) - general.mean(axis=0, dtype=np.float64)
    count, lengths = len(away), float((away**2).sum(axis=1).mean())
    if count < 2 or lengths == 0:
        return 1.0
    common = (count * float((away.mean(axis=0) ** 2).sum()) - lengths) / (count - 1)
    return max(0.0, common / lengths)


def mean_cosine(vectors: NDArray[np.float32]) -> float:
    """Return the mean cosine of two different sentences, which is ‖μ‖² without the bias of a small sample.

    Args:
        vectors: Embeddings of length 1 (count, dim).

    Returns:
        The mean; 1 for fewer than two sentences.
    """
    count = len(vectors)
    if count < 2:
        return 1.0
    return (count * float((vectors.mean(axis=0, dtype=np.float64) ** 2).sum()) - 1) / (count - 1)


def can_be_centred(encoder: SentenceTransformer) -> bool:
    """Return whether a centred encoder is compared as the encoder itself is.

    Args:
        encoder: The encoder.

    Returns:
        False where the lengths of the embeddings count, which centring would make equal.
    """
    return isinstance(encoder[-1], Normalize) or encoder.similarity_fn_name not in _BY_LENGTH_TOO


def centred(encoder: SentenceTransformer, mean: NDArray[np.float64], share: float) -> SentenceTransformer:
    """Return an encoder whose embeddings are centred.

    Args:
        encoder: The encoder; its modules are shared.
        mean: μ, the mean of its embeddings at length 1.
        share: α.

    Returns:
        The encoder with up to three modules more, and with its own prompts, similarity and length.
    """
    shift = LinearMap(np.eye(len(mean)), -share * np.asarray(mean, dtype=np.float64)).dense()
    before: list[nn.Module] = [] if isinstance(encoder[-1], Normalize) else [Normalize()]
    found = SentenceTransformer(
        modules=[*encoder, *before, shift, Normalize()],
        device=str(encoder.device),
        prompts=dict(encoder.prompts),
        default_prompt_name=encoder.default_prompt_name,
        similarity_fn_name=encoder.similarity_fn_name,
    )
    found.max_seq_length = encoder.max_seq_length
    return found.eval()
