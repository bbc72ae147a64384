"""WK pooling against the formulas with numpy's QR, one token at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer

from selfguide.errors import SelfguideError, UsageError
from selfguide.methods import registry
from selfguide.models.encoders import load_encoder
from selfguide.models.modules.wk_pooling import WKPooling, counted_tokens, unify_tokens
from selfguide.progress import Reporter
from selfguide.training.settings import TrainingSettings
from selfguide.training.trainer import FitContext
from toys import FAMILIES, toy_sentences

SENTENCES = ["a", "the old man", *toy_sentences(5), "my sister paints the blue car and the old man repairs a clock"]


def wk(folder: Path, work: Path, **options: int) -> SentenceTransformer:
    context = FitContext(Dataset.from_dict({"sentence": SENTENCES}), TrainingSettings(), work, Reporter(quiet=True))
    encoder = load_encoder(folder, device="cpu")
    return registry.make("wk", {"layer_start": 0, **options}).fit(encoder, context).encoder


def naive_layer_weights(token: np.ndarray, window: int) -> np.ndarray:
    """The layers' weights of one token (layers, dim), by QR."""
    novelty, inverse = [], []
    for k in range(len(token)):
        neighbours = [j for j in range(len(token)) if j != k and abs(j - k) <= window]
        _, triangle = np.linalg.qr(token[[*neighbours, k]].T)
        last = triangle[:, -1]
        directions = triangle[:-1, :-1] / np.linalg.norm(triangle[:-1, :-1], axis=0)
        alignment = (directions.T @ last[:-1] / np.linalg.norm(last[:-1])).mean()
        novelty.append(abs(last[-1]) / np.linalg.norm(last))
        inverse.append(1 / (max(alignment, 0.01) * (len(neighbours) + 1)))
    weights = np.array(novelty) / sum(novelty) + np.array(inverse) / sum(inverse)
    return weights / weights.sum()


def naive_sentence(states: np.ndarray, window: int) -> np.ndarray:
    """A sentence's vector from its counted tokens (tokens, layers, dim)."""
    tokens, importance = [], []
    for token in states:
        tokens.append(naive_layer_weights(token, window) @ token)
        lengths = np.linalg.norm(token, axis=1)
        cosines = [token[k] @ token[k + 1] / (lengths[k] * lengths[k + 1]) for k in range(len(token) - 1)]
        importance.append(np.var(cosines))
    return np.array(importance) @ np.array(tokens) / sum(importance)


@pytest.mark.parametrize("window", [1, 2, 3])
def test_unified_tokens_equal_the_formulas(window: int) -> None:
    generator = np.random.default_rng(window)
    # Nearly parallel layers, as in a Transformer.
    states = generator.normal(size=(20, 1, 48)) + 0.3 * generator.normal(size=(20, 9, 48)).cumsum(axis=1)
    unified, importance = unify_tokens(torch.tensor(states), window)
    for number, token in enumerate(states):
        np.testing.assert_allclose(unified[number], naive_layer_weights(token, window) @ token, atol=1e-9)
    shares = importance / importance.sum()
    np.testing.assert_allclose(shares @ unified, naive_sentence(states, window), atol=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_equals_the_naive_loop(tiny: Callable[[str], Path], tmp_path: Path, family: str) -> None:
    encoder = wk(tiny(family), tmp_path)
    vectors = encoder.encode(SENTENCES)
    for sentence, vector in zip(SENTENCES, vectors, strict=True):
        features = encoder.preprocess([sentence])
        with torch.no_grad():
            layers = encoder[0](features)["all_layer_embeddings"]
        states = torch.stack(layers, dim=2)[0, :-1].double().numpy()  # without [SEP]
        np.testing.assert_allclose(vector, naive_sentence(states, 2), atol=2e-5)


def test_padding_changes_nothing(bert: Path, tmp_path: Path) -> None:
    encoder = wk(bert, tmp_path, layer_start=1)
    together = encoder.encode(SENTENCES, batch_size=len(SENTENCES))
    alone = encoder.encode(SENTENCES, batch_size=1)
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_counted_tokens() -> None:
    mask = torch.tensor([[1, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 0]])
    assert counted_tokens(mask, skip_last=False).tolist() == mask.bool().tolist()
    # Left padding too; a lone token stays.
    assert counted_tokens(mask, skip_last=True).int().tolist() == [[1, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]]


@pytest.mark.parametrize("states", [torch.zeros(3, 5, 8), torch.ones(3, 5, 8), torch.eye(5).repeat(3, 1, 1)])
def test_degenerate_layers_stay_finite(states: torch.Tensor) -> None:
    mask = torch.tensor([[1, 1, 1, 1]])
    layers = tuple(torch.cat([states[:, k], states[:1, k]]).unsqueeze(0) for k in range(states.shape[1]))
    pooling = WKPooling(states.shape[2], layer_start=0)
    vector = pooling({"all_layer_embeddings": layers, "attention_mask": mask})["sentence_embedding"]
    assert torch.isfinite(vector).all()


def test_the_least_sentence(bert: Path, tmp_path: Path) -> None:
    vectors = wk(bert, tmp_path).encode(["", "a"])
    assert np.isfinite(vectors).all()
    assert np.linalg.norm(vectors, axis=1).min() > 0


def test_too_few_layers_are_refused(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"layer_start is 4: use --layer-start 1 or less"):
        wk(bert, tmp_path, layer_start=4)
    for options in ({"layer_start": -1}, {"window": 0}):
        with pytest.raises(UsageError, match="must be at least"):
            registry.make("wk", options)


def test_without_the_layers_it_says_so() -> None:
    with pytest.raises(SelfguideError, match="--method wk"):
        WKPooling(4)({"token_embeddings": torch.zeros(1, 2, 4), "attention_mask": torch.ones(1, 2)})
    flattened = {"all_layer_embeddings": (torch.zeros(1, 5, 4),) * 8, "cu_seq_lens_q": torch.tensor([0, 2, 5])}
    with pytest.raises(SelfguideError, match="without it"):
        WKPooling(4)(flattened)
