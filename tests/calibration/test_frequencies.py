"""Token frequencies: the English table is split once for each tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from selfguide.calibration import frequencies
from selfguide.calibration.frequencies import Vocabulary
from selfguide.models.encoders import load_encoder


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[Vocabulary]:
    """The vocabularies for which the table was split, from an empty cache on."""
    made: list[Vocabulary] = []
    compute = frequencies._english_probabilities

    def counted(vocabulary: Vocabulary) -> Any:
        made.append(vocabulary)
        return compute(vocabulary)

    monkeypatch.setattr(frequencies, "_english_probabilities", counted)
    monkeypatch.setattr(frequencies, "_english", {})
    return made


def test_encoders_with_one_tokenizer_split_the_table_once(
    tiny: Callable[[str], Path], computed: list[Vocabulary]
) -> None:
    one, other = (load_encoder(tiny("bert")) for _ in range(2))
    first = Vocabulary.of_encoder(one).english
    one.encode(["It rains."])  # sets truncation and padding, which do not change how words are split
    assert Vocabulary.of_encoder(one).english is first
    assert Vocabulary.of_encoder(other).english is first
    assert len(computed) == 1
    assert not first.flags.writeable
    cased = load_encoder(tiny("bert"))
    cased.tokenizer.backend_tokenizer.normalizer = None
    assert not np.array_equal(Vocabulary.of_encoder(cased).english, first)
    assert len(computed) == 2


def test_special_tokens_are_part_of_the_key(tiny: Callable[[str], Path], computed: list[Vocabulary]) -> None:
    tokenizer = load_encoder(tiny("bert")).tokenizer.backend_tokenizer
    plain = Vocabulary.of_tokenizer(tokenizer).english
    frequent = int(plain.argmax())
    assert Vocabulary.of_tokenizer(tokenizer, special=[frequent]).english[frequent] == 0
    assert plain[frequent] > 0
    assert len(computed) == 2


def test_few_tables_are_kept(
    tiny: Callable[[str], Path], computed: list[Vocabulary], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frequencies, "_MOST_KEPT", 2)
    tokenizer = load_encoder(tiny("bert")).tokenizer.backend_tokenizer
    for special in (1, 2, 3, 3, 1):
        assert len(Vocabulary.of_tokenizer(tokenizer, special=[special]).english) > 0
        assert len(frequencies._english) <= 2
    assert len(computed) == 4  # 3 was kept, 1 was not
