"""Gradient caching: contrastive batches larger than memory, at the price of a second forward pass.

A contrastive loss needs the embeddings of all sentences of a batch at once, but not the activations they were computed from.
So the batch goes through the encoder in chunks without a graph, and the loss is computed on the embeddings. Once the loss's
gradient with respect to them is known, each chunk goes through again with the same dropout masks, and passes its share of
the gradient on to the weights. Loss and gradients are those of the whole batch; memory is that of one chunk.

Reference: Gao, Zhang, Han and Callan, Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup, RepL4NLP 2021.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

Features = dict[str, Any]


def chunks_of(features: Mapping[str, Any], size: int) -> list[Features]:
    """Split a batch into batches of at most ``size`` sentences.

    Args:
        features: The batch; values that are not tensors are copied to every chunk.
        size: Sentences in a chunk.

    Returns:
        The chunks.
    """
    count = len(features["input_ids"])
    return [
        {name: value[start : start + size] if isinstance(value, Tensor) else value for name, value in features.items()}
        for start in range(0, count, size)
    ]


def cached_embeddings(embed: Callable[[Features], Tensor], chunks: Sequence[Features], model: nn.Module) -> Tensor:
    """Return the embeddings of all chunks; their gradient reaches the weights through a second pass over each chunk.

    Args:
        embed: Computes the embeddings of a chunk.
        chunks: The chunks.
        model: What ``embed`` calls; a distributed wrapper averages gradients over the processes after the last chunk alone.

    Returns:
        The embeddings, (sentences, dim).
    """
    device = chunks[0]["input_ids"].device
    states, found = [], []
    with torch.no_grad():
        for chunk in chunks:
            states.append(_random_state(device))
            found.append(embed(dict(chunk)))
    vectors = torch.cat(found).requires_grad_()

    def pass_on(gradient: Tensor) -> None:
        shares = gradient.split([len(part) for part in found])
        for number, (chunk, state, share) in enumerate(zip(chunks, states, shares, strict=True), start=1):
            averaging = nullcontext() if number == len(chunks) else _not_averaging(model)
            random = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
            with averaging, random, torch.enable_grad():
                _restore(state, device)
                embed(dict(chunk)).backward(share)

    vectors.register_hook(pass_on)
    return vectors


def _not_averaging(model: nn.Module) -> AbstractContextManager[None]:
    """Return a context in which a distributed wrapper only adds up gradients; for a plain model it does nothing."""
    return model.no_sync() if isinstance(model, nn.parallel.DistributedDataParallel) else nullcontext()


def _random_state(device: torch.device) -> tuple[Tensor, Tensor | None]:
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def _restore(state: tuple[Tensor, Tensor | None], device: torch.device) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1], device)
