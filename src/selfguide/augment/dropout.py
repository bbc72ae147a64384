"""Dropout as a setting of training: some methods switch it off, others live on it.

The rates are changed in the modules that are in memory and nowhere else. The configuration keeps the encoder's own values,
so what is saved after training has the dropout that the encoder came with, whatever it was tuned with. The encoder in
memory goes on with the new rates, which matters only if it is trained again: evaluation has no dropout.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from selfguide.errors import UsageError
from selfguide.models.encoders import backbone

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

OWN = -1.0
"""As an option's value: leave the encoder's dropout as it is."""


def check_dropout(rate: float) -> None:
    """Refuse what is not a rate in words."""
    if rate != OWN and not 0 <= rate < 1:
        raise UsageError(f"dropout must be from 0 up to 1, or -1 to keep the encoder's own, got {rate}.")


def set_dropout(encoder: SentenceTransformer, rate: float) -> None:
    """Give every dropout of the Transformer this rate; :data:`OWN` (−1) leaves all as they are.

    A place where the architecture has put no dropout at all (ModernBERT leaves one out whose rate is 0) gets none.
    """
    check_dropout(rate)
    if rate == OWN:
        return
    for module, name in _places(backbone(encoder)):
        setattr(module, name, float(rate))


def highest_dropout(encoder: SentenceTransformer) -> float:
    """The highest rate anywhere in the Transformer: 0 means that two passes in training mode are equal."""
    return max((float(getattr(module, name)) for module, name in _places(backbone(encoder))), default=0.0)


def _places(model: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """Where rates are kept: in dropout modules, and in numbers that attention hands to functional dropout."""
    for module in model.modules():
        if isinstance(module, _DropoutNd):
            yield module, "p"
            continue
        for name, value in vars(module).items():
            if "dropout" in name and isinstance(value, float):
                yield module, name
