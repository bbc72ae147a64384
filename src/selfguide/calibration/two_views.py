"""Two views of one forward pass, side by side, out of stock sentence-transformers modules.

    Transformer → the encoder's pooling → Dense (a copy) → WeightedLayerPooling → WordWeights → Pooling (cls, mean) → Dense

A ``Pooling`` in cls mode uses the feature ``cls_token_embeddings`` where there is one. The first ``Dense``, an identity, puts
the encoder's sentence embedding there, however it was pooled. The modules after it can then replace the tokens by another
layer's, weighted by frequency: the second ``Pooling`` concatenates that embedding and the weighted mean of the layer, both
exactly. The last ``Dense`` is the calibration
(:mod:`selfguide.calibration.text_statistics`).

Nothing here depends on the first token of the other layer, so it works for every layer and every architecture.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, WeightedLayerPooling, WordWeights
from torch import nn

from selfguide.calibration.linear_maps import LinearMap
from selfguide.calibration.text_statistics import STATISTICS_FILE, Statistics, TextStatistics
from selfguide.errors import SelfguideError
from selfguide.models.encoders import with_pooling


def two_views(encoder: SentenceTransformer, layer: int, words: WordWeights) -> SentenceTransformer:
    """Build an encoder whose embedding is [the encoder's own ; weighted mean of a layer's tokens], without a calibration.

    Args:
        encoder: The encoder; its Transformer is shared, not copied.
        layer: The layer of the second view.
        words: The weight of each token.

    Returns:
        The encoder of both views.

    Raises:
        SelfguideError: The encoder's embedding is not pooled from the Transformer's layers.
    """
    transformer, picked_layer, _ = with_pooling(encoder, "mean", layer)
    width = int(transformer.get_embedding_dimension())
    modules: list[nn.Module] = [
        transformer,
        *_pooling_of(encoder, width),
        _copy(width),
        picked_layer,
        words.requires_grad_(False),
        Pooling(width, ("cls", "mean")),
    ]
    views = SentenceTransformer(modules=modules, device=str(encoder.device))
    views.max_seq_length = encoder.max_seq_length
    return views.eval()


def calibrated(views: SentenceTransformer, mapping: LinearMap, statistics: TextStatistics) -> CalibratedEncoder:
    """Append a calibration to an encoder of two views.

    Args:
        views: What :func:`two_views` built.
        mapping: The calibration.
        statistics: What it was fitted on; saved with the encoder.

    Returns:
        The calibrated encoder.
    """
    encoder = CalibratedEncoder(modules=[*views, mapping.dense()], device=str(views.device))
    encoder.statistics = statistics
    encoder.max_seq_length = views.max_seq_length
    encoder.eval()
    return encoder


class CalibratedEncoder(SentenceTransformer):
    """A SentenceTransformer that saves the statistics of its calibration beside its modules.

    Its folder is a stock one: sentence-transformers loads it as a plain SentenceTransformer and ignores the file.
    """

    statistics: TextStatistics

    def save(self, path: str, *args: Any, **kwargs: Any) -> None:
        """Save modules and statistics to a folder."""
        super().save(path, *args, **kwargs)
        self.statistics.save(Path(path) / STATISTICS_FILE)


def refuse_unknown_script(statistics: Statistics, weight: float) -> None:
    """Check that some token of the text has a weight: without one every frequency-weighted mean is 0.

    Args:
        statistics: Statistics of both views.
        weight: Share of the first view; 1 leaves the second out.

    Raises:
        SelfguideError: The second view is empty.
    """
    view = statistics.part(1)
    if weight < 1 and not view.mean.any() and not view.scatter.any():
        raise SelfguideError(
            "The encoder's tokenizer knows no word of this text, so there is no frequency-weighted view of it; choose an "
            "encoder of the text's language, or use --weight 1."
        )


def _pooling_of(encoder: SentenceTransformer, width: int) -> list[nn.Module]:
    """Return the modules that pool the encoder's embedding; those that only scale it are left out."""
    pooling = [module for module in list(encoder)[1:] if not isinstance(module, Normalize)]
    plain = all(isinstance(module, WeightedLayerPooling | Pooling) for module in pooling)
    if not plain or not pooling or pooling[-1].get_embedding_dimension() != width:
        names = ", ".join(type(module).__name__ for module in encoder)
        raise SelfguideError(
            f"The encoder's embedding is made by {names}; only one that is pooled from the Transformer's layers, with "
            f"{width} dimensions, can be joined with a second view. Choose an encoder without further modules, or a --tune "
            "other than none."
        )
    return pooling


def _copy(width: int) -> Dense:
    """Copy the sentence embedding to the feature that the next Pooling takes for cls."""
    return Dense(
        width,
        width,
        bias=False,
        activation_function=None,
        init_weight=torch.eye(width),
        module_input_name="sentence_embedding",
        module_output_name="cls_token_embeddings",
    ).requires_grad_(False)
