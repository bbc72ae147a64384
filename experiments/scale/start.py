"""Measure how long training takes to start on a large text, and how much memory it takes.

    python -m experiments.scale.start TEXT [--steps 20]

``mini`` is trained with SG-OPT for some steps. Three times are kept, all from before the libraries are imported: when the text is
read, cleaned and written, when the first step is done, and when the last one is. Memory is that of the process itself (RssAnon):
pages of the mapped text, which the system drops when it needs them, do not count.
"""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path
from typing import Any

from experiments.provenance import RESULTS, command_parser, provenance, write


def main() -> None:
    """Train, and write the results file."""
    arguments = _arguments()
    began = time.perf_counter()
    import importlib  # the libraries belong to the start

    import selfguide
    from selfguide.training import callbacks

    run: Any = importlib.import_module("selfguide.runs.run")
    times: dict[str, float] = {}
    used: dict[str, float] = {}
    most = [0.0]
    done = threading.Event()

    def mark(name: str) -> None:
        if name not in times:
            times[name], used[name] = time.perf_counter() - began, time.process_time()

    def watch() -> None:
        while not done.wait(0.2):
            most[0] = max(most[0], anonymous_megabytes())

    prepare = run.prepare_text

    def prepared(*given: Any, **named: Any) -> Any:
        found = prepare(*given, **named)
        mark("text ready")
        most.append(most[0])
        return found

    step = callbacks.ProgressAndCheckpoints.on_step_end

    def stepped(self: Any, args: Any, state: Any, control: Any, **named: Any) -> None:
        mark("first step")
        step(self, args, state, control, **named)

    run.prepare_text = prepared
    callbacks.ProgressAndCheckpoints.on_step_end = stepped  # type: ignore[method-assign]
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    output = arguments.folder / "out"
    selfguide.train("mini", arguments.text, "sg-opt", output=output, max_steps=arguments.steps, seed=1, report=False)
    mark("last step")
    done.set()
    import json

    record = json.loads((output / "run.json").read_text())
    text = record["text"]
    write(
        arguments.out or RESULTS / "scale-start.json",
        {
            **provenance(
                "mini", text={"name": "drawn lines", "sentences": text["kept"], "digest": text["fingerprint"][:16]}
            ),
            "seeds": [1],
            "lines": text["read"],
            "steps": arguments.steps,
            "seconds": times,
            "cpu_seconds": used,
            "seconds_from_text_to_first_step": times["first step"] - times["text ready"],
            "megabytes_while_reading": most[1],
            "megabytes": most[0],
        },
    )


def anonymous_megabytes() -> float:
    """Return the memory of this process that is no mapped file, in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("text", type=Path)
    parser.add_argument("--folder", type=Path, required=True, help="where the run works")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
