"""BERT's layers over a flat row of tokens: the sentences of a batch lie end to end, and no padding is computed at all.

Everything in a layer except attention treats each token by itself, so it does not matter where a sentence ends. Attention is
computed

* on a CPU, for all sentences of one length together: they are adjacent in the row, so a view of it is a plain batch without
  a mask (batches are sorted by length, so a batch of short sentences has one to three lengths);
* on a GPU in half precision, by PyTorch's variable-length attention.

The weights are read from the Hugging Face model at every call, so an encoder in training is never out of date. Architectures
with BERT's layers can run so (:mod:`selfguide.models.families`); for others :func:`flat_layers` returns ``None``.

This is the unpadded path for inference: without gradients and dropout the layers are a few functions of the weights, which
can be computed in another precision and over flat rows. Training has its own (:mod:`selfguide.engine.packing`), which keeps
the Hugging Face modules; the two round differently, so not even the last layer for first tokens alone is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfguide.engine.onednn import is_gelu, linear
from selfguide.models.families import family_of


@dataclass(frozen=True)
class FlatLayout:
    """Lengths of the sentences in a flat row."""

    lengths: Sequence[int]
    """Number of tokens of each sentence, longest first, on the CPU."""
    bounds: Tensor | None = None
    """[0, end of the first, end of the second, …] as int32, where variable-length attention is used."""


@dataclass(frozen=True)
class Linear:
    """A linear layer with its weights in the dtype it is computed in."""

    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Return x Wᵀ + b."""
        return linear(x, self.weight, self.bias)

    def gelu(self, x: Tensor) -> Tensor:
        """Return GELU of x Wᵀ + b."""
        return linear(x, self.weight, self.bias, gelu=True)


@dataclass(frozen=True)
class Norm:
    """A layer norm with its weights in the dtype of the row; PyTorch accumulates in fp32 regardless."""

    weight: Tensor
    bias: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        """Return the normalised states."""
        return F.layer_norm(x, (x.shape[-1],), self.weight, self.bias, self.eps)


@dataclass(frozen=True)
class Layer:
    """One Transformer layer as a function of flat rows."""

    project: tuple[Linear, ...]
    """Projections to query, key and value: three layers, or one that computes all three."""
    heads: int
    out: Linear
    norm: Norm
    up: Linear
    act: Callable[[Tensor], Tensor]
    down: Linear
    last_norm: Norm

    def __call__(self, x: Tensor, layout: FlatLayout) -> Tensor:
        """Return the layer's states of all tokens, (tokens, dim)."""
        query, key, value = self._heads(x)
        seen = attention(query, key, value, layout).reshape(len(x), -1)
        return self._after(x, seen)

    def first_tokens(self, x: Tensor, layout: FlatLayout, first: Tensor) -> Tensor:
        """Return the states of each sentence's first token alone, which is all that [CLS] pooling reads of the last layer."""
        query, key, value = self._heads(x)
        seen = attention(query, key, value, layout).reshape(len(x), -1)
        return self._after(x[first], seen[first])

    def _heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if len(self.project) == 1:
            query, key, value = self.project[0](x).view(len(x), 3, self.heads, -1).unbind(1)
        else:
            query, key, value = (linear(x).view(len(x), self.heads, -1) for linear in self.project)
        return query, key, value

    def _after(self, x: Tensor, seen: Tensor) -> Tensor:
        x = self.norm(self.out(seen).add_(x))
        raised = self.up.gelu(x) if is_gelu(self.act) else self.act(self.up(x))
        return self.last_norm(self.down(raised).add_(x))


def attention(query: Tensor, key: Tensor, value: Tensor, layout: FlatLayout) -> Tensor:
    """Compute attention within each sentence of a flat row.

    Args:
        query: (tokens, heads, head dimension).
        key: The same shape.
        value: The same shape.
        layout: Which tokens form a sentence.

    Returns:
        The attended values, in the same shape.
    """
    if layout.bounds is not None:
        from torch.nn.attention.varlen import varlen_attn

        longest = max(layout.lengths)
        out = varlen_attn(query, key, value, layout.bounds, layout.bounds, longest, longest)
        return out if isinstance(out, Tensor) else out[0]
    parts = []
    start = 0
    for length, same in groupby(layout.lengths):
        count = sum(1 for _ in same)
        here = slice(start, start + count * length)
        q, k, v = (x[here].view(count, length, *x.shape[1:]).transpose(1, 2) for x in (query, key, value))
        seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        parts.append(seen.reshape(count * length, *query.shape[1:]))
        start += count * length
    return parts[0] if len(parts) == 1 else torch.cat(parts)


