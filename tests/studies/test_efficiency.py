"""``selfguide study efficiency``: costs in processes of their own, and ratios against the mean of the same round."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import selfguide
from selfguide.errors import SelfguideError, UsageError
from selfguide.studies import measuring, registry
from selfguide.studies.base import Setup
from selfguide.studies.efficiency import UNIT
from selfguide.studies.files import write_figures

SETTINGS = ("max_steps=2", "batch_size=4", "head_size=8", "methods=whitening,sg-opt", "rounds=2", "passes=1")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Measurements are made in this process: importing torch for each would take most of the time."""
    made: list[str] = []

    def one_by_one(jobs: Sequence[Any], side_by_side: int, *, fresh: bool) -> Iterator[Any]:
        assert fresh
        for job in jobs:
            made.append(job.stem)
            yield measuring.measure(job)

    monkeypatch.setattr(measuring, "run_in_processes", one_by_one)
    return made


def study(bert: Path, text: Path, pairs: Path, output: Path, *settings: str, failed: int = 0) -> dict[str, Any]:
    given: dict[str, Any] = {
        "encoder": bert,
        "text": text,
        "limit": 30,
        "pairs": pairs,
        "dev": "",
        "jobs": 1,
        "report": False,
    }
    found = selfguide.study("efficiency", **given, settings=settings or SETTINGS, output=output)
    assert len(found.failed) == failed
    return found.results


def broken(address: str) -> Any:
    raise SelfguideError("no luck.")


def test_ratios_are_against_the_mean_of_the_same_round(
    bert: Path, text_file: Path, dev_file: Path, tmp_path: Path, here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    results = study(bert, text_file, dev_file, tmp_path / "study")
    measured = {key: item["result"] for key, item in results["measurements"].items()}
    assert len(measured) == 2 * 3 * 2
    ratios, costs = (
        {row["method"]: row for row in next(item for item in results["tables"] if item["key"] == key)["rows"]}
        for key in ("ratios", "costs")
    )
    assert list(ratios) == [UNIT, "whitening", "sg-opt"]
    assert ratios[UNIT]["inference ratio"]["by_seed"] == {"1": 1.0, "2": 1.0}
    for turn in ("1", "2"):
        unit = measured[f"inference-{UNIT}-{turn}"]
        tuned = measured[f"training-sg-opt-{turn}"]
        assert ratios["sg-opt"]["training ratio"]["by_seed"][turn] == tuned["seconds"] / unit["seconds"]
    assert costs["sg-opt"]["steps"] == 2
    assert costs[UNIT]["steps"] == 0
    assert costs["sg-opt"]["training seconds"]["mean"] > costs[UNIT]["training seconds"]["mean"]
    assert all(result["memory"]["peak"] > 50 for result in measured.values())
    by_key = {figure["key"]: figure for figure in results["figures"]}
    assert dict(by_key["training-time"]["dots"]) == {name: row["training ratio"] for name, row in ratios.items()}
    ((time_, score),) = by_key["score-by-training"]["groups"]["sg-opt"]
    assert (time_, score) == (ratios["sg-opt"]["training ratio"]["mean"], ratios["sg-opt"]["dev"]["mean"])
    assert len(write_figures(results, tmp_path / "study")) == 8

    here.clear()
    again = study(bert, text_file, dev_file, tmp_path / "study", *SETTINGS[:-2], "rounds=3", "passes=1")
    # The rounds that were measured stand.
    assert here == [f"{what}-{name}-3" for name in ratios for what in ("training", "inference")]
    assert again["measurements"]["training-sg-opt-1"] == results["measurements"]["training-sg-opt-1"]

    # Without the mean's own time there are seconds, and no ratios in that round.
    (tmp_path / "study" / "measurements" / f"inference-{UNIT}-1.json").unlink()
    monkeypatch.setattr(measuring, "function_of", broken)
    partial = study(bert, text_file, dev_file, tmp_path / "study", failed=1)
    row = next(row for row in partial["tables"][0]["rows"] if row["method"] == "sg-opt")
    assert list(row["training ratio"]["by_seed"]) == ["2"]
    assert list(row["training seconds"]["by_seed"]) == ["1", "2"]


def test_every_measurement_has_a_process_of_its_own_and_the_grids_settings() -> None:
    chosen = registry.make("efficiency")
    scale = chosen.small.with_settings(("methods=simcse", "learning_rate=1e-4"))
    plan = chosen.plan(Setup(scale, False, "mini", 12, sentences=400))
    assert plan.grids[0].specs == ("mean", "simcse")
    assert plan.grids[0].keep
    assert all(item.isolated for item in plan.measurements)
    stage = next(item for item in plan.measurements if item.key == "training-simcse-1").arguments["stages"][0]
    # head_size is among the small settings, and simcse has none: it is left out, as the grid does.
    assert (stage["training"]["learning_rate"], stage["training"]["max_steps"]) == (1e-4, 20)


@pytest.mark.parametrize("setting", ["rounds=0", "passes=0"])
def test_less_than_one_is_refused(setting: str, bert: Path) -> None:
    with pytest.raises(UsageError, match="must be at least 1, got 0"):
        selfguide.study("efficiency", encoder=bert, settings=(setting,))


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux can forget the largest size")
def test_memory_is_that_of_the_work_alone() -> None:
    # In a process of its own: how much an allocation adds here depends on what other tests have freed.
    script = """
import numpy as np
import torch
from selfguide.studies.memory import PeakMemory
gone = np.ones(60 * 2**17); del gone          # 60 MiB that were there before
with PeakMemory(on_gpu=False) as first: kept = np.ones(40 * 2**17)
with PeakMemory(on_gpu=False) as second: pass
print(first.to_dict()["added"], second.to_dict()["added"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    first, second = map(float, done.stdout.split())
    assert 39 <= first <= 45
    assert second <= 2
