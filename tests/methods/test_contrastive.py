"""SimCSE, ConSERT, Mirror-BERT and CLEAR: losses against loops that follow the formulas, and whole runs on tiny encoders."""

from __future__ import annotations

import json
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
from selfguide.augment.dropout import highest_dropout
from selfguide.errors import SelfguideError, UsageError
from selfguide.losses import functional as losses
from selfguide.losses.base import own_parameters
from selfguide.losses.dropout_contrast import DropoutContrastLoss
from selfguide.methods import registry
from selfguide.methods.clear import ClearLoss, ClearOptions
from selfguide.methods.consert import ConsertLoss
from selfguide.methods.mirror import MirrorLoss
from selfguide.models.encoders import backbone, load_encoder, with_pooling
from toys import FAMILIES, toy_sentences

METHODS = ("simcse", "consert", "mirror", "clear")
LOSSES: dict[str, Callable[..., Any]] = {
    "simcse": lambda model: DropoutContrastLoss(model, dropout=0.1),
    "consert": lambda model: ConsertLoss(model),
    "mirror": lambda model: MirrorLoss(model, dropout=0.1),
    "clear": lambda model: ClearLoss(model),
}
QUICK: dict[str, Any] = {"batch_size": 8, "learning_rate": 1e-3, "max_steps": 3, "device": "cpu", "quiet": True}


def _cosine(u: Tensor, v: Tensor) -> Tensor:
    return torch.dot(u, v) / (u.norm() * v.norm())


