"""Training runs: reproducible, resumable after a kill, with the checkpoint that the dev pairs select."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

import selfguide
from forked import Forked
from selfguide.data import Sentences, TextOptions
from selfguide.data.pairs import read_pairs
from selfguide.errors import SelfguideError, UsageError
from selfguide.models.encoders import load_encoder, with_pooling
from selfguide.progress import Reporter
from selfguide.runs.run import _evaluator, _keep_curves, run
from selfguide.training.checkpoints import checkpoint_to_resume, complete_checkpoints, write_complete
from selfguide.training.configuration import RunConfig
from selfguide.training.monitors import effective_rank, has_collapsed, mean_cosine
from selfguide.training.settings import TrainingSettings
from selfguide.training.trainer import FitContext, fine_tune
from toys import Outcome, toy_sentences

QUICK: dict[str, Any] = {"head_size": 16, "batch_size": 8, "learning_rate": 1e-3, "device": "cpu", "report": False}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFGUIDE_CACHE", str(tmp_path_factory.mktemp("cache")))


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def _same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_the_saved_folder_is_a_stock_one_equal_to_the_encoder_in_memory(
    bert: Path, text_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    encoder = selfguide.train(bert, text_file, output=out, quiet=True, **QUICK)
    stock = SentenceTransformer(str(out))
    sentences = toy_sentences(9)
    np.testing.assert_allclose(stock.encode(sentences), encoder.encode(sentences), atol=1e-6)
    start = load_encoder(bert, pooling="cls")
    assert not np.allclose(stock.encode(sentences), start.encode(sentences), atol=1e-3)
    files = {path.name for path in out.rglob("*") if path.is_file()}
    assert not any(name.endswith((".bin", ".pt", ".pth", ".pkl")) for name in files)
    # Head and guide are not saved: the tensors are the encoder's own, and its embedding layer is unchanged.
    before, after = _weights(bert), _weights(out)
    assert {name: tensor.shape for name, tensor in after.items()} == {
        name: tensor.shape for name, tensor in before.items()
    }
    assert all(torch.equal(after[name], before[name]) for name in before if name.startswith("embeddings."))
    assert any(not torch.equal(after[name], before[name]) for name in before)
    record = json.loads((out / "run.json").read_text())
    assert record["config"]["training"]["seed"] == 1
    assert record["text"]["kept"] == 120
    assert len(record["text"]["fingerprint"]) == 64
    assert record["steps"] == 15
    assert "no dev pairs" in record["checkpoint"]
    assert "torch" in record["versions"]
    assert not list(tmp_path.glob("*.partial"))


def test_a_seed_repeats_a_run_to_the_bit_and_another_does_not(bert: Path, tmp_path: Path) -> None:
    text = toy_sentences(64)
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        selfguide.train(bert, text, "sg", output=tmp_path / name, seed=seed, quiet=True, **QUICK)
    assert _same(_weights(tmp_path / "a"), _weights(tmp_path / "b"))
    assert not _same(_weights(tmp_path / "a"), _weights(tmp_path / "c"))


def test_the_encoder_given_in_python_stays_as_it_was(bert: Path) -> None:
    encoder = load_encoder(bert, pooling="mean")
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    tuned = selfguide.train(encoder, toy_sentences(32), quiet=True, **QUICK)
    assert _same(before, dict(encoder.state_dict()))
    assert not np.allclose(tuned.encode(["my sister"]), encoder.encode(["my sister"]))


def test_dev_pairs_choose_the_checkpoint(bert: Path, text_file: Path, dev_file: Path, tmp_path: Path) -> None:
    config = RunConfig((str(text_file),), str(bert), options={"head_size": 16}, dev=str(dev_file))
    settings = {"batch_size": 8, "learning_rate": 3e-3, "dev_every": 3, "patience": 0, "epochs": 2, "device": "cpu"}
    config = RunConfig(**{**config.__dict__, "training": settings})
    _, record = run(config, tmp_path / "out", Reporter(quiet=True))
    scores = dict(record.dev_curve)
    assert list(scores) == [0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30]
    assert record.scores["after"] == max(scores.values())
    best = max(scores, key=lambda step: scores[step])
    assert record.checkpoint == f"step {best}, best on the dev pairs"
    assert {"before (cls)", "before (mean)"} <= set(record.scores)
    # The weights are those of that step: the dev score of the saved folder is the best one.
    again = _evaluator(read_pairs(dev_file), TrainingSettings(**record.config.training))
    score = again(SentenceTransformer(str(tmp_path / "out")))["dev_spearman_cosine"]
    assert score == pytest.approx(scores[best], abs=1e-9)
    assert "best on the dev pairs" in (tmp_path / "out" / "README.md").read_text()


def test_training_stops_early(bert: Path, text_file: Path, dev_file: Path) -> None:
    settings = {"batch_size": 8, "learning_rate": 1e-9, "dev_every": 2, "patience": 2, "epochs": 2.0, "device": "cpu"}
    config = RunConfig((str(text_file),), str(bert), options={"head_size": 16}, training=settings, dev=str(dev_file))
    _, record = run(config, None, Reporter(quiet=True))
    assert record.steps < 30
    assert "stopped early" in record.checkpoint


def test_gradient_accumulation_and_max_steps(bert: Path, text_file: Path) -> None:
    config = RunConfig((str(text_file),), str(bert), options={"head_size": 16})
    settings = {"batch_size": 4, "gradient_accumulation": 3, "max_steps": 7, "device": "cpu"}
    _, record = run(RunConfig(**{**config.__dict__, "training": settings}), None, Reporter(quiet=True))
    assert record.steps == 7


def _kill_after(process: Forked, work: Path, step: int) -> None:
    """Send SIGKILL once there is a complete checkpoint of at least this step."""
    deadline = time.monotonic() + 300  # generous, for a busy machine
    while time.monotonic() < deadline:
        steps = [int(path.parent.name.rpartition("-")[2]) for path in work.glob("checkpoint-*/complete.json")]
        if steps and max(steps) >= step:
            process.kill()
            return
        assert process.poll() is None, process.wait().err
        time.sleep(0.005)
    raise AssertionError("no checkpoint in time")


def test_a_run_killed_twice_and_resumed_ends_in_the_same_weights(
    command: Callable[..., Outcome], bert: Path, text_file: Path, dev_file: Path, tmp_path: Path
) -> None:
    """With `sg`, which has random views, dropout, dev evaluations and a projection head: all of it must be restored."""
    words = [str(text_file), "--encoder", str(bert), "--method", "sg", "--head-size", "16", "--batch-size", "4"]
    words += ["--learning-rate", "1e-3", "--device", "cpu", "--dev", str(dev_file), "--dev-every", "7", "--epochs", "2"]
    whole = selfguide.train(
        bert, text_file, "sg", output=tmp_path / "whole", dev=dev_file, quiet=True, head_size=16, batch_size=4,
        learning_rate=1e-3, device="cpu", dev_every=7, epochs=2.0, checkpoint_minutes=0.0, report=False,
    )  # fmt: skip
    out = tmp_path / "killed"
    first = Forked("train", *words, "--checkpoint-minutes", "0", "--no-report", "--output", out)
    _kill_after(first, tmp_path / "killed.partial", 5)
    assert not out.exists()
    _kill_after(Forked("train", "--resume", "--output", out), tmp_path / "killed.partial", 30)
    assert not out.exists()
    assert command("train", "--output", out, "--resume").code == 0
    assert _same(_weights(out), _weights(tmp_path / "whole"))
    one, other = (json.loads((folder / "run.json").read_text()) for folder in (out, tmp_path / "whole"))
    assert one["dev_curve"] == other["dev_curve"]
    assert one["checkpoint"] == other["checkpoint"]
    assert one["optimiser"]["rates"] == other["optimiser"]["rates"]  # of the first step too
    np.testing.assert_allclose(
        whole.encode(["my sister"]), SentenceTransformer(str(out)).encode(["my sister"]), atol=1e-6
    )


def test_a_half_written_checkpoint_does_not_count(bert: Path, tmp_path: Path) -> None:
    for step, complete in ((5, True), (20, True), (100, False)):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        if complete:
            (folder / "complete.json").write_text("{}")
    assert [folder.name for folder in complete_checkpoints(tmp_path)] == ["checkpoint-20", "checkpoint-5"]
    assert checkpoint_to_resume(tmp_path, Reporter(quiet=True)) == tmp_path / "checkpoint-20"


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth", "loss.safetensors", "complete.json"])
def test_a_damaged_checkpoint_is_never_used_silently(tmp_path: Path, name: str) -> None:
    for step in (5, 20):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        for file in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "loss.safetensors"):
            (folder / file).write_bytes(b"content of " + file.encode())
        write_complete(folder, {"step": step})
    broken = tmp_path / "checkpoint-20" / name
    content = bytearray(broken.read_bytes())
    content[len(content) // 2] ^= 1
    broken.write_bytes(bytes(content))
    reporter = Reporter(quiet=True)
    assert checkpoint_to_resume(tmp_path, reporter) == tmp_path / "checkpoint-5"
    (warning,) = reporter.warnings
    assert str(broken) in warning or name == "complete.json"
    (tmp_path / "checkpoint-5" / "rng_state.pth").unlink()
    with pytest.raises(SelfguideError, match=r"checkpoint-20.*--overwrite"):
        checkpoint_to_resume(tmp_path, reporter)


def _torchrun(*words: str) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=180, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-3000:]


def _without_dropout(encoder: Path, folder: Path) -> Path:
    """Copy an encoder; dropout would differ between one process and two."""
    shutil.copytree(encoder, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_two_processes_train_as_one_with_the_whole_batch(bert: Path, text_file: Path, tmp_path: Path) -> None:
    start, out = _without_dropout(bert, tmp_path / "start"), tmp_path / "out"
    words = [
        "-m",
        "selfguide",
        "train",
        str(text_file),
        "--encoder",
        str(start),
        "--head-size",
        "16",
        "--learning-rate",
        "1e-3",
    ]
    _torchrun(*words, "--batch-size", "8", "--limit", "101", "--device", "cpu", "--no-report", "--output", str(out))
    assert json.loads((out / "run.json").read_text())["steps"] == 7  # the last of 5 sentences: 3 and 2
    sentences = toy_sentences(20)
    found = SentenceTransformer(str(out)).encode(sentences)
    settings = {**QUICK, "batch_size": 16}
    alone = selfguide.train(start, text_file, text_options=TextOptions(limit=101), quiet=True, **settings)
    np.testing.assert_allclose(found, alone.encode(sentences), atol=1e-4)
    assert np.abs(found - load_encoder(start, pooling="cls").encode(sentences)).max() > 0.1


def test_a_loss_that_is_not_finite_stops_the_run(bert: Path, text_file: Path, tmp_path: Path) -> None:
    with pytest.raises(SelfguideError, match=r"not finite.*learning rate"):
        selfguide.train(bert, text_file, output=tmp_path / "out", quiet=True, **{**QUICK, "learning_rate": 1e30})
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.partial").exists()


def test_collapse_is_detected() -> None:
    torch.manual_seed(0)
    spread, point = torch.randn(128, 32), torch.ones(128, 32) + 1e-3 * torch.randn(128, 32)
    assert mean_cosine(spread) == pytest.approx(float(torch.nn.functional.cosine_similarity(
        spread.unsqueeze(0), spread.unsqueeze(1), dim=-1).fill_diagonal_(0).sum() / (128 * 127)), abs=1e-6)  # fmt: skip
    assert effective_rank(spread) > 25
    assert effective_rank(torch.randn(128, 1) @ torch.randn(1, 32)) == pytest.approx(1.0, abs=1e-3)
    healthy, collapsed = (mean_cosine(spread), effective_rank(spread)), (mean_cosine(point), effective_rank(point))
    assert not has_collapsed(healthy, healthy)
    assert has_collapsed(healthy, collapsed)
    assert not has_collapsed(collapsed, healthy)


def test_a_collapsing_run_warns_and_its_card_says_so(
    bert: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A loss that pulls every embedding to one point."""
    from datasets import Dataset

    class Collapse(torch.nn.Module):
        def __init__(self, model: SentenceTransformer) -> None:
            super().__init__()
            self.model = model

        def forward(self, features: Any, labels: Any = None) -> torch.Tensor:
            return ((self.model(next(iter(features)))["sentence_embedding"] - 1.0) ** 2).mean()

    reporter = Reporter(quiet=True)
    settings = TrainingSettings(batch_size=8, learning_rate=1e-2, epochs=8, device="cpu", max_length=32)
    context = FitContext(Dataset.from_dict({"sentence": toy_sentences(120)}), settings, tmp_path, reporter)
    fine_tune(with_pooling(load_encoder(bert), "cls"), Collapse, context)
    assert len(reporter.warnings) == 1
    assert "collapsing" in reporter.warnings[0]


