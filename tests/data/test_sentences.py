"""Cleaning, counting and removing repeats: what becomes of a sentence wherever it comes from."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfguide.data import Sentences, TextOptions
from selfguide.data.cleaning import clean
from selfguide.data.dedup import SeenHashes, hash_sentences
from selfguide.errors import UsageError


def kept(strings: list[str], **options: Any) -> list[str]:
    return list(Sentences.from_strings(strings, TextOptions(**options)))


def counts(sentences: Sentences) -> dict[str, int]:
    """The counts that are not nought."""
    return {name: value for name, value in sentences.summary.as_dict().items() if isinstance(value, int) and value}


# -- cleaning


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
        ("e\u200b\u0301", "\u00e9"),  # the accent meets its letter only when the invisible character is gone
        ("\u2126", "\u03a9"),
        ("\u0601 \u0661", "\u0601 \u0661"),  # a visible sign, although Unicode calls it a format character
        ("\u200b \ufeff\x01", ""),
        ("smile \U0001f600!", "smile \U0001f600!"),
    ],
)
def test_cleaning(raw: str, wanted: str) -> None:
    assert clean(raw) == wanted


# Plain text seldom has what the cleaning is about, so half of the characters are drawn from there.
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
def test_the_quick_way_gives_what_the_long_way_gives(raw: str) -> None:
    # A control character in front is dropped, and forces the long way.
    assert clean(raw) == clean("\x00" + raw)


# -- what is dropped, kept and counted


def test_blank_lines_and_repeats_are_dropped_and_counted() -> None:
    sentences = Sentences.from_strings(["one", " one ", "", "two", "\t", "one", "three"])
    assert list(sentences) == ["one", "two", "three"]
    assert counts(sentences) == {"read": 7, "kept": 3, "blank": 2, "duplicates": 2}


def test_repeats_can_be_kept() -> None:
    assert kept(["one", "two", "one"], keep_duplicates=True) == ["one", "two", "one"]


def test_rows_align_with_the_input_when_blanks_and_repeats_are_kept() -> None:
    rows = ["a", "", "a", " ", "b" * 9]
    options = TextOptions(keep_blank=True, keep_duplicates=True, max_chars=4, long_lines="cut")
    sentences = Sentences.from_strings(rows, options)
    assert list(sentences) == ["a", "", "a", "", "bbbb"]
    assert counts(sentences) == {"read": 5, "kept": 5, "blank": 2, "too_long": 1}


def test_a_kept_blank_is_no_repeat_of_another() -> None:
    assert kept(["", "a", "", "a", ""], keep_blank=True) == ["", "a", "", ""]


def test_long_lines_are_dropped() -> None:
    sentences = Sentences.from_strings(["x" * 10, "x" * 11, "y"], TextOptions(max_chars=10))
    assert list(sentences) == ["x" * 10, "y"]
    assert counts(sentences) == {"read": 3, "kept": 2, "too_long": 1}


def test_long_lines_are_cut_without_a_blank_at_the_end() -> None:
    sentences = Sentences.from_strings(["four four four"], TextOptions(max_chars=5, long_lines="cut"))
    assert list(sentences) == ["four"]
    assert counts(sentences) == {"read": 1, "kept": 1, "too_long": 1}


def test_length_counts_after_cleaning() -> None:
    assert kept(["a" + " " * 100 + "b"], max_chars=3) == ["a b"]


def test_lines_cut_alike_are_repeats() -> None:
    sentences = Sentences.from_strings(["abcX", "abcY"], TextOptions(max_chars=3, long_lines="cut"))
    assert list(sentences) == ["abc"]
    assert counts(sentences) == {"read": 2, "kept": 1, "too_long": 2, "duplicates": 1}


def test_the_limit_stops_the_reading_after_that_many_kept() -> None:
    sentences = Sentences.from_strings(["a", "a", "", "b", "c", "d"], TextOptions(limit=2))
    assert list(sentences) == ["a", "b"]
    assert counts(sentences) == {"read": 4, "kept": 2, "blank": 1, "duplicates": 1}


def test_a_limit_larger_than_the_text() -> None:
    assert kept(["a", "b"], limit=5) == ["a", "b"]


def test_the_limit_over_several_batches() -> None:
    sentences = Sentences.from_strings((f"sentence {number}" for number in range(20_000)), TextOptions(limit=9_000))
    assert len(list(sentences)) == 9_000
    assert counts(sentences) == {"read": 9_000, "kept": 9_000}


def test_the_limit_ends_the_reading_before_a_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"good\nbetter\nb\xe4d\n")
    assert list(Sentences([path], TextOptions(limit=2))) == ["good", "better"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_chars": 0}, "max_chars must be at least 1, got 0"),
        ({"limit": 0}, "limit must be at least 1, got 0"),
        ({"limit": 2.5}, "limit must be a whole number, got 2.5"),
        ({"long_lines": "keep"}, "long_lines must be one of drop, cut"),
        ({"on_bad_utf8": "ignore"}, "on_bad_utf8 must be one of error, replace"),
        ({"column": 1}, "column must be text, got 1"),
        ({"field": ""}, "field must not be empty"),
    ],
)
def test_options_are_checked(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        TextOptions(**options)


# -- repeats


@given(
    batches=st.lists(st.lists(st.integers(0, 60).map(str), max_size=20), max_size=30),
    buffer_size=st.integers(1, 9),
)
@settings(max_examples=150)
def test_repeats_are_those_that_a_set_finds(batches: list[list[str]], buffer_size: int) -> None:
    seen: set[str] = set()
    hashes = SeenHashes(buffer_size)
    for batch in batches:
        naive = []
        for sentence in batch:
            naive.append(sentence not in seen)
            seen.add(sentence)
        assert hashes.first_occurrences(hash_sentences(batch)).tolist() == naive
    assert len(hashes) == len(seen)


@given(st.lists(st.sampled_from(["", " ", "a", "b", " a", "b ", "c\u200b", "c", "\u00e9", "e\u0301"]), max_size=60))
def test_a_pass_keeps_what_a_naive_one_keeps(rows: list[str]) -> None:
    sentences = Sentences.from_strings(rows)
    assert list(sentences) == list(dict.fromkeys(filter(None, map(clean, rows))))
    summary = sentences.summary
    assert summary.read == len(rows) == summary.kept + summary.blank + summary.duplicates


def test_many_hashes_take_eight_bytes_each_in_few_runs() -> None:
    hashes = SeenHashes(buffer_size=1024)
    numbers = np.random.default_rng(0).integers(0, 2**64, 200_000, dtype=np.uint64)
    for start in range(0, numbers.size, 1000):
        hashes.first_occurrences(numbers[start : start + 1000])
    assert hashes.nbytes == 8 * len(hashes) == 8 * 200_000
    assert len(hashes._runs) < 12
    assert not hashes.first_occurrences(numbers).any()


def test_repeats_are_found_across_batches_and_files(tmp_path: Path) -> None:
    lines = [f"sentence {number % 7_000}" for number in range(30_000)]
    random.Random(0).shuffle(lines)
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("\n".join(lines))
    sentences = Sentences([tmp_path / "a.txt", tmp_path / "b.txt"])
    assert list(sentences) == list(dict.fromkeys(lines))
    assert counts(sentences) == {"read": 60_000, "kept": 7_000, "duplicates": 53_000}


# -- the room itself


def test_the_room_is_light_to_import() -> None:
    code = (
        "import sys, selfguide.data, selfguide.data.pairs\n"
        "print([name for name in ('torch', 'numpy', 'pyarrow', 'datasets', 'transformers') if name in sys.modules])"
    )
    source = Path(__file__).parents[2] / "src"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(source)},
    )
    assert done.stdout.strip() == "[]"