def _naive_info_nce(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    total = first.new_zeros(())
    for i in range(len(first)):
        terms = torch.stack([_cosine(first[i], second[j]) / temperature for j in range(len(second))])
        total = total - torch.log(torch.exp(terms[i]) / torch.exp(terms).sum())
    return total / len(first)


def _naive_nt_xent(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    everything, count = torch.cat([first, second]), len(first)
    total = first.new_zeros(())
    for m in range(2 * count):
        partner = (m + count) % (2 * count)
        others = [n for n in range(2 * count) if n != m]
        terms = torch.stack([_cosine(everything[m], everything[n]) / temperature for n in others])
        total = total - (terms[others.index(partner)] - torch.logsumexp(terms, 0))
    return total / (2 * count)


@pytest.mark.parametrize("temperature", [0.04, 0.05, 0.1, 1.0])
@pytest.mark.parametrize("batch", [2, 3, 8])
def test_the_two_contrasts_follow_their_formulas(batch: int, temperature: float) -> None:
    torch.manual_seed(batch)
    first, second = torch.randn(2, batch, 6, dtype=torch.float64)
    torch.testing.assert_close(losses.info_nce(first, second, temperature), _naive_info_nce(first, second, temperature))
    torch.testing.assert_close(
        losses.nt_xent_pairs(first, second, temperature), _naive_nt_xent(first, second, temperature)
    )
    assert not torch.allclose(losses.info_nce(first, second, 0.1), losses.nt_xent_pairs(first, second, 0.1))


def _model(path: Path, pooling: str = "cls") -> SentenceTransformer:
    return load_encoder(path, pooling=pooling, max_length=32)


@pytest.mark.parametrize("batch", [2, 5])
@pytest.mark.parametrize("head", [True, False])
def test_simcse_compares_two_passes_through_the_head(bert: Path, batch: int, head: bool) -> None:
    model = _model(bert)
    loss = DropoutContrastLoss(model, temperature=0.07, head=head)
    vectors = torch.randn(2 * batch, 32)
    seen = loss.head(vectors)
    torch.testing.assert_close(loss.contrast(vectors), _naive_info_nce(seen[:batch], seen[batch:], 0.07))
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


def test_consert_contrasts_the_copies_it_was_told_to_make(bert: Path) -> None:
    model = _model(bert, "mean")
    loss = ConsertLoss(model, first="none", second="none", temperature=0.2).train()
    vectors = model.encode(toy_sentences(5), convert_to_tensor=True)
    model.train()
    value = loss([model.preprocess(toy_sentences(5))])  # its own dropout is off: the copies are equal
    torch.testing.assert_close(value, _naive_nt_xent(vectors, vectors, 0.2), rtol=1e-4, atol=1e-4)
    shuffled = ConsertLoss(model, first="shuffle", second="token-cutoff+feature-cutoff", temperature=0.2)
    torch.manual_seed(1)
    one = float(shuffled([model.preprocess(toy_sentences(5))]).detach())
    torch.manual_seed(1)
    assert float(shuffled([model.preprocess(toy_sentences(5))]).detach()) == one
    torch.manual_seed(2)
    assert float(shuffled([model.preprocess(toy_sentences(5))]).detach()) != one
    assert one != pytest.approx(float(value.detach()))


def test_consert_is_handed_out_with_the_mean_of_the_last_two_layers(bert: Path, dev_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tuned = selfguide.train(bert, toy_sentences(40), "consert", output=out, dev=dev_file, dev_every=2, **QUICK)
    stock = SentenceTransformer(str(out))
    rebuilt = with_pooling(load_encoder(out), "last2")
    np.testing.assert_allclose(stock.encode(toy_sentences(4)), rebuilt.encode(toy_sentences(4)), atol=1e-5)
    np.testing.assert_allclose(stock.encode(toy_sentences(4)), tuned.encode(toy_sentences(4)), atol=1e-5)
    mean = selfguide.train(bert, toy_sentences(40), "consert", eval_pooling="mean", **QUICK)
    assert not np.allclose(mean.encode(["my sister"]), tuned.encode(["my sister"]), atol=1e-3)


def test_mirror_masks_a_span_of_the_second_copy_alone(bert: Path) -> None:
    model = _model(bert, "mean")
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
    torch.testing.assert_close(value, _naive_nt_xent(first, second, 0.1), rtol=1e-4, atol=1e-4)
    whole = MirrorLoss(model, span=0, dropout=0.1).mirrored(features)
    assert torch.equal(whole["input_ids"], features["input_ids"])
    with pytest.raises(UsageError, match="two copies of a sentence are equal"):
        MirrorLoss(model, span=0, dropout=0.0)


def test_clear_adds_up_its_two_losses(bert: Path) -> None:
    """With copies that are not rewritten and no dropout, the contrast is known, and the rest is the language model's."""
    model = _model(bert)
    sentences = toy_sentences(4)
    options = {"first": "none", "second": "none", "dropout": 0.0, "temperature": 0.3}
    alone = ClearLoss(model, ClearOptions(**options, mlm_weight=0.0))
    assert not hasattr(alone, "mlm")
    vectors = model.encode(sentences, convert_to_tensor=True).clone()  # out of inference mode
    expected = _naive_nt_xent(alone.head(vectors), alone.head(vectors), 0.3)
    torch.testing.assert_close(alone.train()([model.preprocess(sentences)]), expected, rtol=1e-4, atol=1e-4)
    whole = ClearLoss(model, ClearOptions(**options, mlm_weight=0.5)).train()
    whole.head.load_state_dict(alone.head.state_dict())
    captured: list[tuple[Tensor, Tensor]] = []
    whole.mlm.register_forward_hook(lambda module, inputs, output: captured.append((inputs[0], output)))
    torch.manual_seed(3)
    value = whole([model.preprocess(sentences)])
    torch.manual_seed(3)
    words = [model.tokenizer(text, add_special_tokens=False)["input_ids"] for text in sentences]
    answers = [row[place] for row in words for place in whole._hide(list(row))[1]]
    (_, logits), *_ = captured
    guess = -torch.log_softmax(logits, dim=1)[torch.arange(len(answers)), torch.tensor(answers)].mean()
    torch.testing.assert_close(value, expected + 0.5 * guess, rtol=1e-4, atol=1e-4)


def test_clear_rewrites_its_two_copies(bert: Path) -> None:
    model = _model(bert)
    loss = ClearLoss(model, ClearOptions(first="reorder", second="delete-words", mlm_weight=0.0))
    seen: list[Tensor] = []
    loss.model.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]["input_ids"]))
    features = model.preprocess(toy_sentences(3))
    torch.manual_seed(0)
    loss([features])
    frame, mask = (0, 1, 2), model.tokenizer.mask_token_id
    rows = [[token for token in row if token not in frame] for row in seen[0].tolist()]
    own = [[token for token in row if token not in frame] for row in features["input_ids"].tolist()]
    assert len(rows) == 6
    for full, moved, thinned in zip(own, rows[:3], rows[3:], strict=True):
        assert sorted(moved) == sorted(full)
        assert moved != full
        assert sum(token != mask for token in thinned) == len(full) - int(0.7 * len(full))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", METHODS)
def test_every_family_trains_and_everything_that_may_move_has_a_gradient(
    tiny: Callable[[str], Path], family: str, method: str
) -> None:
    torch.manual_seed(0)
    model = _model(tiny(family))
    before = {name: tensor.clone() for name, tensor in backbone(model).state_dict().items()}
    loss = LOSSES[method](model).train()
    optimiser = torch.optim.AdamW([p for p in loss.parameters() if p.requires_grad], lr=1e-3)
    for _ in range(2):
        loss([model.preprocess([*toy_sentences(5), "a"])]).backward()
        assert all(parameter.grad is not None for parameter in loss.parameters() if parameter.requires_grad)
        optimiser.step()
        optimiser.zero_grad()
    after = backbone(model).state_dict()
    assert any(not torch.equal(after[name], before[name]) for name in before)
    assert all(torch.equal(after[name], before[name]) for name in before if "pooler" in name)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in after.values())


