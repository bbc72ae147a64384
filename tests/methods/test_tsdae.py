"""TSDAE: the learning rate, options, whole runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

import selfguide
from resuming import assert_resumes_exactly
from selfguide.errors import UsageError
from selfguide.losses import DenoisingLoss
from selfguide.methods import registry
from selfguide.models.encoders import backbone, load_encoder
from toys import QUICK, toy_sentences


def _model(path: Path) -> SentenceTransformer:
    return load_encoder(path, pooling="cls", max_length=32)


def test_a_run_starts_from_an_encoder_in_memory(bert: Path, tmp_path: Path) -> None:
    """An encoder whose weights are in no folder: the decoder must not be loaded from where the encoder once came from."""
    given = _model(bert)
    with torch.no_grad():
        backbone(given).embeddings.word_embeddings.weight.mul_(1.5)
    kept = backbone(given).embeddings.word_embeddings.weight.detach().clone()
    for name, seed in (("a", 5), ("b", 6)):
        tuned = selfguide.train(given, toy_sentences(40), "tsdae", output=tmp_path / name, seed=seed, **QUICK)
    assert torch.equal(kept, backbone(given).embeddings.word_embeddings.weight)
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    assert not any("crossattention" in name or "cls" in name for name in a)
    assert float((a["embeddings.word_embeddings.weight"] - kept).abs().max()) < 0.02
    assert not torch.equal(a["embeddings.word_embeddings.weight"], kept)
    assert any(not torch.equal(a[name], b[name]) for name in a)
    stock = SentenceTransformer(str(tmp_path / "b"))
    np.testing.assert_allclose(stock.encode(["my sister"]), tuned.encode(["my sister"]), atol=1e-6)


def test_a_resumed_run_ends_where_the_uninterrupted_one_does(bert: Path, tmp_path: Path) -> None:
    assert_resumes_exactly("tsdae", DenoisingLoss, bert, tmp_path)


def test_wrong_options_are_refused_in_words() -> None:
    for wrong, words in (
        ({"delete_rate": 1.0}, "delete_rate must be at least 0 and below 1"),
        ({"pooling": "all"}, "pooling must be one of"),
    ):
        with pytest.raises(UsageError, match=words):
            registry.make("tsdae", wrong)
