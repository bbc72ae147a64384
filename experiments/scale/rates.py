"""Compare rates on the same cores: encoding into parts with sentence-transformers' process pool, and Ray with the plain
command.

    python -m experiments.scale.rates pool --sentences 12000 --rounds 3
    python -m experiments.scale.rates ray --sentences 30000 --rounds 1

``pool``: mini encodes a text with two processes of ``SentenceTransformer.encode`` and with two shards of ``selfguide
encode``, each on one core. Loading is left out of both: the pool is timed once it has started, and a shard from its first
part to its last. ``ray``: one worker of one thread, plain and with Ray, with loading and starting and without (from the
first part to the last).
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from experiments.provenance import RESULTS, command_parser, provenance, text_facts, write
from experiments.scale.texts import SEED, write_lines
from selfguide.data.resources import mini_folder

PARTS = 12


def main() -> None:
    """Measure one of the two, and write its results file."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        write_lines(text, arguments.sentences)
        lines = text.read_text().splitlines()
        measure = {"pool": _pool, "ray": _ray}[arguments.what]
        rounds = [measure(text, lines, Path(folder)) for _ in range(arguments.rounds)]
        content: dict[str, Any] = {
            **provenance("mini", text=text_facts("drawn lines", lines), seeds=[SEED]),
            "cores": len(os.sched_getaffinity(0)),
            "rounds": rounds,
            "medians": {name: statistics.median(found[name] for found in rounds) for name in rounds[0]},
        }
    medians = content["medians"]
    if arguments.what == "ray":
        content["overhead"] = {
            "with start": medians["ray, with start"] / medians["plain, with start"] - 1,
            "without start": medians["ray, without start"] / medians["plain, without start"] - 1,
        }
    else:
        content["sentences_a_second"] = {name: len(lines) / seconds for name, seconds in medians.items()}
    write(arguments.out or RESULTS / f"scale-{arguments.what}.json", content)
    print(medians)


def _pool(text: Path, lines: list[str], folder: Path) -> dict[str, float]:
    return {"SentenceTransformer pool": pool_seconds(lines), "selfguide shards": shard_seconds(text, folder / "parts")}


def pool_seconds(lines: list[str]) -> float:
    """Return the seconds that two processes of ``SentenceTransformer.encode`` take, once they are warm."""
    code = (
        "import os, sys, time\n"
        "import torch\n"
        "from sentence_transformers import SentenceTransformer\n"
        "from selfguide.models.encoders import load_encoder\n"
        "if __name__ == '__main__':\n"
        "    lines = sys.stdin.read().splitlines()\n"
        "    model = load_encoder('mini', device='cpu')\n"
        "    pool = model.start_multi_process_pool(['cpu'] * 2)\n"
        "    model.encode(lines[:200], pool=pool)\n"
        "    began = time.perf_counter()\n"
        "    found = model.encode(lines, pool=pool, batch_size=32)\n"
        "    print(time.perf_counter() - began)\n"
        "    assert len(found) == len(lines)\n"
        "    model.stop_multi_process_pool(pool)\n"
    )
    script = Path(tempfile.mkdtemp()) / "pool.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
        env=_one_thread(),
    )
    shutil.rmtree(script.parent)
    return float(done.stdout.split()[-1])


def shard_seconds(text: Path, folder: Path) -> float:
    """Return the seconds that two shards take from their first part to their last, scaled to all parts."""
    rows = max(1, -(-_lines(text) // PARTS))
    running = [
        subprocess.Popen(_command(text, folder, rows, "--shard", f"{shard}/2"), env=_one_thread()) for shard in range(2)
    ]
    for process in running:
        assert process.wait() == 0
    seconds = max(_between(sorted(folder.glob("part-*.parquet"))[shard::2]) for shard in range(2))
    shutil.rmtree(folder)
    return seconds


def _ray(text: Path, lines: list[str], folder: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    rows = max(1, -(-len(lines) // PARTS))
    for name, words in (("plain", ["--shard", "0/1"]), ("ray", ["--engine", "ray", "--workers", "1"])):
        parts = folder / name
        began = time.perf_counter()
        subprocess.run(_command(text, parts, rows, *words), check=True, env=_one_thread())
        found[f"{name}, with start"] = time.perf_counter() - began
        found[f"{name}, without start"] = _between(sorted(parts.glob("part-*.parquet")))
        shutil.rmtree(parts)
    return found


def _between(paths: list[Path]) -> float:
    """Return the seconds from the first part to the last, scaled up by the first one, whose beginning is not known."""
    ends = sorted(path.stat().st_mtime for path in paths)
    return (ends[-1] - ends[0]) * len(ends) / (len(ends) - 1)


def _command(text: Path, folder: Path, rows: int, *words: str) -> list[str]:
    command = [sys.executable, "-m", "selfguide", "encode", str(text), "--encoder", str(mini_folder())]
    return [*command, "--output", str(folder), "--part-rows", str(rows), "--quiet", "--device", "cpu", *words]


def _one_thread() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("what", choices=["pool", "ray"])
    parser.add_argument("--sentences", type=int, default=12_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
