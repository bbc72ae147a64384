"""Label-free scores held against grades, over good and bad encoders: makes them, looks at them, correlates.

    SELFGUIDE_DATA=folder python -m experiments.choosing.validate WORK --make --jobs 14 --minutes 2
    SELFGUIDE_DATA=folder python -m experiments.choosing.validate WORK                # the encoders that are there
    SELFGUIDE_DATA=folder python -m experiments.choosing.validate WORK --rehearse     # in miniature, on a CPU

The data folder has sts/ and domain/. WORK keeps the encoders (100 MB each) and a small file for each that was looked at;
neither is made twice, so the same command goes on where it was stopped. Written are the results file, and WORK/choosing.md
with the tables. ``--archive`` packs cells and these files: unpacked elsewhere, the tables can be made without the encoders.
"""

from __future__ import annotations

import argparse
import os
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

from experiments.choosing import candidates, correlations, looking
from experiments.results import RESULTS, folder_hash, provenance, write
from experiments.table import launch

OUT = RESULTS / "choosing.json"
_FEW = 30
"""In a rehearsal: pairs of each file."""


def main() -> None:
    arguments = _arguments()
    began = time.monotonic()
    launch.hear_ctrl_c()
    work, data = arguments.work.resolve(), launch.unpacked(arguments.data)
    if not any((data / "domain").glob("*.tsv")):
        raise SystemExit("The data folder has no domain/*.tsv: other domains are half of the question.")
    work.mkdir(parents=True, exist_ok=True)
    seconds: dict[str, float] = {}
    if arguments.rehearse:
        data = small_data(data, work / "data")
    with launch.shared_gpu(arguments.mps) as shared:
        print(f"the GPU's multi-process service: {'on' if shared else 'off'}", flush=True)
        if arguments.make or arguments.rehearse:
            by_seed = candidates.REHEARSED if arguments.rehearse else candidates.BY_SEED
            until = began + 60 * arguments.minutes if arguments.minutes else None
            candidates.make(
                work, by_seed, candidates.Making(data, arguments.encoder, arguments.jobs, until, arguments.rehearse)
            )
            seconds["making"] = round(time.monotonic() - began)
        halfway = time.monotonic()
        looking.look(work, data, arguments.seed, arguments.jobs, arguments.rehearse)
        seconds["looking"] = round(time.monotonic() - halfway)
    if arguments.archive:
        pack(work, arguments.archive)
    # What this Python lacks may be among the inputs. Not sooner: the processes above were told of it because it is lacking.
    sys.path += launch.environment(data)["PYTHONPATH"].split(os.pathsep)
    content = results(arguments, seconds)
    for name, why in (content["not_made"] | content["left_out"]).items():
        print(f"left out: {name}: {why}")
    print(correlations.printed(content["grounds"]))
    passed = ", ".join(content["good_enough"]) or "none"
    print(f"\nat least {correlations.BAR} on every ground: {passed}; {time.monotonic() - began:.0f} s")
    out = arguments.out or (work / "choosing.json" if arguments.rehearse else OUT)
    write(out, content)
    (work / "choosing.md").write_text(correlations.markdown(content["grounds"]), encoding="utf-8")


def results(arguments: argparse.Namespace, seconds: dict[str, float]) -> dict[str, Any]:
    """What the results file says."""
    from selfguide.data.resources import (
        mini_folder,  # not before the folder of inputs is known, which may bring libraries
    )

    looked = correlations.read(arguments.work, arguments.seed)
    found = correlations.evaluated(looked, 3 if arguments.rehearse else correlations.FEWEST)
    encoder = {"name": arguments.encoder} if arguments.encoder == "mini" else {}
    if encoder:
        encoder["weights"] = folder_hash(mini_folder())
    return {
        **provenance("SELFGUIDE_DATA=... python -m experiments.choosing.validate WORK --make"),
        "encoder": encoder | {"digests": sorted({one["base"] for one in looked})},
        "text": "STS-B sentences (train, dev, test), no grades, repeats dropped",
        "protocol": "no dev pairs: every encoder is the one after its last step; grades x 100 of cosine, text as released; "
        f"at most {looking.MOST_PAIRS:,} pairs of a domain, drawn at random with the seed",
        "seed": arguments.seed,
        "rehearsal": arguments.rehearse,
        "notes": sorted({note for one in looked for note in one["notes"]}),
        "not_made": looking.not_made(arguments.work),
        "left_out": correlations.left_out(looked),
        "seconds": seconds,
        "bar": correlations.BAR,
        "worst_ground": correlations.worst(found),
        "good_enough": correlations.good_enough(found),
        "steps": {one["encoder"]: one["steps"] for one in looked},
        "grounds": found,
    }


def small_data(data: Path, folder: Path) -> Path:
    """The first pairs of every file, in the same layout."""
    for kind in ("sts", "domain"):
        for path in sorted((data / kind).rglob("*.tsv")):
            target = folder / path.relative_to(data)
            target.parent.mkdir(parents=True, exist_ok=True)
            lines = path.read_text(encoding="utf-8").split("\n")[:_FEW]
            target.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def pack(work: Path, archive: Path) -> None:
    """The cells and what was found of every encoder, without the encoders."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:xz", preset=1) as packed:
        for pattern in (f"{looking.FOLDER}/*", "seed*/cells/*.json"):
            for path in sorted(work.glob(pattern)):
                packed.add(path, arcname=str(path.relative_to(work)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("work", type=Path, help="folder of the encoders and of what is found; kept")
    parser.add_argument("--make", action="store_true", help="make the encoders first, on STS-B's sentences")
    parser.add_argument(
        "--minutes", type=float, default=0, help="stop making encoders after so many; 0: when all are made"
    )
    parser.add_argument("--encoder", default="mini", help="with --make: what they start from")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--seed", type=int, default=1, help="of the label-free scores and of the drawn pairs")
    parser.add_argument(
        "--data", type=Path, default=os.environ.get("SELFGUIDE_DATA"), help="folder with sts/ and domain/"
    )
    parser.add_argument("--out", type=Path, help="results file; empty: experiments/results/choosing.json")
    parser.add_argument("--archive", type=Path, help="pack what was found into this file")
    parser.add_argument(
        "--no-mps", dest="mps", action="store_false", help="leave the GPU's multi-process service alone"
    )
    parser.add_argument("--rehearse", action="store_true", help="five encoders, two steps, 30 pairs of each file")
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("set SELFGUIDE_DATA (or --data) to a folder with sts/ and domain/")
    return arguments


if __name__ == "__main__":
    main()
