"""Fixtures of the tests of pre-training."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.pretraining.__main__ import main
from experiments.pretraining.corpus import Corpus, corpus_of
from experiments.pretraining.prepare import DOCUMENT, LINE


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    """3,000 sentences of random tokens, in lines and documents of about the lengths of English prose."""
    rng, sentences = np.random.default_rng(0), 3000
    marks = (3 + rng.poisson(rng.gamma(2.0, 11.0, sentences))).clip(3, 500).astype(np.uint16)
    tokens = rng.integers(5, 300, int(marks.sum())).astype(np.uint16)
    marks |= np.where(rng.random(sentences) < 0.25, LINE, 0).astype(np.uint16)
    marks |= np.where(rng.random(sentences) < 0.03, LINE | DOCUMENT, 0).astype(np.uint16)
    marks[0] |= LINE | DOCUMENT
    return corpus_of(tokens, marks, torch.device("cpu"))


@pytest.fixture(scope="session")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with made-up text, its tokenizer and its prepared parts."""
    root = tmp_path_factory.mktemp("room")
    rng = random.Random(3)
    subjects = ["the cat", "a dog", "Dr. Smith", "my friend", "the old king", "a small bird", "the river"]
    verbs = ["sees", "likes", "follows", "remembers", "paints", "forgets"]
    lines: list[str] = []
    for _ in range(60):
        for _ in range(rng.randint(1, 5)):
            made = [
                f"{rng.choice(subjects)} {rng.choice(verbs)} {rng.choice(subjects)}" for _ in range(rng.randint(1, 4))
            ]
            lines.append(" ".join(s[0].upper() + s[1:] + "." for s in made))
        lines.append("")
    (root / "text").mkdir()
    (root / "text" / "some.txt").write_text("\n".join(lines), encoding="utf-8")
    tokenizer, parts = str(root / "tokenizer"), str(root / "parts")
    text = ["--text", str(root / "text")]
    assert main(["tokenizer", *text, "--out", tokenizer, "--vocab", "300", "--positions", "48"]) == 0
    assert main(["prepare", *text, "--tokenizer", tokenizer, "--out", parts, "--parts", "2", "--held-out", "0.2"]) == 0
    return root
