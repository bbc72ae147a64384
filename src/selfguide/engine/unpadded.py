"""BERT over a flat row of tokens: the sentences of a batch lie end to end, and no padding is computed at all.

Everything in a layer but attention treats each token by itself, so it does not matter where a sentence ends. Attention
does, and is taken

* on a CPU, for all sentences of one length together: they lie side by side, so a view of the row is a plain batch without
  a mask (batches are sorted by length, so there are one to three lengths in a batch of short sentences);
* on a GPU in half precision, by PyTorch's attention over sequences of different lengths.

The weights are those of the Hugging Face model, read anew at every call, so an encoder in training is never out of date.
Families with BERT's layers can run so (``FAMILIES``); for others :func:`flat_layers` answers ``None``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Families made of BERT's layers, and whether their positions are counted from the padding token's number on.
FAMILIES = {"bert": False, "electra": False, "roberta": True, "xlm-roberta": True, "camembert": True}


@dataclass(frozen=True)
class Layout:
    """Where the sentences lie in the flat row."""

    lengths: Sequence[int]
    """On the host, longest first."""
    bounds: Tensor | None = None
    """On a GPU in half precision: [0, end of the first, end of the second, …], int32."""


@dataclass(frozen=True)
class Linear:
    """A dense map in the type it is computed in."""

    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


@dataclass(frozen=True)
class Norm:
    """A layer norm with its weights in the type of the row; the sums inside are fp32 all the same."""

    weight: Tensor
    bias: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (x.shape[-1],), self.weight, self.bias, self.eps)


@dataclass(frozen=True)
class Layer:
    """One layer's weights and functions."""

    project: tuple[Linear, ...]
    """Query, key and value: three maps, or one that gives all three."""
    heads: int
    out: Linear
    norm: Norm
    up: Linear
    act: Callable[[Tensor], Tensor]
    down: Linear
    last_norm: Norm

    def __call__(self, x: Tensor, layout: Layout) -> Tensor:
        query, key, value = self._heads(x)
        seen = attention(query, key, value, layout).reshape(len(x), -1)
        return self._after(x, seen)

    def first_tokens(self, x: Tensor, layout: Layout, first: Tensor) -> Tensor:
        """As the call, but only for the first token of each sentence: all that a [CLS] vector needs of the last layer."""
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
        return self.last_norm(self.down(self.act(self.up(x))).add_(x))


def attention(query: Tensor, key: Tensor, value: Tensor, layout: Layout) -> Tensor:
    """Every token sees the tokens of its own sentence. Takes and returns (tokens, heads, width of a head)."""
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
    """The layers of a Hugging Face model for the flat row, or ``None`` where it is not made of BERT's layers alone."""
    config: Any = getattr(model, "config", None)
    if getattr(config, "model_type", None) not in FAMILIES or getattr(config, "is_decoder", False):
        return None
    if getattr(config, "add_cross_attention", False):
        return None
    if getattr(config, "position_embedding_type", None) not in (None, "absolute"):
        return None
    try:
        layers = [_layer(layer, dtype) for layer in model.get_submodule("encoder.layer").children()]
    except AttributeError:  # not the modules that the family's name promises
        return None
    found = [layer for layer in layers if layer is not None]
    return found if found and len(found) == len(layers) else None


def embedded(model: Any, ids: Tensor, positions: Tensor) -> Tensor:
    """Layer 0 of a flat row: (tokens, width)."""
    if FAMILIES[model.config.model_type]:
        positions = _counted_positions(ids, positions, model.config.pad_token_id)
    row = model.embeddings(
        input_ids=ids[None], position_ids=positions[None], token_type_ids=torch.zeros_like(ids)[None]
    )[0]
    project = getattr(model, "embeddings_project", None)
    return row if project is None else project(row)


def _counted_positions(ids: Tensor, positions: Tensor, padding: int) -> Tensor:
    """RoBERTa's positions: tokens are counted from the padding token's number on, and a padding token does not count."""
    real = (ids != padding).long()
    counted = real.cumsum(0)
    first = torch.arange(len(ids), device=ids.device) - positions
    return (counted - counted[first] + real[first]) * real + padding


def varlen_available(device: torch.device, dtype: torch.dtype, head_width: int) -> bool:
    """Whether PyTorch's attention over sequences of different lengths takes these."""
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
    # An adapter in place of a dense map has weights of its own, which would be passed over.
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
