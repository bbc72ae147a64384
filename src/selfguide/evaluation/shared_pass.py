"""Several poolings of one encoder from one pass over the text.

``selfguide eval mini --pooling cls,mean,max`` would encode every sentence three times, though the hidden states are the same.
Here each sentence goes through the Transformer once, and the vectors of the other poolings wait until they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from selfguide.engine.encode import token_batches
from selfguide.models.encoders import POOLINGS, TWO_LAYERS, backbone, input_names
from selfguide.models.layers import hidden_states, model_inputs, pool
from selfguide.options import OneOf, check

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer
    from torch import Tensor


class SharedPass:
    """Vectors of sentences under several poolings of an encoder's last layers."""

    def __init__(self, model: SentenceTransformer, poolings: Sequence[str], batch_size: int) -> None:
        for pooling in poolings:
            check("pooling", pooling, OneOf(*POOLINGS))
        self._model, self._batch_size = model.eval(), batch_size
        self._waiting: dict[str, dict[str, NDArray[np.float32]]] = {pooling: {} for pooling in poolings}

    def encoder(self, pooling: str) -> Callable[[list[str]], NDArray[np.float32]]:
        """Return an encoding function for one of the poolings; a vector that it has returned is not kept."""
        waiting = self._waiting[pooling]

        def encode(sentences: list[str]) -> NDArray[np.float32]:
            self._run([sentence for sentence in dict.fromkeys(sentences) if sentence not in waiting])
            found = np.stack([waiting[sentence] for sentence in sentences])
            for sentence in set(sentences):
                del waiting[sentence]
            return found

        return encode

    @torch.inference_mode()
    def _run(self, sentences: list[str]) -> None:
        names = input_names(self._model)
        for batch in token_batches(self._model, sentences, self._batch_size) if sentences else ():
            chosen = [sentences[index] for index in batch]
            features = self._model.preprocess(chosen)
            inputs = {name: value.to(self._model.device) for name, value in model_inputs(features, names).items()}
            states = hidden_states(backbone(self._model), inputs)
            for pooling, waiting in self._waiting.items():
                vectors = _pooled(states, inputs["attention_mask"], pooling).float().cpu().numpy()
                waiting.update(zip(chosen, vectors, strict=True))


def _pooled(states: Sequence[Tensor], mask: Tensor, pooling: str) -> Tensor:
    """Pool as :func:`selfguide.models.encoders.with_pooling` does with stock modules."""
    if pooling not in TWO_LAYERS:
        return pool(states[-1], mask, pooling)
    first, second = TWO_LAYERS[pooling]
    return pool((states[first] + states[second]) / 2, mask, "mean")
