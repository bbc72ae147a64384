"""Blocks of sentences, read ahead: the same sentences whichever way they are held and passed on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfguide.data import Sentences, TextOptions
from selfguide.data.ahead import prepared_ahead
from selfguide.data.blocks import Block, regrouped
from selfguide.data.dedup import hash_sentences
from selfguide.errors import SelfguideError

STRINGS = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=6), min_size=1, max_size=20)


def both(strings: list[str]) -> list[Block]:
    """Return a block that has strings and one that has lines."""
    return [Block.of(strings), Block(len(strings), lines="".join(f"{one}\n" for one in strings).encode())]


@settings(deadline=None)  # the first example imports Arrow
@given(strings=STRINGS, seed=st.integers(0, 9))
def test_a_block_of_lines_is_one_of_strings(strings: list[str], seed: int) -> None:
    wanted = np.random.default_rng(seed).random(len(strings)) < 0.6
    expected = [one for one, stays in zip(strings, wanted, strict=True) if stays]
    for block in both(strings):
        assert bytes(block.lines) == "".join(f"{one}\n" for one in strings).encode()
        assert block.hashes().tolist() == hash_sentences(strings).tolist()
        assert block.blank().tolist() == [not one for one in strings]
        assert block.to_arrow().to_pylist() == strings
        kept = block.where(wanted)
        assert len(kept) == len(expected)
        assert bytes(kept.lines) == "".join(f"{one}\n" for one in expected).encode()
        assert kept.to_arrow().to_pylist() == kept.strings == expected
        assert block.first(3).strings == strings[:3]


@settings(deadline=None)
@given(groups=st.lists(STRINGS, max_size=6), size=st.integers(1, 30))
def test_regrouped_they_are_the_same_in_order(groups: list[list[str]], size: int) -> None:
    for form in (0, 1):
        found = list(regrouped((both(group)[form] for group in groups), size))
        assert [one for array in found for one in array.to_pylist()] == [one for group in groups for one in group]
        assert all(len(array) == size for array in found[:-1])


@pytest.mark.parametrize(
    "options", [TextOptions(), TextOptions(limit=7), TextOptions(keep_blank=True, long_lines="cut", max_chars=9)]
)
def test_blocks_are_the_sentences_and_counts_of_a_pass(tmp_path: Path, options: TextOptions) -> None:
    path = tmp_path / "text.txt"
    path.write_text("one\none\n\ntwo  \n" + "".join(f"line {n % 30} of it\n" for n in range(90)), encoding="utf-8")
    plain, blocks = Sentences([path], options), Sentences([path], options)
    assert [one for block in blocks.blocks() for one in block.strings] == list(plain)
    assert blocks.summary == plain.summary
    assert blocks.examples() == plain.examples()


def test_ahead_gives_everything_in_order_and_an_error_last() -> None:
    def failing(stopped: Callable[[], bool]) -> Generator[int, None, None]:
        yield from range(50)
        raise SelfguideError("no more")

    items = prepared_ahead(failing)
    assert [next(items) for _ in range(50)] == list(range(50))
    with pytest.raises(SelfguideError, match="no more"):
        next(items)


def test_ahead_is_one_item_ahead_and_stops_with_its_reader() -> None:
    made, threads = [], threading.active_count()

    def endless(stopped: Callable[[], bool]) -> Generator[int, None, None]:
        while not stopped():
            made.append(len(made))
            yield made[-1]

    items = prepared_ahead(endless)
    assert [next(items), next(items)] == [0, 1]
    end = time.monotonic() + 10
    while len(made) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.05)
    assert len(made) == 3  # two were used, and one waits
    items.close()
    assert threading.active_count() == threads
