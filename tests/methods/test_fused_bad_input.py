"""Texts and encoders that the fused vector cannot be fitted on: a clear sentence, or a sound result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import selfguide
from selfguide.calibration.linear_maps import joined_map
from selfguide.calibration.text_statistics import Statistics
from selfguide.data import TextOptions
from selfguide.errors import SelfguideError
from selfguide.models.encoders import backbone, load_encoder
from selfguide.runs.calibrate import calibrate
from toys import toy_sentences

SENTENCES = toy_sentences(400)
STRANGE = ["你好", "再见", "谢谢 你", "早上 好"]
AS_IT_IS = TextOptions(keep_duplicates=True)


def _fused(encoder: Path | SentenceTransformer, text: list[str], **options: Any) -> SentenceTransformer:
    settings = {"tune": "none", "frequencies": "text", "device": "cpu", "quiet": True} | options
    return selfguide.train(encoder, text, "fused", **settings)


@pytest.mark.parametrize("text", [["one sentence"], ["one sentence", "one sentence"]])
def test_one_sentence_is_too_little(bert: Path, text: list[str]) -> None:
    with pytest.raises(SelfguideError, match="too little"):
        _fused(bert, text)


def test_sentences_that_are_all_equal_have_no_covariance(bert: Path, tmp_path: Path) -> None:
    same = ["the old man finds fresh bread"] * 30
    with pytest.raises(SelfguideError, match="same vector"):
        _fused(bert, same, text_options=AS_IT_IS)
    with pytest.raises(SelfguideError, match="same vector"):
        _fused(bert, same, text_options=AS_IT_IS, shrinkage="1")
    _fused(bert, SENTENCES, output=tmp_path / "good")
    with pytest.raises(SelfguideError, match="same vector"):
        calibrate(tmp_path / "good", same, tmp_path / "new", fresh=True, text_options=AS_IT_IS, device="cpu")
    assert not (tmp_path / "new").exists()
    # Added to a good text they are no harm.
    made = calibrate(tmp_path / "good", same, tmp_path / "new", text_options=AS_IT_IS, device="cpu")
    assert np.isfinite(SentenceTransformer(str(made), device="cpu").encode(SENTENCES[:9])).all()


def test_a_script_that_the_tokenizer_does_not_know(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(SelfguideError, match="knows no word of this text"):
        _fused(bert, STRANGE)
    _fused(bert, SENTENCES, output=tmp_path / "good")
    with pytest.raises(SelfguideError, match="knows no word of this text"):
        calibrate(tmp_path / "good", STRANGE, tmp_path / "new", fresh=True, device="cpu")
    # The way out that the sentence names: [CLS] alone, which sees at least how many words there are.
    counts = [" ".join(["你好"] * number) for number in range(1, 12)]
    assert np.isfinite(_fused(bert, counts, weight=1.0).encode([*counts, "the old man"])).all()


def test_a_mostly_unknown_text_is_sound(bert: Path) -> None:
    encoder = _fused(bert, [*STRANGE, *SENTENCES[:5]])
    vectors = encoder.encode([*STRANGE, *SENTENCES[:20]])
    assert np.isfinite(vectors).all()
    assert np.abs(vectors).max() < 10


def test_a_singular_covariance_by_constant_numbers(bert: Path) -> None:
    """An encoder whose vectors hold some numbers constant: those directions are left out."""
    encoder = load_encoder(bert, device="cpu")
    norm = backbone(encoder).encoder.layer[-1].output.LayerNorm
    with torch.no_grad():
        norm.weight[:8] = 0.0  # constant numbers of [CLS]
        embeddings = backbone(encoder).embeddings
        embeddings.LayerNorm.weight[4:12] = 0.0  # and of layer 0
    fused = _fused(encoder, SENTENCES, tuned_exponent=0.5, whiten="sentences")
    vectors = fused.encode(SENTENCES).astype(np.float64)
    assert np.isfinite(vectors).all()
    size = int(fused.get_embedding_dimension() or 0)
    assert size <= 2 * 32 - 8 - 8
    assert (vectors**2).sum(axis=1).mean() == pytest.approx(1, rel=1e-3)
    variances = vectors.var(axis=0)  # each part is white: no number is blown up, none is empty
    assert 0.3 / size < variances.min() <= variances.max() < 3 / size


@pytest.mark.parametrize("count", [5, 40, 400])
@pytest.mark.parametrize("shrinkage", ["auto", "0", "0.3"])
def test_doubled_numbers_do_not_double_their_weight(count: int, shrinkage: str) -> None:
    """Of a vector that says everything twice, the whitened part is that of the vector that says it once."""
    generator = np.random.default_rng(0)
    once = generator.normal(size=(count, 6)) @ generator.normal(size=(6, 6))
    other = generator.normal(size=(count, 6))
    twice = np.concatenate([once, once, other], axis=1)
    mapping = joined_map(Statistics.of(twice, (12, 6)), (0.5, 0.5), shrinkage=shrinkage)
    vectors = twice @ mapping.weight.T + mapping.bias
    assert np.isfinite(vectors).all()
    assert (vectors**2).sum(axis=1).mean() == pytest.approx(1)
    if shrinkage == "0" and count > 12:
        single = joined_map(Statistics.of(np.concatenate([once, other], 1), (6, 6)), (0.5, 0.5), shrinkage="0")
        expected = np.concatenate([once, other], 1) @ single.weight.T + single.bias
        np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=1e-6)


def test_two_sentences_that_differ_are_enough_to_go_on(bert: Path) -> None:
    vectors = _fused(bert, SENTENCES[:2]).encode(SENTENCES[:50])
    assert np.isfinite(vectors).all()
    assert np.linalg.norm(vectors, axis=1).min() > 0


def test_vectors_that_are_not_finite_are_refused(bert: Path) -> None:
    encoder = load_encoder(bert, device="cpu")
    with torch.no_grad():
        backbone(encoder).encoder.layer[-1].output.LayerNorm.bias[0] = float("nan")
    with pytest.raises(SelfguideError, match="not finite"):
        _fused(encoder, SENTENCES[:40])
