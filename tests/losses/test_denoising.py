"""TSDAE: the decoder's cross-entropy against a loop, and the weights it shares with the encoder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

from selfguide.errors import SelfguideError
from selfguide.losses import DenoisingLoss
from selfguide.losses.base import own_parameters
from selfguide.models.encoders import backbone, load_encoder
from toys import toy_sentences

DECODABLE = ("bert", "roberta", "xlm-roberta", "camembert", "electra")


def _model(path: Path) -> SentenceTransformer:
    return load_encoder(path, pooling="cls", max_length=32)


def test_the_decoder_is_scored_on_every_token_after_the_first(bert: Path) -> None:
    model = _model(bert)
    loss = DenoisingLoss(model).eval()
    features = model.preprocess(["my sister", *toy_sentences(2)])
    vectors = torch.randn(3, 32)
    terms = []
    for row in range(3):
        length = int(features["attention_mask"][row].sum())
        tokens = features["input_ids"][row, :length]
        for place in range(1, length):  # each token from those before it, and the vector
            logits = loss.decoder(
                input_ids=tokens[:place].unsqueeze(0),
                encoder_hidden_states=vectors[row].view(1, 1, -1),
                use_cache=False,
            ).logits[0, -1]
            terms.append(-torch.log_softmax(logits, dim=0)[tokens[place]])
    torch.testing.assert_close(loss.reconstruct(vectors, features), torch.stack(terms).mean(), rtol=1e-4, atol=1e-4)


def test_the_vector_comes_from_the_damaged_sentence(bert: Path) -> None:
    model = _model(bert)
    loss = DenoisingLoss(model).eval()
    features = model.preprocess(toy_sentences(3))
    torch.manual_seed(2)
    damaged = loss.damaged(features)
    assert damaged["attention_mask"].sum() < features["attention_mask"].sum()
    with torch.no_grad():
        expected = loss.reconstruct(model(dict(damaged))["sentence_embedding"], features)
        torch.manual_seed(2)
        torch.testing.assert_close(loss([features]), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", DECODABLE)
def test_the_decoder_shares_the_encoders_weights(tiny: Callable[[str], Path], family: str) -> None:
    model = _model(tiny(family))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    loss = DenoisingLoss(model).train()
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    theirs = {id(parameter) for parameter in backbone(model).parameters()}
    for name, parameter in loss.decoder.base_model.named_parameters():
        assert (id(parameter) in theirs) == ("crossattention" not in name), name
    assert loss.decoder.get_output_embeddings().weight is backbone(model).get_input_embeddings().weight
    assert not {id(parameter) for parameter in own_parameters(loss).values()} & theirs
    assert any("crossattention" in name for name in own_parameters(loss))
    loss([model.preprocess(toy_sentences(4))]).backward()
    for name, parameter in loss.named_parameters():
        assert (parameter.grad is not None) == ("pooler" not in name), name


@pytest.mark.parametrize("family", ["distilbert", "albert", "mpnet", "deberta-v2", "modernbert"])
def test_families_without_a_decoder_are_refused_in_words(tiny: Callable[[str], Path], family: str) -> None:
    with pytest.raises(SelfguideError, match=r"no decoder for .*Model, .*BERT, RoBERTa, XLM-R or ELECTRA"):
        DenoisingLoss(_model(tiny(family)))
