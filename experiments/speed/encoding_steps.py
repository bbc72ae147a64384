"""What each optimisation of encoding on a CPU contributes, one added at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from selfguide.engine.torch_runner import FlatRunner, StockRunner

Way = Callable[[list[str]], Any]


def steps(peer: SentenceTransformer, ours: SentenceTransformer) -> dict[str, Way]:
    """Return ways to encode, each with one optimisation more than the one before."""
    return {
        "SentenceTransformer": lambda lines: peer.encode(lines, show_progress_bar=False),
        "+ batches by tokens": _way(StockRunner(ours), _one_after_the_other),
        "+ no padding": _way(FlatRunner(ours, torch.float32), _one_after_the_other),
        "+ a batch a core": _way(FlatRunner(ours, torch.float32), None),
    }


def _one_after_the_other(work: Callable[[Any], None], items: Iterable[Any], threads: int) -> None:
    """Process batches one by one, each operation split over the cores as PyTorch does by default."""
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
