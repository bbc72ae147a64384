"""What only runs on a GPU: CUDA graphs and variable-length attention. Skipped where there is no GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from selfguide.engine.encode import cosine, encode
from selfguide.engine.tokens import TokenCollator, TokenisedText
from selfguide.losses.base import Preparation
from selfguide.losses.self_guided import SelfGuidedLoss
from selfguide.models.encoders import load_encoder
from selfguide.progress import Reporter
from selfguide.training.settings import TrainingSettings
from toys import toy_sentences

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class _Step:
    """A prepared loss with cached views, and batches as the trainer makes them."""

    def __init__(self, folder: Path, text: list[str], work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SELFGUIDE_CACHE", str(work))
        encoder = load_encoder(folder, pooling="cls", device="cuda")
        self.loss = SelfGuidedLoss(encoder, keep_views="yes").to("cuda").train()
        self.notes: list[str] = []
        reporter = Reporter(quiet=True)
        reporter.note = self.notes.append  # type: ignore[method-assign]
        tokens = TokenisedText(encoder, text)
        self.loss.prepare(Preparation(TrainingSettings(), work, reporter, tokens))
        self.kept = self.loss._kept
        self.collate = TokenCollator(tokens, self.loss.on_host)


def test_a_recorded_step_has_the_plain_steps_loss_and_gradients(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = toy_sentences(64)
    ours = _without_dropout(_Step(bert, text, tmp_path, monkeypatch))
    graphs = ours.loss._graphs
    assert graphs is not None
    for kept in (False, True):
        for _ in range(4):
            recorded = _step(ours, text[:16], kept)
        ours.loss._graphs = None
        plain = _step(ours, text[:16], kept)
        ours.loss._graphs = graphs
        assert recorded[0] == pytest.approx(plain[0], abs=1e-5)
        assert recorded[1].keys() == plain[1].keys()
        for name, gradient in plain[1].items():
            torch.testing.assert_close(recorded[1][name], gradient, atol=1e-4, rtol=1e-3, msg=name)
    assert not graphs.given_up, ours.notes
    assert len(graphs) == 2  # with and without kept views


def test_a_recorded_step_reads_its_own_batch(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay must not reuse the sentences that were recorded."""
    text = toy_sentences(64)
    ours = _without_dropout(_Step(bert, text, tmp_path, monkeypatch))
    for _ in range(4):
        _step(ours, text[:16], False)
    graphs, other = ours.loss._graphs, _step(ours, text[16:32], False)
    assert graphs is not None
    assert len(graphs) >= 1
    ours.loss._graphs = None
    assert other[0] == pytest.approx(_step(ours, text[16:32], False)[0], abs=1e-5)


def test_shapes_take_turns_without_reading_each_others_memory(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recordings share their workspace and their gradients."""
    text = [*toy_sentences(32), *(" and ".join(toy_sentences(64)[at : at + 6]) for at in range(0, 48, 3))]
    ours = _without_dropout(_Step(bert, text, tmp_path, monkeypatch))
    graphs, batches = ours.loss._graphs, (text[:16], text[-16:], text[:8])
    assert graphs is not None
    for _ in range(4):
        recorded = [_step(ours, batch, False) for batch in batches]
    assert len(graphs) == len(batches)
    ours.loss._graphs = None
    for batch, (loss, gradients) in zip(batches, recorded, strict=True):
        plain = _step(ours, batch, False)
        assert loss == pytest.approx(plain[0], abs=1e-5)
        for name, gradient in plain[1].items():
            torch.testing.assert_close(gradients[name], gradient, atol=1e-4, rtol=1e-3, msg=name)


def test_a_scaled_loss_has_scaled_gradients(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = toy_sentences(32)
    ours = _without_dropout(_Step(bert, text, tmp_path, monkeypatch))
    for _ in range(4):
        plain = _step(ours, text[:16], False)
    scaled = _step(ours, text[:16], False, weight=8.0)
    for name, gradient in plain[1].items():
        torch.testing.assert_close(scaled[1][name], 8 * gradient, atol=1e-4, rtol=1e-3, msg=name)


def test_dropout_differs_from_replay_to_replay(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = toy_sentences(32)
    ours = _Step(bert, text, tmp_path, monkeypatch)
    losses = {round(_step(ours, text[:16], False)[0], 6) for _ in range(8)}
    assert len(losses) == 8


def test_bf16_encoding_follows_fp32(bert: Path) -> None:
    encoder = load_encoder(bert, device="cuda")
    text = [" and ".join(toy_sentences(64)[:count]) for count in range(1, 30)]
    half, single = (np.asarray(encode(encoder, text, backend=name, show_progress=False)) for name in ("bf16", "torch"))
    assert cosine(half, single).min() > 0.999


def _without_dropout(ours: _Step) -> _Step:
    for module in ours.loss.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return ours


def _step(ours: _Step, batch: list[str], kept: bool, weight: float = 1.0) -> tuple[float, dict[str, Any]]:
    """Return the loss and the gradients; the weights stay as they are."""
    ours.loss._kept = ours.kept if kept else None
    made = ours.collate([{"s": sentence} for sentence in batch])
    features = {
        name.removeprefix("s_"): value.pin_memory().to("cuda", non_blocking=True) if hasattr(value, "to") else value
        for name, value in made.items()
    }
    loss = ours.loss([features])
    (weight * loss).backward()
    found = {name: weight.grad.clone() for name, weight in ours.loss.named_parameters() if weight.grad is not None}
    ours.loss.zero_grad(set_to_none=True)
    return loss.item(), found