@torch.no_grad()
def flat_layers(model: nn.Module, dtype: torch.dtype) -> list[Layer] | None:
    """Read the layers of a Hugging Face model.

    Args:
        model: The model.
        dtype: What the layers compute in.

    Returns:
        The layers, or ``None`` where the model is not made of BERT's layers alone.
    """
    config: Any = getattr(model, "config", None)
    if not family_of(model).bert_layers or getattr(config, "is_decoder", False):
        return None
    if getattr(config, "add_cross_attention", False):
        return None
    if getattr(config, "position_embedding_type", None) not in (None, "absolute"):
        return None
    try:
        layers = [_layer(layer, dtype) for layer in model.get_submodule("encoder.layer").children()]
    except AttributeError:  # the model does not have the modules of its model_type
        return None
    found = [layer for layer in layers if layer is not None]
    return found if found and len(found) == len(layers) else None


def embedded(model: Any, ids: Tensor, positions: Tensor) -> Tensor:
    """Compute the embedding layer of a flat row.

    Args:
        model: A Hugging Face model with BERT's layers.
        ids: (tokens,).
        positions: (tokens,): position of each token in its sentence, from 0.

    Returns:
        Layer 0, (tokens, dim).
    """
    if family_of(model).positions_follow_padding:
        positions = _counted_positions(ids, positions, model.config.pad_token_id)
    row = model.embeddings(
        input_ids=ids[None], position_ids=positions[None], token_type_ids=torch.zeros_like(ids)[None]
    )[0]
    project = getattr(model, "embeddings_project", None)
    return row if project is None else project(row)


def _counted_positions(ids: Tensor, positions: Tensor, padding: int) -> Tensor:
    """Return RoBERTa's positions: counted from the padding token's id on, skipping padding tokens."""
    real = (ids != padding).long()
    counted = real.cumsum(0)
    first = torch.arange(len(ids), device=ids.device) - positions
    return (counted - counted[first] + real[first]) * real + padding


def varlen_available(device: torch.device, dtype: torch.dtype, head_width: int) -> bool:
    """Return whether PyTorch's variable-length attention supports this device, dtype and head dimension."""
    if device.type != "cuda" or dtype not in (torch.float16, torch.bfloat16) or head_width % 8 or head_width > 256:
        return False
    try:
        from torch.nn.attention import varlen  # noqa: F401
    except ImportError:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


def _layer(layer: Any, dtype: torch.dtype) -> Layer | None:
    own = layer.attention.self
    dense = (own.query, own.key, own.value, layer.attention.output.dense, layer.intermediate.dense, layer.output.dense)
    # An adapter in place of a linear layer has weights of its own, which would be ignored.
    if any(type(linear) is not nn.Linear or linear.bias is None for linear in dense):
        return None
    query, key, value, out, up, down = dense
    project: tuple[Linear, ...]
    if query.weight.device.type == "cpu" and dtype == torch.float32:
        project = tuple(_as(linear, dtype) for linear in (query, key, value))  # nothing is copied
    else:
        project = (
            Linear(
                torch.cat([linear.weight for linear in (query, key, value)]).to(dtype),
                torch.cat([linear.bias for linear in (query, key, value)]).to(dtype),
            ),
        )
    return Layer(
        project,
        int(own.num_attention_heads),
        _as(out, dtype),
        _norm(layer.attention.output.LayerNorm, dtype),
        _as(up, dtype),
        layer.intermediate.intermediate_act_fn,
        _as(down, dtype),
        _norm(layer.output.LayerNorm, dtype),
    )


def _as(linear: nn.Linear, dtype: torch.dtype) -> Linear:
    return Linear(linear.weight.to(dtype), linear.bias.to(dtype))


def _norm(norm: nn.LayerNorm, dtype: torch.dtype) -> Norm:
    return Norm(norm.weight.to(dtype), norm.bias.to(dtype), norm.eps)
