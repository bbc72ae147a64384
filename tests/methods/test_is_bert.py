"""IS-BERT: options and whole runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

import selfguide
from selfguide.errors import UsageError
from selfguide.methods import registry
from toys import QUICK, toy_sentences


def test_a_run_keeps_the_convolutions_and_repeats(bert: Path, tmp_path: Path) -> None:
    before = load_file(bert / "model.safetensors")
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        tuned = selfguide.train(bert, toy_sentences(40), "is-bert", output=tmp_path / name, seed=seed, **QUICK)
    vectors = {name: SentenceTransformer(str(tmp_path / name)).encode(toy_sentences(3)) for name in "abc"}
    np.testing.assert_allclose(vectors["c"], tuned.encode(toy_sentences(3)), atol=1e-6)
    np.testing.assert_array_equal(vectors["a"], vectors["b"])  # the seed draws the convolutions as well
    assert not np.allclose(vectors["a"], vectors["c"], atol=1e-3)
    after = load_file(tmp_path / "a" / "model.safetensors")
    assert any(not torch.equal(after[name], before[name]) for name in after)


def test_wrong_options_are_refused_in_words() -> None:
    for wrong, words in (
        ({"windows": "1,2"}, r"windows '1,2' is not understood; write odd numbers"),
        ({"windows": "wide"}, "windows 'wide' is not understood"),
        ({"filters": -1}, "filters must be at least 0"),
        ({"dropout": 2.0}, "dropout must be"),
    ):
        with pytest.raises(UsageError, match=words):
            registry.make("is-bert", wrong)
    assert registry.method_class("is-bert").defaults.batch_size == 32
