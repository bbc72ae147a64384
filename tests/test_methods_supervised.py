"""Methods that learn from labelled pairs: losses against loops that follow the formulas, and whole runs on tiny encoders."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import FAMILIES, toy_sentences
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from torch import Tensor

import selfguide
from selfguide.augmented_encoding import embed, stacked
from selfguide.configuration import RunConfig
from selfguide.consert_loss import ConsertLoss
from selfguide.encoders import backbone, load_encoder, with_pooling
from selfguide.errors import InterruptedRun, SelfguideError, UsageError
from selfguide.headed_loss import own_parameters
from selfguide.joint_loss import JointLoss, adversarial_step
from selfguide.methods import registry
from selfguide.methods.infersent import bilstm_encoder
from selfguide.nli import LABELS
from selfguide.nli_loss import PairLoss, pair_features
from selfguide.reporting import Reporter
from selfguide.runs import run
from selfguide.word_vectors import WordVectors

METHODS = ("sbert-nli", "consert-joint", "consert-sup-unsup", "consert-joint-unsup", "infersent")
QUICK: dict[str, Any] = {"batch_size": 8, "learning_rate": 1e-3, "max_steps": 3, "device": "cpu", "quiet": True}
PREMISES, HYPOTHESES = toy_sentences(4), [*toy_sentences(103)[100:], "a"]
TARGETS = torch.tensor([0, 2, 1, 1])


@pytest.fixture
def nli(tmp_path: Path) -> Path:
    """Sixty labelled pairs."""
    sentences = toy_sentences(200)
    rows = [f"{LABELS[n % 3]}\t{sentences[n]}\t{sentences[(n * 7 + 1) % 200]}\n" for n in range(60)]
    path = tmp_path / "nli.tsv"
    path.write_text("".join(rows), encoding="utf-8")
    return path


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """Word vectors for most words of the toy sentences."""
    words = sorted({word for text in toy_sentences(512) for word in text.split()})[2:]
    draw = np.random.default_rng(0).normal(size=(len(words), 8))
    path = tmp_path / "vectors.txt"
    path.write_text("".join(f"{word} {' '.join(map(str, row))}\n" for word, row in zip(words, draw, strict=True)))
    return path


def _options(method: str, nli: Path, vectors: Path) -> dict[str, Any]:
    more: dict[str, Any] = {"vectors": str(vectors), "hidden": 6, "classifier": 5} if method == "infersent" else {}
    return {"nli": str(nli), **more}


def _model(path: Path) -> SentenceTransformer:
    return load_encoder(path, pooling="mean", max_length=32)


def _bilstm(words: list[str], hidden: int = 6) -> SentenceTransformer:
    matrix = np.random.default_rng(1).normal(size=(len(words), 5)).astype(np.float32)
    return bilstm_encoder(WordVectors(words, matrix), hidden, lower=True, device="cpu")


def _columns(model: SentenceTransformer) -> list[dict[str, Any]]:
    return [model.preprocess(PREMISES), model.preprocess(HYPOTHESES)]


def _naive_cross_entropy(classifier: Any, u: Tensor, v: Tensor, product: bool = False) -> Tensor:
    total = u.new_zeros(())
    for first, second, label in zip(u, v, TARGETS.tolist(), strict=True):
        seen = [first, second, (first - second).abs(), *([first * second] if product else [])]
        logits = classifier(torch.cat(seen))
        total = total - torch.log(torch.exp(logits[label]) / torch.exp(logits).sum())
    return total / len(u)


def _naive_nt_xent(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    everything, count = torch.cat([first, second]), len(first)
    total = first.new_zeros(())
    for m in range(2 * count):
        others = [n for n in range(2 * count) if n != m]
        terms = (
            torch.stack([torch.cosine_similarity(everything[m], everything[n], dim=0) for n in others]) / temperature
        )
        total = total - (terms[others.index((m + count) % (2 * count))] - torch.logsumexp(terms, 0))
    return total / (2 * count)


def test_the_classifier_sees_both_vectors_their_distance_and_their_product() -> None:
    u, v = torch.tensor([[1.0, -2.0]]), torch.tensor([[3.0, 4.0]])
    assert pair_features(u, v).tolist() == [[1, -2, 3, 4, 2, 6]]
    assert pair_features(u, v, product=True).tolist() == [[1, -2, 3, 4, 2, 6, 3, -8]]


def test_the_pair_loss_follows_its_formula(bert: Path) -> None:
    model = _model(bert)
    loss = PairLoss(model).eval()
    u, v = (model.encode(texts, convert_to_tensor=True).clone() for texts in (PREMISES, HYPOTHESES))
    expected = _naive_cross_entropy(loss.classifier, u, v)
    torch.testing.assert_close(loss(_columns(model), TARGETS), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="needs labels"):
        loss(_columns(model))


def test_the_pair_loss_over_an_lstm_follows_its_formula() -> None:
    model = _bilstm(["the", "old", "man", "my", "sister", "a", "clock"])
    loss = PairLoss(model, product=True, hidden=7).eval()
    u, v = (model.encode(texts, convert_to_tensor=True, prompt="").clone() for texts in (PREMISES, HYPOTHESES))
    value = loss(_columns(model), TARGETS)
    torch.testing.assert_close(value, _naive_cross_entropy(loss.classifier, u, v, product=True), rtol=1e-4, atol=1e-5)
    value.backward()
    assert {name for name, parameter in model.named_parameters() if parameter.grad is None} == {"0.emb_layer.weight"}


@pytest.mark.parametrize("alpha", [0.0, 0.15, 2.0])
def test_the_joint_loss_adds_up_labels_and_contrast(bert: Path, alpha: float) -> None:
    """Without dropout, and with copies that are not changed, both terms are known."""
    model = _model(bert)
    loss = JointLoss(model, alpha=alpha, first="none", second="none", temperature=0.2, dropout=0.0).train()
    u, v = (model.encode(texts, convert_to_tensor=True).clone() for texts in (PREMISES, HYPOTHESES))
    contrast = 2 * _naive_nt_xent(u, u, 0.2) + 2 * _naive_nt_xent(v, v, 0.2)
    expected = _naive_cross_entropy(loss.classifier, u, v) + alpha * contrast
    model.train()
    torch.testing.assert_close(loss(_columns(model), TARGETS), expected, rtol=1e-4, atol=1e-4)


def test_copies_are_drawn_one_by_one_and_the_plain_sentence_stays(bert: Path) -> None:
    model = _model(bert)
    plain_of = torch.cat([model.encode(texts, convert_to_tensor=True) for texts in (PREMISES, HYPOTHESES)])
    for first, second, same in (("none", "token-cutoff+shuffle", True), ("shuffle", "shuffle", False)):
        loss = JointLoss(model, first=first, second=second, dropout=0.0, rates={"token-cutoff": 0.5}).train()
        torch.manual_seed(0)
        plain, one, other = loss.copies(loss.both(*_columns(model)), TARGETS)
        torch.testing.assert_close(plain, plain_of, rtol=1e-4, atol=1e-5)
        assert torch.equal(plain, one) is same
        assert not torch.allclose(one, other, atol=1e-4)


def test_the_adversarial_step_is_a_unit_along_the_gradient_of_every_token() -> None:
    """Against finite differences: the step raises the loss, and no other direction of its length raises it more."""
    torch.manual_seed(0)
    states = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    weights, mask = torch.randn(2, 3, 4, dtype=torch.float64), torch.tensor([[1, 1, 1], [1, 1, 0]])

    def loss(values: Tensor) -> Tensor:
        return (torch.tanh(values * weights) * mask.unsqueeze(-1)).square().sum()

    step = adversarial_step(loss(states), states, mask, size=0.5)
    torch.testing.assert_close(step.norm(dim=-1), 0.5 * mask.double())
    for place in mask.nonzero().tolist():
        slopes = []
        for number in range(4):
            nudge = torch.zeros_like(states)
            nudge[(*place, number)] = 1e-6
            slopes.append((loss(states + nudge) - loss(states - nudge)).detach() / 2e-6)
        slope = torch.stack(slopes)
        torch.testing.assert_close(step[tuple(place)], 0.5 * slope / slope.norm(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
@pytest.mark.parametrize("frozen", [False, True])
def test_the_adversarial_copy_is_the_sentence_moved_by_that_step(
    tiny: Callable[[str], Path], family: str, frozen: bool
) -> None:
    model = _model(tiny(family))
    loss = JointLoss(model, second="adversarial", noise=0.3, dropout=0.0, freeze_layer_0=frozen).train()
    batch = loss.both(*_columns(model))
    plain, first, moved = loss.copies(batch, TARGETS)
    assert torch.equal(plain, first)
    u, v = plain.detach().chunk(2)
    # How the embedding layer's output changed, seen from outside, and the classification of what came of it.
    outputs: list[Tensor] = []
    model.train()
    embed(model, backbone(model), dict(batch), lambda states: outputs.append(states.detach()) or states)
    leaf = outputs[0].requires_grad_()
    vectors = embed(model, backbone(model), dict(batch), lambda states: leaf)["sentence_embedding"]
    value = _naive_cross_entropy(loss.classifier, *vectors.chunk(2))
    (gradient,) = torch.autograd.grad(value, leaf)
    step = 0.3 * torch.nn.functional.normalize(gradient, dim=-1) * batch["attention_mask"].unsqueeze(-1)
    expected = embed(model, backbone(model), dict(batch), lambda states: states + step)["sentence_embedding"]
    torch.testing.assert_close(moved, expected, rtol=1e-3, atol=1e-4)
    with torch.no_grad():
        before, after = (loss.classify(*pair.chunk(2), TARGETS) for pair in (torch.cat([u, v]), moved))
    assert after > before


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_learns_and_everything_that_may_move_has_a_gradient(
    tiny: Callable[[str], Path], family: str
) -> None:
    for make in (PairLoss, JointLoss, lambda model: JointLoss(model, second="adversarial")):
        torch.manual_seed(0)
        model = _model(tiny(family))
        loss = make(model).train()
        value = loss(_columns(model), TARGETS)
        value.backward()
        assert bool(torch.isfinite(value))
        assert all(parameter.grad is not None for parameter in loss.parameters() if parameter.requires_grad)


@pytest.mark.parametrize("kind", [PairLoss, JointLoss])
def test_the_classifiers_gradients_do_not_add_up_over_steps(bert: Path, kind: Any) -> None:
    model = _model(bert)
    loss = kind(model).train()
    assert set(own_parameters(loss)) == {"classifier.weight", "classifier.bias"}

    def gradients() -> list[Tensor]:
        torch.manual_seed(5)
        loss(_columns(model), TARGETS).backward()
        return [parameter.grad.clone() for parameter in own_parameters(loss).values() if parameter.grad is not None]

    once = gradients()
    model.zero_grad()
    torch.testing.assert_close(gradients(), once)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_writes_a_stock_folder_without_the_classifier_and_repeats(
    bert: Path, nli: Path, vectors: Path, tmp_path: Path, method: str
) -> None:
    options = _options(method, nli, vectors)
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        tuned = selfguide.train(bert, toy_sentences(40), method, output=tmp_path / name, seed=seed, **QUICK, **options)
    stock = SentenceTransformer(str(tmp_path / "c"))
    odd = ["my sister", "", "qqq zzz"]  # no words at all, and none that has a vector
    np.testing.assert_allclose(stock.encode(odd), tuned.encode(odd), atol=1e-6)
    assert np.isfinite(stock.encode(odd)).all()
    a, b, c = (
        {f"{file.parent.name}/{key}": tensor for file in (tmp_path / name).rglob("*.safetensors") for key, tensor in load_file(file).items()}
        for name in "abc"
    )  # fmt: skip
    plain = {name.partition("/")[2]: tensor for name, tensor in a.items()}
    assert not any("classifier" in name for name in plain)
    assert all(torch.equal(one, other) for one, other in zip(a.values(), b.values(), strict=True))
    assert any(not torch.equal(one, other) for one, other in zip(a.values(), c.values(), strict=True))
    assert not list((tmp_path / "a").rglob("*.bin"))
    record = json.loads((tmp_path / "a" / "run.json").read_text())
    assert record["stock"] is True
    assert record["steps"] == (6 if method.endswith("-unsup") else 3)
    assert not record["warnings"]


def test_the_text_is_not_what_sbert_learns_from(bert: Path, nli: Path, tmp_path: Path) -> None:
    for name, text in (("a", toy_sentences(40)), ("b", toy_sentences(300)[100:])):
        selfguide.train(bert, text, "sbert-nli", output=tmp_path / name, nli=str(nli), **QUICK)
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in "ab")
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("method", ["sg-opt", "flow", "whitening"])
def test_other_methods_go_on_from_a_supervised_encoder(bert: Path, nli: Path, tmp_path: Path, method: str) -> None:
    selfguide.train(bert, toy_sentences(40), "sbert-nli", output=tmp_path / "sbert", nli=str(nli), **QUICK)
    text = toy_sentences(80)
    tuned = selfguide.train(tmp_path / "sbert", text, method, output=tmp_path / "further", **QUICK)
    further = selfguide.load(tmp_path / "further").encode(["my sister"])
    np.testing.assert_allclose(further, tuned.encode(["my sister"]), atol=1e-5)
    record = json.loads((tmp_path / "further" / "run.json").read_text())
    assert record["config"]["encoder"] == str(tmp_path / "sbert")
    before = load_encoder(tmp_path / "sbert").encode(["my sister"])
    assert further.shape != before.shape or not np.allclose(further, before, atol=1e-3)


def test_consert_is_handed_out_with_the_mean_of_the_last_two_layers(bert: Path, nli: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    selfguide.train(bert, toy_sentences(40), "consert-joint", output=out, nli=str(nli), **QUICK)
    rebuilt = with_pooling(load_encoder(out), "last2")
    stock = SentenceTransformer(str(out))
    np.testing.assert_allclose(stock.encode(toy_sentences(4)), rebuilt.encode(toy_sentences(4)), atol=1e-5)


def _fails_at(call: int, forward: Any) -> Any:
    calls = [0]

    def failing(self: Any, *args: Any, **kwargs: Any) -> Tensor:
        calls[0] += 1
        if calls[0] == call:
            raise KeyboardInterrupt
        return forward(self, *args, **kwargs)

    return failing


@pytest.mark.parametrize(
    ("method", "kind", "call"),
    [
        ("sbert-nli", PairLoss, 5),
        ("infersent", PairLoss, 5),
        ("consert-joint", JointLoss, 5),
        ("consert-sup-unsup", PairLoss, 5),
        ("consert-sup-unsup", ConsertLoss, 3),
        ("consert-joint-unsup", ConsertLoss, 1),
    ],
)
def test_a_resumed_run_ends_where_the_uninterrupted_one_does(
    bert: Path, nli: Path, vectors: Path, tmp_path: Path, method: str, kind: Any, call: int
) -> None:
    """Broken off in the first stage, in the second, and at its very start: a stage that is finished is not repeated."""
    text = tmp_path / "text.txt"
    text.write_text("\n".join(toy_sentences(40)), encoding="utf-8")
    settings = {"batch_size": 8, "learning_rate": 1e-3, "epochs": 1.0, "device": "cpu", "checkpoint_minutes": 0.0}
    config = RunConfig((str(text),), str(bert), method, _options(method, nli, vectors), settings)
    _, whole = run(config, tmp_path / "whole", Reporter(quiet=True))
    out = tmp_path / "broken"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "forward", _fails_at(call, kind.forward))
        with pytest.raises(InterruptedRun):
            run(config, out, Reporter(quiet=True))
    with pytest.MonkeyPatch.context() as patch:
        if kind is ConsertLoss:  # the first stage must not run again
            patch.setattr(PairLoss, "classify", _fails_at(1, PairLoss.classify))
        _, resumed = run(config, out, Reporter(quiet=True), resume=True)
    for file in sorted((tmp_path / "whole").rglob("*.safetensors")):
        one, other = load_file(file), load_file(out / file.relative_to(tmp_path / "whole"))
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert resumed.steps == whole.steps


def test_a_finished_stage_survives_an_error_in_the_next(bert: Path, nli: Path, tmp_path: Path) -> None:
    def broken(*args: Any) -> Tensor:
        raise SelfguideError("No.")

    settings = {"batch_size": 8, "max_steps": 2, "device": "cpu"}
    config = RunConfig(("-",), str(bert), "consert-sup-unsup", {"nli": str(nli)}, settings)
    text = selfguide.text.open_text(toy_sentences(20), selfguide.text.TextOptions())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConsertLoss, "forward", broken)
        with pytest.raises(SelfguideError, match="No"):
            run(config, tmp_path / "out", Reporter(quiet=True), text)
    assert (tmp_path / "out.partial" / "nli" / "complete.json").is_file()
    run(config, tmp_path / "out", Reporter(quiet=True), resume=True)
    assert (tmp_path / "out" / "run.json").is_file()


def test_dev_checks_of_both_stages_count_from_the_start(bert: Path, nli: Path, dev_file: Path) -> None:
    config = RunConfig(
        ("-",), str(bert), "consert-sup-unsup", {"nli": str(nli)},
        {"batch_size": 8, "max_steps": 4, "dev_every": 2, "device": "cpu", "learning_rate": 1e-3}, dev=str(dev_file),
    )  # fmt: skip
    text = selfguide.text.open_text(toy_sentences(40), selfguide.text.TextOptions())
    _, record = run(config, None, Reporter(quiet=True), text)
    assert [step for step, _ in record.dev_curve] == [2, 4, 6, 8]
    assert record.steps == 8
    best = max(score for step, score in record.dev_curve if step > 4)
    assert record.scores["after"] == best


def test_infersent_reads_words_as_its_vectors_are_and_takes_the_maximum() -> None:
    model = _bilstm(["the", "dog", "<s>", "n't"])
    number = model.tokenizer.word2idx
    ids = model.preprocess(["<s> The dog, (the DOG) ca n't unknown"])["input_ids"][0].tolist()
    assert ids == [number[word] for word in ("<s>", "the", "dog", "the", "dog", "n't")]
    tokens = model.encode("the dog", output_value="token_embeddings")
    assert tokens.shape == (3, 12)  # <s> is there without being asked for
    np.testing.assert_allclose(model.encode("the dog"), tokens.max(dim=0).values.numpy(), atol=1e-6)


def test_published_settings_are_the_defaults() -> None:
    published = {
        "sbert-nli": (16, 2e-5, 128, 1.0),
        "consert-joint": (96, 2e-5, 64, 1.0),
        "consert-sup-unsup": (96, 5e-7, 64, 10.0),
        "consert-joint-unsup": (96, 5e-7, 64, 10.0),
    }
    for name, values in published.items():
        defaults = registry.method_class(name).defaults
        assert (defaults.batch_size, defaults.learning_rate, defaults.max_length, defaults.epochs) == values
    assert registry.make("consert-joint").options.alpha == 0.15
    assert all(registry.entry(name).needs_labels for name in METHODS)


@pytest.mark.parametrize(
    ("method", "wrong", "words"),
    [
        ("sbert-nli", {"pooling": "median"}, "no pooling 'median'"),
        ("consert-joint", {"alpha": -1.0}, "alpha must be at least 0"),
        ("consert-joint", {"second": "adversarial+shuffle"}, "cannot be joined"),
        ("consert-joint", {"first": "advresarial"}, "no augmentation 'advresarial'"),
        ("consert-joint-unsup", {"noise": 0.0}, "noise must be above 0"),
        ("consert-joint-unsup", {"first": "adversarial"}, "no augmentation 'adversarial'"),
        ("consert-sup-unsup", {"nli_epochs": 0.0}, "nli_epochs must be above 0"),
        ("consert-sup-unsup", {"alpha": 1.0}, "no option 'alpha'"),
        ("infersent", {"hidden": 0}, "hidden must be at least 1"),
    ],
)
def test_wrong_options_are_refused_in_words(method: str, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        registry.make(method, wrong)


def test_missing_files_are_asked_for(bert: Path, nli: Path, tmp_path: Path) -> None:
    for method in METHODS:
        with pytest.raises(UsageError, match=f"{method} learns from labelled pairs.*--nli FILE"):
            selfguide.train(bert, toy_sentences(10), method, output=tmp_path / "out", **QUICK)
    with pytest.raises(UsageError, match="no word vectors.*--vectors FILE"):
        selfguide.train(bert, toy_sentences(10), "infersent", nli=str(nli), **QUICK)
    assert not list(tmp_path.glob("out*"))


def test_losses_tell_their_settings(bert: Path) -> None:
    model = _model(bert)
    assert json.loads(json.dumps(PairLoss(model, hidden=3).get_config_dict())) == {"product": False, "hidden": 3}
    joint = JointLoss(model)
    assert json.loads(json.dumps(joint.get_config_dict()))["alpha"] == 0.15
    assert joint.citation == registry.method_class("consert-joint").citation


def test_premises_and_hypotheses_share_a_batch(bert: Path) -> None:
    model = _model(bert)
    batch = PairLoss(model).both(*_columns(model))
    expected = stacked(_columns(model), padding=1)
    assert torch.equal(batch["input_ids"], expected["input_ids"])
    assert len(batch["input_ids"]) == 8
