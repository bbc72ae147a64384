"""Poolings, the bag of words, SIF and the token frequencies behind them, each against a naive computation."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer

import selfguide
from selfguide.calibration import frequencies
from selfguide.calibration.frequencies import Vocabulary
from selfguide.errors import SelfguideError, UsageError
from selfguide.methods import registry
from selfguide.models.encoders import backbone, load_encoder
from selfguide.models.layers import hidden_states
from selfguide.progress import Reporter
from toys import toy_sentences

TABLE = frequencies.english_table()
SENTENCES = [*toy_sentences(9), "a b c", "the"]


@pytest.fixture(autouse=True)
def _small_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The most frequent words alone: splitting all of them takes a second each time."""
    words, total = TABLE
    top = dict(list(words.items())[:600])
    monkeypatch.setattr(frequencies, "english_table", lambda: (top, total))


def _text(count: int = 60) -> Dataset:
    return Dataset.from_dict({"sentence": toy_sentences(count)})


def _states(folder: Path, layer: int, sentences: list[str] = SENTENCES) -> list[tuple[np.ndarray, list[int]]]:
    """Each sentence's token states at a layer, one sentence at a time (no padding), with the tokens' numbers."""
    encoder = load_encoder(folder)
    rows = []
    for sentence in sentences:
        features = encoder.preprocess([sentence])
        inputs = {name: features[name] for name in ("input_ids", "attention_mask")}
        with torch.no_grad():
            states = hidden_states(backbone(encoder).eval(), inputs)[layer][0]
        rows.append((states.numpy(), features["input_ids"][0].tolist()))
    return rows


def _train(bert: Path, text_file: Path, output: Path, method: str, **options: Any) -> SentenceTransformer:
    """Through the whole run, and re-loaded by sentence-transformers alone; what came back must be what was returned."""
    tuned = selfguide.train(bert, text_file, method, output=output, quiet=True, **options)
    loaded = SentenceTransformer(str(output))
    np.testing.assert_allclose(loaded.encode(SENTENCES), tuned.encode(SENTENCES), atol=1e-5)
    record = json.loads((output / "run.json").read_text())
    assert record["config"]["method"] == method
    assert record["checkpoint"] == "none: nothing was tuned"
    assert method in (output / "README.md").read_text()
    weights = {path.suffix for path in output.rglob("*") if path.stat().st_size > 0}
    assert not weights & {".bin", ".pt", ".pkl", ".pth"}
    for module in json.loads((output / "modules.json").read_text()):
        assert module["type"].startswith("sentence_transformers.")
    return loaded


@pytest.mark.parametrize(
    ("method", "options", "layers"),
    [
        ("cls", {}, (3,)),
        ("mean", {}, (3,)),
        ("max", {}, (3,)),
        ("max", {"layer": 1}, (1,)),
        ("mean", {"layer": 0}, (0,)),
        ("last2", {}, (2, 3)),
        ("first-last", {}, (1, 3)),
    ],
)
def test_poolings(
    bert: Path, text_file: Path, tmp_path: Path, method: str, options: dict[str, int], layers: tuple[int, ...]
) -> None:
    loaded = _train(bert, text_file, tmp_path / "out", method, **options)
    states = [[rows for rows, _ in _states(bert, layer)] for layer in layers]
    pool = {"cls": lambda rows: rows[0], "max": lambda rows: rows.max(0)}.get(method, lambda rows: rows.mean(0))
    expected = [pool(np.mean(same, axis=0)) for same in zip(*states, strict=True)]
    np.testing.assert_allclose(loaded.encode(SENTENCES), expected, atol=1e-5)


def test_poolings_refuse_what_they_have_not(bert: Path) -> None:
    with pytest.raises(UsageError, match="has no option 'layer'"):
        registry.make("last2", {"layer": 2})
    with pytest.raises(UsageError, match="no layer 9"):
        selfguide.train(bert, toy_sentences(4), "mean", layer=9, quiet=True)


def test_a_pooling_keeps_the_length_limit_of_the_encoder(bert: Path) -> None:
    short = selfguide.train(load_encoder(bert, max_length=4), toy_sentences(4), "mean", quiet=True)
    assert short.max_seq_length == 4
    # Four tokens are [CLS], two words and [SEP].
    np.testing.assert_allclose(short.encode("the old man paints"), short.encode("the old"), atol=1e-6)


def test_text_is_counted_as_the_tokenizer_splits_it(bert: Path) -> None:
    encoder = load_encoder(bert)
    vocabulary = Vocabulary.of_encoder(encoder)
    expected = Counter(token for sentence in toy_sentences(60) for token in encoder.tokenizer.tokenize(sentence))
    counts = frequencies.text_counts(vocabulary, _text(), batch=7)
    assert {token: int(count) for token, count in zip(vocabulary.tokens, counts, strict=True) if count} == expected
    p = frequencies.probabilities(vocabulary, _text(), "text")
    assert p.sum() == pytest.approx(1)


