"""``selfguide study layers``: the probe's numbers and the tuned level, in tables, figures and on the page."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

import selfguide
from reported import Page
from selfguide.errors import SelfguideError, UsageError
from selfguide.evaluation.data import own_pairs
from selfguide.evaluation.probe import probe
from selfguide.report.folders import write_report
from selfguide.studies import measuring
from selfguide.studies.files import write_figures

QUICK = ("max_steps=2", "batch_size=4", "head_size=8")


def study(
    bert: Path, text: Path, pairs: Path | list[Path], output: Path, failed: int = 0, **more: Any
) -> dict[str, Any]:
    given: dict[str, Any] = {"encoder": bert, "text": text, "limit": 30, "pairs": pairs, "dev": "", "settings": QUICK}
    found = selfguide.study("layers", **given | {"output": output, "jobs": 1} | more)
    assert len(found.failed) == failed
    return found.results


def broken(address: str) -> Any:
    raise SelfguideError("no luck.")


def test_the_tables_and_figures_have_the_probes_numbers(
    bert: Path, text_file: Path, dev_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "study"
    results = study(bert, text_file, dev_file, folder, seeds=2)
    assert json.loads((folder / "study.json").read_text(encoding="utf-8")) == results

    expected = probe(bert, own_pairs(dev_file)).to_dict()
    layers, tasks = results["tables"]
    for place, row in enumerate(layers["rows"]):
        assert [row["cls"], row["mean"], row["max"]] == [scores[place] for scores in expected["scores"]]
    assert layers["rows"][0]["cls"] is None  # [CLS] of layer 0 is the same for every sentence
    best = expected["best"]
    assert tasks["rows"][0]["best score"] == best["score"]
    assert tasks["rows"][0]["best"].endswith(f"of layer {best['layer']}")

    lines, matrix = results["figures"]
    tuned = results["grids"]["tuned"]["rows"]["sg-opt"]["values"]["dev"]
    assert tasks["rows"][0]["tuned sg-opt"]["mean"] == fmean(tuned["by_seed"].values())
    assert lines["levels"] == {"sg-opt, tuned": tuned["mean"]}
    for series, scores in zip(lines["series"], expected["scores"], strict=True):
        assert [value["mean"] for _, value in series["points"]] == [score for score in scores if score is not None]
    shown = [[value and value["mean"] for value in row] for row in matrix["values"]]
    assert shown == [list(row) for row in zip(*expected["scores"], strict=True)]

    assert len(write_figures(results, folder)) == 4
    page = Page(write_report(folder))
    assert [cells[0][0] for cells in page.tables[layers["title"]][1:]] == ["0", "1", "2", "3"]

    # A second time: nothing is trained and nothing is probed.
    monkeypatch.setattr(measuring, "measure", lambda job: pytest.fail("measured again"))
    monkeypatch.setattr("selfguide.comparison.runner.run_cell", lambda job: pytest.fail("trained again"))
    assert study(bert, text_file, dev_file, folder, seeds=2)["tables"] == results["tables"]

    # Where the probe fails, the study says so, and there is nothing to draw.
    (folder / "measurements" / "before.json").unlink()
    monkeypatch.undo()
    monkeypatch.setattr(measuring, "function_of", broken)
    partial = study(bert, text_file, dev_file, folder, failed=1, seeds=2)
    assert (partial["failed"], partial["figures"]) == (["before failed: no luck."], [])


def test_several_tasks_have_an_average(bert: Path, text_file: Path, dev_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.tsv"
    other.write_text("\n".join(dev_file.read_text(encoding="utf-8").splitlines()[:25]) + "\n", encoding="utf-8")
    results = study(bert, text_file, [dev_file, other], tmp_path / "study")
    layers, tasks = results["tables"]
    assert [row["task"] for row in tasks["rows"]] == ["dev", "other", "average"]
    probes = results["measurements"]["before"]["result"]["tasks"]
    assert layers["rows"][2]["mean"] == fmean(probes[name]["scores"][1][2] for name in ("dev", "other"))
    tuned = [row["tuned sg-opt"]["mean"] for row in tasks["rows"]]
    assert tuned[2] == pytest.approx(fmean(tuned[:2]))
    assert results["figures"][0]["up"] == "mean of 2 tasks"


def test_an_encoder_without_layers_is_refused() -> None:
    from selfguide.studies import registry
    from selfguide.studies.base import Setup

    chosen = registry.make("layers")
    with pytest.raises(UsageError, match="has no layers to compare"):
        chosen.plan(Setup(chosen.small, False, "words", None, sentences=9))
