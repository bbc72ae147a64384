"""The flow: invertible, with the determinant it claims, and better after training than before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer

import selfguide
from selfguide.errors import SelfguideError, UsageError
from selfguide.methods import registry
from selfguide.methods.flow import train_flow
from selfguide.models.encoders import load_encoder
from selfguide.models.modules.flow import MIXINGS, Flow
from selfguide.progress import Reporter
from selfguide.training.settings import TrainingSettings
from selfguide.training.trainer import FitContext
from toys import toy_sentences

SENTENCES = toy_sentences(200)


def crowded(count: int, width: int, seed: int = 0) -> np.ndarray:
    """Vectors in a narrow cone, unevenly spread and correlated."""
    generator = np.random.default_rng(seed)
    mixing = generator.normal(size=(width, width)) * np.geomspace(2, 0.1, width)
    return (generator.normal(size=(count, width)) @ mixing + 8).astype(np.float32)


def moved(width: int, mixing: str = "reverse", seed: int = 0, **shape: int) -> Flow:
    """A flow whose parameters are all pushed a little, so that none is 0, and that is then set to data."""
    torch.manual_seed(seed)
    flow = Flow(width, mixing=mixing, **shape)
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    flow.initialise(torch.tensor(crowded(64, width)))
    return flow


def context(work: Path, **settings: float) -> FitContext:
    text = Dataset.from_dict({"sentence": SENTENCES})
    defaults = registry.method_class("flow").defaults.override(settings)
    return FitContext(text, defaults, work, Reporter(quiet=True))


@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize("width", [8, 13, 48])  # 13: odd at every level
def test_inverse(width: int, mixing: str) -> None:
    flow, vectors = moved(width, mixing).requires_grad_(False), torch.tensor(crowded(64, width))
    latents, _ = flow.transform(vectors)
    assert latents.shape == vectors.shape
    assert float((flow.inverse(latents) - vectors).abs().max()) < 1e-5 * float(vectors.abs().max())


@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize(("width", "levels"), [(6, 1), (8, 3), (11, 2)])
def test_log_determinant_is_the_jacobians(width: int, levels: int, mixing: str) -> None:
    flow = moved(width, mixing, levels=levels).double()
    for vector in torch.tensor(crowded(3, width)).double():
        jacobian = torch.autograd.functional.jacobian(lambda x: flow.transform(x.unsqueeze(0))[0][0], vector)
        expected = torch.linalg.slogdet(jacobian).logabsdet
        torch.testing.assert_close(flow.transform(vector.unsqueeze(0))[1], expected)


def test_likelihood_of_a_flow_that_only_scales() -> None:
    """Before training a flow is affine, and its likelihood that of a Gaussian with each number's mean and spread."""
    vectors = torch.tensor(crowded(300, 8))
    flow = Flow(8, levels=1, depth=1)
    flow.initialise(vectors)
    gaussian = torch.distributions.Normal(vectors.mean(0), vectors.std(0, correction=0))
    expected = -gaussian.log_prob(vectors).mean(dim=1)
    torch.testing.assert_close(flow.negative_log_likelihood(vectors), expected, rtol=1e-4, atol=1e-4)


def test_actnorm_starts_at_mean_0_and_variance_1() -> None:
    vectors = torch.tensor(crowded(500, 16))
    flow = Flow(16)
    flow.initialise(vectors)
    latents = flow.transform(vectors)[0]
    torch.testing.assert_close(latents.mean(0), torch.zeros(16), atol=1e-4, rtol=0)
    torch.testing.assert_close(latents.std(0, correction=0), torch.ones(16), atol=1e-3, rtol=0)


@pytest.mark.parametrize("mixing", MIXINGS)
def test_a_direction_without_variance_is_not_blown_up(tmp_path: Path, mixing: str) -> None:
    torch.manual_seed(1)
    vectors = crowded(100, 8)
    vectors[:, 3] = 2.0
    flow = Flow(8, mixing=mixing)
    train_flow(flow, vectors, context(tmp_path, max_steps=300, learning_rate=1e-2))
    rounded = torch.tensor(vectors)
    rounded[:, 3] += 1e-6
    with torch.no_grad():
        change = flow.transform(rounded)[0] - flow.transform(torch.tensor(vectors))[0]
    assert float(change.abs().max()) < 0.02


