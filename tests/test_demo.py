"""The demonstration prints what it measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer

import selfguide
from selfguide import demo
from selfguide.data.resources import demo_pairs
from selfguide.errors import UsageError
from selfguide.models.encoders import layer_zero_parameters, load_encoder
from selfguide.runs import evidence
from selfguide.runs.evidence import sample
from toys import toy_sentences


def test_the_demonstration_prints_what_it_measured(
    bert: Path,
    text_file: Path,
    dev_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On a tiny encoder and text; `make demo` runs the real one."""
    files = {"sentences.txt": text_file, "pairs-dev.tsv": dev_file, "pairs-test.tsv": dev_file}
    monkeypatch.setattr(demo, "demo_file", lambda name: files[name])
    # What an earlier demonstration left there is replaced.
    selfguide.train(bert, text_file, "whitening", output=tmp_path / "out", quiet=True, report=False)
    table = demo.run_demo(str(bert), tmp_path / "out", seed=2)
    printed, notes = capsys.readouterr()
    tuned = SentenceTransformer(str(tmp_path / "out"))
    pairs = demo_pairs("test")
    assert table["cls, untuned"] == pytest.approx(demo.score(load_encoder(bert, pooling="cls"), pairs), abs=1e-6)
    assert table["cls, tuned with SG-OPT"] == pytest.approx(demo.score(tuned, pairs), abs=0.2)
    for score in table.values():
        assert f"{score:.1f}" in printed
    assert "[CLS], tuned with SG-OPT" in printed
    fused = SentenceTransformer(str(tmp_path / "out" / "fused"))
    assert table[demo.FUSED] == pytest.approx(demo.score(fused, pairs), abs=0.2)
    assert "ours, not in the papers" in " ".join(printed.split())
    # Fused reads the embedding layer, which tuning must have left unchanged.
    start = layer_zero_parameters(load_encoder(bert))
    for model in (tuned, fused):
        for before, after in zip(start, layer_zero_parameters(model), strict=True):
            assert torch.equal(before, after.cpu())
    assert json.loads((tmp_path / "out" / "fused" / "run.json").read_text())["config"]["method"] == "fused"
    adapted = SentenceTransformer(str(tmp_path / "out" / "adapted"))
    assert table[demo.ADAPTED] == pytest.approx(demo.score(adapted, pairs), abs=0.2)
    choice = json.loads((tmp_path / "out" / "adapted" / "run.json").read_text())["choice"]
    assert " ".join(choice["sentence"].split()) in " ".join(printed.split())
    # The examples are those that the run drew, with whatever neighbours they have.
    drawn = sample([{"sentence": sentence} for sentence in toy_sentences(120)], seed=2)
    assert all(sentence in notes.partition("drawn from the text")[2] for sentence in drawn[: evidence.PRINTED])


@pytest.mark.parametrize("name", ["tuned", "tuned.partial", "texts", "notes.txt"])
def test_the_demonstration_replaces_nothing_else(bert: Path, text_file: Path, tmp_path: Path, name: str) -> None:
    selfguide.train(bert, text_file, "whitening", output=tmp_path / "tuned", quiet=True, report=False)
    if name == "tuned.partial":  # an interrupted run
        (tmp_path / "tuned").rename(tmp_path / name)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("a")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=f"{name} exists already, and is no earlier demonstration"):
        demo.run_demo(str(bert), tmp_path / name.removesuffix(".partial"), seed=2)
    assert sorted(tmp_path.rglob("*")) == before
