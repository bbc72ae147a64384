"""Finding sources: globs, missing files, and options that no source uses."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from reading import early_refusal, read
from selfguide.data import Sentences, TextOptions
from selfguide.errors import UsageError


def test_globs(put: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b.txt", "a.txt", "c.csv"):
        folder = put(name, f"in {name}").parent
    (folder / "deep").mkdir()
    put("deep/d.txt", "in deep")
    assert read(str(folder / "*.txt")) == ["in a.txt", "in b.txt"]
    assert read(folder / "?.txt") == ["in a.txt", "in b.txt"]
    assert read(str(folder / "**" / "*.txt")) == ["in a.txt", "in b.txt", "in deep"]
    assert read(str(folder / "*")) == ["in a.txt", "in b.txt", "in c.csv"]
    monkeypatch.chdir(folder)
    assert read("[ab].txt") == ["in a.txt", "in b.txt"]


def test_a_name_with_brackets_is_no_pattern_when_it_exists(put: Callable[..., Path]) -> None:
    assert read(put("notes[1].txt", "one")) == ["one"]


def test_a_glob_that_matches_nothing(tmp_path: Path) -> None:
    assert "matches no file: check the pattern" in early_refusal(str(tmp_path / "*.nothing"))


def test_a_missing_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = early_refusal(tmp_path / "nothing.txt")
    assert "does not exist: check the path" in message
    assert "hf:" not in message
    monkeypatch.chdir(tmp_path)
    assert "hf:owner/name" in early_refusal("owner/name")
    assert "hf:" not in early_refusal("data/notes.txt")
    assert "download it" in early_refusal("https://example.org/notes.txt")


def test_a_folder_stands_for_the_files_of_text_below_it(tmp_path: Path) -> None:
    assert "is a folder without a file of text (.txt, .csv, .tsv, .jsonl, .ndjson, .parquet" in early_refusal(tmp_path)
    (tmp_path / "deep" / ".git").mkdir(parents=True)
    (tmp_path / "b.txt").write_text("two\n")
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "one"}\n'))
    (tmp_path / "deep" / "c.CSV").write_text("text\nthree\n")
    for unwanted in ("d.py", ".hidden.txt", "deep/.git/x.txt", "e.safetensors"):
        (tmp_path / unwanted).write_text("unwanted\n")
    assert read(tmp_path) == ["one", "two", "three"]
    assert read(str(tmp_path) + "/") == ["one", "two", "three"]


def test_encoders_and_results_in_a_folder_are_no_text(tmp_path: Path) -> None:
    """The vocabulary of an encoder and a table of scores are files of text by their names."""
    (tmp_path / "a.txt").write_text("one\n")
    for folder, files in {
        "bert": ("config.json", "model.safetensors", "vocab.txt"),
        "tuned": ("modules.json", "0_Transformer/vocab.txt"),
        "tuned.partial": ("text.txt",),
        "notes.jsonl.partial": ("rows.jsonl",),
        "scores": ("scores.json", "scores.csv"),
        "comparison": ("comparison.json", "table.csv"),
        "study-layers": ("study.json", "tables/layers.csv"),
    }.items():
        for name in files:
            (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / name).write_text("unwanted\n")
    (tmp_path / "config" / "deep").mkdir(parents=True)
    (tmp_path / "config" / "config.json").write_text("{}")
    (tmp_path / "config" / "deep" / "b.txt").write_text("two\n")
    assert read(tmp_path) == ["one", "two"]
    assert read(tmp_path / "scores") == ["unwanted"]


def test_column_and_field_where_they_mean_nothing(put: Callable[..., Path]) -> None:
    text, table = put("a.txt", "one"), put("a.csv", "text\none\n")
    with pytest.raises(UsageError, match=r"column=text is for csv.*a\.txt"):
        Sentences([text], TextOptions(column="text"))
    with pytest.raises(UsageError, match=r"field=text is for jsonl.*a\.csv"):
        Sentences([table], TextOptions(field="text"))
    assert list(Sentences([text, table], TextOptions(column="text"))) == ["one"]


def test_standard_input_twice() -> None:
    with pytest.raises(UsageError, match="twice"):
        Sentences(["-", "-"], stdin=io.BytesIO(b"one"))
