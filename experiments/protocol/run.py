"""Run a block of the protocol: trials judged by STS-B dev, then both kinds of row on the test sets.

    python -m experiments.protocol.run --jobs 14                                    the label-free methods on mini
    python -m experiments.protocol.run --block labelled --jobs 14                   those that learn from labelled pairs
    python -m experiments.protocol.run --block sentence-encoder --encoder FOLDER --name all-MiniLM-L6-v2 --jobs 14
    python -m experiments.protocol.run --rehearse --rows simcse --jobs 1            in miniature, on a CPU

The inputs are those of the main table (``python -m experiments.main_table.prepare``). Trials are scored on STS-B dev alone.
Only when all of them are finished do the winners, the published settings and the rows without choices run with new seeds and
meet the test sets. Finished cells are kept: the same command continues an interrupted run, and ``--minutes`` stops one in
time."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.main_table import launch
from experiments.main_table.rows import label_of
from experiments.protocol.blocks import BLOCKS, Block
from experiments.protocol.collect import choose, results, unfinished
from experiments.protocol.space import TRIALS, Budget
from experiments.provenance import RESULTS, command_parser, write

TRIAL_SEEDS = "11,12"
FINAL_SEEDS = "1,2,3,4,5,6,7,8"
REHEARSAL = Budget(sentences=48, between=16, patience=2)


def main(words: Sequence[str] | None = None) -> int:
    """Run a block, and return the exit code."""
    arguments = _arguments(words)
    block = _chosen(BLOCKS[arguments.block], arguments)
    output = Path(arguments.output or f".device-results/protocol/{arguments.name}-{block.name}").resolve()
    until = launch.deadline(arguments)
    count = 2 if arguments.rehearse else TRIALS
    trials = {searched.method: searched.trials(count) for searched in block.searched}
    launch.hear_ctrl_c()
    with launch.shared_gpu(arguments.mps):
        specs = [
            trial.words(searched.source, block.budget)
            for searched in block.searched
            for trial in trials[searched.method]
        ]
        code = _compare(specs, "stsb-dev", arguments.trial_seeds, arguments, output / "trials", until)
        tried = _comparison(output / "trials", arguments)
        if left := unfinished([label_of(spec) for spec in specs], tried):
            print(f"{len(left)} trials are not finished yet, such as {left[0]}: repeat the command.", flush=True)
            return code or 1
        winners = choose(trials, tried)
        final = [searched.as_published() for searched in block.searched]
        final += [
            searched.as_tuned(winners[searched.method], block.budget)
            for searched in block.searched
            if searched.method in winners
        ]
        final += block.single
        code = _compare(final, arguments.tasks, arguments.seeds, arguments, output / "final", until)
    scored = _comparison(output / "final", arguments)
    if left := unfinished([label_of(spec) for spec in final], scored):
        print(f"{len(left)} rows are not finished yet, such as {left[0]}: repeat the command.", flush=True)
        return code or 1
    name = "rehearsal" if arguments.rehearse else f"{arguments.name}-{block.name}"
    out = arguments.out or (output if arguments.rehearse else RESULTS / "protocol") / f"{name}.json"
    write(Path(out), results(block, trials, tried, scored, arguments))
    return code


def _chosen(block: Block, arguments: argparse.Namespace) -> Block:
    """Return the block with the rows that are asked for, and the budget of a rehearsal."""
    if arguments.rehearse:
        block = replace(block, budget=REHEARSAL)
    if not arguments.rows:
        return block
    asked = set(arguments.rows.split(","))
    known = {searched.method for searched in block.searched} | {label_of(spec) for spec in block.single}
    if unknown := asked - known:
        sys.exit(f"The block {block.name} has no row {', '.join(sorted(unknown))}; it has {', '.join(sorted(known))}.")
    return replace(
        block,
        searched=tuple(searched for searched in block.searched if searched.method in asked),
        single=tuple(spec for spec in block.single if label_of(spec) in asked),
    )


def _compare(
    specs: Sequence[str], tasks: str, seeds: str, arguments: argparse.Namespace, output: Path, until: float | None
) -> int:
    """Run rows on STS-B's sentences; checkpoints are chosen by STS-B dev."""
    if not specs:
        return 0
    inputs = launch.inputs_folder(arguments.inputs)
    words = ["data:stsb", "--methods", ",".join(specs), "--encoder", arguments.encoder, "--bootstrap", "0"]
    if arguments.rehearse:
        output.mkdir(parents=True, exist_ok=True)
        pairs = output / "few-pairs.tsv"
        lines = (inputs / "sts" / "stsb" / "dev.tsv").read_text(encoding="utf-8").split("\n")
        pairs.write_text("\n".join(lines[:40]) + "\n", encoding="utf-8")
        words += ["--seeds", "1", "--pairs", str(pairs), "--dev", str(pairs), "--limit", "120", "--allow-partial"]
    else:
        words += ["--seeds", seeds, "--tasks", tasks, "--dev", "stsb-dev"]
    words += ["--batch-size", "256", "--offline", "--no-report", "--jobs", str(arguments.jobs), "--output", str(output)]
    return launch.command("compare", words, inputs, until)


def _comparison(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what the cells of a folder say; an interrupted comparison has written no table yet."""
    if not (folder / "cells").is_dir():
        return {"rows": {}}
    launch.command("compare", ["--from", str(folder), "--no-report"], launch.inputs_folder(arguments.inputs), None)
    return dict(json.loads((folder / "comparison.json").read_text(encoding="utf-8")))


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = command_parser(__doc__)
    launch.add_options(parser, "")
    parser.add_argument("--block", choices=sorted(BLOCKS), default="main")
    parser.add_argument("--encoder", default="mini", help="mini, or a folder")
    parser.add_argument("--name", default="", help="what to call the encoder; by default as --encoder")
    parser.add_argument("--rows", default="", help="methods and rows separated by commas; default: all of the block")
    parser.add_argument("--trial-seeds", default=TRIAL_SEEDS, help="seeds of every trial")
    parser.add_argument("--seeds", default=FINAL_SEEDS, help="seeds of the rows, none of which a trial has seen")
    parser.add_argument("--tasks", default="sts", help="test sets")
    parser.add_argument("--out", type=Path, help="results file; by default in experiments/results/protocol")
    arguments = parser.parse_args(words)
    arguments.name = arguments.name or Path(arguments.encoder).name
    if Path(arguments.encoder).is_dir():
        arguments.encoder = str(Path(arguments.encoder).resolve())
    if set(arguments.trial_seeds.split(",")) & set(arguments.seeds.split(",")):
        parser.error("the seeds of the rows must be new: none of --trial-seeds may be among --seeds")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
