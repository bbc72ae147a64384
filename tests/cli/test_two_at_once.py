"""Every command that writes refuses an output that another process is writing, and says who holds it and since when."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import selfguide
from refusals import the_refusal
from selfguide.locks import beside, claim, inside
from toys import Outcome, toy_sentences

QUICK = "--head-size 8 --batch-size 8 --max-steps 1 --no-report"
EVAL = "eval BERT --pairs pairs.tsv --bootstrap 0 --output scores"
COMMANDS = {
    "train": (f"train notes.txt --encoder BERT {QUICK} --output out", "out"),
    "train --overwrite": (f"train notes.txt --encoder BERT {QUICK} --output made --overwrite", "made"),
    "adapt": ("adapt notes.txt --encoder made --output out", "out"),
    "calibrate": ("calibrate made notes.txt --output out", "out"),
    "calibrate --overwrite": ("calibrate made notes.txt --overwrite", "made"),
    "encode": ("encode notes.txt --encoder BERT --output out.npy", "out.npy"),
    "export": ("export BERT --to static --text notes.txt --output out", "out"),
    "index": ("index notes.txt --encoder BERT --output out", "out"),
    "compare": (
        "compare notes.txt --encoder BERT --methods mean --pairs pairs.tsv --jobs 1 --output scores",
        "scores/",
    ),
    "study": (
        "study temperature --encoder BERT --text notes.txt --pairs pairs.tsv --seeds 1 --jobs 1 --output scores",
        "scores/",
    ),
}
"""What is typed, and what it writes. `--resume` needs something interrupted: tests/runs and tests/engine have it."""


@pytest.fixture
def folder(bert: Path, tmp_path: Path, dev_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("\n".join(toy_sentences(60)))
    (tmp_path / "pairs.tsv").write_bytes(dev_file.read_bytes())
    selfguide.train(bert, toy_sentences(40), "whitening", output="made", quiet=True, report=False)
    return tmp_path


def test_the_second_is_told_who_holds_the_output_and_since_when(
    command: Callable[..., Outcome], folder: Path, bert: Path
) -> None:
    for name, (line, output) in COMMANDS.items():
        target = folder / output
        if output.endswith("/"):
            target.mkdir(exist_ok=True)
        lock = inside(target) if output.endswith("/") else beside(target)
        before = _seen(folder)
        holder = claim(lock)
        assert holder is not None
        outcome = command(*line.replace("BERT", str(bert)).split())
        assert outcome.code == 1, (name, outcome)
        said = the_refusal(outcome)
        who = re.search(
            r"is being written by `.+` \(process \d+, since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\)\. Wait for it", said
        )
        assert who, (name, said)
        holder.release()
        assert _seen(folder) == before, name


def test_scores_are_kept_beside_those_of_another_eval(
    command: Callable[..., Outcome], folder: Path, bert: Path
) -> None:
    """Not refused: what each has finished is merged (``tests/evaluation/test_results.py``)."""
    (folder / "scores").mkdir()
    holder = claim(inside(folder / "scores"))
    assert holder is not None
    refused = command(*EVAL.replace("BERT", str(bert)).split())
    assert "is being written by" in the_refusal(refused)  # by something that is no eval
    holder.release()
    assert command(*EVAL.replace("BERT", str(bert)).split()).code == 0


def _seen(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))
