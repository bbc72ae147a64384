"""Run the studies at full size on the embedded encoder: 3 seeds, STS-B's sentences, the seven STS sets.

    python -m experiments.studies --jobs 14 --minutes 9                          # the same command continues
    python -m experiments.studies --together 3 --jobs 15                            # three studies side by side
    python -m experiments.studies layers geometry
    python -m experiments.studies --rehearse                                        # all in miniature, on a CPU

The inputs are those of the main table (``python -m experiments.main_table.prepare``), and so are the learning rates and the
stopping rule (``experiments/main_table/settings.txt``).
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

from experiments.main_table import launch
from experiments.main_table.rows import SETTINGS_FILE, STOPPING, read_settings
from experiments.provenance import command_parser

# By study, in the order in which they are run: methods whose settings are those of the main table, and the study's own settings.
STUDIES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "ablation": ((), ()),
    "layers": ((), ()),
    "geometry": (("simcse",), ()),
    "low-resource": (("simcse",), ("max_steps=400", "patience=0")),
    "temperature": (("simcse",), ("methods=sg-opt,simcse",)),
    "augmentations": (("consert",), ()),
    "batch-size": (("simcse", "consert"), ("batch_sizes=8,16,32,64,128,256",)),
    "domains": (("simcse",), ("methods=sg-opt,simcse,fused",)),
    "frequent-tokens": (("simcse", "consert"), ()),
    "efficiency": ((), ("methods=mean,wk,flow,sg-opt", "passes=1")),
    "finetune": ((), ()),
}
# Enough to see that everything works.
_REHEARSAL = ("--limit", "120", "--seeds", "1", "--tasks", "demo", "--dev", "demo-dev", "--set", "max_steps=2")
# These measure time, so nothing else may run.
ALONE = ("efficiency",)
# Fewer sentences are enough for these.
LIMITS = {"efficiency": 2000}


def main() -> int:
    """Run the studies, and return the exit code."""
    arguments = _arguments()
    inputs, output = launch.inputs_folder(arguments.inputs), Path(arguments.output).resolve()
    until = launch.deadline(arguments)
    names = arguments.names or list(STUDIES)
    alone = [name for name in names if name in ALONE]
    others = [name for name in names if name not in ALONE]

    def run(name: str, jobs: int) -> int:
        if until is not None and time.monotonic() > until:
            print(f"no time left for {name}", flush=True)
            return 0
        words = [name, "--full", "--output", str(output / name), "--jobs", str(jobs)]
        for setting in settings_of(name):
            words += ["--set", setting]
        words += ["--limit", str(LIMITS[name])] if name in LIMITS else []
        words += _REHEARSAL if arguments.rehearse else ()
        return launch.command("study", words, inputs, until)

    launch.hear_ctrl_c()
    with launch.shared_gpu(arguments.mps) as shared:
        print(f"the GPU's multi-process service: {'on' if shared else 'off'}", flush=True)
        with ThreadPoolExecutor(arguments.together) as pool:
            codes = list(pool.map(run, others, repeat(max(1, arguments.jobs // arguments.together))))
        codes += [run(name, arguments.jobs) for name in alone]
    return max(codes)


def settings_of(name: str) -> list[str]:
    """Return the values of a study's ``--set``."""
    methods, own = STUDIES[name]
    chosen = [line for line in read_settings(SETTINGS_FILE) if line.partition(".")[0] in methods]
    return [STOPPING, *chosen, *own]


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("names", nargs="*", help=f"any of {', '.join(STUDIES)}; default: all")
    launch.add_options(parser, ".device-results/studies")
    parser.add_argument("--together", type=int, default=1, help="studies run at a time, which share the jobs")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(STUDIES):
        parser.error(f"there is no study {', '.join(sorted(unknown))}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
