"""Digests of models, which identify them in caches and results."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn


def model_digest(model: SentenceTransformer) -> str:
    """Return a short hash of all that decides an encoder's embeddings: weights, modules, length limit, vocabulary."""
    digest = hashlib.sha256((repr(model) + str(model.max_seq_length)).encode())
    tokenizer: Any = getattr(model, "tokenizer", None)
    if hasattr(tokenizer, "get_vocab"):
        vocabulary = tokenizer.get_vocab()
        # A word tokenizer such as InferSent's gives a list in the order of the ids.
        entries = sorted(vocabulary.items()) if isinstance(vocabulary, dict) else list(vocabulary)
        digest.update(str(entries).encode())
    for module in model:
        config = getattr(module, "get_config_dict", None)
        digest.update(str(sorted(config().items(), key=str)).encode() if callable(config) else b"")
    # No embedding depends on BERT's pooler, which a checkpoint may lack.
    _add_weights(digest, {name: value for name, value in model.state_dict().items() if ".pooler." not in name})
    return digest.hexdigest()[:16]


def weights_digest(model: nn.Module) -> str:
    """Return a hash of a Hugging Face model's configuration and weights."""
    config: Any = getattr(model, "config", None)
    shape = {name: value for name, value in config.to_dict().items() if not name.startswith("_")} if config else {}
    digest = hashlib.sha256(repr(sorted((name, str(value)) for name, value in shape.items())).encode())
    _add_weights(digest, model.state_dict())
    return digest.hexdigest()


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """Return a hash of named tensors, with their types and shapes, for a file that holds them."""
    digest = hashlib.sha256(
        repr([(name, str(t.dtype), tuple(t.shape)) for name, t in sorted(tensors.items())]).encode()
    )
    _add_weights(digest, tensors)
    return digest.hexdigest()


def _add_weights(digest: Any, weights: Mapping[str, Tensor]) -> None:
    for name, tensor in sorted(weights.items()):
        digest.update(name.encode())
        if tensor.numel():
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