@pytest.mark.parametrize("mixing", MIXINGS)
def test_training_raises_the_likelihood(tmp_path: Path, mixing: str) -> None:
    torch.manual_seed(1)
    vectors, unseen = crowded(600, 16)[:500], torch.tensor(crowded(600, 16)[500:])
    flow = Flow(16, mixing=mixing)
    flow.initialise(torch.tensor(vectors))
    before = flow.negative_log_likelihood(unseen).mean().item()
    steps, loss = train_flow(flow, vectors, context(tmp_path, epochs=6.0))
    after = flow.negative_log_likelihood(unseen).mean().item()
    assert steps == 6 * 16
    assert after < before - 0.02
    assert abs(loss - after) < 0.5
    with torch.no_grad():
        torch.testing.assert_close(flow.inverse(flow.transform(unseen)[0]), unseen, rtol=1e-5, atol=1e-5)


def anisotropy(vectors: np.ndarray) -> float:
    """The mean cosine between different vectors."""
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = units @ units.T
    return float((cosines.sum() - len(units)) / (len(units) * (len(units) - 1)))


def test_the_method(bert: Path, tmp_path: Path) -> None:
    encoder = load_encoder(bert, device="cpu")
    before = load_encoder(bert, pooling="last2", device="cpu").encode(SENTENCES)
    outcome = registry.make("flow").fit(encoder, context(tmp_path))
    vectors = outcome.encoder.encode(SENTENCES)
    assert vectors.shape == before.shape
    assert anisotropy(vectors) < 0.1 < anisotropy(before)
    assert outcome.steps == 7  # 200 sentences, 32 a step
    assert outcome.final_loss is not None
    assert np.isfinite(outcome.final_loss)
    assert outcome.seconds > 0 < outcome.sentences_per_second
    assert not list(tmp_path.iterdir()), "the vectors on disk are gone"
    again = registry.make("flow").fit(load_encoder(bert, device="cpu"), context(tmp_path))
    np.testing.assert_array_equal(vectors, again.encoder.encode(SENTENCES))
    other = registry.make("flow").fit(load_encoder(bert, device="cpu"), context(tmp_path, seed=5))
    assert not np.array_equal(vectors, other.encoder.encode(SENTENCES))


def test_on_top_of_a_tuned_folder(bert: Path, tmp_path: Path) -> None:
    tuned, mapped = tmp_path / "tuned", tmp_path / "mapped"
    selfguide.train(bert, SENTENCES[:40], "sg-opt", output=tuned, max_steps=2, head_size=8, quiet=True, device="cpu")
    encoder = selfguide.train(tuned, SENTENCES, "flow", pooling="keep", output=mapped, quiet=True, device="cpu")
    flow = encoder[-1]
    # Rows without padding differ by a rounding, 3e-8, which the flow multiplies by some hundreds: the same path for both.
    stock = SentenceTransformer(str(tuned), device="cpu").encode(SENTENCES[:5])
    expected = flow.transform(torch.tensor(stock))[0]
    np.testing.assert_allclose(selfguide.encode(mapped, SENTENCES[:5], device="cpu"), expected, atol=1e-5)


def test_refusals(tmp_path: Path, bert: Path) -> None:
    for options, words in [
        ({"pooling": "sum"}, "pooling must be one of"),
        ({"mixing": "stir"}, "mixing must be one of"),
        ({"levels": 0}, "levels must be at least 1"),
        ({"width": 0}, "width must be at least 1"),
    ]:
        with pytest.raises(UsageError, match=words):
            registry.make("flow", options)
    with pytest.raises(UsageError, match="fewer levels than 9"):
        Flow(32, levels=9)
    with pytest.raises(UsageError, match="mixing must be one of"):
        Flow(32, mixing="stir")
    with pytest.raises(SelfguideError, match="the same embedding"):
        train_flow(Flow(8), np.ones((40, 8), dtype=np.float32), context(tmp_path))
    with pytest.raises(SelfguideError, match="lower the learning rate"):
        train_flow(Flow(8), np.full((40, 8), np.inf, dtype=np.float32), context(tmp_path))


def test_settings_of_the_run_hold(tmp_path: Path) -> None:
    vectors = crowded(100, 8)
    assert train_flow(Flow(8), vectors, context(tmp_path, max_steps=3))[0] == 3
    assert train_flow(Flow(8), vectors, context(tmp_path, batch_size=10, epochs=0.5))[0] == 5
    assert isinstance(context(tmp_path).settings, TrainingSettings)
    flow = Flow(8)
    train_flow(flow, vectors, context(tmp_path, warmup=0.5, gradient_clip=0.0, max_steps=4))
    assert all(bool(torch.isfinite(parameter).all()) for parameter in flow.parameters())
