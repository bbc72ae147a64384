"""A BERT over packed rows of tokens: the mathematics of the stock model, without padding.

A step is one row of T tokens that holds many sequences end to end; ``cu`` (``[0, end of the first, end of the second,
…]``, padded with T) has their boundaries. Only attention needs them, everything else is row-wise. All shapes are static, so
one compiled layer serves all layers and all steps.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .config import Shape


class Packed(NamedTuple):
    """A packed row of sequences."""

    ids: Tensor  # (T,) token ids
    positions: Tensor  # (T,) position in the own sequence
    cu: Tensor  # (N + 1,) int32, boundaries
    sequence: Tensor  # (T,) number of the sequence a token belongs to


class Signal(NamedTuple):
    """An additional loss on [CLS]: its rows in the packed row, the token each predicts, and the weight of that token."""

    name: str
    share: float  # weight of the loss beside that of masked language modelling
    rows: Tensor  # (R,) positions of [CLS]
    labels: Tensor  # (R,)
    weights: Tensor  # (R,)


class Batch(NamedTuple):
    """A step: the masked row, the masked positions and their labels, and the additional losses on [CLS]."""

    packed: Packed
    places: Tensor  # (M,)
    labels: Tensor  # (M,)
    signals: tuple[Signal, ...] = ()


def local_mask(sequence: Tensor, reach: int) -> Tensor:
    """Return which keys of three neighbouring blocks each token attends to: those of its own sequence.

    No sequence is longer than ``reach``, so a block of that many queries finds all its keys in the block before, its own and
    the one after. That makes attention over a packed row exact with plain batched kernels and static shapes.
    """
    total = sequence.shape[0]
    padded = F.pad(sequence, (0, -total % reach), value=-1)
    rows = padded.view(-1, reach)
    keys = torch.cat([_shift(rows, 1), rows, _shift(rows, -1)], dim=1)
    # Padding (-1) attends to padding: a row of the mask without any key would give NaN.
    return (rows[:, :, None] == keys[:, None, :])[:, None]


def _shift(rows: Tensor, by: int) -> Tensor:
    """Shift blocks by one, filling the free end with -2 (the number of no sequence) or with zeros."""
    free = torch.full_like(rows[:1], -2 if not rows.is_floating_point() else 0.0)
    return torch.cat([free, rows[:-1]]) if by > 0 else torch.cat([rows[1:], free])


def local_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, reach: int) -> Tensor:
    """Compute attention in blocks (see :func:`local_mask`); takes and returns (T, heads, head width)."""
    total, heads, width = query.shape
    fill = (0, 0, 0, 0, 0, -total % reach)

    def blocks(x: Tensor) -> Tensor:
        return F.pad(x, fill).reshape(-1, reach, heads, width)

    rows = blocks(query).transpose(1, 2)
    near_key, near_value = (
        torch.cat([_shift(b, 1), b, _shift(b, -1)], dim=1).transpose(1, 2) for b in (blocks(key), blocks(value))
    )
    out = F.scaled_dot_product_attention(rows, near_key, near_value, attn_mask=mask)
    return out.transpose(1, 2).reshape(-1, heads, width)[:total]


def varlen_attention(query: Tensor, key: Tensor, value: Tensor, cu: Tensor, longest: int) -> Tensor:
    """Compute attention by PyTorch's variable-length flash attention (CUDA, half precision)."""
    from torch.nn.attention.varlen import varlen_attn

    out = varlen_attn(query, key, value, cu, cu, longest, longest)
    return out if isinstance(out, Tensor) else out[0]


