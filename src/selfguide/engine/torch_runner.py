"""Compute embeddings with PyTorch: over flat rows where the model has BERT's layers, else with sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, LayerNorm, Normalize, Pooling, Transformer
from torch import Tensor

from selfguide.engine.tokens import Batch, Tokens, length_limit, rows_by_length, tokenise, tokens_per_pass
from selfguide.engine.unpadded import FlatLayout, Layer, embedded, flat_layers, varlen_available
from selfguide.engine.workers import side_by_side

Vectors = NDArray[np.float32]
Pending = Callable[[], Vectors]


class FlatRunner:
    """Runs an encoder with BERT's layers over flat rows (:mod:`selfguide.engine.unpadded`).

    Args:
        model: The encoder.
        dtype: What the layers compute in; embedding layer, pooling and later modules stay in fp32.
    """

    def __init__(self, model: SentenceTransformer, dtype: torch.dtype) -> None:
        self.model, self.dtype = model.eval(), dtype
        self.transformer: Any = model[0].model
        self.keep_states = bool(self.transformer.config.output_hidden_states)
        self.first_only = not self.keep_states and _reads_first_token_only(model)

    def tokenise(self, sentences: list[str]) -> Tokens:
        """Tokenise a chunk of sentences.

        Args:
            sentences: The chunk.

        Returns:
            Their tokens.
        """
        return tokenise(self.model.tokenizer, sentences, length_limit(self.model))

    @torch.inference_mode()
    def start(self, tokens: Tokens, batch_size: int | None) -> Pending:
        """Start computing a chunk; the result waits for the embeddings.

        Args:
            tokens: Of the chunk.
            batch_size: Maximum number of sentences per pass.

        Returns:
            A function that waits and returns the embeddings.
        """
        layers = flat_layers(self.transformer, self.dtype)
        assert layers is not None
        device = self.model.device
        threads = torch.get_num_threads() if device.type == "cpu" else 1
        batches = tokens.batches(tokens_per_pass(self.model), batch_size, threads)
        width = int(self.model.get_embedding_dimension() or 0)
        out = torch.zeros(len(tokens.lengths), width, device=device)  # sentences without tokens stay 0

        def work(batch: Batch) -> None:
            with torch.inference_mode():  # the mode is local to a thread
                out[_on_device(batch.rows, device)] = self._vectors(layers, batch, device)

        side_by_side(work, batches, threads)
        if device.type != "cuda":
            return lambda: out.cpu().numpy()
        host = torch.empty(out.shape, pin_memory=True)
        host.copy_(out, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()

        def wait() -> Vectors:
            arrived.synchronize()
            return host.numpy()

        return wait

    def _vectors(self, layers: list[Layer], batch: Batch, device: torch.device) -> Tensor:
        ids, positions = _on_device(batch.ids, device), _on_device(batch.positions(), device)
        lengths = _on_device(batch.lengths, device)
        starts = torch.cumsum(lengths, 0) - lengths
        bounds = None
        if varlen_available(device, self.dtype, self.transformer.config.hidden_size // layers[0].heads):
            bounds = torch.cat([starts, starts[-1:] + lengths[-1:]]).to(torch.int32)
        layout = FlatLayout(batch.lengths.tolist(), bounds)
        states = [embedded(self.transformer, ids, positions).to(self.dtype)]
        for layer in layers[: len(layers) - self.first_only]:
            x = layer(states[-1], layout)
            states = [*states, x] if self.keep_states else [x]
        if self.first_only:
            states = [layers[-1].first_tokens(states[-1], layout, starts)]
            lengths, positions = torch.ones_like(lengths), torch.zeros_like(starts)
            ids = ids[:0]
        return self._pooled(states, ids, positions, lengths, 1 if self.first_only else int(batch.lengths[0]))

    def _pooled(self, states: list[Tensor], ids: Tensor, positions: Tensor, lengths: Tensor, longest: int) -> Tensor:
        """Lay the states out as a padded batch and run the modules after the Transformer."""
        count = len(lengths)
        mask = torch.arange(longest, device=lengths.device) < lengths[:, None]
        rows = torch.repeat_interleave(torch.arange(count, device=lengths.device), lengths, output_size=len(positions))
        slots = rows * longest + positions
        padded = [_padded(state.float(), slots, count, longest) for state in states]
        features: dict[str, Any] = {"token_embeddings": padded[-1], "attention_mask": mask.long(), "modality": "text"}
        if self.keep_states:
            features["all_layer_embeddings"] = tuple(padded)
        if len(ids):
            features["input_ids"] = _padded(ids[:, None], slots, count, longest)[..., 0]
        for module in list(self.model)[1:]:
            features = module(features)
        return features["sentence_embedding"]


class StockRunner:
    """Runs the encoder's own ``encode`` over batches of sentences of similar length, so that there is little padding.

    Args:
        model: The encoder.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        self.model = model.eval()

    def tokenise(self, sentences: list[str]) -> list[str]:
        """Return the sentences: the encoder tokenises them itself."""
        return sentences

    def start(self, sentences: list[str], batch_size: int | None) -> Pending:
        """Compute the embeddings of a chunk; the result returns them.

        Args:
            sentences: The chunk.
            batch_size: Maximum number of sentences per pass.

        Returns:
            A function that returns the embeddings.
        """
        found: dict[int, Vectors] = {}
        batches = token_batches(self.model, sentences, batch_size)

        def work(number: int) -> None:
            batch = batches[number]
            found[number] = self.model.encode(
                [sentences[row] for row in batch], batch_size=len(batch), show_progress_bar=False
            )

        threads = torch.get_num_threads() if self.model.device.type == "cpu" else 1
        side_by_side(work, range(len(batches)), threads)
        vectors = np.empty((len(sentences), found[0].shape[1]), dtype=np.float32)
        for number, batch in enumerate(batches):
            vectors[batch] = found[number]
        return lambda: vectors