def test_pointless_texts_are_warned_about(bert: Path) -> None:
    cases = {
        "1 step at a learning rate of 5e-05 hardly change": toy_sentences(30),
        "fewer than three tokens": ["the", "old", "man"] * 3,
        "hardly knows the language": ["Привет мир как дела", "Добрый день всем тут", "Ещё одна строка вот"],
    }
    for words, text in cases.items():
        config = RunConfig(("memory",), str(bert), options={"head_size": 8}, training={"max_steps": 1, "device": "cpu"})
        _, record = run(config, None, Reporter(quiet=True), Sentences.from_strings(text))
        assert any(words in warning for warning in record.warnings), (words, record.warnings)


def test_too_little_text_is_refused(bert: Path, tmp_path: Path) -> None:
    for text in (["only one"], ["twice", "twice"], ["", "  "]):
        with pytest.raises(SelfguideError, match="at least two different sentences"):
            selfguide.train(bert, text, output=tmp_path / "out", quiet=True, **QUICK)
        assert not list(tmp_path.iterdir())


def test_wrong_settings_and_options_are_refused(bert: Path) -> None:
    with pytest.raises(UsageError, match="no option 'tempreature'"):
        selfguide.train(bert, ["a b c", "b c d"], tempreature=1)
    wrong = {"batch_size": 1, "epochs": 0, "learning_rate": float("nan"), "warmup": 1.5, "precision": "int4"}
    for name, value in wrong.items():
        with pytest.raises(UsageError, match=name):
            selfguide.train(bert, ["a b c", "b c d"], **{name: value})
    device, problem = ("cpu", "fp16") if torch.cuda.is_available() else ("cuda", "CUDA")
    with pytest.raises(UsageError, match=problem):
        selfguide.train(bert, toy_sentences(8), device=device, precision="fp16", quiet=True)


def test_a_trackers_files_outlive_the_work_folder(tmp_path: Path) -> None:
    work, finished = tmp_path / "out.partial", tmp_path / "out.partial" / "finished"
    finished.mkdir(parents=True)
    _keep_curves(work, finished)  # no tracker, nothing to keep
    assert not list(finished.iterdir())
    (work / "runs" / "today").mkdir(parents=True)
    (work / "runs" / "today" / "events.out").write_text("curve")
    _keep_curves(work, finished)
    assert (finished / "runs" / "today" / "events.out").read_text() == "curve"
