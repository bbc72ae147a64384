"""Adaptation in real runs: what is kept of the encoder, what is chosen, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

import selfguide
from resuming import assert_resumes_exactly
from selfguide.calibration import spread
from selfguide.data.pairs import Pairs
from selfguide.data.resources import demo_pairs
from selfguide.engine.encode import sentence_vectors
from selfguide.errors import SelfguideError, UsageError
from selfguide.losses import GuidedContrastLoss
from selfguide.methods import adapt, registry
from selfguide.methods.adapt import settings_for
from selfguide.models.encoders import load_encoder
from selfguide.progress import Reporter
from selfguide.runs.run import run
from selfguide.training.configuration import RunConfig
from selfguide.training.settings import TrainingSettings
from toys import toy_sentences

QUIET: dict[str, Any] = {"device": "cpu", "quiet": True, "report": False}
QUICK: dict[str, Any] = {**QUIET, "batch_size": 8, "max_steps": 3}


@pytest.fixture(scope="module")
def encoder(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny sentence encoder with prompts, a length of its own and a dot product."""
    start = load_encoder(bert, pooling="mean", max_length=24, device="cpu")
    made = SentenceTransformer(
        modules=[*start, Normalize()],
        prompts={"query": "find: ", "document": ""},
        default_prompt_name="query",
        similarity_fn_name="dot",
        device="cpu",
    )
    folder = tmp_path_factory.mktemp("sentence") / "encoder"
    made.save(str(folder), create_model_card=False)
    return folder


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def record_of(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return record


def test_everything_of_the_encoder_but_its_weights_is_kept(encoder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tuned = selfguide.adapt(encoder, toy_sentences(60), output=out, choose=False, learning_rate=1e-3, **QUICK)
    stock, start = SentenceTransformer(str(out), device="cpu"), SentenceTransformer(str(encoder), device="cpu")
    assert [type(module) for module in stock] == [type(module) for module in start]
    assert (stock.prompts, stock.default_prompt_name) == (start.prompts, start.default_prompt_name)
    assert (stock.similarity_fn_name, stock.max_seq_length) == ("dot", 24)
    same = ("modules.json", "1_Pooling/config.json", "sentence_bert_config.json")
    assert all((out / name).read_text() == (encoder / name).read_text() for name in same if (encoder / name).is_file())
    before, after = weights(encoder), weights(out)
    assert {name: tensor.shape for name, tensor in before.items()} == {n: t.shape for n, t in after.items()}
    assert any(not torch.equal(before[name], after[name]) for name in before)
    np.testing.assert_allclose(stock.encode(["my sister"]), tuned.encode(["my sister"]), atol=1e-6)
    record = record_of(out)
    assert record["config"]["method"] == "adapt"
    assert record["start"]["kind"] == "sentence encoder"
    assert record["start"]["own"]["default_prompt"] == "query"
    assert record["choice"] == {}


def test_training_sees_the_default_prompt(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    forward = GuidedContrastLoss.forward

    def spy(self: Any, features: Any, labels: Any = None) -> Any:
        (batch,) = features
        ids = batch["input_ids"][0]
        seen.append(self.encoder.tokenizer.decode(ids[batch["attention_mask"][0].bool()], skip_special_tokens=True))
        return forward(self, [batch], labels)

    monkeypatch.setattr(GuidedContrastLoss, "forward", spy)
    selfguide.adapt(encoder, toy_sentences(40), choose=False, **QUICK)
    tokenizer = load_encoder(encoder).tokenizer
    ids = tokenizer(["find: " + one for one in toy_sentences(40)])["input_ids"]
    wanted = {tokenizer.decode(row, skip_special_tokens=True) for row in ids}
    assert len(seen) == 3
    assert set(seen) <= wanted


@pytest.mark.parametrize("learning_rate", [1e-3, 3.0], ids=["gentle", "ruinous"])
def test_graded_pairs_of_general_english_choose_where_no_dev_pairs_do(
    encoder: Path, tmp_path: Path, learning_rate: float
) -> None:
    settings = {**QUICK, "tune": "always", "learning_rate": learning_rate}
    chosen, trained = tmp_path / "chosen", tmp_path / "trained"
    selfguide.adapt(encoder, toy_sentences(80), output=chosen, **settings | {"report": True})
    selfguide.adapt(encoder, toy_sentences(80), output=trained, choose=False, **settings)
    record = record_of(chosen)
    assert record["steps"] == 3
    assert record["choice"]["by"] == "graded pairs of general English"
    scores, share = dict(map(tuple, record["choice"]["scores"])), record["choice"]["share"]
    assert list(scores) == [adapt._way(one) for one in (0.0, *adapt.SHARES)]
    assert scores[adapt._way(share)] == max(scores.values())
    start, end, kept = weights(encoder), weights(trained), weights(chosen)
    assert any(not torch.equal(start[name], end[name]) for name in start)
    for name, tensor in kept.items():
        if share == 0.0:
            assert torch.equal(tensor, start[name])
        else:
            torch.testing.assert_close(tensor, start[name] + share * (end[name] - start[name]))
    pairs = demo_pairs("dev")
    # By the same path of encoding: a random encoder's cosines lie so close together that a rounding changes their order.
    vectors = sentence_vectors(load_encoder(chosen, device="cpu"), [*pairs.first, *pairs.second], normalise=True)
    cosines = (vectors[: len(pairs)] * vectors[len(pairs) :]).sum(axis=1)
    assert spearmanr(cosines, pairs.scores).statistic == pytest.approx(max(scores.values()), abs=1e-6)
    card = (chosen / "README.md").read_text()
    assert record["checkpoint"] in card
    assert ("fine-tuned" in card) == (share != 0.0)
    assert record["checkpoint"].split(". ")[-1][:40] in (chosen / "report.html").read_text()


def test_what_ruins_an_encoder_is_not_kept(encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training is real, and ruins; only the encoder as it was is good, because the grades are its own cosines."""
    start = SentenceTransformer(str(encoder), device="cpu")

    def own_grades(part: str) -> Pairs:
        pairs = demo_pairs(part)
        cosines = start.similarity_pairwise(start.encode(pairs.first), start.encode(pairs.second))
        return Pairs(cosines.tolist(), pairs.first, pairs.second, pairs.path)

    monkeypatch.setattr(adapt, "demo_pairs", own_grades)
    out = tmp_path / "out"
    selfguide.adapt(encoder, toy_sentences(80), output=out, tune="always", learning_rate=3.0, **QUICK)
    before, after = weights(encoder), weights(out)
    assert all(torch.equal(before[name], after[name]) for name in before)
    record = record_of(out)
    assert record["steps"] == 3
    assert "training made it worse" in record["checkpoint"]
    assert "came back as it was" in record["checkpoint"]


def test_an_encoder_with_a_cone_is_trained_without_dev_pairs(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spread, "MOST_COMMON", 1.0)  # to a random encoder any text is one-sided
    out = tmp_path / "out"
    selfguide.adapt(encoder, toy_sentences(60), output=out, learning_rate=1e-3, **QUICK)
    record = record_of(out)
    assert record["steps"] == 3
    assert record["checkpoint"].startswith("This encoder gives any two sentences a high cosine")
    assert record["choice"]["by"] == "graded pairs of general English"
    ways = [name for name, _ in record["choice"]["scores"]]
    assert ways == [adapt._way(0.0), adapt._way(adapt.HALF_WAY)]
    assert record["choice"]["share"] in (0.0, adapt.HALF_WAY)


@pytest.mark.parametrize(("gain", "kept"), [(0.03, 0.5), (0.01, 0.0), (-0.03, 0.0)])
@pytest.mark.parametrize("tune", ["auto", "always"])
def test_a_small_gain_on_general_pairs_is_no_reason_to_change_an_encoder(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gain: float, kept: float, tune: str
) -> None:
    """Training is real; only what the pairs say of the candidates is given."""
    monkeypatch.setattr(spread, "MOST_COMMON", 1.0)
    said = iter((0.7, 0.7 + gain))
    monkeypatch.setattr(adapt, "spearman", lambda cosines, grades: next(said))
    out = tmp_path / "out"
    selfguide.adapt(encoder, toy_sentences(60), output=out, tune=tune, learning_rate=1e-3, **QUICK)
    choice = record_of(out)["choice"]
    wanted = adapt.HALF_WAY if tune == "always" and gain > 0 else kept
    assert choice["share"] == wanted
    before, after = weights(encoder), weights(out)
    assert all(torch.equal(before[name], after[name]) for name in before) == (wanted == 0.0)
    expected = "Kept weights 50 %" if wanted else ("made it worse" if gain < 0 else "hardly changed it")
    assert expected in choice["sentence"]


def test_dev_pairs_decide_between_trained_and_centred_candidates(encoder: Path, tmp_path: Path, dev_file: Path) -> None:
    out = tmp_path / "out"
    tuned = selfguide.adapt(
        encoder, toy_sentences(60), output=out, dev=dev_file, dev_every=1, learning_rate=1e-3, **QUICK
    )
    record = record_of(out)
    scores = dict(map(tuple, record["choice"]["scores"]))
    ways = [adapt._way(share) for share in (0.0, *adapt.SHARES)]
    assert list(scores) == [name for way in ways for name in (way, f"{way}, centred")]
    assert record["choice"]["by"] == "dev pairs"
    assert scores["the encoder as it was"] == pytest.approx(record["scores"]["before"], abs=1e-6)
    assert record["scores"]["after"] == pytest.approx(max(scores.values()))
    assert record["scores"]["after"] >= record["scores"]["before"]
    again = SentenceTransformer(str(out), device="cpu")
    np.testing.assert_allclose(again.encode(["my sister"]), tuned.encode(["my sister"]), atol=1e-6)
    if record["choice"]["centred"]:
        assert [type(module).__name__ for module in again][-2:] == ["Dense", "Normalize"]


def test_where_nothing_is_to_be_trained_an_encoder_with_a_cone_is_centred(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spread, "MOST_COMMON", 1.0)
    out, text = tmp_path / "out", toy_sentences(60)
    tuned = selfguide.adapt(encoder, text, output=out, tune="never", **QUIET)
    start, stock = SentenceTransformer(str(encoder), device="cpu"), SentenceTransformer(str(out), device="cpu")
    before = start.encode(sorted(set(text)))
    wanted = before - before.mean(axis=0) / 2
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    np.testing.assert_allclose(stock.encode(sorted(set(text))), wanted, atol=1e-5)
    np.testing.assert_allclose(tuned.encode(sorted(set(text))), wanted, atol=1e-5)
    assert [type(module).__name__ for module in stock] == [
        *(type(module).__name__ for module in start),
        "Dense",
        "Normalize",
    ]
    assert all(torch.equal(tensor, weights(out)[name]) for name, tensor in weights(encoder).items())
    assert (stock.prompts, stock.default_prompt_name) == (start.prompts, start.default_prompt_name)
    assert (stock.similarity_fn_name, stock.max_seq_length) == ("dot", 24)
    record = record_of(out)
    assert (record["steps"], record["choice"]["centred"]) == (0, 0.5)
    assert record["checkpoint"].endswith("so 50 % of the text's mean embedding was subtracted.")
    assert selfguide.models.starting_points.starting_point(out).kind == "sentence encoder"


@pytest.mark.parametrize(
    ("text", "bounds", "said"),
    [
        (
            [f"Order {number} was shipped on day {number % 28 + 1}." for number in range(60)],
            (0.02, 0.35),
            "hardly tells",
        ),
        (toy_sentences(60), (1.1, 1.0), "gave no reason to change the encoder"),
    ],
)
def test_a_text_that_is_no_reason_brings_the_original_back(
    encoder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: list[str],
    bounds: tuple[float, float],
    said: str,
) -> None:
    out = tmp_path / "out"
    monkeypatch.setattr(spread, "LEAST_COSINE", bounds[0])
    monkeypatch.setattr(spread, "MOST_COMMON", bounds[1])
    selfguide.adapt(encoder, text, output=out, **QUIET)
    before, after = weights(encoder), weights(out)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert (out / "modules.json").read_text() == (encoder / "modules.json").read_text()
    record = record_of(out)
    assert record["choice"]["centred"] == 0.0
    assert said in record["checkpoint"]
    card = (out / "README.md").read_text()
    assert "came back as it was" in card
    assert "kept unchanged" in card
    assert "fine-tuned" not in card


def test_what_has_no_effect_is_said(encoder: Path, dev_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread, "LEAST_COSINE", 1.1)
    sentences = selfguide.data.open_text(toy_sentences(30))
    for dev, warned in ((None, True), (str(dev_file), False)):
        reporter = Reporter(quiet=True)
        config = RunConfig((), str(encoder), training={"batch_size": 8, "max_steps": 2, "device": "cpu"}, dev=dev)
        run(config, None, reporter, sentences)
        assert (
            any("nothing is trained here without --dev, so --max-steps has" in one for one in reporter.warnings)
            == warned
        )
    with pytest.raises(UsageError, match="leave one of them out"):
        selfguide.adapt(encoder, toy_sentences(30), tune="never", choose=False, **QUIET)


def test_train_adapts_a_sentence_encoder_by_itself_and_says_so(
    encoder: Path, bert: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"batch_size": 8, "max_steps": 2, "device": "cpu"}
    config = RunConfig((), str(encoder), training=settings, options={"choose": False})
    _, record = run(config, None, Reporter(), selfguide.data.open_text(toy_sentences(30)))
    assert record.config.method == "adapt"
    said = " ".join(capsys.readouterr().err.split())
    assert "is a sentence encoder: its folder has a modules.json" in said
    assert "The method is adapt" in said
    small = {"head_size": 8, "stay_close": 0.0, "keep_views": "no"}
    config = RunConfig((), str(bert), training=settings, options=small)
    _, record = run(config, None, Reporter(quiet=True), selfguide.data.open_text(toy_sentences(30)))
    assert record.config.method == "sg-opt"


def test_a_method_for_raw_models_warns_on_a_sentence_encoder(encoder: Path, bert: Path) -> None:
    steps = {"batch_size": 8, "max_steps": 1, "device": "cpu"}
    nothing_tuned = {"batch_size": 8, "device": "cpu"}
    for start, method, training, options, warned in (
        (encoder, "simcse", steps, {}, True),
        (bert, "simcse", steps, {}, False),
        (encoder, "fused", steps, {"tune": "simcse"}, True),
        (encoder, "fused", nothing_tuned, {"tune": "none"}, False),
    ):
        reporter = Reporter(quiet=True)
        config = RunConfig((), str(start), method, training=training, options=options)
        run(config, None, reporter, selfguide.data.open_text(toy_sentences(20)))
        assert any("made for raw language models" in warning for warning in reporter.warnings) == warned


def test_refusals_in_words(encoder: Path, bert: Path, tmp_path: Path) -> None:
    with pytest.raises(SelfguideError, match=r"19 usable sentences are too few.*20"):
        selfguide.adapt(encoder, toy_sentences(19), **QUICK)
    with pytest.raises(UsageError, match=r"is a raw language model: its folder has no modules\.json.*--pooling mean"):
        selfguide.adapt(bert, toy_sentences(30), **QUICK)
    from transformers import AutoTokenizer

    static = SentenceTransformer(modules=[StaticEmbedding(AutoTokenizer.from_pretrained(bert), embedding_dim=8)])
    static.save(str(tmp_path / "static"), create_model_card=False)
    for given in (static, tmp_path / "static"):
        with pytest.raises(SelfguideError, match=r"static embeddings: its first module is StaticEmbedding.*nothing"):
            selfguide.adapt(given, toy_sentences(30), **QUICK)
    with pytest.raises(UsageError, match="epochs must be above 0 for the method simcse"):
        selfguide.train(bert, toy_sentences(30), "simcse", epochs=0, **QUICK)
    assert not list(tmp_path.glob("*.partial"))


def test_a_named_pooling_makes_a_sentence_encoder_of_a_plain_folder(bert: Path) -> None:
    tuned = selfguide.adapt(bert, toy_sentences(30), pooling="cls", choose=False, **QUICK)
    assert tuned[1].get_config_dict()["pooling_mode"] == "cls"


def test_text_and_encoder_set_steps_and_rate() -> None:
    settings = registry.method_class("adapt").defaults
    steps = {}
    for count in (20, 200, 5_000, 64_000, 1_000_000):
        found = settings_for(count, False, settings)
        steps[count] = found.max_steps or found.epochs * count / found.batch_size
        assert found.learning_rate == adapt.LEARNING_RATE
        assert settings_for(count, True, settings).learning_rate == adapt.LEARNING_RATE_WITH_CONE
    assert steps[20] < steps[200] <= steps[5_000] <= steps[64_000] <= steps[1_000_000] == adapt.MOST_STEPS
    assert steps[200] >= adapt.FEWEST_STEPS
    asked = TrainingSettings(epochs=2.0)
    assert settings_for(100, True, asked) == asked


@pytest.mark.parametrize(("least", "rate"), [(-1.0, adapt.LEARNING_RATE_WITH_CONE), (2.0, adapt.LEARNING_RATE)])
@pytest.mark.parametrize("with_dev", [False, True])
def test_an_encoder_with_a_cone_is_trained_at_a_larger_rate(
    encoder: Path,
    dev_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    least: float,
    rate: float,
    with_dev: bool,
) -> None:
    monkeypatch.setattr(spread, "LEAST_COSINE", least)
    monkeypatch.setattr(spread, "MOST_COMMON", 1.0)
    ways: dict[str, Any] = {"dev": dev_file} if with_dev else {"tune": "always"}
    tuned = selfguide.adapt(encoder, toy_sentences(60), output=tmp_path / "out", **ways, **QUICK)
    assert isinstance(tuned, SentenceTransformer)
    found = record_of(tmp_path / "out")["optimiser"]
    assert found["initial_lr"] == rate


def test_a_resumed_run_ends_where_the_uninterrupted_one_does(encoder: Path, tmp_path: Path) -> None:
    assert_resumes_exactly("adapt", GuidedContrastLoss, encoder, tmp_path, choose=False)
