"""A short name for what decides a model's vectors."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from sentence_transformers import SentenceTransformer


def model_digest(model: SentenceTransformer) -> str:
    """A short hash of everything that decides a model's vectors: weights, modules, length limit, vocabulary."""
    digest = hashlib.sha256((repr(model) + str(model.max_seq_length)).encode())
    tokenizer: Any = getattr(model, "tokenizer", None)
    if hasattr(tokenizer, "get_vocab"):
        vocabulary = tokenizer.get_vocab()
        # A tokenizer of whole words, as InferSent's, gives a list in the order of the numbers.
        entries = sorted(vocabulary.items()) if isinstance(vocabulary, dict) else list(vocabulary)
        digest.update(str(entries).encode())
    for module in model:
        config = getattr(module, "get_config_dict", None)
        digest.update(str(sorted(config().items(), key=str)).encode() if callable(config) else b"")
    for key, tensor in sorted(model.state_dict().items()):
        if ".pooler." in key:  # no vector depends on it, and where a folder has none it starts at random
            continue
        digest.update(key.encode())
        if tensor.numel():
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
