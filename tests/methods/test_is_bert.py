"""IS-BERT: the objective against a loop, an encoder of stock modules that does not mind padding, whole runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import CNN
from torch import Tensor

import selfguide
from selfguide.errors import UsageError
from selfguide.losses.base import own_parameters
from selfguide.methods import registry
from selfguide.methods.is_bert import MutualInformationLoss, local_global, with_convolutions
from selfguide.models.encoders import load_encoder
from toys import FAMILIES, toy_sentences

QUICK: dict[str, Any] = {"batch_size": 8, "learning_rate": 1e-3, "max_steps": 3, "device": "cpu", "quiet": True}


def _model(path: Path) -> SentenceTransformer:
    return with_convolutions(load_encoder(path, max_length=32))


def _naive(local: list[Tensor], whole: Tensor) -> Tensor:
    together, apart = [], []
    for i, tokens in enumerate(local):
        for token in tokens:
            for j, vector in enumerate(whole):
                score = token @ vector
                if i == j:
                    together.append(math.log(2) - torch.log(1 + torch.exp(-score)))
                else:
                    apart.append(torch.log(1 + torch.exp(score)) - math.log(2))
    return (sum(apart) / len(apart) if apart else 0) - sum(together) / len(together)  # type: ignore[return-value]


@pytest.mark.parametrize("lengths", [(3, 5), (4, 1, 2), (6,)])
def test_the_objective_follows_its_formula(lengths: tuple[int, ...]) -> None:
    torch.manual_seed(len(lengths))
    local = [torch.randn(length, 4, dtype=torch.float64) for length in lengths]
    whole = torch.stack([tokens.mean(dim=0) for tokens in local])
    owners = torch.tensor([i for i, length in enumerate(lengths) for _ in range(length)])
    torch.testing.assert_close(local_global(torch.cat(local), whole, owners), _naive(local, whole))


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
    value = MutualInformationLoss(model).eval()([features])
    torch.testing.assert_close(value, _naive(local, output["sentence_embedding"]), rtol=1e-4, atol=1e-4)


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
    loss = MutualInformationLoss(model).train()
    assert not own_parameters(loss)  # the convolutions are the encoder's
    loss([model.preprocess([*toy_sentences(4), "a"])]).backward()
    for name, parameter in model.named_parameters():
        fixed = "pooler" in name or "emb_layer" in name
        assert (parameter.grad is not None) == (not fixed), name


def test_a_run_keeps_the_convolutions_and_repeats(bert: Path, tmp_path: Path) -> None:
    before = load_file(bert / "model.safetensors")
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        tuned = selfguide.train(bert, toy_sentences(40), "is-bert", output=tmp_path / name, seed=seed, **QUICK)
    vectors = {name: SentenceTransformer(str(tmp_path / name)).encode(toy_sentences(3)) for name in "abc"}
    np.testing.assert_allclose(vectors["c"], tuned.encode(toy_sentences(3)), atol=1e-6)
    np.testing.assert_array_equal(vectors["a"], vectors["b"])  # the seed draws the convolutions as well
    assert not np.allclose(vectors["a"], vectors["c"], atol=1e-3)
    after = load_file(tmp_path / "a" / "model.safetensors")
    assert any(not torch.equal(after[name], before[name]) for name in after)


def test_wrong_options_are_refused_in_words(bert: Path) -> None:
    for wrong, words in (
        ({"windows": "1,2"}, r"windows '1,2' is not understood; write odd numbers"),
        ({"windows": "wide"}, "windows 'wide' is not understood"),
        ({"filters": -1}, "filters must be at least 0"),
        ({"dropout": 2.0}, "dropout must be"),
    ):
        with pytest.raises(UsageError, match=words):
            registry.make("is-bert", wrong)
    with pytest.raises(UsageError, match="encoder with convolutions"):
        MutualInformationLoss(load_encoder(bert))
    assert registry.method_class("is-bert").defaults.batch_size == 32
    assert MutualInformationLoss(_model(bert)).citation == registry.method_class("is-bert").citation
