"""Choose between an encoder as it was, what training made of it, and weight averages of the two.

Fine-tuned weights lie close to those that they started from, and so do the averages θ_0 + α (θ_1 − θ_0) between them: each is an
encoder of the same size and speed. They are candidates from α = 0, the encoder as it was, to α = 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

AS_IT_WAS, TRAINED = 0.0, 1.0


@dataclass(frozen=True)
class Choice:
    """Which weights a run kept, and on what evidence."""

    share: float
    """α: how far the kept weights are on the way from the original to the trained ones."""
    by: str
    """What decided."""
    scores: tuple[tuple[str, float], ...]
    """What each candidate is, and its score."""
    sentence: str
    """The choice and its reason, for people."""
    best: float | None = None
    """The dev score of what was kept, where dev pairs decided."""
    centred: float = 0.0
    """Share of the mean of the text's embeddings that was subtracted."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``run.json``."""
        return asdict(self)


class WeightAverages:
    """Averages of two states of one encoder, which are loaded into it one at a time.

    Args:
        encoder: The encoder; it holds the trained weights now.
        original: Its weights before training, from :func:`~selfguide.training.callbacks.saveable_weights`.
    """

    def __init__(self, encoder: SentenceTransformer, original: Mapping[str, Tensor]) -> None:
        self.encoder = encoder
        self._original = original
        self._trained = {name: tensor.detach().clone() for name, tensor in encoder.state_dict().items()}

    @torch.no_grad()
    def load(self, share: float) -> SentenceTransformer:
        """Load an average into the encoder.

        Args:
            share: α; 0 restores the original weights exactly, 1 the trained ones.

        Returns:
            The encoder.
        """
        state = self.encoder.state_dict()
        for name, tensor in state.items():
            before, after = self._original[name].to(tensor.device), self._trained[name]
            if share == AS_IT_WAS or not tensor.is_floating_point():
                tensor.copy_(before if share == AS_IT_WAS else after)
            else:
                tensor.copy_(after if share == TRAINED else torch.lerp(before, after, share))
        return self.encoder.eval()
