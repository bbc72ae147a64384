"""Every long command writes lines with rate and time left where nobody watches a bar."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import selfguide
from selfguide import progress
from toys import Outcome, toy_sentences

QUICK = "--head-size 8 --batch-size 8 --max-steps 2 --no-report"
COMMANDS = {
    "train": f"train notes.txt --encoder BERT {QUICK} --output out",
    "train, whitening": "train notes.txt --encoder BERT --method whitening --no-report --output out",
    "adapt": "adapt notes.txt --encoder BERT --pooling mean --dev pairs.tsv --batch-size 8 --max-steps 2 --no-report "
    "--output out",
    "calibrate": "calibrate made notes.txt --output out",
    "encode": "encode notes.txt --encoder BERT --output out.npy",
    "eval": "eval BERT --pairs pairs.tsv --bootstrap 0 --output out",
    "probe": "probe BERT --pairs pairs.tsv",
    "compare": "compare notes.txt --encoder BERT --methods mean,cls --pairs pairs.tsv --jobs 1 --no-report --output out",
    "study": "study temperature --encoder BERT --text notes.txt --pairs pairs.tsv --seeds 1 --jobs 1 --no-report --output out "
    "--set max_steps=2 --set batch_size=8 --set temperatures=0.1,0.2 --set methods=simcse",
    "export": "export BERT --to static --text notes.txt --output out",
    "index": "index notes.txt --encoder BERT --output out",
    "map": "map notes.txt --encoder BERT --output out.html",
}
SLOW = ("map",)
"""Its layout is compiled for a minute."""
LINE = re.compile(r"^[\w ]+: [\d,]+( of [\d,]+)? \w+, [\d,.]+ \w+/(s|min)(, about .+ left)?", re.MULTILINE)
ALL_AT_ONCE = ("train, whitening", "calibrate", "eval", "export", "index", "map")
"""So few sentences are one batch there, after which nothing is left."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in COMMANDS]
)
def test_a_line_says_how_far_how_fast_and_how_long(
    command: Callable[..., Outcome],
    bert: Path,
    tmp_path: Path,
    dev_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("\n".join(toy_sentences(400)))
    (tmp_path / "pairs.tsv").write_bytes(dev_file.read_bytes())
    if "made" in COMMANDS[name]:
        selfguide.train(bert, toy_sentences(40), "fused", output="made", quiet=True, report=False, tune="none")
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    if name == "encode":  # which says by the bytes read how much is left, and some thousand lines are read at a time
        (tmp_path / "notes.txt").write_text("\n".join(40 * toy_sentences(400)))
        monkeypatch.setattr("selfguide.engine.encode._CPU_CHUNK", 1024)
    outcome = command(*COMMANDS[name].replace("BERT", str(bert)).split())
    assert outcome.code == 0, outcome.err
    lines = list(LINE.finditer(outcome.err))
    assert lines, outcome.err
    assert name in ALL_AT_ONCE or any(line[3] for line in lines), outcome.err
