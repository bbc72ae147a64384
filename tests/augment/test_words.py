"""Rewriting sentences: what is lost, what is kept, and how often."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from selfguide.augment.words import (
    EmbeddingNeighbours,
    chain,
    delete_spans,
    delete_words,
    mask_span,
    read_synonyms,
    reorder,
    substitute,
)
from selfguide.errors import SelfguideError, UsageError
from selfguide.losses.masked_language import MaskedLanguageHead, mask_tokens, masked_language_loss
from selfguide.models.encoders import backbone, load_encoder

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


def test_neighbours_come_from_the_input_embeddings_and_stay(bert: Path) -> None:
    encoder = load_encoder(bert)
    weights = backbone(encoder).get_input_embeddings().weight
    tokenizer = encoder.tokenizer
    clock, bread, cls = (tokenizer.convert_tokens_to_ids(word) for word in ("clock", "bread", "[CLS]"))
    with torch.no_grad():
        weights[bread] = 2 * weights[clock]
        weights[cls] = weights[clock]
    find = EmbeddingNeighbours(weights, tokenizer, count=3)
    assert find(clock)[0] == [bread]
    assert len(find(clock)) == 3
    assert all(other[0] not in tokenizer.all_special_ids and other != [clock] for other in find(clock))
    assert list(find(cls)) == []
    with torch.no_grad():
        weights[bread] = -weights[bread]  # training goes on, the neighbours stay
    assert EmbeddingNeighbours(weights, tokenizer, count=3)(clock)[0] != [bread]
    find._known.clear()
    assert find(clock)[0] == [bread]


def test_synonyms_from_a_file(bert: Path, tmp_path: Path) -> None:
    tokenizer = load_encoder(bert).tokenizer
    path = tmp_path / "synonyms.tsv"
    path.write_text("clock\tgreen apples\tbox\n\nold man\tcook\n", encoding="utf-8")
    find = read_synonyms(path, tokenizer)
    green, apples, box, clock, old = tokenizer.convert_tokens_to_ids(["green", "apples", "box", "clock", "old"])
    assert list(find(clock)) == [[green, apples], [box]]
    assert list(find(old)) == []
    path.write_text("clock\n", encoding="utf-8")
    with pytest.raises(SelfguideError, match=r"Line 1 of .* has no synonym"):
        read_synonyms(path, tokenizer)
    path.write_text("old man\tcook\n", encoding="utf-8")
    with pytest.raises(SelfguideError, match="no word that is a single token"):
        read_synonyms(path, tokenizer)
    with pytest.raises(SelfguideError, match="could not be read"):
        read_synonyms(tmp_path / "none.tsv", tokenizer)


def test_rewritings_are_chained_by_name() -> None:
    steps = {"none": lambda tokens: tokens, "double": lambda tokens: tokens * 2}
    assert chain("double+double", steps)([7]) == [7] * 4
    with pytest.raises(UsageError, match=r"no augmentation 'triple'.*none, double"):
        chain("triple", steps)


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


def test_the_language_model_loss_is_a_plain_cross_entropy(bert: Path) -> None:
    torch.manual_seed(0)
    transformer = backbone(load_encoder(bert))
    weights = transformer.get_input_embeddings().weight
    head = MaskedLanguageHead(transformer.config, weights.shape[1], weights.shape[0])
    states, answers = torch.randn(4, 32), torch.tensor([5, 9, 9, 20])
    total = torch.zeros(())
    for state, answer in zip(states, answers, strict=True):
        inner = torch.nn.functional.layer_norm(torch.nn.functional.gelu(head.dense(state)), (32,))
        logits = torch.stack([torch.dot(inner, row) for row in weights]) + head.bias
        total = total - logits[answer] + torch.logsumexp(logits, 0)
    loss = masked_language_loss(head, states, answers, weights)
    torch.testing.assert_close(loss, total / 4)
    empty = masked_language_loss(head, states[:0], answers[:0], weights)
    empty.backward()
    assert float(empty.detach()) == 0.0
    assert head.bias.grad is not None
