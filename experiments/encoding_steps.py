"""What each step of encoding on a CPU brings, one added at a time: seconds of a pass, median of alternating rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from unittest.mock import patch

import numpy as np
from sentence_transformers import SentenceTransformer

from selfguide.engine.torch_runner import FlatRunner, StockRunner

Way = Callable[[list[str]], Any]


def steps(peer: SentenceTransformer, ours: SentenceTransformer) -> dict[str, Way]:
    """The ways, each the one before with one thing more."""
    import torch

    return {
        "SentenceTransformer": lambda lines: peer.encode(lines, show_progress_bar=False),
        "+ batches by tokens": _way(StockRunner(ours), one_after_the_other),
        "+ no padding": _way(FlatRunner(ours, torch.float32), one_after_the_other),
        "+ a batch a core": _way(FlatRunner(ours, torch.float32), None),
    }


def one_after_the_other(work: Callable[[Any], None], items: Iterable[Any], threads: int) -> None:
    """Batches in turn, each operation split over the cores, as PyTorch does by itself."""
    for item in items:
        work(item)


def _way(runner: FlatRunner | StockRunner, workers: Callable[..., None] | None) -> Way:
    def run(lines: list[str]) -> np.ndarray[Any, Any]:
        found: Any = runner
        if workers is None:
            return found.start(found.tokenise(lines), None)()
        with patch("selfguide.engine.torch_runner.side_by_side", workers):
            return found.start(found.tokenise(lines), None)()

    return run
