"""Runs of several processes that are killed or stopped: nobody waits for ever, and a resumed run ends in the same weights."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file

pytestmark = pytest.mark.slow

SECONDS = 240
"""Longer than any of these runs takes; a dead-lock takes for ever."""
TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")
ACCELERATE = ("accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", "0")


def started(
    text: Path, bert: Path, output: Path, *words: str, minutes: str = "0", launcher: tuple[str, ...] = TORCHRUN
) -> subprocess.Popen[str]:
    """Start a run of two processes that writes a checkpoint after every step."""
    command = [sys.executable, "-m", *launcher]
    command += [
        "-m",
        "selfguide",
        "train",
        str(text),
        "--encoder",
        str(bert),
        "--output",
        str(output),
        "--device",
        "cpu",
    ]
    command += ["--head-size", "16", "--batch-size", "8", "--epochs", "3", "--no-report", *words]
    command += ["--checkpoint-minutes", minutes]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True
    )


def ended(run: subprocess.Popen[str]) -> str:
    """Wait for the end, and return what was said."""
    said, _ = run.communicate(timeout=SECONDS)
    return " ".join(said.split())


def workers(run: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return the processes of a run, by rank."""
    found = [process for process in psutil.Process(run.pid).children() if "selfguide" in " ".join(process.cmdline())]
    return sorted(found, key=lambda process: int(process.environ()["RANK"]))


def until_step(output: Path, step: int, run: subprocess.Popen[str]) -> None:
    """Wait until a checkpoint of this step or a later one is complete."""
    work, end = output.with_name(output.name + ".partial"), time.monotonic() + SECONDS
    while not any(int(path.parent.name.rpartition("-")[2]) >= step for path in work.glob("checkpoint-*/complete.json")):
        assert run.poll() is None, run.stdout and run.stdout.read()
        assert time.monotonic() < end
        time.sleep(0.01)


def weights(output: Path) -> dict[str, object]:
    return load_file(output / "model.safetensors")


def test_killed_and_resumed_it_ends_in_the_same_weights(bert: Path, text_file: Path, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run = started(text_file, bert, whole, "--limit", "101")
    assert "Another process" not in ended(run)
    assert run.returncode == 0
    run = started(text_file, bert, broken, "--limit", "101")
    until_step(broken, 3, run)
    workers(run)[1].kill()
    said = ended(run)
    assert run.returncode != 0
    assert "Another process of this distributed run ended" in said or "Signal 9 (SIGKILL)" in said
    run = started(text_file, bert, broken, "--limit", "101", "--resume")
    until_step(broken, 10, run)
    os.killpg(run.pid, signal.SIGKILL)
    for process in workers(run):
        process.kill()
    run.communicate(timeout=SECONDS)
    assert not broken.exists()
    run = started(text_file, bert, broken, "--limit", "101", "--resume")
    said = ended(run)
    assert run.returncode == 0, said
    assert "Resuming after step" in said
    assert json.loads((broken / "run.json").read_text())["steps"] == 21
    first, second = weights(whole), weights(broken)
    assert first.keys() == second.keys()
    assert all((first[name] == second[name]).all() for name in first)  # type: ignore[attr-defined]


def test_accelerate_starts_the_same_run(bert: Path, text_file: Path, tmp_path: Path) -> None:
    found = []
    for name, launcher in (("torchrun", TORCHRUN), ("accelerate", ACCELERATE)):
        run = started(text_file, bert, tmp_path / name, "--limit", "45", launcher=launcher)
        said = ended(run)
        assert run.returncode == 0, said
        found.append(json.loads((tmp_path / name / "run.json").read_text()))
    assert found[0]["steps"] == found[1]["steps"] == 9
    assert found[0]["text"]["fingerprint"] == found[1]["text"]["fingerprint"]
    first, second = weights(tmp_path / "torchrun"), weights(tmp_path / "accelerate")
    assert all((first[name] == second[name]).all() for name in first)  # type: ignore[attr-defined]


def test_one_that_is_asked_to_stop_stops_all_at_one_step(bert: Path, text_file: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    run = started(text_file, bert, output, "--epochs", "200", minutes="0.001")
    until_step(output, 5, run)
    workers(run)[1].send_signal(signal.SIGTERM)
    said = ended(run)
    assert run.returncode != 0
    assert said.count("Stopped at step") == 2, said
    steps = {word.split(";")[0] for word in said.split("Stopped at step ")[1:]}
    assert len(steps) == 1


def test_one_that_fails_ends_the_others(bert: Path, text_file: Path, tmp_path: Path) -> None:
    """One process cannot read the encoder; the other does not wait for it."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys, selfguide\n"
        "from selfguide.losses import self_guided\n"
        "forward = self_guided.SelfGuidedLoss.forward\n"
        "def failing(self, *given, **named):\n"
        "    failing.steps += 1\n"
        "    if os.environ['RANK'] == '1' and failing.steps == 3:\n"
        "        raise selfguide.errors.SelfguideError('this one cannot go on')\n"
        "    return forward(self, *given, **named)\n"
        "failing.steps = 0\n"
        "self_guided.SelfGuidedLoss.forward = failing\n"
        f"selfguide.train({str(bert)!r}, {str(text_file)!r}, output={str(tmp_path / 'out')!r}, head_size=16, batch_size=8,\n"
        "    device='cpu', report=False)\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode != 0
    assert "this one cannot go on" in done.stderr
    assert not (tmp_path / "out").exists()
