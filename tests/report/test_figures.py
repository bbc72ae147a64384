"""The one figure renderer: the same bytes each time, whatever the labels and the user's matplotlib; colours of the theme."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import pytest

from reported import NASTY
from selfguide.errors import SelfguideError
from selfguide.report import drawing
from selfguide.report.figures import svg, write_figure
from selfguide.report.plots import Dots, Figure, Histogram, Lines, Matrix, Measured, Scatter, Series

ONE, TWO = Measured(50.0, 1.5, {"1": 49.0, "2": 51.0}), Measured(60.25)


def dots(label: str) -> Dots:
    return Dots("dots", "Dots", "How to read it.", "score", ((label, ONE), ("other", TWO)), {"level": 55.0})


def test_colours_are_those_of_the_style_sheet() -> None:
    style = (resources.files("selfguide.report") / "style.css").read_text(encoding="utf-8")
    light = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})\b", style.partition("@media")[0]))
    assert {light[name]: name for name in drawing.THEME.values()} == drawing.THEME
    assert len(drawing.THEME) == 4 + len(drawing.SERIES)


def test_every_colour_of_a_drawing_follows_the_theme() -> None:
    drawn = svg(Lines("lines", "Lines", "", "x", "y", (Series("a", ((1, ONE), (2, TWO))), Series("b", ((1, TWO),)))))
    assert not re.search('(fill|stroke)="#', drawn)
    assert 'stroke="var(--s1)"' in drawn


def test_the_numbers_of_a_heat_map_keep_their_contrast_in_every_theme() -> None:
    drawn = svg(Matrix("matrix", "Matrix", "", "x", "y", ("a", "b"), ("r",), ((Measured(10.0), Measured(90.0)),)))
    numbers = {element.text: element.get("fill") for element in ElementTree.fromstring(drawn).iter("text")}
    assert (numbers["10.0"], numbers["90.0"]) == ("#ffffff", None)  # an SVG's text is black unless it is filled


@pytest.mark.parametrize("label", [NASTY, "a $x^2$ b", "_hidden", "\udcff\x00\x1b", "語 שלום", "<b>&amp;"])
def test_labels_are_shown_as_they_are(label: str) -> None:
    drawn = svg(dots(label))
    texts = {element.text for element in ElementTree.fromstring(drawn).iter("text")}
    shown = "���" if "\x00" in label else label if len(label) <= 60 else label[:59] + "…"
    assert shown in texts
    assert "style=" not in drawn


def test_the_users_settings_of_matplotlib_neither_matter_nor_change(tmp_path: Path) -> None:
    expected = svg(dots("a"))
    write_figure(dots("a"), tmp_path / "one.png", tmp_path / "one.svg")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "path", "text.usetex": True}):
        before = dict(matplotlib.rcParams)
        assert svg(dots("a")) == expected
        write_figure(dots("a"), tmp_path / "two.png", tmp_path / "two.svg")
        assert dict(matplotlib.rcParams) == before
    for suffix in ("png", "svg"):
        assert (tmp_path / f"one.{suffix}").read_bytes() == (tmp_path / f"two.{suffix}").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.png", "one.svg", "two.png", "two.svg"]


@pytest.mark.parametrize(
    "figure",
    [
        Lines("a", "A", "", "x", "y", (Series("one", ()),), {"level": 1.0}),
        Dots("a", "A", "", "x", ()),
        Matrix("a", "A", "", "x", "y", ("c",), ("r",), ((None,),)),
        Scatter("a", "A", "", "x", "y", {"one": ()}),
        Histogram("a", "A", "", "x", (0.0, 1.0), {"one": (0,)}),
    ],
)
def test_a_figure_without_numbers_is_left_out_of_pages_and_empty_in_files(figure: Figure, tmp_path: Path) -> None:
    assert svg(figure) == ""
    write_figure(figure, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_a_logarithmic_axis_needs_positive_numbers() -> None:
    for first in (0, "none", 0.5):
        series = Series("a", ((first, ONE), (10 if first != "none" else "ten", TWO)))
        drawn = drawing.draw(Lines("a", "A", "", "x", "y", (series,), log=True))
        assert drawn.axes.get_xscale() == ("log" if first == 0.5 else "linear")


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SelfguideError, match=r"a\.png cannot be written"):
        write_figure(dots("a"), tmp_path / "file" / "a.png")
