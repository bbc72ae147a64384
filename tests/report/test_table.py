"""The one table model in each of its forms."""

from __future__ import annotations

import io
import unicodedata

from rich.console import Console

from selfguide.report.table import MISSING, Cell, Heading, Table, print_table, to_csv, to_latex, to_markdown

TABLE = Table(
    [
        Heading("method", numeric=False),
        Heading("score", key="avg", spread=True, better="high", optional_notes=True),
        Heading("cost | s", better="low"),
    ],
    [
        [Cell("a_1"), Cell("50.25", "± 1.00", 50.2501, 0.9999), Cell("3", value=3)],
        [Cell("b [x]"), Cell("50.25", "", 50.2499), Cell("−2", value=-2)],
        [Cell("c"), MISSING, Cell("–")],
    ],
    "Scores",
    ("Read | it.",),
)


def test_what_looks_the_same_is_equally_good() -> None:
    assert TABLE.best == [None, "50.25", "−2"]
    assert [TABLE.is_best(1, row[1]) for row in TABLE.rows] == [True, True, False]


def test_csv_has_the_exact_numbers_and_empty_fields() -> None:
    assert to_csv(TABLE).splitlines() == [
        "method,avg,avg sd,cost | s",
        "a_1,50.2501,0.9999,3",
        "b [x],50.2499,,-2",
        "c,,,–",
    ]


def test_markdown_is_escaped_and_has_the_notes() -> None:
    assert to_markdown(TABLE).splitlines() == [
        "| method | score | cost \\| s |",
        "| --- | --: | --: |",
        "| a_1 | **50.25** ± 1.00 | 3 |",
        "| b \\[x\\] | **50.25** | **−2** |",
        "| c | – | – |",
        "",
        "Read \\| it.",
    ]


def test_latex_is_escaped_and_has_the_notes_as_comments() -> None:
    lines = to_latex(TABLE).splitlines()
    assert lines[:3] == ["% Read | it.", "% needs \\usepackage{booktabs}", r"\begin{tabular}{lrr}"]
    assert r"a\_1 & \textbf{50.25} {\scriptsize $\pm$ 1.00} & 3 \\" in lines
    assert r"b [x] & \textbf{50.25} & \textbf{$-$2} \\" in lines


def test_a_narrow_terminal_leaves_out_optional_notes_but_no_numbers() -> None:
    def printed(width: int) -> str:
        console = Console(file=io.StringIO(), width=width)
        print_table(TABLE, console)
        return console.file.getvalue()  # type: ignore[attr-defined]

    assert "± 1.00" in printed(80)
    assert "± 1.00" not in printed(10)
    for width in (80, 10):
        assert all(text in printed(width) for text in ("Scores", "b [x]", "50.25", "−2", "Read | it."))


def test_columns_are_aligned_whatever_the_script() -> None:
    names = ["mean", "平均", "مُحَمَّد", "ＦＵＬＬ", "한국어", "e\u0301a", "コーヒー"]
    rows = [[Cell(name), Cell("12.3", value=12.3)] for name in names]
    shown = io.StringIO()
    print_table(Table([Heading("行", numeric=False), Heading("评分")], rows), Console(file=shown, width=60))
    for line in shown.getvalue().splitlines():
        if line.strip():
            assert _columns(line[: line.index("12.3") if "12.3" in line else line.index("评分")]) == 10, repr(line)


def _columns(text: str) -> int:
    """Return how many columns of a terminal a text takes: two for wide letters, none for combining marks."""
    shown = [letter for letter in text if unicodedata.category(letter) != "Mn"]
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in shown)
