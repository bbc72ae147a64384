"""A text of any number of short lines, with repeats near and far, whose number of different lines is known beforehand."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from selfguide.data.resources import demo_sentences

SEED = 1
REPEATS = 0.176
"""Share of repeats: what drawing N lines from 2.5 N leaves."""
_HALVES = 1 << 16
_BLOCK = 1 << 20


def halves(seed: int = SEED) -> tuple[list[bytes], list[bytes]]:
    """Return 65,536 different beginnings and as many ends of lines, of words of the demonstration text.

    A beginning ends in a comma, which is nowhere else, so that two lines are equal only if both halves are.

    Args:
        seed: Seed of the words.

    Returns:
        The beginnings and the ends.
    """
    words = sorted({word for line in demo_sentences() for word in line.split() if word.isalpha() and word.isascii()})
    draw = np.random.default_rng(seed)

    def phrases(end: bytes) -> list[bytes]:
        made: dict[bytes, None] = {}
        while len(made) < _HALVES:
            chosen = draw.integers(0, len(words), int(draw.integers(3, 6)))
            made[" ".join(words[number] for number in chosen).encode() + end] = None
        return list(made)

    return phrases(b", "), phrases(b"\n")


def write_lines(path: Path, count: int, seed: int = SEED) -> dict[str, Any]:
    """Write a text, unless it is there.

    Args:
        path: The file.
        count: Number of lines.
        seed: Seed of what is drawn.

    Returns:
        Facts about it: lines, different lines, bytes.
    """
    first, second = halves(seed)
    draw = np.random.default_rng([seed, count])
    kinds = min(count * 5 // 2, (1 << 32) - 1)
    met = np.zeros(kinds, dtype=np.bool_)
    there = path.exists()
    temporary = path.with_suffix(".making")
    with open(os.devnull if there else temporary, "wb") as file:
        for start in range(0, count, _BLOCK):
            drawn = draw.integers(0, kinds, min(_BLOCK, count - start), dtype=np.uint64)
            met[drawn] = True
            if there:
                continue
            scattered = (drawn * np.uint64(2654435761)) & np.uint64(0xFFFFFFFF)  # odd, so no two numbers fall together
            high, low = (scattered >> np.uint64(16)).tolist(), (scattered & np.uint64(0xFFFF)).tolist()
            file.write(b"".join([first[a] + second[b] for a, b in zip(high, low, strict=True)]))
    if not there:
        temporary.rename(path)
    return {"lines": count, "different": int(np.count_nonzero(met)), "bytes": path.stat().st_size}
