"""TSDAE: words deleted, a decoder tied to the encoder, its cross-entropy against a loop, whole runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from torch import Tensor

import selfguide
from resuming import assert_resumes_exactly
from selfguide.errors import SelfguideError, UsageError
from selfguide.losses.base import own_parameters
from selfguide.methods import registry
from selfguide.methods.tsdae import DenoisingLoss, drop_words
from selfguide.models.encoders import backbone, load_encoder
from selfguide.progress import Reporter
from selfguide.training.settings import TrainingSettings
from selfguide.training.trainer import FitContext
from toys import toy_sentences

DECODABLE = ("bert", "roberta", "xlm-roberta", "camembert", "electra")
QUICK: dict[str, Any] = {"batch_size": 8, "learning_rate": 1e-3, "max_steps": 3, "device": "cpu", "quiet": True}


def _model(path: Path) -> SentenceTransformer:
    return load_encoder(path, pooling="cls", max_length=32)


def test_words_are_deleted_and_one_stays() -> None:
    text = "the old man repairs a broken clock , slowly ."
    torch.manual_seed(0)
    shares = []
    for _ in range(200):
        left = drop_words(text, 0.6).split()
        iterator = iter(text.split())
        assert left
        assert all(word in iterator for word in left)  # in their order
        shares.append(len(left) / 10)
    assert np.mean(shares) == pytest.approx(0.4, abs=0.04)
    assert drop_words(text, 0.0) == text
    assert drop_words("alone", 0.99) == "alone"
    assert drop_words("", 0.6) == ""
    torch.manual_seed(1)
    one = drop_words(text, 0.6)
    torch.manual_seed(1)
    assert drop_words(text, 0.6) == one


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


def test_gradients_of_the_decoder_do_not_add_up_over_steps(bert: Path) -> None:
    model = _model(bert)
    loss = DenoisingLoss(model).train()

    def gradients() -> list[Tensor]:
        torch.manual_seed(5)
        loss([model.preprocess(toy_sentences(4))]).backward()
        return [parameter.grad.clone() for parameter in own_parameters(loss).values() if parameter.grad is not None]

    once = gradients()
    model.zero_grad()
    torch.testing.assert_close(gradients(), once)


def test_the_rate_is_constant(bert: Path, tmp_path: Path) -> None:
    method: Any = registry.make("tsdae")
    assert (method.defaults.batch_size, method.defaults.learning_rate, method.defaults.weight_decay) == (8, 3e-5, 0.0)
    method.context = FitContext([], method.defaults, tmp_path, Reporter(quiet=True))  # type: ignore[arg-type]
    optimiser, schedule = method.optimiser(DenoisingLoss(_model(bert)), 10)
    rates = []
    for _ in range(10):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule.step()
    assert rates == [3e-5] * 10
    method.context = FitContext([], TrainingSettings(warmup=0.2), tmp_path, Reporter(quiet=True))  # type: ignore[arg-type]
    _, climbing = method.optimiser(DenoisingLoss(_model(bert)), 10)
    assert climbing.get_last_lr() == pytest.approx([2.5e-5])


def test_a_run_starts_from_an_encoder_in_memory_and_repeats(bert: Path, tmp_path: Path) -> None:
    """An encoder whose weights are in no folder: the decoder must not be loaded from where the encoder once came from."""
    given = _model(bert)
    with torch.no_grad():
        backbone(given).embeddings.word_embeddings.weight.mul_(1.5)
    kept = backbone(given).embeddings.word_embeddings.weight.detach().clone()
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        tuned = selfguide.train(given, toy_sentences(40), "tsdae", output=tmp_path / name, seed=seed, **QUICK)
    assert torch.equal(kept, backbone(given).embeddings.word_embeddings.weight)
    a, b, c = (load_file(tmp_path / name / "model.safetensors") for name in "abc")
    assert not any("crossattention" in name or "cls" in name for name in a)
    assert float((a["embeddings.word_embeddings.weight"] - kept).abs().max()) < 0.02
    assert not torch.equal(a["embeddings.word_embeddings.weight"], kept)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert any(not torch.equal(a[name], c[name]) for name in a)
    stock = SentenceTransformer(str(tmp_path / "c"))
    np.testing.assert_allclose(stock.encode(["my sister"]), tuned.encode(["my sister"]), atol=1e-6)


def test_a_resumed_run_ends_where_the_uninterrupted_one_does(bert: Path, tmp_path: Path) -> None:
    assert_resumes_exactly("tsdae", DenoisingLoss, bert, tmp_path)


def test_wrong_options_are_refused_in_words() -> None:
    for wrong, words in (({"delete_rate": 1.0}, "delete_rate is a share"), ({"pooling": "all"}, "no pooling 'all'")):
        with pytest.raises(UsageError, match=words):
            registry.make("tsdae", wrong)
