"""Measure reading and de-duplicating from 10⁴ to 10⁸ lines: seconds and peak memory, on disk and in memory.

    python -m experiments.scale.reading --folder FOLDER [--sizes 10000 100000 …]

Each size is read in a process of its own. The texts are made in the folder (6 GB for 10⁸ lines) and deleted after use. The
number of lines that are kept is compared with the number of different lines that were drawn. Seconds are those of the
processor too, because the machine may be busy with other work.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from experiments.origins import NONE
from experiments.provenance import RESULTS, command_parser, peak_megabytes, provenance, write
from experiments.scale.texts import REPEATS, SEED, write_lines

SIZES = [10**4, 10**5, 10**6, 10**7, 10**8]


def main() -> None:
    """Measure the sizes that the results file lacks, and write it after each."""
    arguments = _arguments()
    if arguments.one is not None:
        print(json.dumps(read(arguments.one, arguments.in_memory)))
        return
    out = arguments.out or RESULTS / "scale-reading.json"
    rows: list[dict[str, Any]] = json.loads(out.read_text())["rows"] if out.exists() else []
    for size in arguments.sizes:
        path = arguments.folder / f"lines-{size}.txt"
        facts: dict[str, Any] = {}
        for way in arguments.ways:
            if any(row["lines"] == size and row["way"] == way for row in rows):
                continue
            facts = facts or write_lines(path, size)
            words = ["--one", str(path), *(["--in-memory"] if way == "in memory" else [])]
            found = json.loads(_child(words))
            assert found["kept"] == facts["different"], (found, facts)
            rows.append({**facts, "way": way, **found})
            print(rows[-1], flush=True)
            text = {"name": "drawn lines", "seed": SEED, "share of repeats": REPEATS, "digest": found["fingerprint"]}
            write(out, {**provenance(None, text=text, seeds=[SEED]), "encoder": NONE, "rows": rows})
        path.unlink(missing_ok=True)


def read(path: Path, in_memory: bool) -> dict[str, Any]:
    """Read a file and count what is kept.

    Args:
        path: The file.
        in_memory: Keep all hashes in memory, however many there are.

    Returns:
        Sentences kept, seconds, seconds of the processor, peak memory in MB and that before reading.
    """
    import numpy as np  # noqa: F401 - so that its memory counts as that of the start

    from selfguide.data import Sentences

    if in_memory:
        module: Any = importlib.import_module("selfguide.data.sentences")
        module.IN_MEMORY = 1 << 62
    text = Sentences([path])
    before, clock, used = peak_megabytes(), time.perf_counter(), time.process_time()
    kept = sum(1 for _ in text)
    return {
        "kept": kept,
        "duplicates": text.summary.duplicates,
        "seconds": time.perf_counter() - clock,
        "cpu_seconds": time.process_time() - used,
        "megabytes": peak_megabytes(),
        "megabytes_at_start": before,
        "fingerprint": (text.summary.fingerprint or "")[:16],
    }


def _child(words: list[str]) -> str:
    command = [sys.executable, "-m", "experiments.scale.reading", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("--folder", type=Path, default=Path("."), help="where the texts are made")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--ways", nargs="+", default=["on disk", "in memory"], choices=["on disk", "in memory"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--in-memory", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
