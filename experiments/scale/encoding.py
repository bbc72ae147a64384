"""Encode 10 million rows into parts while the process is killed again and again, and count what is there at the end.

    python -m experiments.scale.encoding --encoder FOLDER --folder FOLDER [--rows 10000000] [--kills 6]

The text has repeats and is read from one file. The encoding runs in a process of its own, which gets SIGKILL after a drawn
number of new parts and is started again with the same command. At the end ``selfguide encode --check`` compares the parts
with the text, and the ids are counted once more here, without selfguide. The parts keep 32 dimensions, so that they fit on
a disk.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from experiments.provenance import RESULTS, command_parser, folder_hash, provenance, write
from experiments.scale.texts import REPEATS, SEED, write_lines


def main() -> None:
    """Encode, kill, go on, check, and write the results file."""
    arguments = _arguments()
    text, parts = arguments.folder / f"lines-{arguments.rows}.txt", arguments.folder / "parts"
    facts = write_lines(text, arguments.rows)
    shutil.rmtree(parts, ignore_errors=True)
    words = [sys.executable, "-m", "selfguide", "encode"]
    command = [*words, str(text), "--encoder", str(arguments.encoder), "--output", str(parts), "--dim", "32"]
    command += ["--part-rows", str(arguments.part_rows), "--shard", "0/1", "--quiet"]
    draw = np.random.default_rng(SEED)
    waits = draw.integers(2, max(3, arguments.rows // arguments.part_rows // (arguments.kills + 1)), arguments.kills)
    began, used = time.perf_counter(), _children_cpu()
    runs = [_killed_after(command, parts, int(wait)) for wait in waits]
    subprocess.run(command, check=True)
    seconds, cpu = time.perf_counter() - began, _children_cpu() - used
    began = time.perf_counter()
    checked = subprocess.run([*words, "--check", str(parts)], capture_output=True, text=True, check=False)
    content = {
        **provenance(
            arguments.encoder.name,
            arguments.encoder,
            text={"name": "drawn lines", "seed": SEED, "share of repeats": REPEATS, "digest": _digest(parts)},
            seeds=[SEED],
        ),
        "encoder": {"name": arguments.encoder.name, "weights": folder_hash(arguments.encoder)},
        "text_facts": facts,
        "part_rows": arguments.part_rows,
        "dimensions": 32,
        "kills": runs,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "rows_a_second": arguments.rows / seconds,
        "rows_a_cpu_second": arguments.rows / cpu,
        "check": {
            "exit": checked.returncode,
            "said": checked.stderr.replace(str(parts), "parts").strip().splitlines()[-1:],
            "seconds": time.perf_counter() - began,
        },
        **counted(parts, arguments.rows),
    }
    write(arguments.out or RESULTS / "scale-encoding.json", content)
    shutil.rmtree(parts)
    text.unlink()


def _killed_after(command: list[str], parts: Path, count: int) -> dict[str, int]:
    """Run the command until it has made so many new parts, and kill it."""
    before = len(list(parts.glob("part-*.parquet")))
    running = subprocess.Popen(command)
    while len(list(parts.glob("part-*.parquet"))) < before + count:
        if running.poll() is not None:
            raise SystemExit("The encoding ended before it could be killed: fewer --kills, or more --rows.")
        time.sleep(0.05)
    time.sleep(0.3)  # into the next part
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    half = len([path for path in parts.iterdir() if ".tmp" in path.name])
    return {"parts_before": before, "parts_after": len(list(parts.glob("part-*.parquet"))), "half_written": half}


def counted(parts: Path, rows: int) -> dict[str, Any]:
    """Count the ids of all parts, with nothing but pyarrow and numpy."""
    import pyarrow.parquet as pq

    times = np.zeros(rows, dtype=np.uint8)
    size = 0
    for path in sorted(parts.glob("part-*.parquet")):
        times += np.bincount(pq.read_table(path, columns=["id"])["id"].to_numpy(), minlength=rows).astype(np.uint8)
        size += path.stat().st_size
    return {
        "rows_in": rows,
        "rows_out": int(times.sum()),
        "missing": int((times == 0).sum()),
        "twice": int((times > 1).sum()),
        "bytes_a_row": size / rows,
    }


def _digest(parts: Path) -> str:
    from selfguide.engine.parts import Manifest

    return Manifest.from_folder(parts).text_digest[:16]


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("--encoder", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="where text and parts are made")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--part-rows", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
