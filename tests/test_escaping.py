"""Names from outside in tables that other programs open."""

from __future__ import annotations

import csv
import io

import pytest

from reported import score
from selfguide.escaping import csv_text, markdown_text
from selfguide.evaluation.results import as_csv
from selfguide.report.table import Cell, Heading, Table, to_csv, to_markdown

FORMULA = '=HYPERLINK("http://evil.example","click")'


@pytest.mark.parametrize("text", [FORMULA, "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\t=1", "\r=1"])
def test_a_formula_is_text(text: str) -> None:
    assert csv_text(text) == "'" + text.replace("\r", " ")
    table = Table([Heading(text), Heading("score")], [[Cell(text), Cell("1.0", value=1.0)]])
    fields = next(iter(list(csv.reader(io.StringIO(to_csv(table), newline="")))[1:]))
    assert fields[0].startswith("'")
    assert csv_text(text) in next(
        csv.reader(io.StringIO(as_csv([score("sts", 1.0, text)]).partition("\n")[2], newline=""))
    )


@pytest.mark.parametrize("text", ["mini", "-0.25", "+1.5", "12", "1,234", "-1e-05", "+0.4%", "– 3", "a=b", ""])
def test_numbers_and_names_stay(text: str) -> None:
    assert csv_text(text) == text


def test_markup_is_text() -> None:
    nasty = "<img src=x onerror=alert(1)> [a](javascript:b) `c` **d** e|f\ng _h_ learning_rate"
    shown = markdown_text(nasty)
    assert shown == (r"\<img src=x onerror=alert(1)> \[a\](javascript:b) \`c\` \*\*d\*\* e\|f g \_h\_ learning_rate")
    table = to_markdown(Table([Heading(nasty), Heading("score", better="high")], [[Cell(nasty), Cell("1", value=1.0)]]))
    assert table.splitlines()[2] == f"| {shown} | **1** |"
