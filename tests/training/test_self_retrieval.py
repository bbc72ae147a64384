"""The score without labels against a loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from selfguide.models.encoders import load_encoder
from selfguide.training.self_retrieval import NEIGHBOURS, Measured, Probe, paired_z, reciprocal_ranks
from toys import toy_sentences


def test_halves_keep_half_of_the_words_in_their_order() -> None:
    text = [*toy_sentences(30), *toy_sentences(3), "too short here"]
    probe = Probe.of(text, most=20, draws=2, seed=3)
    assert len(probe) == len(set(probe.sentences)) == 20
    assert probe == Probe.of(text, most=20, draws=2, seed=3)
    assert probe != Probe.of(text, most=20, draws=2, seed=4)
    assert probe.halves[0] != probe.halves[1]
    assert "too short here" not in Probe.of(text, most=100, draws=1, seed=1).sentences
    for halves in probe.halves:
        for sentence, half in zip(probe.sentences, halves, strict=True):
            words = iter(sentence.split())
            assert all(word in words for word in half.split())  # in their order
            assert len(half.split()) == len(sentence.split()) // 2


@pytest.mark.parametrize("count", [1, 2, 30])
def test_reciprocal_ranks_are_those_of_a_loop(count: int) -> None:
    draw = np.random.default_rng(count)
    queries, candidates = draw.normal(size=(2, count, 5)).astype(np.float32)
    wanted = []
    for row in range(count):
        cosines = [float(queries[row] @ candidates[other]) for other in range(count)]
        wanted.append(1 / (1 + sum(cosine > cosines[row] for cosine in cosines)))
    np.testing.assert_allclose(reciprocal_ranks(queries, candidates), wanted)
    same = np.ones((4, 2), dtype=np.float32)
    np.testing.assert_allclose(reciprocal_ranks(same, same), 1 / 2.5)  # of three equal ones half are nearer


def test_an_encoder_is_measured_and_compared(bert: Path) -> None:
    encoder = load_encoder(bert, device="cpu")
    probe = Probe.of(toy_sentences(25), most=100, draws=2, seed=1)
    found = probe.measure(encoder)
    assert found.found.shape == (25,)
    assert 0 < found.found.min() <= found.found.max() <= 1
    assert found.near.shape == (25, NEIGHBOURS)
    assert all(row not in near for row, near in enumerate(found.near))
    assert (found.gain(found), found.overlap(found)) == (0.0, 1.0)
    near = found.near.copy()
    near[:, :5] = -1
    assert Measured(found.found, near).overlap(found) == pytest.approx(0.5)
    vectors = encoder.encode(probe.sentences, normalize_embeddings=True)
    assert {*np.argsort(-(vectors @ vectors[0]))[1:4]} <= {*found.near[0]}


def test_paired_z() -> None:
    assert paired_z(np.zeros(10)) == 0.0
    assert paired_z(np.ones(1)) == 0.0
    values = np.array([0.1, 0.3, -0.1, 0.2])
    assert paired_z(values) == pytest.approx(values.mean() / (values.std(ddof=1) / 2))
