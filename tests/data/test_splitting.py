"""Paragraphs as sources of sentences."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reading import counts, read
from selfguide.data import Sentences, TextOptions
from selfguide.errors import SelfguideError


def test_paragraphs_are_split_and_counted(put: Callable[..., Path]) -> None:
    path = put("a.txt", "Dr. Smith left at 5 p.m. on Monday. He came back.\n\nIt rained. It rained.\n")
    assert read(path, split_sentences=True) == ["Dr. Smith left at 5 p.m. on Monday.", "He came back.", "It rained."]
    assert counts(path, split_sentences=True) == {"read": 5, "kept": 3, "blank": 1, "duplicates": 1, "paragraphs": 3}
    sentences = Sentences([path], TextOptions(split_sentences=True))
    list(sentences)
    assert sentences.summary.describe() == "3 lines, split into 5 sentences, read from a.txt: 3 kept, 1 repeat, 1 blank"


def test_the_language_decides(put: Callable[..., Path]) -> None:
    path = put("a.txt", "これは本です。それはペンです。\n")
    assert read(path, split_sentences=True, language="ja") == ["これは本です。", "それはペンです。"]


def test_rows_without_a_sentence_keep_their_reason(put: Callable[..., Path]) -> None:
    path = put("a.csv", "id,text\n1,One. Two.\n2,\n3,x,y\n")
    assert counts(path, split_sentences=True, skip_bad_rows=1) == {
        "read": 4, "kept": 2, "missing": 1, "bad": 1, "paragraphs": 3,
    }  # fmt: skip
    replaced = put("b.txt", b"Good one. caf\xe9 here.\n")
    assert counts(replaced, split_sentences=True, on_bad_utf8="replace")["replaced"] == 1


def test_sentences_in_memory_are_split_too() -> None:
    assert list(Sentences.from_strings(["One here. Two there."], TextOptions(split_sentences=True))) == [
        "One here.", "Two there.",
    ]  # fmt: skip


def test_the_missing_extra_is_named(put: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(SelfguideError, match=r"pip install 'selfguide\[split\]'"):
        Sentences([put("a.txt", "one\n")], TextOptions(split_sentences=True))
