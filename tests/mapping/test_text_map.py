"""Maps from text to page, with the real layout."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import selfguide
from selfguide.data import Sentences
from selfguide.errors import SelfguideError
from selfguide.mapping.text_map import _sample
from selfguide.progress import Reporter
from toys import Outcome, toy_sentences


@pytest.mark.slow
def test_the_command_writes_page_and_table(
    command: Callable[..., Outcome], bert: Path, text_file: Path, tmp_path: Path
) -> None:
    page, table = tmp_path / "map.html", tmp_path / "map.csv"
    words = ("map", text_file, "--encoder", bert, "--before", bert, "--output", page)
    done = command(*words)
    assert done.code == 0, done.err
    assert "120 sentences in" in done.err
    rows = list(csv.DictReader(table.open(encoding="utf-8")))
    assert [row["sentence"] for row in rows] == toy_sentences(120)
    assert all(0 <= float(row[axis]) <= 1 for row in rows for axis in "xy")
    first = page.read_bytes()
    refused = command(*words)
    assert refused.code == 2
    assert "exists already" in refused.err
    assert command(*words, "--overwrite").code == 0
    assert page.read_bytes() == first  # a seed is a map


@pytest.mark.slow
def test_similar_sentences_are_near(bert: Path) -> None:
    found = selfguide.sentence_map(toy_sentences(300), bert)
    places, near = found.sides[0].places, found.sides[0].neighbours.indices
    to_neighbours = np.linalg.norm(places[near[:, 0]] - places, axis=1).mean()
    to_others = np.linalg.norm(places[::-1] - places, axis=1).mean()
    assert to_neighbours < 0.3 * to_others


@pytest.mark.slow
def test_what_cannot_be_written_is_named(bert: Path, tmp_path: Path) -> None:
    found = selfguide.sentence_map(toy_sentences(30), bert)
    with pytest.raises(SelfguideError, match=r"nowhere/map\.csv cannot be written: No such file or directory\."):
        found.write(tmp_path / "nowhere" / "map.html", "Toys")


def test_too_few_sentences(bert: Path) -> None:
    with pytest.raises(SelfguideError, match=r"at least 20 different sentences, and this text has 1 sentence\."):
        selfguide.sentence_map(["It rains."] * 30, bert)


def test_mistakes_are_sentences(command: Callable[..., Outcome], text_file: Path, tmp_path: Path) -> None:
    for words, said in (
        (("--output", tmp_path / "map.png"), "must end in .html"),
        (("--output", tmp_path / "no" / "map.html"), "There is no folder"),
    ):
        done = command("map", text_file, *words)
        assert done.code
        assert said in done.err
        assert done.err.count("\n") == 1


def test_without_umap_a_sentence_says_what_to_install(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(SelfguideError, match=r"pip install 'selfguide\[map\]'"):
        selfguide.sentence_map(toy_sentences(30), bert)


def test_the_sample_is_uniform_and_in_order() -> None:
    everything = toy_sentences(400)
    hits = np.zeros(400)
    for seed in range(40):
        kept, read = _sample(Sentences.from_strings(everything), 100, seed, Reporter(quiet=True))
        rows = [everything.index(sentence) for sentence in kept]
        assert (len(rows), read) == (100, 400)
        assert rows == sorted(rows)
        hits[rows] += 1
    halves: Any = hits[:200].sum() / hits.sum()
    assert halves == pytest.approx(0.5, abs=0.03)
