"""Change the dropout rate of an encoder for training: some losses switch dropout off, others need it.

Only the modules in memory change. The configuration keeps the encoder's own rates, so a saved encoder has the dropout it was
loaded with. The encoder in memory keeps the new rates, which matters only if it is trained again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from selfguide.models.encoders import backbone
from selfguide.options import Between, check

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

KEEP_DROPOUT = -1.0
"""Value of a dropout option that keeps the encoder's own rates."""
DROPOUT_RATE = Between(0, 1, open_high=True, or_else=KEEP_DROPOUT, or_else_means="keep the encoder's own")
"""Rule of a dropout option."""


def set_dropout(encoder: SentenceTransformer, rate: float) -> None:
    """Set every dropout of the Transformer to one rate.

    A family that builds no dropout module where its configured rate is 0 (ModernBERT) gets none there.

    Args:
        encoder: The encoder to change in place.
        rate: The new rate, or :data:`KEEP_DROPOUT` to change nothing.

    Raises:
        UsageError: The rate is neither from 0 up to 1 nor :data:`KEEP_DROPOUT`.
    """
    check("dropout", rate, DROPOUT_RATE)
    if rate == KEEP_DROPOUT:
        return
    for module, name in _rate_attributes(backbone(encoder)):
        setattr(module, name, float(rate))


def highest_dropout(encoder: SentenceTransformer) -> float:
    """Return the highest dropout rate of the Transformer; at 0, two passes in training mode are equal."""
    return max((float(getattr(module, name)) for module, name in _rate_attributes(backbone(encoder))), default=0.0)


def _rate_attributes(model: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """Yield the attributes that hold a rate: of dropout modules, and of attention modules that call functional dropout."""
    for module in model.modules():
        if isinstance(module, _DropoutNd):
            yield module, "p"
            continue
        for name, value in vars(module).items():
            if "dropout" in name and isinstance(value, float):
                yield module, name
