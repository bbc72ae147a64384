"""De-duplication by hashes finds what a set finds."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from selfguide.data.dedup import SeenHashes, hash_sentences


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
