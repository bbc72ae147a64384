"""WK pooling: a token's layers are weighted by their novelty, and tokens by how much they change through the layers.

The formulas are in :mod:`selfguide.methods.wk`. Here they are computed for all tokens of a batch at once, and without tall
matrices. The original computes, for every token and layer, a QR decomposition of the window's vectors with the layer's own
vector last, and takes two quantities from the last column r of R:

    novelty    |r_last| / ‖r‖                    the part of v outside the span of its neighbours
    alignment  mean_j cos(v_j, p)                p: the part of v inside it, ‖p‖ = ‖r without its last entry‖

Both depend on inner products only. With unit vectors, the Gram matrix G of the neighbours, their products g with v, and the
Cholesky factor G = L Lᵀ (L is Rᵀ up to signs):

    ‖p‖² = ‖L⁻¹ g‖²        novelty = √(1 − ‖p‖²)        alignment = mean(g) / ‖p‖

So each token needs one small Gram matrix over all layers, and every window is a block of it. Inner products square the
condition number, so they are computed in double precision where the device has it. A ridge on G regularises linearly
dependent neighbours (for which QR itself is not unique).
"""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers.base.modules import Module
from torch import Tensor

from selfguide.errors import SelfguideError

# Neighbouring layers of a Transformer are nearly parallel. Where they are not, a cosine at or below 0 would make the
# inverse alignment an infinite or negative weight.
SMALLEST_ALIGNMENT = 1e-2


class WKPooling(Module):
    """SBERT-WK as a module after a Transformer that returns all its layers (``output_hidden_states``).

    Args:
        embedding_dimension: Dimension of the token vectors, and of the sentence embedding.
        layer_start: The first layer that is used (0 is the embedding layer).
        window: How many layers on each side are a layer's neighbours.
        skip_last: Leave out the last token ([SEP]).
    """

    config_keys: list[str] = ["embedding_dimension", "layer_start", "window", "skip_last"]  # noqa: RUF012

    def __init__(self, embedding_dimension: int, layer_start: int = 4, window: int = 2, skip_last: bool = True) -> None:
        super().__init__()
        self.embedding_dimension = embedding_dimension
        self.layer_start = layer_start
        self.window = window
        self.skip_last = skip_last

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Pool ``all_layer_embeddings`` into ``sentence_embedding``.

        Args:
            features: Output of the Transformer module.
            **kwargs: Ignored.

        Returns:
            The features, with the embedding added.

        Raises:
            SelfguideError: The Transformer returned its last layer only, or an unpadded batch.
        """
        layers = features.get("all_layer_embeddings")
        if layers is None:
            raise SelfguideError(
                "WK pooling needs every layer of the Transformer, which returned only the last one; "
                "make the encoder with --method wk, which sets output_hidden_states."
            )
        if "cu_seq_lens_q" in features:
            raise SelfguideError(
                "WK pooling needs padded batches, and flash attention flattens them; load the encoder without it."
            )
        mask = counted_tokens(features["attention_mask"], self.skip_last)
        # Without padding: (tokens, layers, dim).
        states = torch.stack([layer[mask] for layer in layers[self.layer_start :]], dim=1)
        unified, importance = unify_tokens(states, self.window)
        features["sentence_embedding"] = _weighted_sum(unified, importance, mask)
        return features

    def get_embedding_dimension(self) -> int:
        """Return the embedding dimension."""
        return self.embedding_dimension

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write the configuration to a folder; there are no weights."""
        self.save_config(output_path)


def counted_tokens(mask: Tensor, skip_last: bool) -> Tensor:
    """Return the mask (batch, tokens) of the tokens that are pooled.

    Args:
        mask: The attention mask.
        skip_last: Leave out each sentence's last token, unless it is the only one.
    """
    real = mask.bool()
    if not skip_last:
        return real
    places = torch.arange(mask.shape[1], device=mask.device)
    last = torch.where(real, places, -1).amax(dim=1, keepdim=True)
    return real & ((places != last) | (real.sum(dim=1, keepdim=True) == 1))


