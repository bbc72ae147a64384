"""SimCSE's loss against a loop, and that it refuses an encoder without dropout."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from naive_losses import naive_info_nce
from selfguide.augment.dropout import highest_dropout
from selfguide.errors import UsageError
from selfguide.losses import DropoutContrastLoss
from selfguide.models.encoders import load_encoder
from toys import toy_sentences


def _model(path: Path) -> SentenceTransformer:
    return load_encoder(path, pooling="cls", max_length=32)


@pytest.mark.parametrize("batch", [2, 5])
@pytest.mark.parametrize("head", [True, False])
def test_simcse_compares_two_passes_through_the_head(bert: Path, batch: int, head: bool) -> None:
    model = _model(bert)
    loss = DropoutContrastLoss(model, temperature=0.07, head=head)
    vectors = torch.randn(2 * batch, 32)
    seen = loss.head(vectors)
    torch.testing.assert_close(loss.contrast(vectors), naive_info_nce(seen[:batch], seen[batch:], 0.07))
    features = model.preprocess(toy_sentences(batch))
    captured: list[Tensor] = []
    model.register_forward_hook(lambda module, inputs, output: captured.append(output["sentence_embedding"]))
    value = loss.train()([features])
    (both,) = captured  # one pass over the batch doubled
    assert both.shape == (2 * batch, 32)
    assert not torch.allclose(both[:batch], both[batch:])  # dropout made two of each
    torch.testing.assert_close(value, loss.contrast(both))
    loss.eval()([features])
    torch.testing.assert_close(captured[1][:batch], captured[1][batch:])


def test_simcse_without_dropout_is_refused(bert: Path) -> None:
    with pytest.raises(UsageError, match=r"two passes .* equal.*--dropout 0\.1"):
        DropoutContrastLoss(_model(bert), dropout=0.0)
    assert highest_dropout(_model(bert)) == 0.1
    model = _model(bert)
    DropoutContrastLoss(model, dropout=0.05)
    assert highest_dropout(model) == 0.05
