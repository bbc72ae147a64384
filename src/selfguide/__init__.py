"""selfguide: raw sentences and a pre-trained Transformer in, a sentence encoder out. No labels, no pairs.

>>> import selfguide
>>> encoder = selfguide.train("mini", "notes.txt", method="sg-opt")   # doctest: +SKIP
>>> selfguide.encode(encoder, ["How do I reset my password?"])        # doctest: +SKIP

The names below are loaded when first used, so that importing the package stays quick.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Official builds of onnxruntime send usage data and keep an identifier of the machine unless this is set before the import.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

if TYPE_CHECKING:
    from selfguide.comparison.compare import compare
    from selfguide.engine.encode import encode
    from selfguide.errors import SelfguideError
    from selfguide.evaluation.evaluate import evaluate
    from selfguide.exporting.export import export
    from selfguide.losses import SelfGuidedLoss
    from selfguide.mapping.text_map import sentence_map
    from selfguide.models.encoders import load, load_encoder
    from selfguide.runs.calibrate import calibrate
    from selfguide.runs.run import adapt, train
    from selfguide.runs.similarity import similarity_percentile
    from selfguide.search.build import add_to_index, build_index, remove_from_index
    from selfguide.search.duplicates import near_duplicates
    from selfguide.search.index import open_index
    from selfguide.serving.server import serve
    from selfguide.studies.run import study

__version__ = "0.1.0"

__all__ = [
    "SelfGuidedLoss",
    "SelfguideError",
    "adapt",
    "add_to_index",
    "build_index",
    "calibrate",
    "compare",
    "encode",
    "evaluate",
    "export",
    "load",
    "load_encoder",
    "near_duplicates",
    "open_index",
    "remove_from_index",
    "sentence_map",
    "serve",
    "similarity_percentile",
    "study",
    "train",
]

_WHERE = {
    "SelfGuidedLoss": "selfguide.losses",
    "SelfguideError": "selfguide.errors",
    "adapt": "selfguide.runs.run",
    "add_to_index": "selfguide.search.build",
    "build_index": "selfguide.search.build",
    "calibrate": "selfguide.runs.calibrate",
    "compare": "selfguide.comparison.compare",
    "encode": "selfguide.engine.encode",
    "evaluate": "selfguide.evaluation.evaluate",
    "export": "selfguide.exporting.export",
    "load": "selfguide.models.encoders",
    "load_encoder": "selfguide.models.encoders",
    "near_duplicates": "selfguide.search.duplicates",
    "open_index": "selfguide.search.index",
    "remove_from_index": "selfguide.search.build",
    "similarity_percentile": "selfguide.runs.similarity",
    "sentence_map": "selfguide.mapping.text_map",
    "serve": "selfguide.serving.server",
    "study": "selfguide.studies.run",
    "train": "selfguide.runs.run",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'selfguide' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