def torch_runner(model: SentenceTransformer, dtype: torch.dtype = torch.float32) -> FlatRunner | StockRunner:
    """Return the fastest runner for an encoder.

    Args:
        model: The encoder.
        dtype: What the layers compute in, where they can run over flat rows.

    Returns:
        The runner.
    """
    return FlatRunner(model, dtype) if runs_flat(model) else StockRunner(model)


def runs_flat(model: SentenceTransformer) -> bool:
    """Return whether an encoder can run over flat rows: BERT's layers, no prompts, padding on the right, fp32 weights."""
    first = model[0]
    if type(first) is not Transformer or model.default_prompt_name is not None or model.truncate_dim is not None:
        return False
    tokenizer: Any = model.tokenizer
    if not callable(tokenizer) or getattr(tokenizer, "padding_side", "right") != "right":
        return False
    hugging: Any = first.model
    if any(parameter.dtype != torch.float32 for parameter in hugging.parameters()):
        return False
    return flat_layers(hugging, torch.float32) is not None


def token_batches(model: SentenceTransformer, sentences: list[str], batch_size: int | None) -> list[list[int]]:
    """Group sentences of similar length into batches.

    Args:
        model: The encoder.
        sentences: The sentences.
        batch_size: Maximal number of sentences in a batch.

    Returns:
        The rows of each batch, the longest sentences first.
    """
    tokenizer: Any = model.tokenizer
    if callable(tokenizer):
        rows = tokenizer(sentences, truncation=True, max_length=length_limit(model))["input_ids"]
        lengths = [len(ids) for ids in rows]
    else:  # no Hugging Face tokenizer: characters are good enough for sorting
        lengths = [1 + len(sentence) // 4 for sentence in sentences]
    batches = rows_by_length(np.asarray(lengths, dtype=np.int64), tokens_per_pass(model), batch_size)
    return [batch.tolist() for batch in batches]


def _reads_first_token_only(model: SentenceTransformer) -> bool:
    """Return whether the encoder has [CLS] pooling, and no later module reads the other tokens."""
    if len(model) < 2 or type(model[1]) is not Pooling or model[1].pooling_mode != "cls":
        return False
    return all(type(module) in (Dense, Normalize, LayerNorm) for module in list(model)[2:]) and all(
        module.module_input_name == "sentence_embedding" for module in list(model)[2:] if type(module) is Dense
    )


def _on_device(values: NDArray[np.integer], device: torch.device) -> Tensor:
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _padded(values: Tensor, slots: Tensor, count: int, longest: int) -> Tensor:
    if len(values) == count * longest:  # all of one length
        return values.view(count, longest, -1)
    padded = values.new_zeros(count * longest, values.shape[-1])
    return padded.index_copy_(0, slots, values).view(count, longest, -1)
