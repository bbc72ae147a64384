"""Two runs of one configuration write the same bytes."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch

import selfguide
from toys import toy_sentences


@pytest.mark.parametrize(
    ("method", "options"),
    [("sg-opt", {"max_steps": 2, "batch_size": 4, "head_size": 16}), ("whitening", {})],
)
def test_two_runs_write_byte_equal_weights(tmp_path: Path, method: str, options: dict[str, int]) -> None:
    """``mini`` has no pooler, so its weights are drawn when it is loaded; no state left behind by others may show in them."""
    written = []
    for seed in (11, 12):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        folder = tmp_path / str(seed)
        selfguide.train(
            "mini", toy_sentences(40), method=method, output=folder, device="cpu", quiet=True, report=False, **options
        )
        files = sorted(folder.rglob("*.safetensors"))
        written.append({str(file.relative_to(folder)): file.read_bytes() for file in files})
    assert "model.safetensors" in written[0]
    assert written[0].keys() == written[1].keys()
    assert [name for name in written[0] if written[0][name] != written[1][name]] == []
