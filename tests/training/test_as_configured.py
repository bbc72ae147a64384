"""What a run says it trains with is what the trainer had: optimiser, rates, length, start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import selfguide
from selfguide.comparison.specs import parse_specs
from selfguide.errors import UsageError
from selfguide.methods import registry
from selfguide.training import trainer as training
from toys import toy_sentences

SENTENCES = toy_sentences(60)
QUICK: dict[str, Any] = {"quiet": True, "device": "cpu", "batch_size": 4, "report": False}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The trainers of the runs in a test."""
    found: list[Any] = []
    train = training._Trainer.train

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(self)
        return train(self, *args, **kwargs)

    monkeypatch.setattr(training._Trainer, "train", watched)
    return found


def _inner(trainer: Any) -> torch.optim.Optimizer:
    return getattr(trainer.optimizer, "optimizer", trainer.optimizer)


def _run(method: str, bert: Path, output: Path, **settings: Any) -> dict[str, Any]:
    selfguide.train(bert, SENTENCES, method, output=output, **{**QUICK, **settings})
    return dict(json.loads((output / "run.json").read_text(encoding="utf-8")))


def test_ct_trains_with_rmsprop_over_both_encoders_and_its_falling_rate(
    bert: Path, tmp_path: Path, seen: list[Any]
) -> None:
    record = _run("ct", bert, tmp_path / "out", max_steps=4, rate_step=2, learning_rate=1e-4)
    optimiser = _inner(seen[0])
    assert isinstance(optimiser, torch.optim.RMSprop)
    assert (optimiser.defaults["alpha"], optimiser.defaults["eps"]) == (0.9, 1e-7)
    trained = {id(parameter) for group in optimiser.param_groups for parameter in group["params"]}
    moving = [parameter for parameter in seen[0].loss.parameters() if parameter.requires_grad]
    assert trained == {id(parameter) for parameter in moving}
    assert len(moving) > len([p for p in seen[0].model.parameters() if p.requires_grad])
    told = record["optimiser"]
    assert (told["name"], told["alpha"]) == ("RMSprop", 0.9)
    assert told["parameters"] == sum(parameter.numel() for parameter in moving)
    assert told["rates"] == [[1, 1e-4], [4, pytest.approx(0.8e-4)]]


def test_tsdae_trains_with_a_constant_rate(bert: Path, tmp_path: Path, seen: list[Any]) -> None:
    record = _run("tsdae", bert, tmp_path / "out", max_steps=5, learning_rate=3e-5)
    assert isinstance(_inner(seen[0]), torch.optim.AdamW)
    assert record["optimiser"]["rates"] == [[1, 3e-5], [5, 3e-5]]
    assert record["optimiser"]["betas"] == [0.9, 0.999]


@pytest.mark.parametrize(
    ("method", "beta2"), [("sg-opt", 0.9), ("sg", 0.9), ("simcse", 0.999), ("consert", 0.999), ("mirror", 0.999)]
)
def test_betas_are_each_methods_own(method: str, beta2: float, bert: Path, tmp_path: Path, seen: list[Any]) -> None:
    settings = {"max_steps": 4, "learning_rate": 1e-4, "warmup": 0.5}
    record = _run(method, bert, tmp_path / "out", **settings)
    assert _inner(seen[0]).param_groups[0]["betas"] == (0.9, beta2)
    assert record["optimiser"]["betas"] == [0.9, beta2]
    # Half of the steps warm up, the rate falls afterwards.
    assert record["optimiser"]["rates"] == [[1, 0.0], [4, pytest.approx(0.5e-4)]]
    changed = _run(method, bert, tmp_path / "other", beta2=0.98, **settings)
    assert changed["optimiser"]["betas"] == [0.9, 0.98]


def _limit(folder: Path) -> int:
    return int(SentenceTransformer(str(folder), device="cpu").max_seq_length)


@pytest.mark.parametrize("method", ["simcse", "mirror", "sg-opt", "ct", "fused", "whitening", "mean", "consert"])
def test_the_saved_encoder_keeps_its_own_limit(method: str, bert: Path, tmp_path: Path) -> None:
    own = selfguide.load_encoder(bert, device="cpu").max_seq_length
    settings: dict[str, Any] = {"max_steps": 1} if registry.info(method).trains else {}
    if method == "simcse":
        settings["max_length"] = 4
    record = _run(method, bert, tmp_path / "out", **settings)
    assert _limit(tmp_path / "out") == own == 64
    if registry.info(method).trains:
        assert record["length"]["encoder"] == own
        assert record["length"]["training"] == (4 if method == "simcse" else 9)


def test_the_training_length_follows_the_text(bert: Path, tmp_path: Path, seen: list[Any]) -> None:
    words = " ".join(["dog"] * 30)
    text = [*toy_sentences(199), words]  # one of 200 sentences is long: 99 % are covered without it
    selfguide.train(bert, text, "simcse", output=tmp_path / "a", max_steps=1, **QUICK)
    length = json.loads((tmp_path / "a" / "run.json").read_text(encoding="utf-8"))["length"]
    assert length == {"training": 9, "encoder": 64, "truncated": 0.005}
    text = [*toy_sentences(90), *(f"{words} {sentence}" for sentence in toy_sentences(10))]
    selfguide.train(bert, text, "simcse", output=tmp_path / "b", max_steps=1, **QUICK)
    length = json.loads((tmp_path / "b" / "run.json").read_text(encoding="utf-8"))["length"]
    assert length["training"] > 30
    assert length["truncated"] <= 0.01
    # The longest batch that training saw is as long as it says, and no longer.
    assert all(trainer.model.max_seq_length == 64 for trainer in seen)


def test_truncation_is_told(bert: Path, capfd: pytest.CaptureFixture[str]) -> None:
    selfguide.train(bert, SENTENCES, "simcse", max_steps=1, max_length=4, **{**QUICK, "quiet": False})
    assert (
        "Training sees the first 4 tokens of a sentence: 100.0 % of the sentences are longer" in capfd.readouterr().err
    )
    selfguide.train(bert, SENTENCES, "simcse", max_steps=1, **{**QUICK, "quiet": False})
    assert "Training sees" not in capfd.readouterr().err


def test_with_dev_pairs_a_run_never_ends_below_its_start(bert: Path, dev_file: Path, tmp_path: Path) -> None:
    settings = {"max_steps": 6, "dev_every": 2, "dev": str(dev_file), "learning_rate": 0.05, "warmup": 0.0}
    record = _run("simcse", bert, tmp_path / "out", **settings)
    (step, start), *later = record["dev_curve"]
    assert step == 0
    assert max(score for _, score in later) < start  # so high a rate destroys the encoder
    assert record["checkpoint"].startswith("step 0, best on the dev pairs")
    assert record["scores"]["after"] == start
    untuned = selfguide.load_encoder(bert, pooling="cls", device="cpu").encode(SENTENCES[:5])
    tuned = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(SENTENCES[:5])
    np.testing.assert_allclose(tuned, untuned, atol=1e-6)


@pytest.mark.parametrize("method", ["mean", "whitening", "flow"])
def test_a_training_length_is_refused_where_nothing_is_tuned(method: str, bert: Path) -> None:
    with pytest.raises(UsageError, match=f"The method {method} does not tune the encoder"):
        selfguide.train(bert, SENTENCES, method, quiet=True, device="cpu", max_length=16)


def test_a_training_length_for_all_rows_reaches_those_that_tune() -> None:
    mean, simcse = parse_specs("mean,simcse", ["max_length=16"])
    assert mean.stages[0].training["max_length"] == 0
    assert simcse.stages[0].training["max_length"] == 16
