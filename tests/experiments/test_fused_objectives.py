"""The objectives that the ablation of fused tries, against loops that follow their formulas; and jobs taken in turn."""

from __future__ import annotations

import math
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from experiments import side_by_side
from experiments.fused_objectives import IDEAS, ObjectiveLoss, tuning_by
from selfguide.methods.simcse import SimCSE
from selfguide.models.encoders import backbone, load_encoder
from selfguide.models.layers import hidden_states
from toys import toy_sentences

SENTENCES = toy_sentences(6)
TAU = 0.2


def _cosine(one: NDArray[np.float64], two: NDArray[np.float64]) -> float:
    return float(one @ two / (np.linalg.norm(one) * np.linalg.norm(two)))


@pytest.mark.parametrize(
    ("idea", "amount"),
    [("hard", 3.0), ("hard", -3.0), ("differ", 0.7), ("guided", 0.4), ("two-parts", 0.4)],
)
def test_the_loss_is_the_loop(bert: Path, idea: str, amount: float) -> None:
    student, view = load_encoder(bert, pooling="cls", device="cpu"), load_encoder(bert, pooling="mean", device="cpu")
    loss = ObjectiveLoss(student, idea, amount, view.eval(), temperature=TAU, head=False, dropout=0.1)
    features = student.preprocess(SENTENCES)
    draw = np.random.default_rng(2)
    count, width = len(SENTENCES), 32
    first, second = (draw.normal(size=(count, width)) for _ in range(2))
    tokens = draw.normal(size=(count, features["input_ids"].shape[1], width))
    given = [torch.tensor(array, dtype=torch.float32) for array in (first, second, tokens)]
    found = float(loss._whole(given[0], given[1], given[2], dict(features)))

    alike = view.encode(SENTENCES).astype(np.float64)
    expected = 0.0
    for i in range(count):
        logits = [_cosine(first[i], second[j]) / TAU for j in range(count)]
        if idea == "hard":
            logits = [logit + (amount * _cosine(alike[i], alike[j]) if j != i else 0) for j, logit in enumerate(logits)]
        expected -= logits[i] - math.log(sum(math.exp(logit) for logit in logits))
    expected /= count
    if idea == "differ":
        pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
        both = [[_cosine(array[i], array[j]) for i, j in pairs] for array in (first, alike)]
        expected += amount * float(np.asarray(np.corrcoef(both))[0, 1]) ** 2
    if idea in ("guided", "two-parts"):
        mask = features["attention_mask"].numpy().astype(bool)
        means = np.array([row[real].mean(axis=0) for row, real in zip(tokens, mask, strict=True)])
        expected += amount * _sg_opt(bert, first if idea == "guided" else means)
    assert found == pytest.approx(expected, rel=1e-4)


def _sg_opt(bert: Path, vectors: NDArray[np.float64]) -> float:
    """By every layer's views of each sentence, one sentence at a time, without a head."""
    guide = load_encoder(bert, device="cpu")
    views = []
    for sentence in SENTENCES:
        features = guide.preprocess([sentence])
        with torch.no_grad():
            states = hidden_states(
                backbone(guide).eval(), {name: features[name] for name in ("input_ids", "attention_mask")}
            )
        views.append([state[0].max(dim=0).values.double().numpy() for state in states])
    total = 0.0
    for i, vector in enumerate(vectors):
        others = [_cosine(vector, view) / 0.01 for m, many in enumerate(views) if m != i for view in many]
        for view in views[i]:
            logits = np.array([_cosine(vector, view) / 0.01, *others])
            total -= logits[0] - (logits.max() + math.log(np.exp(logits - logits.max()).sum()))
    return total / (len(vectors) * len(views[0]))


def test_a_gradient_reaches_the_student_and_nothing_else(bert: Path) -> None:
    for idea in ("hard", "differ", "guided", "two-parts"):
        student, view = load_encoder(bert, pooling="cls", device="cpu"), load_encoder(bert, device="cpu")
        loss = ObjectiveLoss(student, idea, 0.5, view, temperature=TAU, head=False, dropout=0.1).train()
        loss([student.preprocess(SENTENCES)]).backward()
        assert any(parameter.grad is not None for parameter in student.parameters())
        assert all(parameter.grad is None for parameter in view.parameters())
        assert {name.partition(".")[0] for name, _ in loss.named_parameters()} == {"model"}


def test_only_an_idea_changes_how_simcse_tunes() -> None:
    usual = SimCSE.loss
    with tuning_by("simcse-0.05", SENTENCES):
        assert SimCSE.loss is usual
    assert "simcse-0.05" not in IDEAS


def test_jobs_are_taken_in_turn_and_none_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done: list[str] = []

    def job(name: str) -> str:
        if name == "bad":
            raise ValueError("no such thing")
        done.append(name)
        (tmp_path / f"{name}.json").write_text("{}")
        return name

    jobs = {tmp_path / f"{name}.json": lambda name=name: job(name) for name in ("old", "claimed", "bad", "new", "late")}
    (tmp_path / "old.json").write_text("{}")
    (tmp_path / "claimed.claimed").touch()
    side_by_side.take_turns(jobs, time.time())
    assert done == ["new", "late"]
    (tmp_path / "late.json").unlink()
    (tmp_path / "late.claimed").unlink()
    side_by_side.take_turns(jobs, time.time() - 61, minutes=1)
    assert done == ["new", "late"]
    lacking = side_by_side.lacking(jobs)
    assert lacking == {
        "claimed": "there was no time for it",
        "bad": "ValueError: no such thing",
        "late": "there was no time for it",
    }
    assert "FAILED bad" in capsys.readouterr().out
