"""Losses over several processes are those of one process with the whole batch; the checks are in shared_batch_job.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from selfguide.losses import functional

JOB = Path(__file__).parents[1] / "support" / "shared_batch_job.py"
CONTRASTS = (
    "sg",
    "opt1",
    "opt2",
    "sg_opt",
    "nt_xent_pairs",
    "info_nce",
    "contrastive_tension_in_batch",
    "momentum_contrast",
)


@pytest.mark.parametrize("processes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_every_loss_and_its_gradients(bert: Path, processes: int) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(JOB.parent), *sys.path])}
    done = subprocess.run(
        [sys.executable, str(JOB), str(bert), str(processes)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("name", CONTRASTS)
@pytest.mark.parametrize("sizes", [(4,), (1, 3), (2, 0, 2)])
def test_the_shares_add_up(name: str, sizes: tuple[int, ...]) -> None:
    torch.manual_seed(3)
    first = torch.randn(sum(sizes), 6, dtype=torch.float64, requires_grad=True)
    second = torch.randn(sum(sizes), *([3] if name == "sg_opt" else []), 6, dtype=torch.float64, requires_grad=True)
    others = (torch.randn(5, 6, dtype=torch.float64),) if name == "momentum_contrast" else ()
    sharpness = torch.tensor(3.0) if name == "contrastive_tension_in_batch" else 0.2

    def contrast(own: slice | None = None) -> torch.Tensor:
        return getattr(functional, name)(first, second, *others, sharpness, own=own)

    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    total = sum(contrast(slice(start, start + size)) for start, size in zip(starts, sizes, strict=True))
    torch.testing.assert_close(total, contrast())
    whole = torch.autograd.grad(contrast(), [first, second])
    for share, gradient in zip(torch.autograd.grad(total, [first, second]), whole, strict=True):
        torch.testing.assert_close(share, gradient)
