"""De-duplication by hashes finds what a set finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfguide.data import dedup
from selfguide.data.dedup import SeenHashes, distinct, hash_sentences


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


def test_many_hashes_take_eight_bytes_each_in_few_runs() -> None:
    hashes = SeenHashes(buffer_size=1024)
    numbers = np.random.default_rng(0).integers(0, 2**64, 200_000, dtype=np.uint64)
    for start in range(0, numbers.size, 1000):
        hashes.first_occurrences(numbers[start : start + 1000])
    assert hashes.nbytes == 8 * len(hashes) == 8 * 200_000
    assert len(hashes._runs) < 12
    assert not hashes.first_occurrences(numbers).any()


@given(st.lists(st.text(max_size=4), max_size=40))
def test_equal_sentences_alone_have_equal_hashes(sentences: list[str]) -> None:
    sentences = [sentence.encode("utf-8", "replace").decode() for sentence in sentences]
    hashes = hash_sentences(sentences).tolist()
    assert len(set(hashes)) == len(set(sentences))
    assert hash_sentences(sentences[::-1]).tolist() == hashes[::-1]


def test_sentences_whose_bytes_in_memory_are_equal_differ() -> None:
    """Python hashes both alike: two letters of ASCII, or one of the two bytes that they are."""
    for latin in ("ab", "this app can break"):
        wide = latin.encode().decode("utf-16-le")
        assert hash(latin) == hash(wide)
        first, second = hash_sentences([latin, wide]).tolist()
        assert first != second


def test_without_a_hash_of_its_own_that_is_long_enough_another_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    own = hash_sentences(["one", "two", "one"])
    monkeypatch.setattr(dedup, "_OWN_HASH", False)
    other = hash_sentences(["one", "two", "one"])
    assert other[0] == other[2] != other[1]
    assert not np.array_equal(own, other)


@given(st.lists(st.integers(0, 20), max_size=60))
def test_distinct_hashes_are_those_of_numpy(numbers: list[int]) -> None:
    hashes = np.array(numbers, dtype=np.uint64)
    for found, expected in zip(distinct(hashes), np.unique(hashes, return_index=True), strict=True):
        np.testing.assert_array_equal(found, expected)
