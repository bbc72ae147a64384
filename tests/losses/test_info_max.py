"""IS-BERT: an encoder of stock modules that does not depend on padding, and the loss over its tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import CNN

from naive_losses import naive_info_max
from selfguide.errors import UsageError
from selfguide.losses import InfoMaxLoss
from selfguide.losses.base import own_parameters
from selfguide.losses.info_max import with_convolutions
from selfguide.methods import registry
from selfguide.models.encoders import load_encoder
from toys import FAMILIES, toy_sentences


def _model(path: Path) -> SentenceTransformer:
    return with_convolutions(load_encoder(path, max_length=32))


def test_the_loss_takes_real_tokens_and_their_mean(bert: Path) -> None:
    model = _model(bert)
    sentences = ["my sister", *toy_sentences(2)]
    features = model.preprocess(sentences)
    lengths = features["attention_mask"].sum(dim=1).tolist()
    assert len(set(lengths)) > 1
    model.eval()
    output = model(dict(features))
    local = [row[:length] for row, length in zip(output["token_embeddings"], lengths, strict=True)]
    for tokens, vector in zip(local, output["sentence_embedding"], strict=True):
        torch.testing.assert_close(tokens.mean(dim=0), vector)
    value = InfoMaxLoss(model).eval()([features])
    torch.testing.assert_close(value, naive_info_max(local, output["sentence_embedding"]), rtol=1e-4, atol=1e-4)


def test_convolutions_see_zeros_beyond_the_sentence(bert: Path) -> None:
    """A sentence's vector is the same alone, in a padded batch, and by hand from the unpadded tokens."""
    model = _model(bert).eval()
    alone, padded = model.encode(["my sister"]), model.encode(["my sister", *toy_sentences(3)])
    np.testing.assert_allclose(alone[0], padded[0], atol=1e-6)
    tokens = model[0](model.preprocess(["my sister"]))["token_embeddings"]
    (convolutions,) = (module for module in model if isinstance(module, CNN))
    by_hand = torch.cat([conv(tokens.transpose(1, 2)) for conv in convolutions.convs], dim=1).mean(dim=2)
    np.testing.assert_allclose(alone, by_hand.detach().numpy(), atol=1e-6)
    assert [conv.kernel_size[0] for conv in convolutions.convs] == [1, 3, 5]
    assert alone.shape == (1, 33)  # a third of 32, rounded, for each window


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_trains_with_its_convolutions(tiny: Callable[[str], Path], family: str) -> None:
    model = _model(tiny(family))
    loss = InfoMaxLoss(model).train()
    assert not own_parameters(loss)  # the convolutions are the encoder's
    loss([model.preprocess([*toy_sentences(4), "a"])]).backward()
    for name, parameter in model.named_parameters():
        fixed = "pooler" in name or "emb_layer" in name
        assert (parameter.grad is not None) == (not fixed), name


def test_an_encoder_without_convolutions_is_refused(bert: Path) -> None:
    with pytest.raises(UsageError, match="encoder with convolutions"):
        InfoMaxLoss(load_encoder(bert))
    assert InfoMaxLoss(_model(bert)).citation == registry.method_class("is-bert").citation
