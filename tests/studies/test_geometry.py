"""``selfguide study geometry``: its numbers against plain loops, its figures against its results."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import selfguide
from selfguide.errors import SelfguideError, UsageError
from selfguide.report.folders import write_report
from selfguide.studies.files import write_figures
from selfguide.studies.geometry_numbers import EDGES, explained, histograms, numbers, pair_map, points, spaced


def cloud(count: int = 30, width: int = 6, seed: int = 3) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(count, width)) + 0.7
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_the_numbers_are_those_of_plain_loops() -> None:
    units = cloud()
    left, right = list(range(0, 30, 2)), list(range(1, 30, 2))
    shares = np.linspace(0, 1, 15)
    found = numbers(units, left, right, shares)
    others = [(x, y) for number, x in enumerate(units) for y in units[number + 1 :]]
    assert found["anisotropy"] == pytest.approx(np.mean([x @ y for x, y in others]), abs=1e-5)
    spread = np.mean([math.exp(-2 * float(((x - y) ** 2).sum())) for x, y in others])
    assert found["uniformity"] == pytest.approx(math.log(spread), abs=1e-5)
    positive = [place for place in range(15) if shares[place] >= 0.8]
    distances = [float(((units[left[place]] - units[right[place]]) ** 2).sum()) for place in positive]
    assert found["alignment"] == pytest.approx(np.mean(distances), abs=1e-5)
    variances = np.linalg.eigvalsh(np.cov(units.T))[::-1]
    parts = np.sqrt(variances) / np.sqrt(variances).sum()
    assert found["effective_rank"] == pytest.approx(math.exp(-(parts * np.log(parts)).sum()), abs=1e-3)
    assert found["explained"]["1"] == pytest.approx(variances[0] / variances.sum(), abs=1e-5)
    assert found["explained"]["5"] == pytest.approx(variances[:5].sum() / variances.sum(), abs=1e-5)


def test_without_positive_pairs_there_is_no_alignment() -> None:
    found = numbers(cloud(), [0, 2], [1, 3], np.array([0.1, 0.5]))
    assert (found["alignment"], found["positive_cosine"]) == (None, None)
    assert found["negative_cosine"] is not None
    assert pair_map(cloud(), [0, 2], [1, 3], np.array([0.1, 0.5])) == {}


def test_a_histogram_counts_every_pair_once_in_the_bin_of_its_grade() -> None:
    counts = histograms(np.array([-1.0, 0.005, 1.0, 0.99]), np.array([0.0, 0.2, 1.0, 0.79]))
    assert [sum(by_bin) for by_bin in counts] == [1, 1, 0, 1, 1]
    assert counts[4][-1] == 1
    assert counts[1][EDGES.index(0.0)] == 1


def test_samples_are_evenly_spaced_and_always_the_same() -> None:
    assert spaced(3, 10).tolist() == [0, 1, 2]
    assert spaced(101, 3).tolist() == [0, 50, 100]
    grades = np.tile(np.arange(6.0), 200)
    shown = points(np.zeros(1200), grades)
    assert len(shown) == 400
    assert {grade for grade, _ in shown} == set(range(6))


def test_vectors_that_are_all_the_same_have_no_directions() -> None:
    assert explained(np.ones((5, 3))) == {}


def test_the_map_is_the_same_every_time() -> None:
    units, shares = cloud(60), np.array([0.0] * 15 + [1.0] * 15)
    left, right = list(range(0, 60, 2)), list(range(1, 60, 2))
    found = pair_map(units, left, right, shares)
    assert (len(found["positive"]), len(found["negative"])) == (15, 15)
    assert found == pair_map(units, left, right, shares)


def study(bert: Path, text: Path, pairs: Path, output: Path, failed: int = 0) -> dict[str, Any]:
    found = selfguide.study(
        "geometry",
        encoder=bert,
        text=text,
        limit=30,
        pairs=pairs,
        dev="",
        seeds=2,
        settings=("max_steps=2", "batch_size=4", "head_size=8", "methods=sg-opt"),
        output=output,
        jobs=1,
        report=False,
    )
    assert len(found.failed) == failed
    return found.results


def broken(address: str) -> Any:
    raise SelfguideError("no luck.")


def test_the_study_shows_its_numbers(
    bert: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from toys import toy_sentences

    # Enough pairs at both ends of the scale for a map.
    texts = toy_sentences(120)
    rows = [f"{number % 6}\t{texts[number]}\t{texts[119 - number]}" for number in range(60)]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("\n".join(rows) + "\n", encoding="utf-8")
    folder = tmp_path / "study"
    results = study(bert, text_file, pairs, folder)
    assert json.loads((folder / "study.json").read_text(encoding="utf-8")) == results

    measured = {key: item["result"] for key, item in results["measurements"].items()}
    assert list(measured) == ["cls.once", "mean.once", "sg-opt.seed1", "sg-opt.seed2"]
    table = results["tables"][0]["rows"]
    assert [row["vectors"] for row in table] == ["[CLS], untuned", "mean, untuned", "sg-opt"]
    assert table[0]["anisotropy"]["mean"] == measured["cls.once"]["anisotropy"]
    assert table[2]["uniformity"]["by_seed"] == {
        str(seed): measured[f"sg-opt.seed{seed}"]["uniformity"] for seed in (1, 2)
    }

    by_key = {figure["key"]: figure for figure in results["figures"]}
    places = by_key["alignment-uniformity"]["groups"]["sg-opt"]
    assert places == [[measured[f"sg-opt.seed{seed}"][name] for name in ("uniformity", "alignment")] for seed in (1, 2)]
    assert by_key["grades-3"]["groups"]["sg-opt"] == measured["sg-opt.seed1"]["points"]
    assert by_key["map-1"]["groups"]["negative pairs"] == measured["cls.once"]["map"]["negative"]
    shown = by_key["cosines-2"]["series"]
    assert [sum(counts) for counts in shown.values()] == [
        sum(counts) for counts in measured["mean.once"]["histograms"] if sum(counts)
    ]
    assert by_key["cosines-1"]["edges"] == by_key["cosines-3"]["edges"]
    assert len(write_figures(results, folder)) == 2 * len(by_key) == 2 * (2 + 3 * 3)
    assert write_report(folder).stat().st_size > 10_000

    monkeypatch.setattr("selfguide.studies.measuring.measure", lambda job: pytest.fail("measured again"))
    assert study(bert, text_file, pairs, folder)["tables"] == results["tables"]

    # A measurement that fails leaves the others; with it goes one point of the two.
    (folder / "measurements" / "sg-opt.seed2.json").unlink()
    monkeypatch.undo()
    monkeypatch.setattr("selfguide.studies.measuring.function_of", broken)
    partial = study(bert, text_file, pairs, folder, failed=1)
    assert partial["figures"][0]["groups"]["sg-opt"] == places[:1]
    shutil.rmtree(folder / "measurements")
    partial = study(bert, text_file, pairs, folder, failed=4)
    assert partial["figures"] == []
    assert partial["tables"][0]["rows"][0]["anisotropy"] is None


def test_untuned_vectors_are_not_named_twice(bert: Path) -> None:
    with pytest.raises(UsageError, match="mean is among the untuned vectors already"):
        selfguide.study("geometry", encoder=bert, settings=("methods=mean",))
