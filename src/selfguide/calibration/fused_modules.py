"""Two views of one forward pass, side by side, out of stock sentence-transformers modules.

    Transformer → the encoder's pooling → Dense (a copy) → WeightedLayerPooling → WordWeights → Pooling (cls, mean) → Dense

A ``Pooling`` that is asked for cls and finds ``cls_token_embeddings`` among the features takes them for it. The first
``Dense``, with the identity as its matrix, puts the encoder's sentence vector there, whatever it is pooled from. The modules
after it are then free to replace the tokens by another layer's, weighted by frequency: the second ``Pooling`` joins that vector
and the weighted mean of the layer, both exact. The last ``Dense`` is the calibration
(:mod:`selfguide.calibration.parted_statistics`).

Nothing here depends on what the first token of the other layer looks like, so it holds for every layer and every family.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, WeightedLayerPooling, WordWeights
from torch import nn

from selfguide.calibration.parted_statistics import STATISTICS_FILE, Statistics, TextStatistics
from selfguide.calibration.statistics import LinearMap
from selfguide.errors import SelfguideError
from selfguide.models.encoders import with_pooling


def two_views(encoder: SentenceTransformer, layer: int, words: WordWeights) -> SentenceTransformer:
    """An encoder whose vector is [the encoder's own ; weighted mean of a layer's tokens], not calibrated yet."""
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
    """The views with their calibration as the last module."""
    encoder = CalibratedEncoder(modules=[*views, mapping.dense()], device=str(views.device))
    encoder.statistics = statistics
    encoder.max_seq_length = views.max_seq_length
    encoder.eval()
    return encoder


class CalibratedEncoder(SentenceTransformer):
    """A SentenceTransformer that saves the statistics it was calibrated by beside its modules.

    Its folder is a stock one: sentence-transformers loads it as a plain SentenceTransformer and leaves the file alone.
    """

    statistics: TextStatistics

    def save(self, path: str, *args: Any, **kwargs: Any) -> None:
        super().save(path, *args, **kwargs)
        self.statistics.save(Path(path) / STATISTICS_FILE)


def refuse_unknown_script(statistics: Statistics, weight: float) -> None:
    """Without a single weighted token every frequency-weighted mean is 0."""
    view = statistics.part(1)
    if weight < 1 and not view.mean.any() and not view.scatter.any():
        raise SelfguideError(
            "The encoder's tokenizer knows no word of this text, so there is no frequency-weighted view of it; choose an "
            "encoder of the text's language, or say --weight 1."
        )


def _pooling_of(encoder: SentenceTransformer, width: int) -> list[nn.Module]:
    """What makes the encoder's sentence vector of its tokens; of its modules, those that scale the vector are left out."""
    pooling = [module for module in list(encoder)[1:] if not isinstance(module, Normalize)]
    plain = all(isinstance(module, WeightedLayerPooling | Pooling) for module in pooling)
    if not plain or not pooling or pooling[-1].get_embedding_dimension() != width:
        names = ", ".join(type(module).__name__ for module in encoder)
        raise SelfguideError(
            f"The encoder's vector is made by {names}; fused can join vectors that are pooled from the Transformer's layers, "
            f"of {width} numbers. Choose an encoder without further modules, or a --tune other than none."
        )
    return pooling


def _copy(width: int) -> Dense:
    """Lay the pooled vector where the next Pooling looks for its cls."""
    return Dense(
        width,
        width,
        bias=False,
        activation_function=None,
        init_weight=torch.eye(width),
        module_input_name="sentence_embedding",
        module_output_name="cls_token_embeddings",
    ).requires_grad_(False)
