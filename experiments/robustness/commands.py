"""The commands of the campaigns: every one that writes, on a tiny encoder, with what to type after it was interrupted."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

_QUICK = "--head-size 16 --batch-size 8 --learning-rate 1e-3 --checkpoint-minutes 0"


@dataclass(frozen=True)
class Command:
    """A command line in a folder that holds some of the material."""

    name: str
    line: str
    inputs: tuple[str, ...]
    """What the folder holds before; made by other commands of this table where it is no part of the material."""
    again: str
    """What to type after an interruption; ``docs/guides/interruptions.md`` has the same."""
    output: str = ""
    """What it makes, for the campaign on damaged files."""
    preparation: str = ""
    """A command that is run before it, and may be stopped half-way by :attr:`stopped_before`."""
    stopped_before: int = 0
    """Kill the preparation just before this renaming, so that the command finds something interrupted."""

    @property
    def words(self) -> list[str]:
        """The words after ``selfguide``."""
        return shlex.split(self.line)

    @property
    def words_again(self) -> list[str]:
        """What to type after an interruption."""
        return shlex.split(self.again)


_TRAIN = f"train notes.txt --encoder bert {_QUICK} --max-steps 6 --dev pairs.tsv --dev-every 2 --output tuned"
_COMPARE = (
    "compare notes.txt --encoder bert --methods mean,whitening,simcse --seeds 2 --pairs pairs.tsv --set max_steps=2 "
    "--set batch_size=8 --output comparison"
)
_STUDY = (
    "study temperature --encoder bert --text notes.txt --limit 40 --pairs pairs.tsv --dev '' --seeds 1 --set max_steps=2 "
    "--set dev_every=2 --set temperatures=0.01,0.1 --set methods=sg-opt,simcse --set head_size=8 --set batch_size=4 "
    "--output study --jobs 1"
)
_EXPORT = "export tuned --to static --text notes.txt --output static"
_INDEX = "index notes.txt --encoder tuned --output notes.index"
_ADD = "index notes.txt more.txt --output notes.index --add"
_REMOVE = "index more.txt --output notes.index --remove"

COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (
        Command(
            "train",
            f"{_TRAIN} --keep-views yes",
            ("bert", "notes.txt", "pairs.tsv"),
            "train --output tuned --resume",
            "tuned",
        ),
        Command(
            "train fused",
            "train notes.txt --encoder bert --method fused --batch-size 8 --checkpoint-minutes 0 --max-steps 3 --output fused "
            "--no-report",
            ("bert", "notes.txt"),
            "train --output fused --resume",
            "fused",
        ),
        Command(
            "train --overwrite",
            f"{_TRAIN} --seed 3 --overwrite",
            ("bert", "notes.txt", "pairs.tsv", "tuned"),
            "train --output tuned --resume",
            "tuned",
        ),
        Command(
            "train --resume",
            "train --output tuned --resume",
            ("bert", "notes.txt", "pairs.tsv"),
            "train --output tuned --resume",
            "tuned",
            preparation=_TRAIN,
            stopped_before=12,
        ),
        Command(
            "adapt",
            "adapt notes.txt --encoder tuned --temperature 0.1 --batch-size 8 --max-steps 4 --checkpoint-minutes 0 "
            "--output adapted",
            ("notes.txt", "tuned"),
            "adapt --output adapted --resume",
            "adapted",
        ),
        Command(
            "adapt --dev",
            "adapt notes.txt --encoder tuned --dev pairs.tsv --temperature 0.1 --batch-size 8 --max-steps 4 --dev-every 2 "
            "--checkpoint-minutes 0 --output adapted",
            ("notes.txt", "pairs.tsv", "tuned"),
            "adapt --output adapted --resume",
            "adapted",
        ),
        Command(
            "compare",
            f"{_COMPARE} --jobs 1",
            ("bert", "notes.txt", "pairs.tsv"),
            f"{_COMPARE} --jobs 1",
            "comparison",
        ),
        Command("study", _STUDY, ("bert", "notes.txt", "pairs.tsv"), _STUDY, "study"),
        Command(
            "eval",
            "eval bert tuned --pooling cls,mean --pairs pairs.tsv --tasks demo --bootstrap 50 --output scores",
            ("bert", "tuned", "pairs.tsv"),
            "eval bert tuned --pooling cls,mean --pairs pairs.tsv --tasks demo --bootstrap 50 --output scores",
            "scores",
        ),
        Command(
            "calibrate",
            "calibrate fused more.txt --output calibrated",
            ("fused", "more.txt"),
            "calibrate fused more.txt --output calibrated",
            "calibrated",
        ),
        Command(
            "calibrate --overwrite",
            "calibrate fused more.txt --overwrite",
            ("fused", "more.txt"),
            "calibrate fused more.txt --overwrite",
            "fused",
        ),
        *(
            Command(
                f"encode .{kind}",
                f"encode notes.txt more.txt --encoder tuned --batch-size 16 --output notes.{kind}",
                ("tuned", "notes.txt", "more.txt"),
                f"encode notes.txt more.txt --encoder tuned --batch-size 16 --output notes.{kind} --resume",
                f"notes.{kind}",
            )
            for kind in ("npy", "parquet", "jsonl")
        ),
        Command(
            "encode int8 vectors",
            "encode notes.txt --encoder tuned --precision int8 --output notes.npy",
            ("tuned", "notes.txt"),
            "encode notes.txt --encoder tuned --precision int8 --output notes.npy --resume",
            "notes.npy",
        ),
        Command("export static", _EXPORT, ("tuned", "notes.txt"), _EXPORT, "static"),
        Command(
            "export onnx",
            "export tuned --text notes.txt --output onnx",
            ("tuned", "notes.txt"),
            "export tuned --text notes.txt --output onnx",
            "onnx",
        ),
        Command(
            "map",
            "map notes.txt --encoder tuned --output map.html",
            ("tuned", "notes.txt"),
            "map notes.txt --encoder tuned --output map.html --overwrite",
            "map.html",
        ),
        Command(
            "probe",
            "probe bert --pairs pairs.tsv --json probe.json --plot probe.svg",
            ("bert", "pairs.tsv"),
            "probe bert --pairs pairs.tsv --json probe.json --plot probe.svg",
            "probe.json",
        ),
        Command(
            "report", "report tuned --output page.html", ("tuned",), "report tuned --output page.html", "page.html"
        ),
        Command("cache --clear", "cache --clear", ("cache",), "cache --clear"),
        Command("index", _INDEX, ("tuned", "notes.txt"), _INDEX, "notes.index"),
        Command("index --add", _ADD, ("tuned", "notes.txt", "more.txt"), _ADD, "notes.index", preparation=_INDEX),
        Command(
            "index --remove",
            _REMOVE,
            ("tuned", "notes.txt", "more.txt"),
            _REMOVE,
            "notes.index",
            preparation=_INDEX.replace("notes.txt", "notes.txt more.txt"),
        ),
    )
}
"""By name."""

JOBS = Command(
    "compare --jobs 2",
    f"{_COMPARE} --jobs 2",
    ("bert", "notes.txt", "pairs.tsv"),
    f"{_COMPARE} --jobs 2",
    "comparison",
)
"""Cells in processes of their own; run as a real process only."""

MADE_BY = {"tuned": "train", "fused": "train fused", "cache": "train"}
"""The commands that make inputs of others."""