def normed(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Apply layer normalisation in fp32, because sums of squares need its range."""
    return F.layer_norm(x.float(), (x.shape[-1],), weight, bias, eps)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply a linear layer in the type of ``x``; the master weights stay in fp32."""
    return F.linear(x, weight.to(x.dtype), bias.to(x.dtype))


def dropped(x: Tensor, dropout: float) -> Tensor:
    """Apply dropout; a rate of 0 leaves no trace in the compiled code and draws no random numbers."""
    return F.dropout(x, dropout, training=True) if dropout else x


def layer_forward(
    x: Tensor, cu: Tensor, mask: Tensor | None, heads: int, reach: int, eps: float, dropout: float,
    weights: list[Tensor],
) -> Tensor:  # fmt: skip
    """Apply one post-norm layer; a pure function of tensors, so that all layers share one compilation.

    Dropout is applied to the two outputs before they are added. A stock BERT applies it to attention probabilities too, but
    the variable-length kernel offers none.
    """
    w_qkv, b_qkv, w_out, b_out, n1_w, n1_b, w_in, b_in, w_down, b_down, n2_w, n2_b = weights
    total, width = x.shape
    query, key, value = linear(x, w_qkv, b_qkv).view(total, 3, heads, width // heads).unbind(1)
    if mask is None:
        seen = varlen_attention(query, key, value, cu, reach)
    else:
        seen = local_attention(query, key, value, mask, reach)
    h = dropped(linear(seen.reshape(total, width), w_out, b_out), dropout)
    x = normed(h.float() + x.float(), n1_w, n1_b, eps).to(x.dtype)
    h = dropped(linear(F.gelu(linear(x, w_in, b_in)), w_down, b_down), dropout)
    return normed(h.float() + x.float(), n2_w, n2_b, eps).to(x.dtype)


def head_forward(x: Tensor, embedding: Tensor, weights: list[Tensor], eps: float) -> Tensor:
    """Apply the MLM head, whose decoder is tied to the token embeddings."""
    w, b, n_w, n_b, bias = weights
    h = normed(F.gelu(linear(x, w, b)), n_w, n_b, eps).to(x.dtype)
    return F.linear(h, embedding.to(x.dtype), bias.to(x.dtype))


def head_loss(x: Tensor, embedding: Tensor, weights: list[Tensor], labels: Tensor, eps: float) -> Tensor:
    """Return the mean cross-entropy of the head's predictions."""
    return F.cross_entropy(head_forward(x, embedding, weights, eps).float(), labels)


def signal_loss(
    x: Tensor, embedding: Tensor, weights: list[Tensor], labels: Tensor, counts: Tensor, eps: float
) -> Tensor:
    """Return the mean cross-entropy weighted by ``counts``."""
    each = F.cross_entropy(head_forward(x, embedding, weights, eps).float(), labels, reduction="none")
    return (counts * each).sum() / counts.sum().clamp(min=1e-6)


class Layer(nn.Module):
    """The parameters of one layer."""

    def __init__(self, shape: Shape) -> None:
        """Initialise the layer for a shape."""
        super().__init__()
        width, ffn = shape.width, shape.ffn
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width, eps=shape.eps)
        self.up = nn.Linear(width, ffn)
        self.down = nn.Linear(ffn, width)
        self.norm2 = nn.LayerNorm(width, eps=shape.eps)

    def weights(self) -> list[Tensor]:
        """Return the parameters in the order of :func:`layer_forward`."""
        parts = (self.qkv, self.out, self.norm1, self.up, self.down, self.norm2)
        return [p for part in parts for p in (part.weight, part.bias)]


class MaskedLM(nn.Module):
    """Encoder and MLM head."""

    def __init__(
        self, shape: Shape, *, attention: str = "sdpa", dtype: torch.dtype = torch.float32, dropout: float = 0.0
    ) -> None:
        """Initialise the weights.

        Args:
            shape: The shape.
            attention: ``varlen`` (CUDA, bf16) or ``sdpa`` (anywhere).
            dtype: The type of the computation; the weights are fp32.
            dropout: The dropout rate in training mode; eager evaluation has none.
        """
        super().__init__()
        if attention not in ("varlen", "sdpa"):
            raise ValueError(f"attention must be 'varlen' or 'sdpa', got {attention!r}.")
        self.shape, self.attention, self.dtype, self.dropout = shape, attention, dtype, dropout
        width = shape.width
        self.tokens = nn.Embedding(shape.vocab, width)
        self.places = nn.Embedding(shape.positions, width)
        self.types = nn.Embedding(shape.types, width)
        self.norm = nn.LayerNorm(width, eps=shape.eps)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.transform = nn.Linear(width, width)
        self.transform_norm = nn.LayerNorm(width, eps=shape.eps)
        self.bias = nn.Parameter(torch.zeros(shape.vocab))
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=shape.init_range)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        self._layer: Callable[..., Tensor] = layer_forward
        self._loss: Callable[..., Tensor] = head_loss
        self._signal: Callable[..., Tensor] = signal_loss

    def compile_parts(self) -> None:
        """Compile the layer and the head.

        The embeddings stay eager: their gradient sorts there, but is compiled to atomic additions, of which thousands of
        [MASK] go into one row.
        """
        self._layer = torch.compile(layer_forward, dynamic=False, fullgraph=True)
        self._loss = torch.compile(head_loss, dynamic=False, fullgraph=True)
        self._signal = torch.compile(signal_loss, dynamic=False, fullgraph=True)

    def eager_parts(self) -> None:
        """Undo :meth:`compile_parts`."""
        self._layer, self._loss, self._signal = layer_forward, head_loss, signal_loss

    def head_weights(self) -> list[Tensor]:
        """Return the head's parameters in the order of :func:`head_forward`."""
        norm = self.transform_norm
        return [self.transform.weight, self.transform.bias, norm.weight, norm.bias, self.bias]

    def hidden(self, batch: Packed, *, eager: bool = False) -> Tensor:
        """Return the last layer's hidden states, (T, width)."""
        shape = self.shape
        dropout = self.dropout if self.training and not eager else 0.0
        x = self.tokens(batch.ids) + self.types.weight[0] + self.places(batch.positions)
        x = dropped(normed(x, self.norm.weight, self.norm.bias, shape.eps), dropout).to(self.dtype)
        mask = local_mask(batch.sequence, shape.positions) if self.attention == "sdpa" else None
        layer = layer_forward if eager else self._layer
        for block in self.layers:
            x = layer(x, batch.cu, mask, shape.heads, shape.positions, shape.eps, dropout, block.weights())  # type: ignore[operator]
        return x

    def losses(self, batch: Batch, *, eager: bool = False) -> list[Tensor]:
        """Return the MLM loss, then that of each signal; the head is applied to the rows that are needed only."""
        x = self.hidden(batch.packed, eager=eager)
        function, signal = (head_loss, signal_loss) if eager else (self._loss, self._signal)
        embedding, head, eps = self.tokens.weight, self.head_weights(), self.shape.eps
        found = [function(x.index_select(0, batch.places), embedding, head, batch.labels, eps)]
        for asked in batch.signals:
            # A [CLS] occurs more than once: the gradient of plain indexing adds repeated rows in fp32.
            found.append(signal(x[asked.rows], embedding, head, asked.labels, asked.weights, eps))
        return found

    def loss(self, batch: Batch, *, eager: bool = False) -> Tensor:
        """Return the MLM loss alone."""
        return self.losses(batch._replace(signals=()), eager=eager)[0]

    def logits(self, batch: Packed) -> Tensor:
        """Return the logits of every token, without compiled code."""
        return head_forward(self.hidden(batch, eager=True), self.tokens.weight, self.head_weights(), self.shape.eps)


def try_compile(model: MaskedLM, probe: Callable[[], object]) -> bool:
    """Compile and run ``probe`` once; if that fails, warn, go back to eager code and return False."""
    model.compile_parts()
    try:
        probe()
    except Exception as error:  # the compiler can fail in any way, and none may end the run
        warnings.warn(f"torch.compile failed, continuing without it: {type(error).__name__}: {error}", stacklevel=2)
        model.eager_parts()
        return False
    return True
