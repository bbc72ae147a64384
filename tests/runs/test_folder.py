"""The folder of a run: who owns it, what a kill leaves at each rename, and damage that is noticed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import selfguide
from selfguide import files
from selfguide.errors import FolderInUse, InterruptedRun, SelfguideError, UsageError
from selfguide.locks import beside, claim
from toys import Outcome, toy_sentences

QUICK: dict[str, Any] = {
    "head_size": 8, "batch_size": 8, "max_steps": 4, "checkpoint_minutes": 0.0, "device": "cpu", "quiet": True,
}  # fmt: skip
TEXT = toy_sentences(40)


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the package catches it, and no ``finally`` may rely on it."""


@pytest.fixture(scope="module")
def straight(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The weights of a run that nobody stopped."""
    out = tmp_path_factory.mktemp("straight") / "out"
    selfguide.train(bert, TEXT, output=out, report=False, **QUICK)
    return (out / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def stopped(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _interrupt(bert, tmp_path_factory.mktemp("stopped") / "out")


@pytest.fixture
def interrupted(stopped: Path, tmp_path: Path) -> Path:
    """The output of a run that was stopped after its second step."""
    shutil.copytree(stopped.with_name("out.partial"), tmp_path / "out.partial")
    return tmp_path / "out"


def _interrupt(bert: Path, out: Path, **options: Any) -> Path:
    steps = [0]

    def stop(self: Any, *args: Any, **kwargs: Any) -> None:
        steps[0] += 1
        if steps[0] == 3:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("selfguide.training.callbacks.StopOnSignal.on_step_begin", stop, raising=False)
        with pytest.raises(InterruptedRun):
            selfguide.train(bert, TEXT, output=out, **{"report": False, **QUICK, **options})
    assert list(out.with_name("out.partial").glob("checkpoint-2/complete.json"))
    return out


def _resume(bert: Path, out: Path, **options: Any) -> bytes:
    selfguide.train(bert, TEXT, output=out, resume=True, **{**QUICK, **options})
    assert not out.with_name("out.partial").exists()
    return (out / "model.safetensors").read_bytes()


def test_a_run_owns_its_folder(bert: Path, interrupted: Path, straight: bytes) -> None:
    other = claim(beside(interrupted))
    assert other is not None
    for options in ({"resume": True}, {"overwrite": True}):
        with pytest.raises(FolderInUse, match=r"process \d+, since 20"):
            selfguide.train(bert, TEXT, output=interrupted, **options, **QUICK)
    other.release()
    assert _resume(bert, interrupted) == straight
    assert [path.name for path in interrupted.parent.iterdir()] == ["out"]


@pytest.mark.parametrize("when", ["before the final rename", "after it", "before the work folder goes"])
def test_a_kill_at_the_end_is_finished_by_resume(
    bert: Path, tmp_path: Path, straight: bytes, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    out = tmp_path / "out"

    def killed(*args: object) -> None:
        if when != "before the final rename":
            files.replace_folder(*args)  # type: ignore[arg-type]
        raise Killed

    with monkeypatch.context() as patch:
        name = "_remove" if when == "before the work folder goes" else "replace_folder"
        patch.setattr(f"selfguide.runs.folder.{name}", killed if name == "replace_folder" else _kill)
        with pytest.raises(Killed):
            selfguide.train(bert, TEXT, output=out, report=False, **QUICK)
    assert out.exists() == (when != "before the final rename")
    before = (out / "model.safetensors").stat().st_ino if out.exists() else None
    assert _resume(bert, out) == straight
    assert before in (None, (out / "model.safetensors").stat().st_ino)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def _kill(*args: object) -> None:
    raise Killed


def test_choices_survive_a_resume(bert: Path, tmp_path: Path, straight: bytes, command: Callable[..., Outcome]) -> None:
    """``--overwrite`` and ``--no-report`` are no part of the configuration; the printed advice has to work all the same."""
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text("\n".join(TEXT))
    selfguide.train(bert, TEXT, output=out, **{**QUICK, "max_steps": 1}, report=False)
    former = (out / "model.safetensors").read_bytes()
    _interrupt(bert, out, overwrite=True)
    assert (out / "model.safetensors").read_bytes() == former
    # The sentences were given in Python, but the work folder has them: the printed advice needs nothing else.
    outcome = command("train", "--output", out, "--resume")
    assert outcome.code == 0, outcome.err
    assert (out / "model.safetensors").read_bytes() == straight
    assert not (out / "report.html").exists()
    assert "report.html" not in outcome.out


@pytest.mark.parametrize("stopped_at", ["prepare_text", "check_text"])
def test_a_run_is_resumed_from_another_folder(
    bert: Path,
    tmp_path: Path,
    dev_file: Path,
    command: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
    stopped_at: str,
) -> None:
    """Names in its configuration are about the folder in which it was begun."""
    home = tmp_path / "home"
    shutil.copytree(bert, home / "start")
    (home / "notes.txt").write_text("\n".join(TEXT))
    (home / "pairs.tsv").write_bytes(dev_file.read_bytes())
    monkeypatch.chdir(home)
    line = "train notes.txt --encoder start --dev pairs.tsv --head-size 8 --batch-size 8 --max-steps 2 --no-report --output"

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"selfguide.runs.run.{stopped_at}", stop)
        assert command(*line.split(), "out").code == 130
    assert command(*line.split(), "straight").code == 0
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("another text\nof two lines\n")
    outcome = command("train", "--output", "home/out", "--resume")
    assert outcome.code == 0, outcome.err
    for name in ("model.safetensors", "similarity.json"):
        assert (home / "out" / name).read_bytes() == (home / "straight" / name).read_bytes()


@pytest.mark.parametrize("what", ["encoder", "dev"])
def test_what_changed_before_a_resume_is_named(bert: Path, tmp_path: Path, dev_file: Path, what: str) -> None:
    start = shutil.copytree(bert, tmp_path / "start")
    out = _interrupt(start, tmp_path / "out", dev=dev_file)
    if what == "encoder":
        from safetensors.torch import load_file, save_file

        weights = load_file(start / "model.safetensors")
        weights["embeddings.LayerNorm.bias"][0] += 1e-3
        save_file(weights, start / "model.safetensors", metadata={"format": "pt"})
    else:
        dev_file.write_text(dev_file.read_text().replace("0\t", "1\t", 1))
    name = {"encoder": "start encoder", "dev": "dev file"}[what]
    with pytest.raises(SelfguideError, match=f"The {name} has changed since the interrupted run"):
        selfguide.train(start, TEXT, output=out, dev=dev_file, resume=True, **QUICK)
    assert out.with_name("out.partial").is_dir()


@pytest.mark.parametrize("damage", ["a flipped bit", "truncated", "gone"])
@pytest.mark.parametrize("name", ["text.arrow", "checkpoint-2/optimizer.pt", "inputs.json", "run.json"])
def test_damage_is_refused_in_words(bert: Path, interrupted: Path, name: str, damage: str) -> None:
    path = interrupted.with_name("out.partial") / name
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    else:
        path.write_bytes(content[:9] + bytes([content[9] ^ 0x55]) + content[10:])
    if (name, damage) == ("inputs.json", "gone"):
        return  # a kill before the first step leaves none
    with pytest.raises(SelfguideError) as caught:
        _resume(bert, interrupted)
    assert "resume" in str(caught.value) or "--overwrite" in str(caught.value)
    assert not interrupted.exists()


@pytest.mark.parametrize(
    "words", ["[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0", "basic_ios::clear: iostream error"]
)
def test_a_disk_that_fills_while_a_checkpoint_is_written(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, straight: bytes, words: str
) -> None:
    """torch has errors of its own for it."""
    import torch

    out, save = tmp_path / "out", torch.save
    calls = [0]

    def full(*args: Any, **kwargs: Any) -> None:
        if "optimizer" in str(args[1]):
            calls[0] += 1
            if calls[0] == 3:
                Path(args[1]).write_bytes(b"half")
                raise RuntimeError(words)
        save(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        with pytest.raises(SelfguideError) as caught:
            selfguide.train(bert, TEXT, output=out, report=False, **QUICK)
    assert "The checkpoint of step 2 is kept. Make room, then go on with: selfguide train" in str(caught.value)
    assert [path.name for path in tmp_path.glob("out.partial/checkpoint-*")] == ["checkpoint-2"]
    assert _resume(bert, out) == straight


def test_the_work_folder_is_private_and_the_result_is_not(interrupted: Path, bert: Path) -> None:
    assert interrupted.with_name("out.partial").stat().st_mode & 0o077 == 0
    _resume(bert, interrupted)
    assert interrupted.stat().st_mode & 0o055 == 0o055


def test_a_finished_run_is_not_resumed(bert: Path, interrupted: Path) -> None:
    _resume(bert, interrupted)
    record = json.loads((interrupted / "run.json").read_text())
    assert record["steps"] == 4
    # With the time: after a kill at the very start of a run with --overwrite, the folder is a former run's.
    with pytest.raises(
        UsageError, match=rf"it is finished, since {record['finished'][:10]} \d\d:\d\d\. Leave --resume"
    ):
        _resume(bert, interrupted)
