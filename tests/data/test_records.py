"""Sentences with the other columns of their rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from selfguide.data import Sentences, TextOptions
from selfguide.data.cleaning import Cell

Put = Callable[..., Path]
KEEP = TextOptions(keep_duplicates=True)


def test_json_lines_bring_their_fields_nested_ones_under_dotted_names(put: Put) -> None:
    rows = [
        {"text": " It  rains. ", "year": 2020, "meta": {"tags": ["a", "b"], "by": {"name": "Ann"}}, "done": False},
        {"text": None, "year": 2021},
        {"text": "", "year": 2022},
        {"text": "The train is late.", "weight": 0.5, "meta": {}},
    ]
    path = put("rows.jsonl", "\n".join(map(json.dumps, rows)))
    text = Sentences([path], KEEP)
    assert list(text.records()) == [
        ("It rains.", {"year": 2020, "meta.tags": ["a", "b"], "meta.by.name": "Ann", "done": False}),
        ("The train is late.", {"weight": 0.5, "meta": {}}),
    ]
    assert (text.summary.kept, text.summary.missing, text.summary.blank) == (2, 1, 1)
    assert list(text) == ["It rains.", "The train is late."]  # and a plain pass afterwards
    inner = Sentences([path], TextOptions(keep_duplicates=True, field="meta.by.name"))
    assert [cells["text"] for _, cells in inner.records()] == [" It  rains. "]


def test_tables_bring_their_cells_with_or_without_names(put: Put) -> None:
    path = put("rows.csv", 'text,year,"Date of it",year\n"It rains, again.",2020,,x\nThe train is late.,2021,today,y\n')
    rows = list(Sentences([path], KEEP).records())
    assert rows[0] == ("It rains, again.", {"year": "2020", "Date of it": "", "column 3": "x"})
    assert all(isinstance(cell, Cell) for cell in rows[1][1].values())
    path = put("bare.tsv", "1\tIt rains on the roof.\n2\tThe train is very late.\n")
    assert list(Sentences([path], KEEP).records())[1] == ("The train is very late.", {"column 0": "2"})


def test_parquet_brings_its_columns_even_where_they_are_damaged(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    bad = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0\4\0\0\0"), pa.py_buffer(b"ok\xffx")]
    )
    table = pa.table({"text": ["It rains.", "The train is late."], "year": [2020, None], "note": bad})
    pq.write_table(table, tmp_path / "rows.parquet")
    rows = list(Sentences([tmp_path / "rows.parquet"], KEEP).records())
    assert rows == [
        ("It rains.", {"year": 2020, "note": "ok"}),
        ("The train is late.", {"year": None, "note": "\ufffdx"}),
    ]


def test_the_sentences_of_a_paragraph_all_bring_its_columns(put: Put) -> None:
    pytest.importorskip("sentencex", reason="sentencex is not installed: pip install 'selfguide[split]'")
    path = put("rows.jsonl", json.dumps({"text": "It rains. The train is late.", "year": 2020}))
    rows = list(Sentences([path], TextOptions(keep_duplicates=True, split_sentences=True)).records())
    assert rows == [("It rains.", {"year": 2020}), ("The train is late.", {"year": 2020})]


def test_sentences_alone_have_no_columns(put: Put) -> None:
    assert list(Sentences.from_strings(["It rains."]).records()) == [("It rains.", {})]
    assert list(Sentences([put("notes.txt", "It rains.\n")]).records()) == [("It rains.", {})]
