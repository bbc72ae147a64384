"""ConSERT's loss against a loop."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

from naive_losses import naive_nt_xent
from selfguide.losses import ConSERTLoss
from selfguide.models.encoders import load_encoder
from toys import toy_sentences


def _model(path: Path) -> SentenceTransformer:
    return load_encoder(path, pooling="mean", max_length=32)


def test_consert_contrasts_the_copies_it_makes(bert: Path) -> None:
    model = _model(bert)
    loss = ConSERTLoss(model, first="none", second="none", temperature=0.2).train()
    vectors = model.encode(toy_sentences(5), convert_to_tensor=True)
    model.train()
    value = loss([model.preprocess(toy_sentences(5))])  # its own dropout is off: the copies are equal
    torch.testing.assert_close(value, naive_nt_xent(vectors, vectors, 0.2), rtol=1e-4, atol=1e-4)
    shuffled = ConSERTLoss(model, first="shuffle", second="token-cutoff+feature-cutoff", temperature=0.2)
    torch.manual_seed(1)
    one = float(shuffled([model.preprocess(toy_sentences(5))]).detach())
    torch.manual_seed(1)
    assert float(shuffled([model.preprocess(toy_sentences(5))]).detach()) == one
    torch.manual_seed(2)
    assert float(shuffled([model.preprocess(toy_sentences(5))]).detach()) != one
    assert one != pytest.approx(float(value.detach()))
