"""The examples run, at toy size, and do what they say."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

import selfguide
from resuming import assert_resumes_exactly
from toys import Outcome

ROOT = Path(__file__).parent.parent


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Import an example's module, found as one finds it from the repository's root; nothing of it stays."""
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # tiny encoders are slower with more
    yield lambda name: import_module(f"examples.{name}")
    torch.set_num_threads(threads)
    for name in [name for name in sys.modules if name.partition(".")[0] == "examples"]:
        del sys.modules[name]


@pytest.fixture
def sentence_encoder(bert: Path, tmp_path: Path) -> Path:
    """A folder that is a sentence encoder: a tiny Transformer with mean pooling, as sentence-transformers saves it."""
    folder = tmp_path / "sentence-encoder"
    selfguide.load_encoder(bert, pooling="mean").save(str(folder))
    return folder


def test_own_text_trains_saves_and_scores(
    example: Callable[[str], Any], bert: Path, text_file: Path, dev_file: Path, tmp_path: Path, capsys: Any
) -> None:
    output = tmp_path / "encoder"
    words = [text_file, "--encoder", bert, "--pairs", dev_file, "--output", output, "--limit", 40, "--max-steps", 2]
    example("own_text").main([str(word) for word in words])
    before, after = capsys.readouterr().out.splitlines()
    assert before.startswith("before (mean pooling)")
    assert after.startswith("after")
    assert SentenceTransformer(str(output)).encode("It rains.").shape == (32,)


def test_own_loss_trains_in_a_plain_trainer(
    example: Callable[[str], Any], bert: Path, text_file: Path, tmp_path: Path, capsys: Any
) -> None:
    output = tmp_path / "encoder"
    words = [text_file, output, "--encoder", bert, "--batch-size", 4, "--max-steps", 2]
    example("own_loss").main([str(word) for word in words])
    assert f"saved {output}: 32 dimensions" in capsys.readouterr().out
    started, tuned = (
        load(str(folder)) for load, folder in ((selfguide.load_encoder, bert), (SentenceTransformer, output))
    )
    pairs = zip(started[0].parameters(), tuned[0].parameters(), strict=True)
    assert any(not torch.equal(one.cpu(), other.cpu()) for one, other in pairs)


def test_compare_methods_prints_a_row_for_each(
    example: Callable[[str], Any], bert: Path, text_file: Path, dev_file: Path, capsys: Any
) -> None:
    module = example("compare_methods")
    words = [text_file, "--encoder", bert, "--pairs", dev_file, "--seeds", 1, "--limit", 40, "--set", "max_steps=1"]
    module.main([str(word) for word in words])
    table = capsys.readouterr().out
    assert "failed" not in table
    labels = [spec.partition("=")[0] if "=simcse" in spec else spec.partition(":")[0] for spec in module.METHODS]
    assert all(any(line.startswith(f"| {label}") for line in table.splitlines()) for label in labels), table


def test_adapt_encoder_keeps_pooling_and_length_and_says_what_was_chosen(
    example: Callable[[str], Any], sentence_encoder: Path, text_file: Path, dev_file: Path, tmp_path: Path, capsys: Any
) -> None:
    output = tmp_path / "adapted"
    words = [text_file, dev_file, output, "--encoder", sentence_encoder, "--max-steps", 2]
    example("adapt_encoder").main([str(word) for word in words])
    chosen, before, after = capsys.readouterr().out.splitlines()
    adapted = SentenceTransformer(str(output))
    assert adapted[1].get_config_dict()["pooling_mode"] == "mean"
    assert adapted.max_seq_length == SentenceTransformer(str(sentence_encoder)).max_seq_length
    assert json.loads((output / "run.json").read_text())["choice"]["sentence"] == chosen
    if "came back as it was" in chosen:
        assert before.split()[1] == after.split()[1]


def test_semantic_search_finds_the_sentence_itself_and_what_is_new(
    example: Callable[[str], Any], bert: Path, text_file: Path, capsys: Any
) -> None:
    wanted = text_file.read_text(encoding="utf-8").splitlines()[7]
    words = [str(text_file), wanted, "--encoder", str(bert), "--top", "2"]
    module = example("semantic_search")
    module.main(words)
    query, first, _ = capsys.readouterr().out.splitlines()
    assert query == wanted
    assert first.split(maxsplit=1) == ["1.00", wanted]
    with text_file.open("a", encoding="utf-8") as file:
        file.write("an umbrella of glass\n")
    module.main([*words[:1], "an umbrella of glass", *words[2:]])
    assert "an umbrella of glass" in capsys.readouterr().out.splitlines()[1]


def test_the_other_encoder_gives_a_row_for_each_sentence(example: Callable[[str], Any]) -> None:
    other_encoder = example("other_encoder")
    sentences = ["A dog runs.", "A dog is running.", "The bank raised its rates.", ""]
    vectors = other_encoder.encode(sentences)
    assert vectors.shape == (4, other_encoder.DIMENSIONS)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(other_encoder.encode(sentences[1:2])[0], vectors[1], atol=1e-6)
    alike, unlike = vectors[0] @ vectors[1], vectors[0] @ vectors[2]
    assert alike > unlike


def test_it_is_scored_beside_others(
    example: Callable[[str], Any], bert: Path, tmp_path: Path, command: Callable[..., Outcome]
) -> None:
    other_encoder = example("other_encoder")
    outcome = command(
        "eval", bert, "examples.other_encoder:encode", "--bootstrap", "0", "--output", tmp_path / "scores", "--quiet"
    )
    assert outcome.code == 0, outcome.err
    alone = selfguide.evaluate(other_encoder.encode, "demo", bootstrap=0)["demo"].value
    (line,) = (row for row in outcome.out.splitlines() if row.startswith("examples.other_encoder:encode"))
    assert line.split()[-1] == f"{alone:.2f}"
    assert alone > 30  # words in common are worth something, and the pairs are a fixed set


def test_its_main_prints_both(example: Callable[[str], Any], bert: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example("other_encoder").main(["--beside", str(bert)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0].partition(" Spearman")[0] for line in lines] == [str(bert), "TF-IDF and SVD"]


def test_own_method_is_shown_trains_compares_and_resumes(
    command: Callable[..., Outcome],
    bert: Path,
    text_file: Path,
    dev_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    script = ROOT / "examples" / "own_method.py"
    assert len(script.read_text(encoding="utf-8").splitlines()) <= 40
    monkeypatch.syspath_prepend(str(script.parent))
    shown = command("methods", "own_method:SoftPositives")
    assert shown.code == 0, shown.err
    assert "A sentence and itself are a pair" in shown.out
    assert "--scale" in shown.out
    assert_resumes_exactly("own_method:SoftPositives", MultipleNegativesRankingLoss, bert, tmp_path)

    def toy_comparison(encoder: str, *given: Any, **more: Any) -> Any:
        assert encoder == "mini"
        return compare(bert, *given, **more, pairs=dev_file, tasks=(), jobs=1)

    compare = selfguide.compare
    monkeypatch.setattr(selfguide, "compare", toy_comparison)
    monkeypatch.setattr(sys, "argv", [str(script), str(text_file), "max_steps=1", "batch_size=4"])
    runpy.run_path(str(script), run_name="__main__")
    printed = capfd.readouterr().out
    assert all(f"| {label} |" in printed for label in ("mean", "own", "sharp"))
    del sys.modules["own_method"]
