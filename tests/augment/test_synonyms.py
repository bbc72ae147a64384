"""Synonyms: neighbours in the input embeddings, and entries of a file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from selfguide.augment.synonyms import EmbeddingNeighbours, read_synonyms
from selfguide.errors import SelfguideError
from selfguide.models.encoders import backbone, load_encoder


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
