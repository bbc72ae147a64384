"""Inputs as tokens, for encoders of every kind: the vectors are those of ``encode``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

import selfguide
from selfguide.errors import UsageError
from selfguide.serving.passes import PaddedRunner, reader_and_runner
from selfguide.serving.reading import TextReader, TokenReader, TooLong
from toys import toy_sentences

LONG = "the old man repairs a broken clock " * 20
TEXTS = [*toy_sentences(20), "", LONG, "x"]


@pytest.mark.parametrize("family", ["bert", "roberta", "mpnet", "modernbert"])
def test_reader_and_runner_give_the_vectors_of_encode(tiny: Callable[[str], Path], family: str) -> None:
    model = selfguide.load_encoder(tiny(family))
    reader, runner = reader_and_runner(model, "torch")
    assert isinstance(reader, TokenReader)
    assert isinstance(runner, PaddedRunner) == (family in ("mpnet", "modernbert"))
    wanted = selfguide.encode(model, TEXTS, show_progress=False)
    read = reader.read(TEXTS, True)
    assert read.lengths.max() == model.max_seq_length
    assert np.abs(runner.start(reader.joined(read.items), None)() - wanted).max() < 1e-6
    for row in (0, len(TEXTS) - 2):  # alone
        alone = reader.read(TEXTS[row : row + 1], True)
        assert np.abs(runner.start(reader.joined(alone.items), None)()[0] - wanted[row]).max() < 1e-6
    with pytest.raises(TooLong, match=r"Input 21 \(counted from 0\) has \d+ tokens"):
        reader.read(TEXTS, False)


def test_static_embeddings_and_default_prompts_take_text(bert: Path) -> None:
    static = SentenceTransformer(
        modules=[StaticEmbedding(selfguide.load_encoder(bert).tokenizer.backend_tokenizer, embedding_dim=8)],
        device="cpu",
    )
    prompted = selfguide.load_encoder(bert)
    prompted.prompts, prompted.default_prompt_name = {"q": "my sister "}, "q"
    for model in (static, prompted):
        reader, runner = reader_and_runner(model, "torch")
        assert isinstance(reader, TextReader)
        read = reader.read(TEXTS[:5], False)
        assert (read.lengths > 2).all()
        vectors = runner.start(reader.joined(read.items), None)()
        assert np.abs(vectors - selfguide.encode(model, TEXTS[:5], show_progress=False)).max() < 1e-6
        with pytest.raises(UsageError, match="takes text, not token ids"):
            reader.read([[0, 2]], False)
    torch.manual_seed(0)
