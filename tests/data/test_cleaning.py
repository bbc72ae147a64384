"""Cleaning and filtering: what becomes of a row, whatever its source."""

from __future__ import annotations

import random
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reading import counted, kept
from selfguide.data import Sentences, TextOptions
from selfguide.data.blocks import Block, SplitLines
from selfguide.data.cleaning import MarkedText, clean, rows_to_clean
from selfguide.data.dedup import hash_sentences


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ("plain", "plain"),
        ("  two\t\tsided \r", "two sided"),
        ("no\u00a0break\u2003em\u3000wide", "no break em wide"),
        ("line\u2028and\x85feed", "line and feed"),
        ("\ufeffmark", "mark"),
        ("zero\u200bwidth\u200e marks", "zerowidth marks"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("be\x07ll \x00nul\x7f", "bell nul"),
        ("co\u00adoperate", "cooperate"),
        ("cafe\u0301", "caf\u00e9"),
        ("e\u200b\u0301", "\u00e9"),  # the accent composes with its letter only when the invisible character is gone
        ("\u2126", "\u03a9"),
        ("\u0601 \u0661", "\u0601 \u0661"),  # a visible sign, although Unicode calls it a format character
        ("\u200b \ufeff\x01", ""),
        ("smile \U0001f600!", "smile \U0001f600!"),
    ],
)
def test_cleaning(raw: str, wanted: str) -> None:
    assert clean(raw) == wanted


# Random text seldom holds what cleaning changes, so half of the characters are drawn from that.
odd_text = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from(" \t\n\r\u00a0\u2000\u200b\u00ade\u0301\ufeff\x00\x85a"),
    )
)


@given(odd_text)
def test_cleaning_is_idempotent_and_leaves_one_line(raw: str) -> None:
    text = clean(raw)
    assert clean(text) == text
    assert unicodedata.is_normalized("NFC", text)
    assert len(text.splitlines()) <= 1
    assert text == " ".join(text.split())
    assert not any(unicodedata.category(character) == "Cc" for character in text)


@given(odd_text)
def test_the_fast_path_equals_the_slow_one(raw: str) -> None:
    # A control character in front is dropped, and forces the slow path.
    assert clean(raw) == clean("\x00" + raw)


def test_blank_lines_and_repeats_are_dropped_and_counted() -> None:
    sentences = Sentences.from_strings(["one", " one ", "", "two", "\t", "one", "three"])
    assert list(sentences) == ["one", "two", "three"]
    assert counted(sentences) == {"read": 7, "kept": 3, "blank": 2, "duplicates": 2}


def test_repeats_can_be_kept() -> None:
    assert kept(["one", "two", "one"], keep_duplicates=True) == ["one", "two", "one"]


def test_rows_align_with_the_input_when_blanks_and_repeats_are_kept() -> None:
    rows = ["a", "", "a", " ", "b" * 9]
    options = TextOptions(keep_blank=True, keep_duplicates=True, max_chars=4, long_lines="cut")
    sentences = Sentences.from_strings(rows, options)
    assert list(sentences) == ["a", "", "a", "", "bbbb"]
    assert counted(sentences) == {"read": 5, "kept": 5, "blank": 2, "too_long": 1}


def test_a_kept_blank_is_no_repeat_of_another() -> None:
    assert kept(["", "a", "", "a", ""], keep_blank=True) == ["", "a", "", ""]


def test_long_lines_are_dropped() -> None:
    sentences = Sentences.from_strings(["x" * 10, "x" * 11, "y"], TextOptions(max_chars=10))
    assert list(sentences) == ["x" * 10, "y"]
    assert counted(sentences) == {"read": 3, "kept": 2, "too_long": 1}


def test_long_lines_are_cut_without_a_blank_at_the_end() -> None:
    sentences = Sentences.from_strings(["four four four"], TextOptions(max_chars=5, long_lines="cut"))
    assert list(sentences) == ["four"]
    assert counted(sentences) == {"read": 1, "kept": 1, "too_long": 1}