def test_the_table_gives_each_words_count_to_its_pieces(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # "old" is a token; "cab" falls into letters, of which the toy tokenizer knows only those at the head of a word.
    monkeypatch.setattr(frequencies, "english_table", lambda: ({"the": 60, "old": 30, "cab": 10}, 200))
    vocabulary = Vocabulary.of_encoder(load_encoder(bert))
    p = dict(zip(vocabulary.tokens, frequencies.table_probabilities(vocabulary), strict=True))
    assert p["the"] == pytest.approx(60 / 200)
    assert p["old"] == pytest.approx(30 / 200)
    assert p["[UNK]"] == 0  # special, so not counted
    assert sum(p.values()) == pytest.approx(90 / 200)
    mixed = dict(zip(vocabulary.tokens, frequencies.probabilities(vocabulary, _text(), "both"), strict=True))
    counts = frequencies.text_counts(vocabulary, _text())
    the = counts[vocabulary.tokens.index("the")]
    assert mixed["the"] == pytest.approx((the + 0.3 * 100_000) / (counts.sum() + 100_000))


def test_every_shape_of_a_word_has_the_words_frequency(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tokenizer that tells "the" from " the" and "The", as byte-level ones do."""
    tokens = ["the", " the", "The", " The", "x", " x", "X", " X", "special"]
    monkeypatch.setattr(frequencies, "english_table", lambda: ({"the": 30, "x": 10}, 40))
    vocabulary = Vocabulary(tokens, frozenset([8]), lambda texts: [[tokens.index(text)] for text in texts])
    p = frequencies.table_probabilities(vocabulary)
    np.testing.assert_allclose(p, [0.75] * 4 + [0.25] * 4 + [0])


def test_weights_are_sifs(bert: Path) -> None:
    vocabulary = Vocabulary.of_encoder(load_encoder(bert))
    p = frequencies.probabilities(vocabulary, _text(), "text")
    weights = frequencies.sif_weights(vocabulary, _text(), "text", 1e-2)
    for number, token in enumerate(vocabulary.tokens):
        special = token.startswith("[")
        assert weights[number] == pytest.approx(0 if special else 1e-2 / (1e-2 + p[number]))
    assert weights[vocabulary.tokens.index("z")] == 1  # never seen: as the rarest
    assert 0 < weights[vocabulary.tokens.index("the")] < 0.2


def test_a_vocabulary_with_gaps_keeps_its_numbers() -> None:
    assert frequencies._by_id({"a": 0, "c": 2}) == ["a", "<no token 1>", "c"]


def test_the_shipped_table_is_english() -> None:
    words, total = TABLE
    assert len(words) == 40_000
    assert sum(words.values()) < total < 1.1 * sum(words.values())
    assert list(words)[:2] == ["the", ","]
    assert 0.02 < words["of"] / total < 0.04
    assert list(words.values()) == sorted(words.values(), reverse=True)
    assert {"don't", "'s", "u.s.", "?"} <= set(words)


def test_a_table_is_made_from_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, packed, out = tmp_path / "one.txt", tmp_path / "two.txt.xz", tmp_path / "table.tsv.xz"
    plain.write_text("The dog's bone. Don't!\n")
    packed.write_bytes(lzma.compress(b"the U.S. paid 1,000 the\n"))
    frequencies.main(["make", "--text", str(plain), str(packed), "--out", str(out), "--size", "4"])
    assert "words counted" in capsys.readouterr().out
    words, total = frequencies.parse_table(lzma.decompress(out.read_bytes()).decode())
    assert words == {"the": 3, "!": 1, "'s": 1, ".": 1}
    assert total == 12  # the dog 's bone . don't ! the u.s. paid 1,000 the
    with pytest.raises(SelfguideError, match="cannot be read"):
        frequencies.main(["make", "--text", str(tmp_path / "none.txt"), "--out", str(out)])


def test_a_text_that_the_table_does_not_fit_is_noticed(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frequencies, "english_table", lambda: ({"zebra": 1}, 1))
    reporter = Reporter(quiet=True)
    frequencies.table_probabilities(Vocabulary.of_encoder(load_encoder(bert)), _text(), reporter)
    assert "use --frequencies text" in reporter.warnings[0]


@pytest.mark.parametrize("source", ["table", "text", "both"])
def test_the_bag_of_words_is_a_weighted_mean_of_random_vectors(
    bert: Path, text_file: Path, tmp_path: Path, source: str
) -> None:
    loaded = _train(bert, text_file, tmp_path / "out", "bow", size=24, frequencies=source, seed=5)
    vocabulary = Vocabulary.of_encoder(load_encoder(bert))
    weights = frequencies.sif_weights(vocabulary, Dataset.from_dict({"sentence": toy_sentences(120)}), source, 1e-3)
    vectors = torch.randn(len(weights), 24, generator=torch.Generator().manual_seed(5)).numpy()
    for sentence, vector in zip(SENTENCES, loaded.encode(SENTENCES), strict=True):
        ids = vocabulary.split([sentence])[0]
        expected = sum(weights[token] * vectors[token] for token in ids) / len(ids)
        np.testing.assert_allclose(vector, expected, atol=1e-5)
    assert not loaded.encode("[CLS] [SEP]").any()


def test_the_bag_of_words_leaves_the_encoders_tokenizer_alone(bert: Path) -> None:
    encoder = load_encoder(bert)
    before = encoder.tokenizer.backend_tokenizer.to_str()
    bag = selfguide.train(encoder, toy_sentences(8), "bow", size=8, quiet=True)
    assert encoder.tokenizer.backend_tokenizer.to_str() == before
    long = bag.encode("the " * 300 + "dog")
    assert not np.allclose(long, bag.encode("the " * 300), atol=1e-7)  # nothing is cut off
    other = selfguide.train(encoder, toy_sentences(8), "bow", size=8, seed=2, quiet=True)
    assert not np.allclose(other.encode("dog"), bag.encode("dog"))


def _weighted(folder: Path, layer: int, weights: np.ndarray, sentences: list[str]) -> np.ndarray:
    rows = []
    for states, ids in _states(folder, layer, sentences):
        mine = weights[ids]
        rows.append((mine[:, None] * states).sum(0) / mine.sum())
    return np.array(rows, dtype=np.float64)


@pytest.mark.parametrize("family", ["bert", "roberta", "deberta-v2"])
def test_sif_is_the_weighted_mean_of_a_layers_tokens(tiny: Callable[[str], Path], tmp_path: Path, family: str) -> None:
    folder = tiny(family)
    vocabulary = Vocabulary.of_encoder(load_encoder(folder))
    weights = frequencies.sif_weights(vocabulary, _text(120), "text", 1e-2)
    options: dict[str, Any] = {"frequencies": "text", "a": 1e-2, "layer": 1, "whiten": False}
    text = tmp_path / "text.txt"
    text.write_text("\n".join(toy_sentences(120)))
    loaded = _train(folder, text, tmp_path / "plain", "sif", **options)
    expected = _weighted(folder, 1, weights, SENTENCES)
    np.testing.assert_allclose(loaded.encode(SENTENCES), expected, atol=1e-5)


def test_sif_whitens_or_removes(bert: Path, text_file: Path, tmp_path: Path) -> None:
    sentences = toy_sentences(120)
    vocabulary = Vocabulary.of_encoder(load_encoder(bert))
    weights = frequencies.sif_weights(vocabulary, Dataset.from_dict({"sentence": sentences}), "table", 1e-3)
    vectors = _weighted(bert, 0, weights, sentences)

    whitened = _train(bert, text_file, tmp_path / "white", "sif", shrinkage="0").encode(sentences)
    centred = vectors - vectors.mean(0)
    # Whitened vectors' inner products do not depend on the rotation: x Σ⁺ y.
    expected = centred @ np.linalg.pinv(centred.T @ centred / 120, rcond=1e-8) @ centred.T
    np.testing.assert_allclose(whitened @ whitened.T, expected, atol=1e-2)

    removed = _train(bert, text_file, tmp_path / "removed", "sif", whiten=False, remove=2).encode(sentences)
    _, _, directions = np.linalg.svd(vectors, full_matrices=False)
    np.testing.assert_allclose(removed, vectors - vectors @ directions[:2].T @ directions[:2], atol=1e-5)


def test_wrong_options_are_refused_in_words() -> None:
    for method, wrong, words in (
        ("sif", {"a": 0.0}, "a must be above 0"),
        ("sif", {"frequencies": "web"}, "frequencies must be one of table, text, both, got 'web'"),
        ("sif", {"remove": 1}, "use --no-whiten"),
        ("sif", {"remove": -1}, "remove must be"),
        ("sif", {"shrinkage": "much"}, "shrinkage must be"),
        ("sif", {"layer": "0"}, "whole number"),
        ("bow", {"size": 0}, "size must be"),
        ("bow", {"a": -1.0}, "a must be"),
        ("bow", {"frequencies": "web"}, "frequencies must be one of table, text, both, got 'web'"),
    ):
        with pytest.raises(UsageError, match=words):
            registry.make(method, wrong)
