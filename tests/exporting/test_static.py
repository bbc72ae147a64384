"""Static encoders: a stock folder whose table follows the formulas."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import selfguide
from selfguide.calibration.frequencies import Vocabulary
from selfguide.exporting.static import PENALTIES, Projection, Shares, Teacher, fitted, likeness, token_vectors
from selfguide.exporting.static_folder import static_encoder
from selfguide.progress import Reporter
from toys import Outcome, toy_sentences

TEXT = toy_sentences(512)


@pytest.fixture(scope="module")
def encoder(bert: Path) -> SentenceTransformer:
    return selfguide.load_encoder(bert, pooling="mean", device="cpu")


@pytest.fixture(scope="module")
def folder(encoder: SentenceTransformer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("exported") / "tiny-static"
    return selfguide.export(encoder, output, "static", text=TEXT, dim=16, normalise=True, show_progress=False)


def test_it_is_a_stock_folder(folder: Path) -> None:
    model = SentenceTransformer(str(folder), device="cpu")
    assert [type(module).__name__ for module in model] == ["StaticEmbedding", "Normalize"]
    vectors = model.encode(["the old man", "man OLD the", "my sister paints"])
    assert vectors.shape == (3, 16)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)  # a bag of words
    np.testing.assert_allclose(selfguide.encode(folder, TEXT[:9]), model.encode(TEXT[:9]), atol=1e-6)
    long = model.tokenizer.encode(" ".join(TEXT), add_special_tokens=False)
    assert len(long.ids) > 1000  # the encoder's limit is not that of a bag of words
    assert "StaticEmbedding" in (folder / "modules.json").read_text()
    assert "SentenceTransformer(" in (folder / "README.md").read_text()


def test_the_fit_brings_it_nearer_to_the_encoder(encoder: SentenceTransformer, folder: Path) -> None:
    record = json.loads((folder / "export.json").read_text())
    assert record["fit"]["penalty"] in PENALTIES
    assert record["fit"]["sentences"] == 409  # four of five
    assert record["agreement"]["cosine_mean"] is None
    teacher = Teacher.of(encoder, TEXT[100:], TEXT[:50], Reporter(quiet=True))
    others, own = TEXT[50:100], encoder.encode(TEXT[50:100], normalize_embeddings=True)
    found = {}
    for penalties in ((), PENALTIES):
        table, chosen = teacher.table(16, penalties=penalties)
        targets = teacher.projection(16, of_tokens=not penalties).apply(own, teacher.fit_vectors.mean(axis=0))
        found[bool(penalties)] = likeness(static_encoder(encoder, table).encode(others), targets)
        assert (chosen is None) == (not penalties)
    assert found[True] > found[False] + 0.05


def test_token_vectors_are_the_embeddings_of_tokens_alone(encoder: SentenceTransformer) -> None:
    vocabulary = Vocabulary.of_encoder(encoder)
    vectors = token_vectors(encoder, vocabulary, Reporter(quiet=True))
    for word in ("bridge", "the", "z"):
        row = vocabulary.tokens.index(word)
        np.testing.assert_allclose(vectors[row], encoder.encode(word), atol=1e-5)
    assert not vectors[sorted(vocabulary.special)].any()


def test_the_projection_is_pca() -> None:
    from sklearn.decomposition import PCA

    vectors = np.random.default_rng(0).normal(size=(80, 7)) @ np.random.default_rng(1).normal(size=(7, 7))
    expected = PCA(3).fit_transform(vectors)
    found = Projection.of(vectors, 3).apply(vectors)
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-8)  # up to signs


def test_the_fit_solves_its_equations() -> None:
    """Against the closed form, with a dense matrix."""
    draw = np.random.default_rng(5)
    vocabulary = Vocabulary(
        [f"t{number}" for number in range(12)], frozenset({0}), lambda texts: [list(map(int, t.split())) for t in texts]
    )
    sentences = [" ".join(map(str, draw.integers(1, 10, size=size))) for size in draw.integers(0, 6, size=40)]
    shares = Shares.of(vocabulary, sentences)
    dense = np.zeros((40, 12))
    for row, sentence in enumerate(sentences):
        for token in sentence.split():
            dense[row, int(token)] += 1 / len(sentence.split())
    np.testing.assert_allclose(shares.matrix.toarray(), dense, atol=1e-12)
    assert shares.counts.tolist() == np.bincount([int(t) for s in sentences for t in s.split()], minlength=12).tolist()
    start, targets = draw.normal(size=(12, 3)), draw.normal(size=(40, 3))
    squares = (dense**2).sum(axis=0)
    for penalty in (0.01, 1.0):
        ridge = penalty * squares[squares > 0].mean()
        left, right = dense.T @ dense + ridge * np.eye(12), dense.T @ targets + ridge * start
        found = fitted(start, shares.matrix, targets, penalty)
        np.testing.assert_allclose(found, np.linalg.solve(left, right), atol=1e-3)
        np.testing.assert_allclose(found[10:], start[10:], atol=1e-12)  # tokens that do not occur
    assert likeness(targets, 2 * targets) == pytest.approx(1)
    assert likeness(np.zeros((2, 3)), targets[:2]) == 0


def test_the_command(
    command: Callable[..., Outcome], encoder: SentenceTransformer, text_file: Path, tmp_path: Path
) -> None:
    encoder.save(str(tmp_path / "encoder"), create_model_card=False)
    words = ["export", tmp_path / "encoder", "--to", "static", "--text", text_file, "--output", tmp_path / "static"]
    code, out, err = command(*words)
    assert (code, out) == (0, ""), err
    assert "left out of the fit" in err
    assert err.rstrip().endswith(f"Exported: {tmp_path / 'static'}")
    assert json.loads((tmp_path / "static" / "export.json").read_text())["encoder"]["name"] == "encoder"


@pytest.mark.slow
@pytest.mark.parametrize("family", ["roberta", "mpnet"])
def test_other_families(tiny: Callable[[str], Path], tmp_path: Path, family: str) -> None:
    made = selfguide.export(tiny(family), tmp_path / family, "static", text=TEXT[:80], show_progress=False)
    vectors = SentenceTransformer(str(made), device="cpu").encode(TEXT[:5])
    assert vectors.shape == (5, 32)
    assert torch.isfinite(torch.from_numpy(vectors)).all()