def test_layer_0_can_be_frozen(bert: Path) -> None:
    for loss in (
        DropoutContrastLoss(_model(bert), freeze_layer_0=True),
        ConsertLoss(_model(bert), freeze_layer_0=True),
        MirrorLoss(_model(bert), freeze_layer_0=True),
    ):
        loss([loss.model.preprocess(toy_sentences(4))]).backward()
        moving = {name for name, parameter in backbone(loss.model).named_parameters() if parameter.grad is not None}
        assert moving
        assert not any(name.startswith("embeddings.") for name in moving)


@pytest.mark.parametrize("method", ["simcse", "clear"])
def test_the_heads_gradients_do_not_add_up_over_steps(bert: Path, method: str) -> None:
    model = _model(bert)
    loss = LOSSES[method](model).train()
    assert own_parameters(loss)

    def gradients() -> list[Tensor]:
        torch.manual_seed(5)
        loss([model.preprocess(toy_sentences(4))]).backward()
        return [parameter.grad.clone() for parameter in own_parameters(loss).values() if parameter.grad is not None]

    once = gradients()
    model.zero_grad()
    torch.testing.assert_close(gradients(), once)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_writes_a_plain_folder_without_heads_and_repeats(bert: Path, tmp_path: Path, method: str) -> None:
    before = load_file(bert / "model.safetensors")
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        tuned = selfguide.train(bert, toy_sentences(40), method, output=tmp_path / name, seed=seed, **QUICK)
        if name == "a":
            stock = SentenceTransformer(str(tmp_path / "a"))
            np.testing.assert_allclose(stock.encode(["my sister"]), tuned.encode(["my sister"]), atol=1e-6)
    a, b, c = (load_file(tmp_path / name / "model.safetensors") for name in "abc")
    assert {name: tensor.shape for name, tensor in a.items()} == {n: t.shape for n, t in before.items()}
    assert any(not torch.equal(a[name], before[name]) for name in a)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert any(not torch.equal(a[name], c[name]) for name in a)
    record = json.loads((tmp_path / "a" / "run.json").read_text())
    assert record["config"]["method"] == method
    assert record["steps"] == 3
    card = (tmp_path / "a" / "README.md").read_text()
    assert method in card
    assert "bibtex" in card
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    assert config["hidden_dropout_prob"] == 0.1  # the encoder's own, whatever it was trained with


@pytest.mark.parametrize("method", METHODS)
def test_a_resumed_run_ends_where_the_uninterrupted_one_does(bert: Path, tmp_path: Path, method: str) -> None:
    kind = {"simcse": DropoutContrastLoss, "consert": ConsertLoss, "mirror": MirrorLoss, "clear": ClearLoss}[method]
    assert_resumes_exactly(method, kind, bert, tmp_path)


def test_published_settings_are_the_defaults() -> None:
    published = {
        "simcse": (64, 3e-5, 32, 1.0),
        "consert": (96, 5e-7, 64, 10.0),
        "mirror": (200, 2e-5, 50, 1.0),
    }
    for name, values in published.items():
        defaults = registry.method_class(name).defaults
        assert (defaults.batch_size, defaults.learning_rate, defaults.max_length, defaults.epochs) == values
    assert registry.make("simcse").options.temperature == 0.05
    assert registry.make("consert").options.temperature == 0.1
    assert registry.make("mirror").options.temperature == 0.04


@pytest.mark.parametrize(
    ("method", "wrong", "words"),
    [
        ("simcse", {"temperature": 0.0}, "temperature must be above 0"),
        ("simcse", {"pooling": "median"}, "no pooling 'median'"),
        ("simcse", {"dropout": 1.5}, "dropout must be"),
        ("consert", {"first": "shuffel"}, "no augmentation 'shuffel'"),
        ("consert", {"second": "dropout", "dropout_rate": 1.0}, "rate of dropout"),
        ("consert", {"eval_pooling": "all"}, "no pooling 'all'"),
        ("mirror", {"span": -1}, "span must be at least 0"),
        ("clear", {"first": "delete"}, r"no augmentation 'delete'.*delete-words"),
        ("clear", {"delete_rate": 1.0}, "delete_rate is a share"),
        ("clear", {"spans": 0}, "spans must be at least 1"),
        ("clear", {"mlm_weight": -1.0}, "mlm_weight must be at least 0"),
        ("clear", {"pooling": "last2"}, "clear has no pooling 'last2'"),
    ],
)
def test_wrong_options_are_refused_in_words(method: str, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        registry.make(method, wrong)


@pytest.mark.parametrize("method", METHODS)
def test_losses_tell_their_settings_and_whom_to_cite(bert: Path, method: str) -> None:
    loss = LOSSES[method](_model(bert))
    settings = json.loads(json.dumps(loss.get_config_dict()))
    assert settings["temperature"] > 0
    assert loss.citation == registry.method_class(method).citation


def test_clear_needs_a_mask_token(bert: Path) -> None:
    model = _model(bert)
    model.tokenizer.mask_token = None
    with pytest.raises(SelfguideError, match="no mask token"):
        ClearLoss(model)
