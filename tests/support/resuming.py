"""A run that is stopped after a checkpoint and resumed must end in the weights of the one that was never stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from selfguide.errors import InterruptedRun
from selfguide.progress import Reporter
from selfguide.runs.run import run
from selfguide.training.configuration import RunConfig
from toys import toy_sentences

SETTINGS = {"batch_size": 8, "learning_rate": 1e-3, "epochs": 2.0, "device": "cpu", "checkpoint_minutes": 0.0}


def assert_resumes_exactly(method: str, loss: type[nn.Module], encoder: Path, folder: Path, **options: Any) -> None:
    """Stopped at the fifth step, by an exception in the loss: heads, optimiser and all that is drawn must come back."""
    text = folder / "text.txt"
    text.write_text("\n".join(toy_sentences(40)), encoding="utf-8")
    config = RunConfig((str(text),), str(encoder), method=method, options=options, training=dict(SETTINGS))
    run(config, folder / "whole", Reporter(quiet=True), report=False)
    calls, forward = [0], loss.forward

    def failing(self: Any, *args: Any, **kwargs: Any) -> Tensor:
        calls[0] += 1
        if calls[0] == 5:
            raise KeyboardInterrupt
        return forward(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss, "forward", failing)
        with pytest.raises(InterruptedRun):
            run(config, folder / "broken", Reporter(quiet=True), report=False)
    assert list((folder / "broken.partial").glob("checkpoint-*/complete.json"))
    run(config, folder / "broken", Reporter(quiet=True), report=False, resume=True)
    one, other = (load_file(folder / name / "model.safetensors") for name in ("whole", "broken"))
    assert all(torch.equal(one[name], other[name]) for name in one)
