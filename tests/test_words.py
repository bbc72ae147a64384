"""Words of any script, which Python's ``\\w`` does not find."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfguide.words import abridged, count_words, is_spaceless, join_words, marks, split_at_spaces, split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It's late, isn't it?", ["It", "'", "s", "late", ",", "isn", "'", "t", "it", "?"]),
        ("¿Qué añoran?", ["¿", "Qué", "añoran", "?"]),
        ("مُحَمَّد، أكل!", ["مُحَمَّد", "،", "أكل", "!"]),  # vowel marks are no letters
        ("यह हिन्दी है।", ["यह", "हिन्दी", "है", "।"]),
        ("می‌خواهم", ["می‌خواهم"]),  # a zero-width non-joiner inside a word
        ("我买了 MacBook Pro。", ["我", "买", "了", "MacBook", "Pro", "。"]),
        ("コーヒーを飲む", ["コ", "ー", "ヒ", "ー", "を", "飲", "む"]),
        ("นี่คือ", ["นี่", "คื", "อ"]),
        ("작은 소녀가", ["작은", "소녀가"]),
        ("👩‍👩‍👧 ok", ["👩‍👩‍👧", "ok"]),
        ("  ", []),
    ],
)
def test_a_text_is_split_into_its_words(text: str, words: list[str]) -> None:
    assert split_words(text) == words


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_nothing_but_white_space_is_lost(text: str) -> None:
    assert "".join(split_words(text)) == "".join(text.split()) or "\x1c" <= min(text) <= "\x1f"
    assert "".join(split_at_spaces(text)).replace(" ", "") == "".join(text.split()).replace(" ", "")


@pytest.mark.parametrize("text", ["今天天气很好", "The train is late", "我买了 MacBook Pro 电脑", "la niña pequeña"])
def test_joined_words_are_the_text_again(text: str) -> None:
    assert join_words(split_words(text)) == text


def test_words_are_counted_where_there_are_no_spaces() -> None:
    assert count_words("the train is late") == 4
    assert count_words("今天天气很好。") == 3  # six characters, half a word each
    assert count_words("我买了 MacBook") == 2.5
    assert count_words("") == 0
    assert is_spaceless("a 本")
    assert not is_spaceless("كتاب 책 libro")


def test_marks_are_those_of_unicode() -> None:
    found = set()
    for first, _, last in zip(*[iter(marks())] * 3, strict=True):
        found |= set(range(ord(first), ord(last) + 1))
    assert found == {number for number in range(0x300, 0x20000) if unicodedata.category(chr(number))[0] == "M"}


def test_a_long_text_is_abridged_to_the_length_and_a_short_one_kept() -> None:
    assert abridged("twelve chars", 12) == "twelve chars"
    assert abridged("twelve chars!", 8) == "twelve…"
    assert len(abridged("x" * 50, 20)) == 20
