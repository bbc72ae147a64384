"""Text options are checked, and the summary of a pass reads well."""

from __future__ import annotations

import json
from typing import Any

import pytest

from selfguide.data import Sentences, TextOptions, TextSummary
from selfguide.errors import UsageError


@pytest.mark.parametrize(
    ("options", "expected"),
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
def test_options_are_checked(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        TextOptions(**options)


def test_describe() -> None:
    summary = TextSummary(("folder/notes.txt",), 12_000, 11_340, 200, 10, 450)
    assert summary.describe() == ("12,000 lines read from notes.txt: 11,340 kept, 450 repeats, 200 blank, 10 over-long")
    assert TextSummary(("a", "b"), 1, 1).describe() == "1 line read from 2 files: 1 kept"
    assert TextSummary(("hf:owner/name",), 3, 1, missing=1, replaced=1).describe() == (
        "3 lines read from hf:owner/name: 1 kept, 1 missing, 1 with bad UTF-8 replaced"
    )
    assert TextSummary(("notes.txt",)).describe() == "no lines read from notes.txt: 0 kept"


def test_the_summary_is_json() -> None:
    sentences = Sentences.from_strings(["a"])
    list(sentences)
    values = json.loads(json.dumps(sentences.summary.as_dict()))
    assert values["files"] == ["the given sentences"]
    assert values["kept"] == 1
    assert values["fingerprint"] == sentences.summary.fingerprint
