"""The heat map of a probe: the same bytes each time, readable numbers, refusals in plain words."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib import colormaps

from selfguide.errors import UsageError
from selfguide.evaluation.probe import ProbeResult
from selfguide.report.drawing import COLOUR_MAP, readable_on
from selfguide.report.heatmap import write_heatmap


@pytest.fixture
def result() -> ProbeResult:
    """A probe of two poolings and three layers, one cell without a score."""
    scores = ((math.nan, 41.5, 30.0), (52.25, 60.125, 55.0))
    return ProbeResult(
        "mini", "demo", 40, 60, "file", "ab", "raw", (0, 1, 2), ("cls", "mean"), scores, (), "2026-01-02", {}
    )


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".PNG", b"\x89PNG")])
def test_pictures(result: ProbeResult, tmp_path: Path, suffix: str, start: bytes) -> None:
    path = tmp_path / f"layers{suffix}"
    write_heatmap(result, path)
    first = path.read_bytes()
    assert first.startswith(start)
    write_heatmap(result, path)
    assert path.read_bytes() == first
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


def test_picture_of_one_cell(result: ProbeResult, tmp_path: Path) -> None:
    write_heatmap(replace(result, layers=(3,), poolings=("mean",), scores=((50.0,),)), tmp_path / "one.svg")
    text = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert "best: mean of layer 3, 50.0" in text
    assert "Spearman × 100" in text
    assert "<dc:date>" not in text


def test_numbers_stand_out_on_every_colour() -> None:
    assert readable_on(colormaps[COLOUR_MAP](0.0)) == "white"
    assert readable_on(colormaps[COLOUR_MAP](1.0)) == "black"


def test_picture_refusals(result: ProbeResult, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ends in \.pdf; the plot is written as \.png or \.svg"):
        write_heatmap(result, tmp_path / "layers.pdf")
    with pytest.raises(UsageError, match="there is no folder"):
        write_heatmap(result, tmp_path / "nowhere" / "layers.png")
