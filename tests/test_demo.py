"""The embedded data keeps its promises, and the demonstration prints what it measured."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

import selfguide
from selfguide import demo
from selfguide.models.encoders import layer_zero_parameters, load_encoder


def test_the_sentences_are_many_different_and_of_sentence_length() -> None:
    sentences = demo.demo_sentences()
    assert len(sentences) >= 3000
    assert len({sentence.lower() for sentence in sentences}) == len(sentences)
    assert all(5 <= len(sentence.split()) <= 40 for sentence in sentences)
    openings = Counter(sentence.split()[0].lower() for sentence in sentences)
    assert openings.most_common(1)[0][1] < 0.2 * len(sentences)


def test_the_pairs_are_spread_evenly_and_split_cleanly() -> None:
    dev, test = demo.demo_pairs("dev"), demo.demo_pairs("test")
    assert len(dev.scores) + len(test.scores) >= 600
    for split, pairs in (("dev", dev), ("test", test)):
        counts = Counter(pairs.scores)
        assert set(counts) == {step / 2 for step in range(11)}
        assert len(set(counts.values())) == 1
        kinds = demo.demo_file(f"kinds-{split}.txt").read_text().split()
        assert len(kinds) == len(pairs.scores)
    assert not {*dev.first, *dev.second} & {*test.first, *test.second}


def test_the_embedded_encoder_loads_in_single_precision_and_tells_meanings_apart() -> None:
    encoder = selfguide.load_encoder("mini", pooling="mean")
    assert str(next(encoder.parameters()).dtype) == "torch.float32"
    assert encoder.get_embedding_dimension() == 384
    vectors = encoder.encode(["A cat sleeps on the sofa.", "A kitten naps on the couch.", "Interest rates rose again."])
    similarity = encoder.similarity(vectors, vectors)
    assert similarity[0, 1] > similarity[0, 2]


def test_the_demonstration_prints_what_it_measured(
    bert: Path,
    text_file: Path,
    dev_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On a tiny encoder and text; the real thing is `make demo`."""
    files = {"sentences.txt": text_file, "pairs-dev.tsv": dev_file, "pairs-test.tsv": dev_file}
    monkeypatch.setattr(demo, "demo_file", lambda name: files[name])
    for seed in (1, 2):  # the second run replaces the first one's folder
        table = demo.run_demo(str(bert), tmp_path / "out", seed)
    printed = capsys.readouterr().out
    tuned = SentenceTransformer(str(tmp_path / "out"))
    pairs = demo.demo_pairs("test")
    assert table["cls, untuned"] == pytest.approx(demo.spearman(load_encoder(bert, pooling="cls"), pairs), abs=1e-6)
    assert table["cls, tuned with SG-OPT"] == pytest.approx(demo.spearman(tuned, pairs), abs=0.2)
    for score in table.values():
        assert f"{score:.1f}" in printed
    assert "[CLS], tuned with SG-OPT" in printed
    fused = SentenceTransformer(str(tmp_path / "out" / "fused"))
    assert table[demo.FUSED] == pytest.approx(demo.spearman(fused, pairs), abs=0.2)
    assert "ours, not in the papers" in " ".join(printed.split())
    # The second view is of the layer that was there before: the tuning must have left it alone.
    start = layer_zero_parameters(load_encoder(bert))
    for model in (tuned, fused):
        for before, after in zip(start, layer_zero_parameters(model), strict=True):
            assert torch.equal(before, after.cpu())
    assert json.loads((tmp_path / "out" / "fused" / "run.json").read_text())["config"]["method"] == "fused"
    assert demo.QUERIES[0] in printed
