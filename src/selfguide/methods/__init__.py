"""Methods: ways to make a sentence encoder from an encoder and unlabelled text, one recipe a file.

Three families: *pooling* (nothing is trained), *calibration* (a map is fitted on embeddings of the text) and *tuning* (the
encoder is fine-tuned). What a method is, its metadata, options and :meth:`~selfguide.methods.base.Method.fit`, is described
in :mod:`selfguide.methods.base`; which ones there are, in :mod:`selfguide.methods.registry`.

The names below are loaded when first used, so that listing methods needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selfguide.methods.base import CalibratedMethod, Method, TuningMethod, from_loss

__all__ = ["CalibratedMethod", "Method", "TuningMethod", "from_loss"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'selfguide.methods' has no attribute {name!r}")
    from selfguide.methods import base

    return getattr(base, name)
