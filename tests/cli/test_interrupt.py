"""Runs that are cut short: by Ctrl-C, by a full disk, by something unforeseen; and going on with them."""

from __future__ import annotations

import json
import os
import resource
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forked import Forked
from refusals import the_refusal
from toys import Outcome

Command = Callable[..., Outcome]

QUICK = ("--head-size", "16", "--batch-size", "4", "--no-report")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, text_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_ctrl_c_keeps_everything_and_resume_ends_in_the_same_weights(command: Command, bert: Path) -> None:
    words = ("train", "notes.txt", "--encoder", bert, *QUICK, "--max-steps", "20", "--output")
    # A checkpoint after every step shows that training is under way, and leaves time to interrupt it.
    process = Forked(*words, "tuned", "--checkpoint-minutes", "0")
    try:
        until = time.monotonic() + 60
        while not list(Path("tuned.partial").glob("checkpoint-*/complete.json")):
            assert process.poll() is None, process.wait()
            assert time.monotonic() < until
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        stopped = process.wait()
    finally:
        process.kill()
    sentence = the_refusal(stopped)
    assert stopped.code == 130
    assert "Stopped at step" in sentence
    assert sentence.endswith("selfguide train --output tuned --resume")
    for sign in ("\r", "\x1b", "%|", "shards"):
        assert sign not in stopped.err
    assert Path("tuned.partial").is_dir()
    assert not Path("tuned").exists()

    refusal = the_refusal(command(*words, "tuned"))
    assert "--resume" in refusal
    assert "--overwrite" in refusal
    other = command("train", "--resume", "--output", "tuned", "--temperature", "0.5")
    assert other.code == 2
    assert "not the run that was interrupted" in the_refusal(other)
    assert Path("tuned.partial").is_dir()

    resumed = command("train", "--resume", "--output", "tuned")
    assert resumed.code == 0, resumed.err
    assert "Resuming after step" in resumed.err
    assert json.loads(Path("tuned/run.json").read_text())["steps"] == 20
    assert not Path("tuned.partial").exists()
    assert command(*words, "straight").code == 0
    assert Path("tuned/model.safetensors").read_bytes() == Path("straight/model.safetensors").read_bytes()


