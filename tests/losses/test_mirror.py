"""Mirror-BERT's loss against a loop."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

from naive_losses import naive_nt_xent
from selfguide.errors import UsageError
from selfguide.losses import MirrorLoss
from selfguide.models.encoders import load_encoder
from toys import toy_sentences


def _model(path: Path) -> SentenceTransformer:
    return load_encoder(path, pooling="mean", max_length=32)


def test_mirror_masks_a_span_of_the_second_copy_alone(bert: Path) -> None:
    model = _model(bert)
    loss = MirrorLoss(model, temperature=0.1, dropout=0.0).train()
    sentences = [*toy_sentences(3), "my sister"]
    features = model.preprocess(sentences)
    torch.manual_seed(0)
    copy = loss.mirrored(features)
    mask = model.tokenizer.mask_token_id
    assert (copy["input_ids"] == mask).sum(dim=1).tolist() == [int(len(text) >= 30) for text in sentences]
    assert any(len(text) >= 30 for text in sentences)
    torch.manual_seed(0)
    value = loss([model.preprocess(sentences)])
    model.eval()
    first, second = (model(dict(batch))["sentence_embedding"] for batch in (features, copy))
    torch.testing.assert_close(value, naive_nt_xent(first, second, 0.1), rtol=1e-4, atol=1e-4)
    whole = MirrorLoss(model, span=0, dropout=0.1).mirrored(features)
    assert torch.equal(whole["input_ids"], features["input_ids"])
    with pytest.raises(UsageError, match="two copies of a sentence are equal"):
        MirrorLoss(model, span=0, dropout=0.0)
