"""Every hook of a library that the training code overrides is really called in a run: a renamed hook is silently dead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers import SentenceTransformerTrainingArguments

import hooks_job
import selfguide
from toys import toy_sentences


def test_every_overridden_hook_is_called(
    bert: Path, dev_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = hooks_job.overridden()
    assert {name for _, name in hooks} >= {"create_optimizer", "create_scheduler", "compute_loss", "on_step_end"}
    called = hooks_job.watched(hooks, monkeypatch.setattr)
    hooks_job.train(bert, dev_file, tmp_path, monkeypatch.setattr)
    # The first of two processes, which share nothing here: the loss needs no other one.
    monkeypatch.setattr(SentenceTransformerTrainingArguments, "world_size", property(lambda self: 2))
    settings: dict[str, Any] = {"epochs": 2.0, "batch_size": 4, "device": "cpu", "quiet": True}
    selfguide.train(bert, toy_sentences(12), "simcse", **settings)
    assert hooks_job.missing(hooks, called) == set()


@pytest.mark.slow
def test_every_process_of_two_calls_them(bert: Path, dev_file: Path, tmp_path: Path) -> None:
    job = Path(hooks_job.__file__)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(job.parent), *sys.path])}
    done = subprocess.run(
        [sys.executable, str(job), str(bert), str(dev_file), str(tmp_path), "2"],
        capture_output=True,
        text=True,
        timeout=240,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-4000:]
