"""The text of a run: what is written is what was read, and its digest is that of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from selfguide.data import Sentences
from selfguide.errors import SelfguideError
from selfguide.files import file_digest, read_json
from selfguide.progress import Reporter
from selfguide.runs.prepared_text import prepare_text
from selfguide.training.settings import TrainingSettings

LINES = [f"sentence {number % 23_000} of many" for number in range(30_000)]


def test_the_text_is_that_of_the_source_and_its_digest_that_of_the_file(tmp_path: Path) -> None:
    sentences = Sentences.from_strings(LINES)
    text, summary = prepare_text(tmp_path, sentences, TrainingSettings(device="cpu"), Reporter(quiet=True))
    assert text["sentence"][:] == list(dict.fromkeys(LINES))
    assert (summary["read"], summary["kept"], summary["duplicates"]) == (30_000, 23_000, 7_000)
    written = read_json(tmp_path / "text.json")
    assert written["digest of text.arrow"] == file_digest(tmp_path / "text.arrow")
    again, found = prepare_text(tmp_path, None, TrainingSettings(device="cpu"), Reporter(quiet=True))
    assert found == summary
    assert len(again) == 23_000


def test_a_changed_text_is_refused(tmp_path: Path) -> None:
    prepare_text(tmp_path, Sentences.from_strings(LINES), TrainingSettings(device="cpu"), Reporter(quiet=True))
    arrow = tmp_path / "text.arrow"
    content = bytearray(arrow.read_bytes())
    content[len(content) // 2] ^= 1
    arrow.write_bytes(content)
    with pytest.raises(SelfguideError, match="damaged or gone"):
        prepare_text(tmp_path, None, TrainingSettings(device="cpu"), Reporter(quiet=True))
