"""What a run says it trains with is what the trainer had: optimiser, rates, length, start."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import selfguide
from selfguide.comparison.specs import parse_specs, without_rows
from selfguide.engine.tokens import token_counts
from selfguide.errors import UsageError
from selfguide.methods import registry
from selfguide.runs.resolution import resolve
from selfguide.training import trainer as training
from selfguide.training.callbacks import BestWeights
from selfguide.training.configuration import RunConfig
from selfguide.training.settings import TRAINING_ONLY
from toys import toy_sentences
from translations import write_pairs

SENTENCES = toy_sentences(60)
QUICK: dict[str, Any] = {"quiet": True, "device": "cpu", "batch_size": 4, "report": False}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The trainers of the runs in a test."""
    found: list[Any] = []
    train = training.CheckpointedTrainer.train

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(self)
        return train(self, *args, **kwargs)

    monkeypatch.setattr(training.CheckpointedTrainer, "train", watched)
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


LINEAR, CONSTANT, WARMED = "linear", "constant", "warm-up, then linear"
# Optimiser, its betas or momentum, weight decay, schedule, clipping, patience: as published, see docs/methods/.
PUBLISHED: dict[str, tuple[Any, ...]] = {
    "sg-opt": ("AdamW", [0.9, 0.9], 0.0, WARMED, 1.0, 10),
    "bt": ("AdamW", [0.9, 0.9], 0.0, WARMED, 1.0, 10),
    "simcse": ("AdamW", [0.9, 0.999], 0.0, LINEAR, 1.0, 0),
    "consert": ("AdamW", [0.9, 0.999], 0.01, WARMED, 1.0, 10),
    "mirror": ("AdamW", [0.9, 0.999], 0.01, CONSTANT, 0.0, 0),
    "is-bert": ("AdamW", [0.9, 0.999], 0.01, WARMED, 1.0, 0),
    "tsdae": ("AdamW", [0.9, 0.999], 0.0, CONSTANT, 1.0, 0),
    "ct": ("RMSprop", None, 0.0, CONSTANT, 0.0, 0),
    "bt-cert": ("SGD", 0.9, 1e-5, CONSTANT, 0.0, 0),
}
RATES = {LINEAR: [1e-4, 0.1e-4], CONSTANT: [1e-4, 1e-4], WARMED: [0.0, 1e-4 / 9]}


@pytest.mark.parametrize("method", list(PUBLISHED))
def test_methods_train_as_published(method: str, bert: Path, dev_file: Path, tmp_path: Path, seen: list[Any]) -> None:
    """The optimiser, its constants, the rates, the clipping and the patience that the trainer really had."""
    name, momentum, decay, schedule, clip, patience = PUBLISHED[method]
    settings: dict[str, Any] = {"max_steps": 10, "learning_rate": 1e-4, "dev": str(dev_file), "dev_every": 99}
    if method.startswith("bt"):
        settings |= {"pairs": str(write_pairs(tmp_path / "pairs.tsv")), "head_size": 8}
    if method == "bt-cert":
        settings["epochs"] = 1.0  # the cosine has one value for each epoch
    record = _run(method, bert, tmp_path / "out", **settings)
    groups = _inner(seen[0]).param_groups
    assert type(_inner(seen[0])).__name__ == record["optimiser"]["name"] == name
    assert momentum in (None, groups[0].get("momentum"), list(groups[0].get("betas", ())))
    assert groups[0]["weight_decay"] == decay
    assert seen[0].args.max_grad_norm == record["optimiser"]["gradient_clip"] == clip
    assert [rate for _, rate in record["optimiser"]["rates"]] == pytest.approx(RATES[schedule])
    (best,) = (callback for callback in seen[0].callback_handler.callbacks if isinstance(callback, BestWeights))
    assert best.patience == record["config"]["training"]["patience"] == patience


