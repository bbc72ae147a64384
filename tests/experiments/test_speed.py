"""The steps that the speed comparison times compute the same thing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from experiments.speed import encoding, training_parts
from experiments.speed.contestants import SelfguideStep
from experiments.speed.plain_loop import PlainSelfGuidance
from selfguide.models.encoders import backbone, load_encoder
from toys import toy_sentences

SENTENCES = [" ".join(toy_sentences(90)[number : number + 1 + number % 4]) for number in range(24)]


def _without_dropout(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0


def _gradients(student: nn.Module, head: nn.Module) -> dict[str, Tensor]:
    named = [*student.named_parameters(), *((f"head.{name}", value) for name, value in head.named_parameters())]
    return {name: parameter.grad for name, parameter in named if parameter.grad is not None}


@pytest.mark.parametrize("kept", [True, False])
def test_selfguides_step_has_the_loss_and_gradients_of_the_plain_loop(bert: Path, tmp_path: Path, kept: bool) -> None:
    """All at once: pre-tokenised text, cached views, packing, [CLS] only, one matrix product, stay-close in the cache."""
    torch.manual_seed(0)
    ours = SelfguideStep(bert, SENTENCES, tmp_path, head_size=16, temperature=0.05)
    student = backbone(ours.loss.model)
    with torch.no_grad():  # away from the guide, so that the stay-close term counts
        for parameter in ours.loss._student_parameters:
            parameter.mul_(1.01)
    plain = PlainSelfGuidance(load_encoder(bert, pooling="cls"), temperature=0.05, head_size=16).train()
    plain.head.load_state_dict(ours.loss.head.state_dict())
    plain.student.load_state_dict(student.state_dict())
    _without_dropout(ours.loss)
    _without_dropout(plain)
    fast = ours.loss([ours.features(SENTENCES, kept)])
    fast.backward()
    slow = plain(SENTENCES)
    slow.backward()
    torch.testing.assert_close(fast.detach(), slow.detach(), rtol=1e-5, atol=1e-5)
    found, expected = _gradients(student, ours.loss.head), _gradients(plain.student, plain.head)
    assert set(expected) - set(found) <= {"pooler.dense.weight", "pooler.dense.bias"}
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-4)


def test_every_variant_of_the_training_step_runs(bert: Path, tmp_path: Path) -> None:
    """The variants replace parts of the package by name."""
    ours = SelfguideStep(bert, SENTENCES, tmp_path, head_size=16)
    for step in training_parts._variants(ours).values():
        step(SENTENCES[:8])


def test_every_step_of_encoding_gives_the_peers_vectors(bert: Path) -> None:
    ways = encoding._step_ways(load_encoder(bert), load_encoder(bert))
    expected = ways.pop(encoding.PEER)(SENTENCES)
    for name, way in ways.items():
        np.testing.assert_allclose(way(SENTENCES), expected, atol=1e-5, err_msg=name)
