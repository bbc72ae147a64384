"""Labelled pairs: layouts, labels, and the errors about files that cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from selfguide.data.nli import check_option, read_nli
from selfguide.errors import SelfguideError, UsageError
from selfguide.progress import Reporter

THREE = (
    "entailment\tA man eats.\tSomeone eats.\nneutral\tA man eats.\tHe is old.\ncontradiction\tA man eats.\tHe sleeps.\n"
)


class _Notes(Reporter):
    """Keeps the notes."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_words_and_numbers_are_labels_and_further_columns_are_ignored(put: Callable[..., Path]) -> None:
    words, numbers = read_nli(put("words.tsv", THREE)), put("numbers.tsv", "0\ta\tb\textra\n1\tc\td\n2\te\tf\n\n")
    assert words.column_names == ["premise", "hypothesis", "label"]
    assert words[1] == {"premise": "A man eats.", "hypothesis": "He is old.", "label": 1}
    assert list(read_nli(numbers)["label"]) == list(words["label"]) == [0, 1, 2]
    assert read_nli(numbers)[0]["hypothesis"] == "b"


def test_pairs_without_an_agreed_label_are_skipped_and_counted(put: Callable[..., Path]) -> None:
    notes = _Notes()
    rows = read_nli(put("some.tsv", THREE + "-\tx\ty\n-1\tx\ty\nneutral\tx\ty\n"), notes)
    assert len(rows) == 4
    assert notes.notes == [
        "4 labelled pairs from 1 file (entailment 1, neutral 2, contradiction 1); 2 without an agreed label were skipped."
    ]


def test_several_files_are_read_one_after_the_other(put: Callable[..., Path], tmp_path: Path) -> None:
    first, second = put("a.tsv.gz", THREE), put("b.tsv.gz", THREE.replace("man", "dog"))
    expected = ["A man eats."] * 3 + ["A dog eats."] * 3
    for sources in (str(tmp_path / "*.tsv.gz"), f"{first}, {second}", [first, str(second)]):
        assert list(read_nli(sources)["premise"]) == expected
    comma = put("with, comma.tsv", THREE)
    assert len(read_nli(str(comma))) == len(read_nli(comma)) == 3


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            THREE + "neutral\tonly a premise\n",
            r"nli\.tsv, line 4 has 2 tab-separated columns: every line must be label<TAB>",
        ),
        (
            "gold_label\tsentence1\tsentence2\n" + THREE,
            r"line 1 has the label 'gold_label'.*a header has to be taken out",
        ),
        (THREE + "maybe\ta\tb\n", r"line 4 has the label 'maybe', where one of entailment, neutral, contradiction"),
        (THREE + "neutral\t \tb\n", r"line 4 has an empty premise"),
        (THREE + "neutral\ta\t\n", r"line 4 has an empty hypothesis"),
        ("0\ta\tb\n1\tc\td\n", r"no pair with the label contradiction; all three.*of another kind"),
        ("-\ta\tb\n", r"no labelled pairs \(1 rows have the label -"),
    ],
)
def test_faulty_files(put: Callable[..., Path], content: str, expected: str) -> None:
    with pytest.raises(SelfguideError, match=expected):
        read_nli(put("nli.tsv", content))


def test_files_that_are_missing(tmp_path: Path) -> None:
    with pytest.raises(SelfguideError, match=r"does not exist"):
        read_nli(tmp_path / "nothing.tsv")
    with pytest.raises(SelfguideError, match=r"matches no file"):
        read_nli(str(tmp_path / "*.tsv"))
    with pytest.raises(UsageError, match=r"sbert-nli learns from labelled pairs.*--nli FILE"):
        check_option("none", "sbert-nli")
    with pytest.raises(SelfguideError, match=r"does not exist"):
        check_option(str(tmp_path / "nothing.tsv"), "sbert-nli")
