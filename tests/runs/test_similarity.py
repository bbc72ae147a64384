"""Every finished folder says what a cosine means, and the command and Python read it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import selfguide
from selfguide.calibration import frequencies
from selfguide.engine.encode import cosine
from selfguide.engine.similarity_scale import SCALE_FILE, read_scale
from selfguide.errors import SelfguideError, UsageError
from selfguide.report.evidence import read_evidence
from selfguide.runs.similarity import Reservoir
from toys import Outcome, toy_sentences

TEXT = toy_sentences(400)


@pytest.fixture(scope="module")
def folder(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("runs") / "simcse"
    selfguide.train(bert, TEXT, "simcse", output=output, max_steps=3, device="cpu", quiet=True)
    return output


def test_it_is_measured_on_the_finished_encoder(folder: Path) -> None:
    scale = read_scale(folder)
    assert scale is not None
    assert (scale.sentences, scale.available) == (400, 400)
    vectors = selfguide.encode(str(folder), TEXT).astype(np.float64)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    pairs = (units @ units.T)[np.triu_indices(400, 1)]
    assert scale.at(50.0) == pytest.approx(np.median(pairs), abs=1e-4)
    assert scale.at(99.9) == pytest.approx(np.quantile(pairs, 0.999), abs=1e-3)
    # The encoder that the run started from has other cosines.
    start = selfguide.encode(str(folder.parent.parent / "encoders0" / "bert"), TEXT[:2])
    assert not np.allclose(start, vectors[:2], atol=1e-3)


def test_the_command_prints_it_beside_the_cosine(folder: Path, command: Callable[..., Outcome], tmp_path: Path) -> None:
    one, other = selfguide.encode(str(folder), TEXT[:2])
    value = float(cosine(one, other))
    outcome = command("similarity", TEXT[0], TEXT[1], "--encoder", folder)
    number, said = outcome.out.rstrip("\n").split("\t")
    assert float(number) == pytest.approx(value, abs=1e-4)
    scale = read_scale(folder)
    assert scale is not None
    count = round(scale.closer_of_thousand(value))
    assert said == f"{count} of 1,000 random pairs of its text are closer"
    assert "Measured on 79,800 pairs of all 400 sentences of the text" in outcome.err
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text(f"{TEXT[0]}\t{TEXT[1]}\n{TEXT[2]}\t{TEXT[2]}\n")
    rows = [line.split("\t") for line in command("similarity", "--pairs", pairs, "--encoder", folder).out.splitlines()]
    assert [len(row) for row in rows] == [4, 4]
    assert float(rows[0][3]) == pytest.approx(scale.closer_of_thousand(value), abs=0.2)
    assert rows[1][3] == "0.0"
    # Another pooling is another encoder, and mini's folder knows no text.
    assert command("similarity", "a", "b", "--encoder", folder, "--pooling", "mean").out.count("\t") == 0
    assert command("similarity", "a", "b").out.count("\t") == 0


def test_python_gives_the_percentile(folder: Path) -> None:
    scale = read_scale(folder)
    assert scale is not None
    assert selfguide.similarity_percentile(folder, scale.at(99.0)) == pytest.approx(99, abs=0.2)
    several = selfguide.similarity_percentile(str(folder), [scale.at(10.0), 1.0])
    assert several.tolist() == pytest.approx([10, 100], abs=0.5)
    with pytest.raises(UsageError, match="takes the folder of an encoder that selfguide made, not mini"):
        selfguide.similarity_percentile("mini", 0.5)
    with pytest.raises(SelfguideError, match="keeps no cosines of its text"):
        selfguide.similarity_percentile(folder.parent, 0.5)


def test_card_and_report_show_it(folder: Path) -> None:
    scale = read_scale(folder)
    assert scale is not None
    card = (folder / "README.md").read_text()
    assert "## What a cosine means" in card
    assert f"| 10 of 1,000 | {scale.at(99.0):.2f} |" in card
    page = (folder / "report.html").read_text()
    assert 'id="similarity-scale"' in page or "similarity-scale" in page
    assert "79,800 pairs of all 400 sentences" in page
    assert read_evidence(folder / "report.html") is not None
    (folder / SCALE_FILE).rename(folder / "away")
    selfguide_page = _page(folder)
    (folder / "away").rename(folder / SCALE_FILE)
    assert "What a cosine means" not in selfguide_page


def _page(folder: Path) -> str:
    from selfguide.report.folders import write_report

    return write_report(folder, folder.parent / "page.html").read_text()


def test_a_large_text_is_sampled_and_without_a_report_too(bert: Path, tmp_path: Path) -> None:
    text = [f"{sentence} {number}" for number in range(3) for sentence in TEXT]
    for name, report in (("with", True), ("without", False)):
        selfguide.train(bert, text, "whitening", output=tmp_path / name, report=report, device="cpu", quiet=True)
    first, second = read_scale(tmp_path / "with"), read_scale(tmp_path / "without")
    assert first == second
    assert first is not None
    assert (first.sentences, first.available) == (500, 1200)
    assert not (tmp_path / "without" / "report.html").exists()
    assert "500 sentences drawn from the text's 1,200" in (tmp_path / "without" / "README.md").read_text()


def test_calibrate_measures_again(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words, total = frequencies.english_table()
    few = dict(list(words.items())[:300])  # splitting all of them takes seconds
    monkeypatch.setattr(frequencies, "english_table", lambda: (few, total))
    settings = {"tune": "none", "frequencies": "table", "device": "cpu", "quiet": True}
    selfguide.train(bert, TEXT[:200], "fused", output=tmp_path / "old", **settings)
    selfguide.calibrate(tmp_path / "old", TEXT[150:], tmp_path / "new", device="cpu")
    old, new = read_scale(tmp_path / "old"), read_scale(tmp_path / "new")
    assert old is not None
    assert new is not None
    assert old.weights != new.weights
    assert (old.available, new.available) == (200, 250)
    vectors = selfguide.encode(str(tmp_path / "new"), TEXT[150:]).astype(np.float64)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert new.at(50.0) == pytest.approx(np.median((units @ units.T)[np.triu_indices(250, 1)]), abs=1e-3)
    card = (tmp_path / "new" / "README.md").read_text()
    assert card.count("## What a cosine means") == card.count("## Recipe") == 1
    assert f"| 10 of 1,000 | {new.at(99.0):.2f} |" in card


def test_a_run_survives_what_cannot_be_measured(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from selfguide.runs import similarity

    def broken(*_: object) -> None:
        raise ValueError("no\nluck")

    monkeypatch.setattr(similarity, "measure_scale", broken)
    selfguide.train(bert, TEXT[:50], "mean", output=tmp_path / "run", report=False, device="cpu", quiet=True)
    assert not (tmp_path / "run" / SCALE_FILE).exists()
    warnings = json.loads((tmp_path / "run" / "run.json").read_text())["warnings"]
    assert "the folder will not say what a cosine means: no luck" in warnings


def test_the_reservoir_is_uniform() -> None:
    counts: Counter[str] = Counter()
    for seed in range(400):
        reservoir = Reservoir((str(number) for number in range(50)), 10, seed)
        assert len(list(reservoir)) == reservoir.seen == 50
        assert len(set(reservoir.drawn)) == 10
        counts.update(reservoir.drawn)
    assert len(counts) == 50
    assert all(45 < count < 120 for count in counts.values())
    few = Reservoir(["a", "b"], 10)
    assert [*few] == few.drawn == ["a", "b"]
