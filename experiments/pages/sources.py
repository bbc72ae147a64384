"""Results files under short names, and values in them by path.

A path is written ``name:key/key/…``. A key with a space, comma or other mark is quoted: ``evidence:'by length'/…``. In a list, a
key selects the entries in which some field has this value: ``temperature:sg-opt/0.01`` is the row of that method and temperature.
A path that ends at a row means the row's average, the key # the number of entries,
and ``end`` the last entry of a list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from experiments.provenance import RESULTS

ROOT = RESULTS.parents[1]
_PRETRAINING = "experiments/pretraining/mini"

# A short name, the file, and the part of it in which paths begin.
FILES: dict[str, tuple[str, str]] = {
    "main": ("experiments/results/main-table/comparison.json", "rows"),
    "main-setting": ("experiments/results/main-table/comparison.json", "setting"),
    "inputs": ("experiments/results/main-table/manifest.json", ""),
    "rates": ("experiments/results/main-table/rates.json", "dev"),
    "sentence-minilm": ("experiments/results/sentence-encoders/all-MiniLM-L6-v2/comparison.json", "rows"),
    "fused-5e-5": ("experiments/results/main-table/fused-at-5e-5.json", "rows"),
    "published": ("experiments/main_table/published.json", "rows"),
    "papers": ("experiments/main_table/published.json", "others"),
    "seeds": ("experiments/results/stsb-sg-opt-mini.json", ""),
    "free": ("experiments/results/comparison-training-free-mini/comparison.json", "rows"),
    "demo": ("experiments/results/comparison-demo/comparison.json", "rows"),
    "demo-pairs": ("experiments/results/demo-pairs.json", ""),
    "scores": ("experiments/results/evaluation-mini/scores.json", ""),
    "minilm": ("experiments/results/evaluation-all-MiniLM-L6-v2/scores.json", ""),
    "adapt-dev": ("experiments/results/adapt-development.json", ""),
    "adapt-report": ("experiments/results/adapt-report.json", ""),
    "centring-dev": ("experiments/results/adapt-centring-development.json", ""),
    "centring-report": ("experiments/results/adapt-centring-report.json", ""),
    "cone-dev": ("experiments/results/adapt-cone-development.json", ""),
    "cone-rates": ("experiments/results/adapt-cone-rates.json", ""),
    "cone-full": ("experiments/results/adapt-cone-full.json", ""),
    "cone-report": ("experiments/results/adapt-cone-report.json", ""),
    "cone-tasks": ("experiments/results/adapt-cone-tasks.json", ""),
    "second-cone": ("experiments/results/adapt-second-cone.json", ""),
    "cone-small": ("experiments/results/adapt-cone-small.json", ""),
    "adapt-teachers": ("experiments/results/adapt-teachers-development.json", ""),
    "adapt-views": ("experiments/results/adapt-views-development.json", ""),
    "centring-mpnet": ("experiments/results/adapt-centring-mpnet-report.json", ""),
    "trained-report": ("experiments/results/adapt-trained-report.json", ""),
    "peers-dev": ("experiments/results/adapt-peers-development.json", ""),
    "peers-report": ("experiments/results/adapt-peers-report.json", ""),
    "elsewhere": ("experiments/results/adapt-elsewhere.json", ""),
    "adapt-timing": ("experiments/results/adapt-timing.json", ""),
    "choosing": ("experiments/results/choosing.json", "grounds"),
    "robustness": ("experiments/results/robustness.json", ""),
    "cpu": ("experiments/results/encoding-speed-cpu.json", ""),
    "search": ("experiments/results/search.json", ""),
    "load": ("experiments/results/serving-load.json", ""),
    "soak": ("experiments/results/serving-soak.json", "encoders/all-MiniLM-L6-v2/soak"),
    "map-frames": ("experiments/results/map-frames.json", ""),
    "static": ("experiments/results/static-encoders.json", ""),
    "static-speed": ("experiments/results/static-speed.json", ""),
    "packed-rows": ("experiments/results/packed-rows.json", ""),
    "linear": ("experiments/results/linear-layers.json", ""),
    "cuda": ("experiments/results/encoding-speed-cuda.json", ""),
    "steps": ("experiments/results/training-speed.json", "settings"),
    "parts": ("experiments/results/training-parts.json", "settings"),
    "growth": ("experiments/results/training-growth.json", ""),
    "gpu": ("experiments/results/gpu-training.json", ""),
    "scale-reading": ("experiments/results/scale-reading.json", ""),
    "scale-start": ("experiments/results/scale-start.json", ""),
    "scale-pool": ("experiments/results/scale-pool.json", ""),
    "scale-ray": ("experiments/results/scale-ray.json", ""),
    "scale-processes": ("experiments/results/scale-processes-cpu.json", ""),
    "scale-encoding": ("experiments/results/scale-encoding.json", ""),
    "ablation": ("experiments/results/studies/ablation/study.json", "tables/ablation/rows"),
    "temperature": ("experiments/results/studies/temperature/study.json", "tables/scores/rows"),
    "batch": ("experiments/results/studies/batch-size/study.json", "tables/scores/rows"),
    "few": ("experiments/results/studies/low-resource/study.json", "tables/scores/rows"),
    "pairs": ("experiments/results/studies/augmentations/study.json", "tables/scores/rows"),
    "domains": ("experiments/results/studies/domains/study.json", "tables/scores/rows"),
    "own-text": ("experiments/results/studies/domains/study.json", "tables/own/rows"),
    "geometry": ("experiments/results/studies/geometry/study.json", "tables/geometry/rows"),
    "layers": ("experiments/results/studies/layers/study.json", "tables/layers/rows"),
    "layer-tasks": ("experiments/results/studies/layers/study.json", "tables/tasks/rows"),
    "cost": ("experiments/results/studies/efficiency/study.json", "tables/costs/rows"),
    "cost-2": ("experiments/results/studies/efficiency-two-cores/study.json", "tables/costs/rows"),
    "fused": ("experiments/results/fused-ablation.json", "rows"),
    "tuners": ("experiments/results/fused-tuners.json", "rows"),
    "evidence": ("experiments/results/fused-evidence.json", ""),
    "fused-domain": ("experiments/results/fused-domain.json", ""),
    "small": ("experiments/results/fused-small-text.json", "rows"),
    "fused-cost": ("experiments/results/fused-cost.json", ""),
    "vocabularies": ("experiments/results/multilingual/vocabularies.json", ""),
    "multi-pretraining": ("experiments/results/multilingual/pretraining-multi-rehearsal.json", ""),
    "multi-study": ("experiments/results/multilingual/multilingual-multi-rehearsal.json", ""),
    "variants": (f"{_PRETRAINING}/variants.json", "variants"),
    "run-1": (f"{_PRETRAINING}/run-1-sg-opt.json", ""),
    "run-2": (f"{_PRETRAINING}/run-2-sg-opt.json", ""),
    "log-1": (f"{_PRETRAINING}/run-1-results.jsonl", ""),
    "log-2": (f"{_PRETRAINING}/run-2-results.jsonl", ""),
    "log-3": (f"{_PRETRAINING}/run-3-results.jsonl", ""),
}
COUNT, LAST = "#", "end"
AVERAGES = ("sts avg", "average", "demo")
"""Names of the figure that stands for a whole row, in the order in which they are looked for."""


class Unknown(ValueError):
    """A page names a file, a key or a function that there is not."""


@dataclass(frozen=True)
class Spread:
    """The mean of several runs, its sample standard deviation, and the runs by seed where the file has them."""

    mean: float
    deviation: float | None = None
    runs: dict[str, float] = field(default_factory=dict, compare=False)

    def __float__(self) -> float:
        return self.mean


@cache
def read(path: str) -> Any:
    """Return the content of a results file: JSON, or a list for JSON Lines.

    Raises:
        Unknown: There is no such file.
    """
    if not (ROOT / path).is_file():
        raise Unknown(f"There is no {path} yet; experiments/README.md has the command that writes it.")
    text = (ROOT / path).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()] if path.endswith(".jsonl") else json.loads(text)


@cache
def value(path: str) -> float | Spread | str:
    """Return the value that a path names.

    Args:
        path: ``name:key/key/…``; see the module.

    Returns:
        A number, a mean with its deviation, or a text.

    Raises:
        Unknown: There is no such file or key, or it is no single value.
    """
    found = lookup(path)
    shown = _single(found)
    if shown is None:
        raise Unknown(f"{path} is no single value but {_described(found)}.")
    return shown


def lookup(path: str) -> Any:
    """Return whatever a path names: a value, a dictionary or a list.

    Args:
        path: ``name:key/key/…``.

    Raises:
        Unknown: There is no such file or key.
    """
    name, _, keys = path.partition(":")
    if name not in FILES:
        raise Unknown(f"There is no results file named {name}; experiments/pages/sources.py lists them.")
    file, start = FILES[name]
    found = read(file)
    for key in [*filter(None, start.split("/")), *_keys(keys)]:
        found = _step(found, key, path)
    return found


def _keys(text: str) -> list[str]:
    return [quoted or bare for quoted, bare in re.findall(r"'([^']*)'|([^/']+)", text)]


def _step(found: Any, key: str, path: str) -> Any:
    if key == COUNT and isinstance(found, (Mapping, list)):
        return len(found)
    if isinstance(found, Mapping):
        inner = found.get("values", {}) if isinstance(found.get("values"), Mapping) else {}
        for holder in (found, inner):
            if key in holder:
                return holder[key]
    if isinstance(found, list):
        if key == LAST and not any(LAST in _fields(item) for item in found if isinstance(item, Mapping)):
            return found[-1]
        chosen = [item for item in found if isinstance(item, Mapping) and key in _fields(item)]
        if chosen:
            return chosen[0] if len(chosen) == 1 else chosen
        if key.isdigit() and int(key) < len(found):
            return found[int(key)]
    raise Unknown(f"{path}: there is no {key!r} in {_described(found)}.")


def _fields(item: Mapping[str, Any]) -> set[str]:
    """Return the plain values by which an entry of a list can be selected, and the name of its encoder."""
    plain = {f"{value:g}" if isinstance(value, float) else str(value) for value in item.values() if _is_plain(value)}
    encoder = item.get("encoder")
    return plain | ({str(encoder["name"])} if isinstance(encoder, Mapping) and "name" in encoder else set())


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


def _single(found: Any) -> float | Spread | str | None:
    if isinstance(found, (int, float, str)):
        return found
    if not isinstance(found, Mapping):
        return None
    if "mean" in found and not isinstance(found["mean"], Mapping) and "deviation" in found:
        runs = found.get("by_seed") or {str(place): run for place, run in enumerate(found.get("values", []), 1)}
        once = len(runs) == 1
        return Spread(found["mean"], None if once else found["deviation"], runs)
    if "seeds" in found and isinstance(found["seeds"], Mapping):  # a variant of `fused`, rounded, with its seeds
        return _single(found["seeds"])
    for holder in (found, found.get("values")):
        for key in AVERAGES:
            if isinstance(holder, Mapping) and key in holder:
                return _single(holder[key])
    return found["value"] if isinstance(found.get("value"), float) else None


def _described(found: Any) -> str:
    if isinstance(found, Mapping):
        return "the keys " + ", ".join(map(repr, list(found)[:12])) + (" …" if len(found) > 12 else "")
    return f"a list of {len(found)}" if isinstance(found, list) else repr(found)
