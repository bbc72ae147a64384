"""Fixtures of the tests of pre-training."""

from __future__ import annotations

import numpy as np
import pytest
import torch

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
