"""Compute embeddings with onnxruntime, in fp32 or with int8 weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from selfguide.engine.tokens import Batch, Tokens, length_limit, tokenise
from selfguide.engine.torch_runner import Pending, Vectors
from selfguide.engine.workers import side_by_side
from selfguide.errors import UsageError
from selfguide.system import require_packages

# Tokens in a forward pass: int8 layers are so fast that their tensors should stay in the core's own cache.
PASS_TOKENS = 256
# Fusions that slow it down: the fused kernels are scalar, the plain ones vectorised.
SLOW_FUSIONS = ["SkipLayerNormFusion", "BiasGeluFusion"]


class OnnxRunner:
    """Runs a graph of the whole encoder on the CPU: one session, one batch a thread.

    Args:
        model: The encoder.
        int8: Whether linear layers have eight-bit weights.

    Raises:
        UsageError: A package is missing, or the encoder is not on the CPU.
    """

    def __init__(self, model: SentenceTransformer, int8: bool) -> None:
        require_packages("The backends onnx and int8 need", "onnx", "onnx", "onnxruntime", "onnxscript")
        if model.device.type != "cpu":
            raise UsageError("The backends onnx and int8 run on the CPU: leave --device out, or use --device cpu.")
        import onnxruntime

        from selfguide.engine.onnx_graphs import graph_file

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # batches run in parallel instead
        options.log_severity_level = 3
        # Not the model itself: a session lives as long as its model, and must not keep it alive.
        self.tokenizer: Any = model.tokenizer
        self.limit, self.width = length_limit(model), int(model.get_embedding_dimension() or 0)
        self.session: Any = onnxruntime.InferenceSession(
            str(graph_file(model.eval(), int8)),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=SLOW_FUSIONS,
        )

    def tokenise(self, sentences: list[str]) -> Tokens:
        """Tokenise a chunk of sentences.

        Args:
            sentences: The chunk.

        Returns:
            Their tokens.
        """
        return tokenise(self.tokenizer, sentences, self.limit)

    def start(self, tokens: Tokens, batch_size: int | None) -> Pending:
        """Compute the embeddings of a chunk; the result returns them.

        Args:
            tokens: Of the chunk.
            batch_size: Maximum number of sentences per pass.

        Returns:
            A function that returns the embeddings.
        """
        padding = int(getattr(self.tokenizer, "pad_token_id", 0) or 0)
        vectors: Vectors = np.zeros((len(tokens.lengths), self.width), dtype=np.float32)

        def work(batch: Batch) -> None:
            ids, mask = batch.padded(padding)
            vectors[batch.rows] = self.session.run(None, {"input_ids": ids, "attention_mask": mask})[0]

        threads = torch.get_num_threads()
        side_by_side(work, tokens.batches(PASS_TOKENS, batch_size, threads), threads)
        return lambda: vectors