def test_ctrl_c_before_the_first_step_can_be_resumed_too(
    command: Command, bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    words = ("train", "notes.txt", "--encoder", bert, *QUICK, "--max-steps", "2")
    with monkeypatch.context() as patch:
        patch.setattr("selfguide.methods.self_guided.SelfGuided.student", interrupt)
        outcome = command(*words, "--output", "tuned")
    assert outcome.code == 130
    assert the_refusal(outcome).endswith("selfguide train --output tuned --resume")
    assert not Path("tuned").exists()
    # The whole command line once more will do as well as --output alone.
    assert command(*words, "--output", "tuned", "--resume").code == 0
    assert Path("tuned/model.safetensors").is_file()


def test_nothing_to_resume(command: Command, bert: Path) -> None:
    outcome = command("train", "--output", "tuned", "--resume")
    assert outcome.code == 2
    assert the_refusal(outcome).startswith("Nothing to resume at tuned: there is no interrupted run there.")
    assert "--output" in the_refusal(command("train", "--resume"))

    words = ("train", "notes.txt", "--encoder", bert, *QUICK, "--max-steps", "1", "--output", "tuned")
    assert command(*words).code == 0
    before = Path("tuned/run.json").read_bytes()
    for again in (("train", "--output", "tuned", "--resume"), (*words, "--resume")):
        outcome = command(*again)
        assert outcome.code == 2
        assert the_refusal(outcome).startswith("Nothing to resume at tuned: it is finished, since 20")
    assert Path("tuned/run.json").read_bytes() == before
    assert {path.name for path in Path.cwd().iterdir()} == {"notes.txt", "tuned"}


def test_the_advice_can_be_copied_where_names_have_spaces(
    command: Command, bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("notes.txt").rename("my notes.txt")

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("selfguide.runs.run.check_text", stop)
        outcome = command("train", "my notes.txt", "--encoder", bert, *QUICK, "--output", "my encoder")
    assert outcome.code == 130
    advice = the_refusal(outcome).partition("go on with: ")[2]
    again = command(*shlex.split(advice)[1:])
    assert again.code == 0, again
    assert Path("my encoder/modules.json").is_file()


def test_a_full_disk_is_one_sentence(command: Command, bert: Path) -> None:
    """The weights are 118 kB, everything before them is smaller."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    words = ("train", "notes.txt", "--encoder", bert, *QUICK, "--max-steps", "2", "--output", "tuned")
    full = Forked(*words, before=limit).wait()
    sentence = the_refusal(full)
    assert full.code == 1
    assert "could not be written to tuned" in sentence
    assert "File too large" in sentence
    # Nothing had been saved before that could be resumed: nothing is left, and the sentence does not promise it.
    assert "Make room" in sentence
    assert "--resume" not in sentence
    assert {path.name for path in Path.cwd().iterdir()} == {"notes.txt"}
    assert command(*words).code == 0


@pytest.mark.parametrize(
    ("words", "writer"),
    [
        (("train", "--method", "mean"), "transformers.PreTrainedTokenizerFast.save_pretrained"),
        (("export", "--to", "static"), "selfguide.exporting.export.write_record"),
    ],
)
def test_a_disk_that_fills_while_the_tokenizer_is_written_is_no_bug(
    command: Command, bert: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], writer: str
) -> None:
    """Its library, like others, has an error of its own for that."""

    def fail(*args: object, **kwargs: object) -> None:
        raise Exception("No space left on device (os error 28)")

    monkeypatch.setattr(writer, fail)
    given = ("notes.txt", "--encoder", bert) if words[0] == "train" else (bert, "--text", "notes.txt")
    outcome = command(words[0], *given, *words[1:], "--output", "made")
    assert outcome.code == 1
    assert "No space left on device" in the_refusal(outcome)
    assert {path.name for path in Path.cwd().iterdir()} == {"notes.txt"}


def test_a_disk_that_fills_up_later_does_not_cost_the_checkpoints(
    command: Command, bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    words = ("train", "notes.txt", "--encoder", bert, *QUICK, "--max-steps", "3", "--checkpoint-minutes", "0")
    with monkeypatch.context() as patch:
        patch.setattr("selfguide.runs.card.model_card", fail)
        outcome = command(*words, "--output", "tuned")
    assert outcome.code == 1
    sentence = the_refusal(outcome)
    assert "No space left on device" in sentence
    assert sentence.endswith("selfguide train --output tuned --resume")
    assert not Path("tuned").exists()
    assert command("train", "--output", "tuned", "--resume").code == 0
    assert {path.name for path in Path.cwd().iterdir()} == {"notes.txt", "tuned"}


@pytest.mark.parametrize("error", [RuntimeError("a bug"), OSError(28, "No space left on device")])
def test_an_unforeseen_failure_leaves_nothing_to_trip_over(
    command: Command, bert: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    words = ("train", "notes.txt", "--encoder", bert, *QUICK, "--max-steps", "1", "--output", "tuned")
    with monkeypatch.context() as patch:
        patch.setattr("selfguide.methods.self_guided.SelfGuided.student", fail)
        outcome = command(*words)
    assert outcome.code == (70 if isinstance(error, RuntimeError) else 1)
    assert outcome.err.splitlines()[-1].startswith("selfguide: ")
    assert {path.name for path in Path.cwd().iterdir()} == {"notes.txt"}
    assert command(*words).code == 0


def test_sigterm_while_the_text_is_read_ends_as_ctrl_c_does(
    command: Command, bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from selfguide.data import Sentences
    from selfguide.data.blocks import Block

    reading = Sentences.blocks

    def interrupted(self: Sentences) -> Iterator[Block]:
        for block in reading(self):
            os.kill(os.getpid(), signal.SIGTERM)
            yield block

    words = ("train", "notes.txt", "--encoder", bert, *QUICK, "--max-steps", "1", "--output", "tuned")
    with monkeypatch.context() as patch:
        patch.setattr(Sentences, "blocks", interrupted)
        outcome = command(*words)
    assert outcome.code == 130
    assert the_refusal(outcome).endswith("selfguide train --output tuned --resume")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert command("train", "--output", "tuned", "--resume").code == 0
    assert {path.name for path in Path.cwd().iterdir()} == {"notes.txt", "tuned"}


@pytest.mark.parametrize("damage", ["empty", "truncated", "a flipped bit", "of an earlier version"])
def test_damaged_views_are_made_again(
    command: Command, bert: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setenv("SELFGUIDE_CACHE", str(Path.cwd() / "cache"))
    words = ("train", "notes.txt", "--encoder", bert, *QUICK, "--max-steps", "2", "--keep-views", "yes")
    assert command(*words, "--output", "first").code == 0
    (store,) = Path("cache/views").glob("*.npy")
    content = store.read_bytes()
    middle = len(content) // 2
    store.write_bytes(
        {
            "empty": b"",
            "truncated": content[:middle],
            "a flipped bit": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
            "of an earlier version": content[:-32],
        }[damage]
    )
    outcome = command(*words, "--output", "second")
    assert outcome.code == 0, outcome.err
    assert "Caching the guide's views" in outcome.err
    assert store.read_bytes() == content
    assert Path("first/model.safetensors").read_bytes() == Path("second/model.safetensors").read_bytes()
