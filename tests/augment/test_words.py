"""Rewriting sentences: what is lost, what is kept, and how often."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from selfguide.augment.words import (
    delete_spans,
    delete_words,
    drop_words,
    mask_span,
    mask_tokens,
    reorder,
    substitute,
)

MARK = -1
SENTENCES = st.integers(0, 60).map(lambda length: list(range(100, 100 + length)))


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=80), st.integers(0, 12), st.integers(0, 99))
def test_a_span_of_characters_is_masked(text: str, length: int, seed: int) -> None:
    torch.manual_seed(seed)
    done = mask_span(text, length, "[MASK]")
    if len(text) < 30 or length == 0:
        assert done == text
        return
    assert any(done == f"{text[:start]} [MASK] {text[start + length :]}" for start in range(len(text) - length + 1))
    torch.manual_seed(seed)
    assert mask_span(text, length, "[MASK]") == done


def test_every_span_can_be_masked() -> None:
    torch.manual_seed(0)
    text = "".join(chr(65 + number) for number in range(32))
    starts = {mask_span(text, 5, "*").index(" *") for _ in range(600)}
    assert starts == set(range(28))


@settings(max_examples=80, deadline=None)
@given(SENTENCES, st.sampled_from([0.1, 0.5, 0.7]), st.integers(0, 99))
def test_deleting_words(tokens: list[int], rate: float, seed: int) -> None:
    torch.manual_seed(seed)
    done = delete_words(tokens, rate, MARK)
    kept = [token for token in done if token != MARK]
    assert kept == [token for token in tokens if token in set(kept)]  # in their order
    assert len(kept) == len(tokens) - int(rate * len(tokens) + 1e-9)
    assert all((one, other) != (MARK, MARK) for one, other in pairwise(done))
    for place, token in enumerate(done):  # a mark stands exactly where something is missing
        if token == MARK:
            before = done[place - 1] if place else 99
            after = done[place + 1] if place + 1 < len(done) else 100 + len(tokens)
            assert after - before > 1
    torch.manual_seed(seed)
    assert delete_words(tokens, rate, None) == kept


@settings(max_examples=80, deadline=None)
@given(SENTENCES, st.integers(1, 4), st.sampled_from([0.05, 0.2]), st.integers(0, 99))
def test_deleting_spans(tokens: list[int], spans: int, length: float, seed: int) -> None:
    torch.manual_seed(seed)
    done = delete_spans(tokens, spans, length, None)
    assert done == [token for token in tokens if token in set(done)]
    missing = len(tokens) - len(done)
    size = max(1, round(length * len(tokens)))
    assert missing <= max(size, spans * length * len(tokens) + 1e-9)
    assert done or not tokens
    if len(tokens) > size:
        assert missing % size == 0
        assert missing >= size


@settings(max_examples=80, deadline=None)
@given(SENTENCES, st.integers(1, 6), st.sampled_from([0.05, 0.2]), st.integers(0, 99))
def test_reordering_keeps_every_token(tokens: list[int], pairs: int, length: float, seed: int) -> None:
    torch.manual_seed(seed)
    done = reorder(tokens, pairs, length)
    assert sorted(done) == tokens
    if len(tokens) >= 2 * max(1, round(length * len(tokens))) + 1:
        assert done != tokens


def test_substitution_replaces_its_share_and_leaves_what_has_no_synonym() -> None:
    torch.manual_seed(0)
    tokens = list(range(20))
    done = substitute(tokens, 0.3, lambda token: [[token + 100], [token + 200, token + 201]])
    assert sum(token < 100 for token in done) == 14
    assert substitute(tokens, 0.3, lambda token: []) == tokens
    counts = torch.zeros(20)
    for _ in range(1000):
        counts += torch.tensor([float(token >= 100) for token in substitute(tokens, 0.3, lambda t: [[t + 100]])])
    assert float((counts / 1000 - 0.3).abs().max()) < 0.07


def test_hidden_tokens_follow_the_usual_shares() -> None:
    torch.manual_seed(0)
    tokens = list(range(1000, 1020))
    masked = random = kept = 0
    for _ in range(600):
        hidden, places = mask_tokens(tokens, 0.15, MARK, 50, barred={0})
        assert len(places) == 3
        assert all(hidden[place] == tokens[place] for place in range(20) if place not in places)
        for place in places:
            masked += hidden[place] == MARK
            kept += hidden[place] == tokens[place]
            random += 0 < hidden[place] < 50
    assert masked / 1800 == pytest.approx(0.8, abs=0.03)
    assert kept / 1800 == pytest.approx(0.1, abs=0.03)
    assert random / 1800 == pytest.approx(0.1, abs=0.03)
    assert mask_tokens([], 0.15, MARK, 50) == ([], [])
    assert len(mask_tokens([5], 0.15, MARK, 50)[1]) == 1


def test_words_are_deleted_and_one_stays() -> None:
    text = "the old man repairs a broken clock , slowly ."
    torch.manual_seed(0)
    shares = []
    for _ in range(200):
        left = drop_words(text, 0.6).split()
        iterator = iter(text.split())
        assert left
        assert all(word in iterator for word in left)  # in their order
        shares.append(len(left) / 10)
    assert np.mean(shares) == pytest.approx(0.4, abs=0.04)
    assert drop_words(text, 0.0) == text
    assert drop_words("alone", 0.99) == "alone"
    assert drop_words("", 0.6) == ""
    torch.manual_seed(1)
    one = drop_words(text, 0.6)
    torch.manual_seed(1)
    assert drop_words(text, 0.6) == one
