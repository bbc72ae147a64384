"""The examples do what they say."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import selfguide
from toys import Outcome

ROOT = Path(__file__).parent.parent


@pytest.fixture
def other_encoder(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example's module, found as one finds it from the repository's root."""
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))
    from examples import other_encoder

    yield other_encoder
    sys.modules.pop("examples.other_encoder", None)


def test_the_other_encoder_gives_a_row_for_each_sentence(other_encoder: Any) -> None:
    sentences = ["A dog runs.", "A dog is running.", "The bank raised its rates.", ""]
    vectors = other_encoder.encode(sentences)
    assert vectors.shape == (4, other_encoder.DIMENSIONS)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(other_encoder.encode(sentences[1:2])[0], vectors[1], atol=1e-6)
    alike, unlike = vectors[0] @ vectors[1], vectors[0] @ vectors[2]
    assert alike > unlike


def test_it_is_scored_beside_others(
    other_encoder: Any, bert: Path, tmp_path: Path, command: Callable[..., Outcome]
) -> None:
    outcome = command(
        "eval", bert, "examples.other_encoder:encode", "--bootstrap", "0", "--output", tmp_path / "scores", "--quiet"
    )
    assert outcome.code == 0, outcome.err
    alone = selfguide.evaluate(other_encoder.encode, "demo", bootstrap=0)["demo"].value
    (line,) = (row for row in outcome.out.splitlines() if row.startswith("examples.other_encoder:encode"))
    assert line.split()[-1] == f"{alone:.2f}"
    assert alone > 30  # words in common are worth something, and the pairs are a fixed set


def test_its_main_prints_both(other_encoder: Any, capsys: pytest.CaptureFixture[str]) -> None:
    other_encoder.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["mini", "TF-IDF and SVD"]
