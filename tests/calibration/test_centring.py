"""Centring against its formula, and the measure that decides on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize

from selfguide.calibration.centring import can_be_centred, centred, mean_cosine, one_sidedness
from selfguide.models.encoders import load_encoder
from toys import toy_sentences


def test_no_embedding_moves_further_than_the_share_of_the_mean(bert: Path, tmp_path: Path) -> None:
    plain = load_encoder(bert, pooling="mean", max_length=9, device="cpu").eval()
    text = toy_sentences(20)
    raw = plain.encode(text)
    unit = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    mean = unit.mean(axis=0, dtype=np.float64)
    wanted = unit - 0.5 * mean
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    normalised = SentenceTransformer(modules=[*plain, Normalize()], device="cpu")
    normalised.max_seq_length = 9
    for start, more in ((plain, ["Normalize", "Dense", "Normalize"]), (normalised, ["Dense", "Normalize"])):
        found = centred(start, mean, 0.5)
        found.save(str(tmp_path / "out"), create_model_card=False)
        stock = SentenceTransformer(str(tmp_path / "out"), device="cpu")
        assert [type(module).__name__ for module in stock] == [*(type(module).__name__ for module in start), *more]
        np.testing.assert_allclose(stock.encode(text), wanted, atol=1e-5)
        assert stock.max_seq_length == 9
        assert stock.get_embedding_dimension() == start.get_embedding_dimension()


def test_where_lengths_count_an_encoder_is_not_centred(bert: Path) -> None:
    plain = load_encoder(bert, pooling="mean", device="cpu")
    assert can_be_centred(plain)
    plain.similarity_fn_name = "dot"
    assert not can_be_centred(plain)
    normalised = SentenceTransformer(modules=[*plain, Normalize()], similarity_fn_name="dot", device="cpu")
    assert can_be_centred(normalised)


def test_one_sidedness_is_0_around_general_sentences_and_1_for_one_embedding() -> None:
    draw = np.random.default_rng(0)
    general = draw.normal(size=(500, 16)).astype(np.float32)
    centre = general.mean(axis=0)
    spread = centre + draw.normal(size=(60, 16)).astype(np.float32)
    assert one_sidedness(spread, general) < 0.05
    assert one_sidedness(np.repeat(spread[:1], 30, axis=0), general) == pytest.approx(1.0)
    away = spread + 3.0
    pairs = [(a - centre) @ (b - centre) for i, a in enumerate(away) for j, b in enumerate(away) if i != j]
    wanted = np.mean(pairs) / np.mean([(a - centre) @ (a - centre) for a in away])
    assert one_sidedness(away, general) == pytest.approx(wanted, rel=1e-4)
    assert one_sidedness(away[:1], general) == 1.0


def test_the_mean_cosine_is_that_of_different_sentences() -> None:
    vectors = np.random.default_rng(1).normal(size=(40, 8)).astype(np.float32) + 0.5
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = (vectors @ vectors.T)[~np.eye(40, dtype=bool)]
    assert mean_cosine(vectors) == pytest.approx(cosines.mean(), abs=1e-6)
    assert mean_cosine(vectors[:1]) == 1.0
