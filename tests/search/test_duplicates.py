"""Near-duplicates against a loop over all pairs."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import selfguide
from refusals import the_refusal
from selfguide.errors import SelfguideError, UsageError
from selfguide.search import duplicates, store
from toys import Outcome, toy_sentences


@pytest.fixture(scope="module")
def index(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("near") / "index"
    selfguide.build_index(toy_sentences(150), bert, output=target)
    return target


@pytest.mark.parametrize(("block", "part", "scanned"), [(16_384, 2048, 16_384), (40, 7, 33)])
def test_the_pairs_are_those_of_a_loop_over_all(
    index: Path, bert: Path, block: int, part: int, scanned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicates, "_BLOCK", block)
    monkeypatch.setattr(duplicates, "_PART", part)
    monkeypatch.setattr(store, "_SCANNED", scanned)
    vectors = selfguide.encode(bert, toy_sentences(150), normalise=True).astype(np.float64)
    cosines = {(i, j): float(vectors[i] @ vectors[j]) for i in range(150) for j in range(i + 1, 150)}
    threshold = float(np.percentile(list(cosines.values()), 97))
    found = selfguide.near_duplicates(selfguide.open_index(index), 97)
    assert found.threshold == pytest.approx(threshold, abs=1e-6)
    assert found.sampled == len(cosines) == 150 * 149 // 2
    pairs = list(found)
    assert len(pairs) == pytest.approx(found.expected, abs=2)
    sure = {pair for pair, cosine in cosines.items() if abs(cosine - threshold) > 1e-6}
    wanted = [pair for pair in cosines if pair in sure and cosines[pair] > threshold]
    assert sorted(pair[:2] for pair in pairs if pair[:2] in sure) == wanted
    for place, pair in enumerate(pairs):  # what a row is near to is known before it is asked what is near to it
        assert all(later.second != pair.first for later in pairs[place:])
    for pair in pairs:
        assert pair.cosine == pytest.approx(cosines[pair[:2]], abs=1e-6)
        assert (pair.first_text, pair.second_text) == (toy_sentences(150)[pair.first], toy_sentences(150)[pair.second])


def test_files_of_pairs_and_of_what_is_left(index: Path, command: Callable[..., Outcome], tmp_path: Path) -> None:
    pairs, lines, cleaned = tmp_path / "pairs.csv", tmp_path / "pairs.jsonl", tmp_path / "cleaned.txt"
    outcome = command(
        "search", index, "--near-duplicates", "98", "--output", pairs, "--cleaned", cleaned, "--limit", "3"
    )
    assert outcome.code == 0, outcome.err
    rows = list(csv.DictReader(pairs.open(encoding="utf-8")))
    assert f"{len(rows):,} pairs in {pairs}" in outcome.err
    closest = sorted((float(row["cosine"]) for row in rows), reverse=True)[:3]
    assert [float(line.split()[0]) for line in outcome.out.splitlines()[::2]] == pytest.approx(closest, abs=1e-3)
    left = cleaned.read_text().splitlines()
    near = {(row["first"], row["second"]) for row in rows}
    assert not [pair for pair in near if set(pair) <= set(left)]  # no two of those that are left are near
    for text in set(toy_sentences(150)) - set(left):  # and what is gone is near to one that is left
        assert any(second == text and first in left for first, second in near)
    assert command("search", index, "--near-duplicates", "98", "--output", lines, "-q").code == 0
    assert len([json.loads(line) for line in lines.read_text().splitlines()]) == len(rows)


def test_bad_values_are_sentences(index: Path, command: Callable[..., Outcome], bert: Path, tmp_path: Path) -> None:
    for words, says in (
        (("--near-duplicates", "100"), "near_duplicates must be above 0 and below 100"),
        (("--near-duplicates", "nan"), "near_duplicates must be"),
        (("x", "--near-duplicates", "99"), "leave the query and --where out"),
        (("x", "--cleaned", tmp_path / "c"), "are for --near-duplicates"),
        (("--near-duplicates", "99", "--output", tmp_path / "pairs.txt"), "pairs are written to .csv or .jsonl"),
        (
            ("--near-duplicates", "99", "--output", tmp_path / "no" / "pairs.csv"),
            "cannot be written: there is no folder",
        ),
        (
            ("--near-duplicates", "99", "--cleaned", tmp_path / "no" / "left.txt"),
            "cannot be written: there is no folder",
        ),
    ):
        outcome = command("search", index, *words)
        assert outcome.code in (1, 2), outcome
        assert says in the_refusal(outcome)
    assert not list(tmp_path.iterdir())
    mine = tmp_path / "mine.txt"
    mine.write_text("the text itself")
    for option in ("--cleaned", "--output"):
        outcome = command("search", index, "--near-duplicates", "99", option, mine)
        assert outcome.code == 2
        assert "mine.txt exists already" in the_refusal(outcome)
    assert mine.read_text() == "the text itself"
    assert command("search", index, "--near-duplicates", "99", "--cleaned", mine, "--overwrite", "-q").code == 0
    assert mine.read_text() != "the text itself"
    with pytest.raises(UsageError):
        selfguide.near_duplicates(selfguide.open_index(index), -1)
    selfguide.build_index(["one row alone is here"], bert, output=tmp_path / "one")
    with pytest.raises(SelfguideError, match="fewer than two rows"):
        selfguide.near_duplicates(selfguide.open_index(tmp_path / "one"))