def test_length_counts_after_cleaning() -> None:
    assert kept(["a" + " " * 100 + "b"], max_chars=3) == ["a b"]


def test_lines_cut_alike_are_repeats() -> None:
    sentences = Sentences.from_strings(["abcX", "abcY"], TextOptions(max_chars=3, long_lines="cut"))
    assert list(sentences) == ["abc"]
    assert counted(sentences) == {"read": 2, "kept": 1, "too_long": 2, "duplicates": 1}


@given(st.lists(st.sampled_from(["", " ", "a", "b", " a", "b ", "c\u200b", "c", "\u00e9", "e\u0301"]), max_size=60))
def test_a_pass_keeps_what_a_naive_one_keeps(rows: list[str]) -> None:
    sentences = Sentences.from_strings(rows)
    assert list(sentences) == list(dict.fromkeys(filter(None, map(clean, rows))))
    summary = sentences.summary
    assert summary.read == len(rows) == summary.kept + summary.blank + summary.duplicates


def test_repeats_are_found_across_batches_and_files(tmp_path: Path) -> None:
    lines = [f"sentence {number % 7_000}" for number in range(30_000)]
    random.Random(0).shuffle(lines)
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("\n".join(lines))
    sentences = Sentences([tmp_path / "a.txt", tmp_path / "b.txt"])
    assert list(sentences) == list(dict.fromkeys(lines))
    assert counted(sentences) == {"read": 60_000, "kept": 7_000, "duplicates": 53_000}


ODD = " \t\n\r\x00\x1f\x7f\x85\xa0\u200b\u3000\ufeff\u0301e\u00e9\u0627\u4e2d\U0001f600\ud800"


@settings(max_examples=400)
@given(
    batch=st.lists(
        st.one_of(
            st.text(st.sampled_from("ab c."), max_size=8),
            st.text(st.sampled_from("ab " + ODD), max_size=8),
            st.none(),
            st.just(MarkedText("ab", replaced=True)),
        ),
        max_size=12,
    )
)
def test_rows_that_are_left_alone_are_clean_sentences(batch: list[str | None]) -> None:
    doubtful, block = rows_to_clean(batch, 5)
    assert doubtful == sorted(set(doubtful))
    if block is not None:
        assert doubtful == []
        assert block.strings == batch
        assert bytes(block.lines).decode() == "".join(f"{row}\n" for row in batch)
        assert block.ends.tolist() == Block(len(batch), lines=block.lines).ends.tolist()
    for row in set(range(len(batch))) - set(doubtful):
        text = batch[row]
        assert type(text) is str
        assert text
        assert len(text) <= 5
        assert clean(text) == text


@given(text=st.text(st.sampled_from("ab \n" + ODD.replace("\ud800", "")), max_size=40))
def test_lines_that_keep_their_text_are_cleaned_as_others(text: str) -> None:
    lines = SplitLines(text, text.encode())
    found, expected = rows_to_clean(lines, 5), rows_to_clean(text.split("\n"), 5)
    assert found[0] == expected[0]
    assert (found[1] is None) == (expected[1] is None)
    if found[1] is not None and expected[1] is not None:
        assert found[1].lines == expected[1].lines
        assert found[1].ends.tolist() == expected[1].ends.tolist()
        assert found[1].hashes().tolist() == hash_sentences(text.split("\n")).tolist()


def test_a_row_that_is_to_be_cleaned_does_not_hold_up_the_others() -> None:
    batch: list[str | None] = ["plain", " one", "two ", "a  b", "", "caf\u00e9", "too long for it", "end"]
    assert rows_to_clean(batch, 10) == ([1, 2, 3, 4, 6], None)
    # An invisible character may be in any row that is not ASCII; the others stay as they are.
    assert rows_to_clean([*batch, "no\u200bspace", "tab\tbed"], 10)[0] == [1, 2, 3, 4, 5, 6, 8, 9]
    assert rows_to_clean([], 10) == ([], None)
    assert rows_to_clean(["plain", "caf\u00e9"], 10)[1] is not None
