"""Methods that learn from labelled pairs: whole runs on tiny encoders, in one stage and in two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from torch import Tensor

import selfguide
from selfguide.data.nli import LABELS
from selfguide.errors import InterruptedRun, SelfguideError, UsageError
from selfguide.losses.consert import ConSERTLoss
from selfguide.losses.joint import JointLoss
from selfguide.losses.nli import NLISoftmaxLoss
from selfguide.methods import registry
from selfguide.methods.infersent import bilstm_encoder
from selfguide.models.encoders import backbone, load_encoder, with_pooling
from selfguide.models.word_vectors import WordVectors
from selfguide.progress import Reporter
from selfguide.runs.run import run
from selfguide.training.configuration import RunConfig
from toys import QUICK, toy_sentences

METHODS = ("sbert-nli", "consert-joint", "consert-sup-unsup", "consert-joint-unsup", "infersent")


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
    if method.endswith("-unsup"):
        more["nli_learning_rate"] = 1e-3  # that of the other stage
    return {"nli": str(nli), **more}


def _usable(method: str) -> dict[str, Any]:
    """The settings that a method uses, of those for quick runs."""
    refused = registry.method_class(method).refused_settings()
    return {name: value for name, value in QUICK.items() if name not in refused}


def _weights(folder: Path) -> dict[str, Tensor]:
    """All weights of a finished encoder, by module and name."""
    files = sorted(folder.rglob("*.safetensors"))
    return {f"{file.parent.name}/{name}": tensor for file in files for name, tensor in load_file(file).items()}


@pytest.mark.parametrize("method", METHODS)
def test_a_run_writes_a_stock_folder_without_the_classifier_and_follows_its_seed(
    bert: Path, nli: Path, vectors: Path, tmp_path: Path, method: str
) -> None:
    options = _options(method, nli, vectors)
    for name, seed in (("a", 5), ("b", 6)):
        tuned = selfguide.train(bert, toy_sentences(40), method, output=tmp_path / name, seed=seed, **QUICK, **options)
    stock = SentenceTransformer(str(tmp_path / "b"))
    odd = ["my sister", "", "qqq zzz"]  # no words at all, and none that has a vector
    np.testing.assert_allclose(stock.encode(odd), tuned.encode(odd), atol=1e-6)
    assert np.isfinite(stock.encode(odd)).all()
    a, b = (_weights(tmp_path / name) for name in "ab")
    assert not any("classifier" in name for name in a)
    assert any(not torch.equal(one, other) for one, other in zip(a.values(), b.values(), strict=True))
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
    tuned = selfguide.train(tmp_path / "sbert", text, method, output=tmp_path / "further", **_usable(method))
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


@pytest.mark.parametrize("method", ["consert-joint", "consert-sup-unsup", "consert-joint-unsup"])
def test_layer_0_can_be_left_as_it_is(bert: Path, nli: Path, method: str) -> None:
    before = backbone(load_encoder(bert)).state_dict()
    tuned = selfguide.train(bert, toy_sentences(40), method, nli=str(nli), freeze_layer_0=True, **QUICK)
    after = backbone(tuned).state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name].cpu())}
    assert moved
    assert not any(name.startswith("embeddings.") for name in moved)


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
        ("sbert-nli", NLISoftmaxLoss, 5),
        ("infersent", NLISoftmaxLoss, 5),
        ("consert-joint", JointLoss, 5),
        ("consert-sup-unsup", NLISoftmaxLoss, 5),
        ("consert-sup-unsup", ConSERTLoss, 3),
        ("consert-joint-unsup", ConSERTLoss, 1),
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
    _, whole = run(config, tmp_path / "whole", Reporter(quiet=True), report=False)
    out = tmp_path / "broken"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "forward", _fails_at(call, kind.forward))
        with pytest.raises(InterruptedRun):
            run(config, out, Reporter(quiet=True), report=False)
    with pytest.MonkeyPatch.context() as patch:
        if kind is ConSERTLoss:  # the first stage must not run again
            patch.setattr(NLISoftmaxLoss, "classify", _fails_at(1, NLISoftmaxLoss.classify))
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
    text = selfguide.data.open_text(toy_sentences(20), selfguide.data.TextOptions())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConSERTLoss, "forward", broken)
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
    text = selfguide.data.open_text(toy_sentences(40), selfguide.data.TextOptions())
    _, record = run(config, None, Reporter(quiet=True), text)
    assert [step for step, _ in record.dev_curve] == [0, 2, 4, 4, 6, 8]
    assert record.steps == 8
    best = max(score for _, score in record.dev_curve[3:])  # the second stage, its own start included
    assert record.scores["after"] == best


def test_infersent_reads_words_as_its_vectors_are_and_takes_the_maximum() -> None:
    words = ["the", "dog", "<s>", "n't"]
    matrix = np.random.default_rng(1).normal(size=(len(words), 5)).astype(np.float32)
    model = bilstm_encoder(WordVectors(words, matrix), 6, lower=True, device="cpu")
    number = model.tokenizer.word2idx
    ids = model.preprocess(["<s> The dog, (the DOG) ca n't unknown"])["input_ids"][0].tolist()
    assert ids == [number[word] for word in ("<s>", "the", "dog", "the", "dog", "n't")]
    tokens = model.encode("the dog", output_value="token_embeddings")
    assert tokens.shape == (3, 12)  # <s> is there without being asked for
    np.testing.assert_allclose(model.encode("the dog"), tokens.max(dim=0).values.numpy(), atol=1e-6)


def test_published_settings_are_the_defaults() -> None:
    published = {
        "sbert-nli": (16, 2e-5, 0.999, 1.0),
        "consert-joint": (96, 2e-5, 0.999, 1.0),
        "consert-sup-unsup": (96, 5e-7, 0.999, 25.0),
        "consert-joint-unsup": (96, 5e-7, 0.999, 25.0),
    }
    for name, values in published.items():
        defaults = registry.method_class(name).defaults
        assert (defaults.batch_size, defaults.learning_rate, defaults.beta2, defaults.epochs) == values
    assert registry.make("consert-joint").options.alpha == 0.15
    assert all(registry.info(name).needs_labels for name in METHODS)


@pytest.mark.parametrize(
    ("method", "wrong", "words"),
    [
        ("sbert-nli", {"pooling": "median"}, "pooling must be one of .*, got 'median'"),
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
        with pytest.raises(UsageError, match=rf"{method} learns from labelled pairs.*--nli FILE"):
            selfguide.train(bert, toy_sentences(10), method, output=tmp_path / "out", **QUICK)
    with pytest.raises(UsageError, match=r"no word vectors.*--vectors FILE"):
        selfguide.train(bert, toy_sentences(10), "infersent", nli=str(nli), **QUICK)
    assert not list(tmp_path.glob("out*"))


def test_a_folder_without_a_transformer_is_refused_by_methods_that_tune_one(
    bert: Path, nli: Path, vectors: Path, tmp_path: Path
) -> None:
    options = _options("infersent", nli, vectors)
    selfguide.train(bert, toy_sentences(20), "infersent", output=tmp_path / "lstm", **QUICK, **options)
    for method in ("sg-opt", "whitening"):
        with pytest.raises(SelfguideError, match=r"starts with WordEmbeddings, not with a Transformer"):
            selfguide.train(tmp_path / "lstm", toy_sentences(20), method, **_usable(method))
