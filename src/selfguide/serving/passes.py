"""How a worker computes batches: the engine's runner for an encoder, and the reader that goes with it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from selfguide.engine.backends import Runner, runner
from selfguide.engine.tokens import Features, Tokens, is_plain, length_limit, tokens_per_pass
from selfguide.engine.torch_runner import Pending, StockRunner
from selfguide.serving.reading import Reader, TextReader, TokenReader

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class PaddedRunner:
    """Runs encoders without BERT's layers over padded batches of token ids, as their own ``encode`` does.

    Args:
        model: An encoder whose ``preprocess`` is its tokenizer and nothing else.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        self.model = model.eval()
        tokenizer: Any = model.tokenizer
        self._padding, self._left = int(tokenizer.pad_token_id), tokenizer.padding_side == "left"
        self._template = model.preprocess(["a"])

    def tokenise(self, sentences: list[str]) -> Tokens:
        """Return the tokens of sentences."""
        from selfguide.engine.tokens import tokenise

        return tokenise(self.model.tokenizer, sentences, length_limit(self.model))

    @torch.inference_mode()
    def start(self, tokens: Tokens, batch_size: int | None) -> Pending:
        """Return the pass, whose result gives the embeddings."""
        width = int(self.model.get_embedding_dimension() or 0)
        vectors = np.zeros((len(tokens.lengths), width), dtype=np.float32)
        for batch in tokens.batches(tokens_per_pass(self.model), batch_size, 0):
            found = self.model(self._features(batch))["sentence_embedding"]
            vectors[batch.rows] = found.float().cpu().numpy()
        return lambda: vectors

    def _features(self, batch: Tokens) -> Features:
        ids, mask = batch.padded(self._padding, self._left)
        device = self.model.device
        made: Features = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
        if "token_type_ids" in self._template:
            made["token_type_ids"] = torch.zeros_like(made["input_ids"])
        made = {name: value.to(device) for name, value in made.items()}
        return {name: made.get(name, value) for name, value in self._template.items()}


def reader_and_runner(model: SentenceTransformer, backend: str) -> tuple[Reader, Runner]:
    """Return how a worker reads inputs for an encoder and computes them.

    Args:
        model: The encoder.
        backend: As for :func:`~selfguide.engine.encode.encode`.

    Returns:
        Reader and runner.

    Raises:
        UsageError: The backend does not support the encoder.
    """
    run = runner(model, backend)
    tokenizer: Any = model.tokenizer
    fast = getattr(tokenizer, "backend_tokenizer", None) is not None and tokenizer.truncation_side == "right"
    if not isinstance(run, StockRunner) and fast:
        return TokenReader(tokenizer, length_limit(model)), run
    if isinstance(run, StockRunner):
        if fast and model.default_prompt_name is None and model.truncate_dim is None and is_plain(model):
            return TokenReader(tokenizer, length_limit(model)), PaddedRunner(model)
        return TextReader(model, known_limit(model)), run
    return TextReader(model, known_limit(model)), _Tokenising(run)


class _Tokenising:
    """A runner over tokens that takes sentences, for tokenizers that are not fast."""

    def __init__(self, run: Runner) -> None:
        self._run = run

    def tokenise(self, sentences: list[str]) -> list[str]:
        return sentences

    def start(self, sentences: list[str], batch_size: int | None) -> Pending:
        return self._run.start(self._run.tokenise(sentences), batch_size)


def known_limit(model: SentenceTransformer) -> int | None:
    """Return the number of tokens after which an encoder truncates, or ``None`` where it never does."""
    limit = model.max_seq_length
    return int(limit) if limit and math.isfinite(limit) else None