def test_settings_replace_what_is_published(bert: Path, tmp_path: Path, seen: list[Any]) -> None:
    settings = {"max_steps": 4, "learning_rate": 1e-4, "warmup": 0.5, "schedule": "constant", "gradient_clip": 0.3}
    record = _run("simcse", bert, tmp_path / "out", beta2=0.98, **settings)
    assert _inner(seen[0]).param_groups[0]["betas"] == (0.9, 0.98)
    assert record["optimiser"]["rates"] == [[1, 0.0], [4, 1e-4]]
    assert seen[0].args.max_grad_norm == 0.3


def test_the_rate_of_cert_follows_a_cosine_over_the_epochs(bert: Path, tmp_path: Path, seen: list[Any]) -> None:
    pairs = str(write_pairs(tmp_path / "pairs.tsv"))
    record = _run("bt-cert", bert, tmp_path / "out", pairs=pairs, head_size=8, epochs=4.0, learning_rate=1e-4)
    rates = record["optimiser"]["rates"]
    assert rates[0] == [1, 1e-4]
    assert rates[-1][1] == pytest.approx(1e-4 * 0.5 * (1 + math.cos(math.pi * 3 / 4)))
    assert not np.isclose(rates[-1][1], 0)


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


def test_tokens_are_counted_whatever_the_tokenizer_did_before(bert: Path) -> None:
    tokenizer = selfguide.load_encoder(bert, device="cpu").tokenizer
    sentences = ["dog", *toy_sentences(5), " ".join(["dog"] * 90), ""]
    expected = [len(tokenizer(sentence, truncation=False, verbose=False)["input_ids"]) for sentence in sentences]
    tokenizer(sentences, padding=True, truncation=True, max_length=4)
    assert token_counts(tokenizer, sentences) == expected
    assert max(expected) > 90


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


@pytest.mark.parametrize(
    ("method", "given", "words"),
    [
        (
            "mean",
            {"max_length": 16},
            "max_length would have no effect: the method mean trains nothing. Leave max_length",
        ),
        ("whitening", {"epochs": 2.0, "learning_rate": 1e-3}, "epochs and learning_rate would have no effect"),
        ("flow", {"max_length": 16}, "the method flow does not use it"),
        ("ct", {"warmup": 0.5, "beta2": 0.5}, "warmup and beta2 would have no effect: the method ct does not use them"),
        ("bt-cert", {"warmup": 0.5, "apertium": "eng-spa"}, "the method bt-cert does not use it"),
        ("fused", {"tune": "none", "epochs": 2.0}, "epochs would have no effect"),
    ],
)
def test_settings_without_effect_are_refused(method: str, given: dict[str, Any], words: str, bert: Path) -> None:
    with pytest.raises(UsageError, match=words):
        selfguide.train(bert, SENTENCES, method, quiet=True, device="cpu", **given)


def test_what_encoding_needs_is_taken_by_every_method(bert: Path, tmp_path: Path) -> None:
    record = _run("mean", bert, tmp_path / "out", batch_size=8, seed=3)
    assert registry.make("mean").refused_settings() == TRAINING_ONLY
    # The record of a run states every setting, and can be run again.
    config = RunConfig.from_file(tmp_path / "out" / "run.json")
    assert resolve(config)[0] == config
    assert record["optimiser"] == {}


def test_settings_for_all_rows_of_a_comparison_reach_those_that_use_them() -> None:
    rows = parse_specs("mean,flow,ct,simcse", ["max_length=16", "epochs=3", "warmup=0.2"])
    found = [[row.stages[0].training[name] for name in ("max_length", "epochs", "warmup")] for row in rows]
    assert found == [[0, 1.0, 0.1], [0, 3.0, 0.2], [16, 3.0, 0.0], [16, 3.0, 0.2]]
    with pytest.raises(UsageError, match="mean knows no setting or option 'epochs'"):
        parse_specs("mean:epochs=2,simcse")
    assert without_rows(["epochs=2", "batch_size=8"], parse_specs("mean,whitening", ["epochs=2"])) == ["epochs"]
    assert without_rows(["epochs=2"], rows) == []
