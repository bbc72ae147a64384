"""Digests of encoders."""

from __future__ import annotations

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, WordEmbeddings
from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

from selfguide.engine.digest import model_digest


def test_an_encoder_of_whole_words_has_a_digest() -> None:
    """The tokenizer of InferSent has a list as its vocabulary."""

    def digest(words: list[str]) -> str:
        table = np.zeros((len(words), 4), dtype=np.float32)
        embeddings = WordEmbeddings(WhitespaceTokenizer(words, stop_words=[]), table)
        return model_digest(SentenceTransformer(modules=[embeddings, Pooling(4)], device="cpu"))

    assert digest(["<pad>", "rain", "snow"]) == digest(["<pad>", "rain", "snow"])
    assert digest(["<pad>", "rain", "snow"]) != digest(["<pad>", "snow", "rain"])
