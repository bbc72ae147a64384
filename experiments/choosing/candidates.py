"""The encoders that scores are held against, good and bad on purpose, and how they are made.

Nothing chooses between checkpoints: every encoder is the one after its last step, so that a bad one stays bad and no grade
has had a say. Good settings are those of ``experiments/table/settings.txt`` in runs of one pass or 240 steps of 64 sentences.
Bad ones have too few steps, rates that are far too high or too low, too much dropout or too soft a contrast.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from experiments.table import launch
from selfguide.comparison.cells import Cell
from selfguide.comparison.specs import parse_specs

STSB = "data:stsb"
UNTUNED: tuple[str, ...] = tuple(
    """
bow bow:size=32 cls mean max last2 first-last sif fused:tune=none whitening cls:layer=8 mean:layer=0 mean:layer=2 mean:layer=8
max:layer=0 max:layer=6 sif:layer=6 sif:whiten=false sif:layer=12 whitening:layer=0 whitening:layer=6 whitening:pooling=cls
whitening:pooling=max whitening:pooling=last2 whitening:k=32 whitening:exponent=0.25 fused:tune=none:weight=0.9
""".split()
)
_SIMCSE = "simcse:learning_rate=5e-5"
_SG_OPT = "sg-opt:learning_rate=5e-5:batch_size=64:max_steps=240"
_CONSERT = "consert:learning_rate=1e-4:batch_size=64:max_steps=240"
_CT = "ct:learning_rate=3e-5:batch_size=64:max_steps=240"
_MIRROR = "mirror:learning_rate=2e-5:batch_size=64:max_steps=240"
GOOD: tuple[str, ...] = (
    _SG_OPT,
    "sg:learning_rate=5e-5:batch_size=64:max_steps=240",
    _CONSERT,
    _MIRROR,
    _CT,
    "fused",
    _SIMCSE,
    f"{_SIMCSE}:pooling=mean",
    f"{_SIMCSE}:dropout=0.05",
)
BAD: tuple[str, ...] = (
    f"{_SIMCSE}:dropout=0.5",
    f"{_SIMCSE}:temperature=0.5",
    "simcse:learning_rate=1e-3",
    "sg-opt:learning_rate=1e-3:batch_size=64:max_steps=120",
    "sg-opt:learning_rate=5e-5:batch_size=64:max_steps=120:temperature=0.2",
    "sg:learning_rate=5e-4:batch_size=64:max_steps=120",
    "consert:learning_rate=1e-3:batch_size=64:max_steps=120",
    "consert:learning_rate=5e-7:batch_size=64:max_steps=120",
    "ct:learning_rate=5e-4:batch_size=64:max_steps=120",
    "mirror:learning_rate=1e-3:batch_size=64:max_steps=120",
    "fused:learning_rate=1e-3:max_steps=120",
    "fused:weight=0.2:max_steps=120",
    "simcse:learning_rate=1e-6:max_steps=120",
    f"{_SIMCSE}:max_steps=60",
    "sg-opt:learning_rate=5e-5:batch_size=64:max_steps=30",
    "mirror:learning_rate=2e-5:batch_size=64:max_steps=30",
    "fused:max_steps=30",
    f"{_SIMCSE}:max_steps=15",
)
# They begin where the encoder of their first stage ended, which is kept by then.
CHAINS: tuple[str, ...] = tuple(
    f"{spec}+whitening" for spec in (_SIMCSE, _SG_OPT, _CONSERT, "simcse:learning_rate=1e-3")
)
BY_SEED: dict[int, tuple[str, ...]] = {
    1: (*GOOD, *UNTUNED, *BAD, *CHAINS),
    2: (
        _SG_OPT,
        _CONSERT,
        "fused",
        _SIMCSE,
        f"{_SIMCSE}:max_steps=15",
        "ct:learning_rate=5e-4:batch_size=64:max_steps=120",
    ),
}
"""What is made with each seed, long ones first so that none is waited for in the end."""
REHEARSED: dict[int, tuple[str, ...]] = {
    1: ("simcse:max_steps=2:batch_size=8", "fused:max_steps=2:batch_size=8", "mean", "whitening"),
    2: ("simcse:max_steps=2:batch_size=8",),
}


@dataclass(frozen=True)
class Making:
    """Where and how encoders are made."""

    data: Path
    encoder: str
    jobs: int
    until: float | None
    """Of time.monotonic(): cells in hand are then stopped and finished ones kept."""
    partial: bool = False
    """Whether files with rows missing will do."""


def comparison(work: Path, seed: int) -> Path:
    """The folder of the encoders of a seed."""
    return work / f"seed{seed}"


def make(work: Path, by_seed: dict[int, tuple[str, ...]], how: Making) -> None:
    """All encoders, the seeds side by side with their share of the processes. What is there is not made again."""
    shares = shared_out(how.jobs, by_seed)

    def one(seed: int, specs: Sequence[str]) -> int:
        return launch.compare(words(work, seed, specs, shares[seed], how), how.data, how.until)

    with ThreadPoolExecutor(len(by_seed)) as pool:
        codes = list(pool.map(one, by_seed, by_seed.values()))
    if any(codes):
        print("Not every encoder was made; what follows is about those that were.", flush=True)


def shared_out(jobs: int, by_seed: dict[int, tuple[str, ...]], sentences: int = 15_455) -> dict[int, int]:
    """The processes of each seed, by the steps that it has to train; chains train nothing themselves."""
    specs = {seed: parse_specs([spec for spec in many if spec not in CHAINS]) for seed, many in by_seed.items()}
    steps = {seed: sum(Cell(spec, seed, 0).steps(sentences) for spec in many) for seed, many in specs.items()}
    return {seed: max(1, round(jobs * own / sum(steps.values()))) for seed, own in steps.items()}


def words(work: Path, seed: int, specs: Sequence[str], jobs: int, how: Making) -> list[str]:
    """What `selfguide compare` is told; no --dev, so that no checkpoint is chosen."""
    found = [STSB, "--methods", ",".join(specs), "--seeds", f"{seed},", "--tasks", "sts,stsb-dev"]
    found += ["--encoder", how.encoder, "--data", str(how.data), "--offline", "--bootstrap", "0", "--batch-size", "256"]
    found += ["--allow-partial"] if how.partial else []
    return [*found, "--keep", "--jobs", str(jobs), "--output", str(comparison(work, seed).resolve())]