def unify_tokens(states: Tensor, window: int) -> tuple[Tensor, Tensor]:
    """Combine the layers of each token.

    Args:
        states: (tokens, layers, dim).
        window: How many layers on each side are a layer's neighbours.

    Returns:
        One vector for each token, (tokens, dim), and its importance, (tokens,).
    """
    exact = states.to(torch.float32 if states.device.type == "mps" else torch.float64)
    cosines = exact @ exact.transpose(1, 2)
    lengths = cosines.diagonal(dim1=1, dim2=2).sqrt().clamp(min=torch.finfo(exact.dtype).tiny)
    cosines = cosines / (lengths.unsqueeze(1) * lengths.unsqueeze(2)).clamp(min=torch.finfo(exact.dtype).tiny)
    weights = layer_weights(cosines, window)
    unified = (weights.to(states.dtype).unsqueeze(1) @ states).squeeze(1)
    neighbours = cosines.diagonal(offset=1, dim1=1, dim2=2)
    return unified, neighbours.var(dim=1, correction=0).to(states.dtype)


def layer_weights(gram: Tensor, window: int) -> Tensor:
    """Return the weights α of each token's layers.

    Args:
        gram: Cosines between the layers, (tokens, layers, layers).
        window: How many layers on each side are a layer's neighbours.

    Returns:
        The weights, (tokens, layers), summing to 1 for each token.
    """
    count = gram.shape[-1]
    neighbours, present = _windows(count, window, gram.device)
    sizes = present.sum(dim=1)
    # Blocks (tokens, layers, neighbours[, neighbours]); absent neighbours become unit vectors orthogonal to all others.
    both = present.unsqueeze(1) & present.unsqueeze(2)
    identity = torch.eye(neighbours.shape[1], dtype=gram.dtype, device=gram.device)
    blocks = torch.where(both, gram[:, neighbours.unsqueeze(2), neighbours.unsqueeze(1)], identity)
    products = torch.where(present, gram[:, torch.arange(count, device=gram.device).unsqueeze(1), neighbours], 0.0)

    ridge = 16 * torch.finfo(gram.dtype).eps
    factor, _ = torch.linalg.cholesky_ex(blocks + ridge * identity)
    inside = torch.linalg.solve_triangular(factor, products.unsqueeze(-1), upper=False).squeeze(-1)
    length = inside.square().sum(dim=-1).clamp(max=1.0)
    novelty = (1 - length).sqrt()
    alignment = products.sum(dim=-1) / (sizes * length.sqrt().clamp(min=ridge))
    inverse = 1 / (alignment.clamp(min=SMALLEST_ALIGNMENT) * (sizes + 1))
    return (_shares(inverse) + _shares(novelty)) / 2


def _windows(count: int, window: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the neighbours of each layer, (layers, 2·window), and which of them exist."""
    steps = [step for step in range(-window, window + 1) if step != 0]
    numbers = torch.arange(count, device=device).unsqueeze(1) + torch.tensor(steps, device=device)
    present = (numbers >= 0) & (numbers < count)
    return numbers.clamp(0, count - 1), present


def _shares(values: Tensor) -> Tensor:
    """Divide values by their sum; equal shares where all are 0."""
    total = values.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, values / total.clamp(min=torch.finfo(values.dtype).tiny), 1 / values.shape[-1])


def _weighted_sum(tokens: Tensor, importance: Tensor, mask: Tensor) -> Tensor:
    """Return Σ_t (ω_t / Σ ω) u_t of each sentence, (batch, dim)."""
    # Scattered into padded rows instead of added up in place, which is not deterministic on a GPU.
    weights = torch.zeros(mask.shape, dtype=tokens.dtype, device=tokens.device)
    weights[mask] = importance
    totals = weights.sum(dim=1, keepdim=True)
    equal = mask / mask.sum(dim=1, keepdim=True).clamp(min=1)  # where no token changes through the layers
    shares = torch.where(totals > 0, weights / totals.clamp(min=torch.finfo(totals.dtype).tiny), equal)
    padded = torch.zeros(*mask.shape, tokens.shape[1], dtype=tokens.dtype, device=tokens.device)
    padded[mask] = tokens
    return (shares.to(tokens.dtype).unsqueeze(1) @ padded).squeeze(1)
