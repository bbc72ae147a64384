"""The encoder over a flat row of tokens: the mathematics of a stock BERT, without padding.

A step is one row of T tokens that holds many sequences end to end; ``cu`` (``[0, end of the first, end of the second,
…]``, padded with T) says where they lie. Only attention needs to know, everything else is row-wise. All shapes are
static, so one compiled layer serves all layers and all steps.
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
    """A flat row of sequences, as the encoder takes it."""

    ids: Tensor  # (T,) token ids
    positions: Tensor  # (T,) place in the own sequence
    cu: Tensor  # (N + 1,) int32, boundaries
    sequence: Tensor  # (T,) number of the sequence a token belongs to


class Signal(NamedTuple):
    """Questions to [CLS]: rows of the flat row, the word each is to name, and how much that word counts."""

    name: str
    share: float  # what the loss counts beside that of masked language modelling
    rows: Tensor  # (R,) places of [CLS]
    labels: Tensor  # (R,)
    weights: Tensor  # (R,)


class Batch(NamedTuple):
    """A step: the row with tokens hidden, where, which they were, and what [CLS] is asked beside that."""

    packed: Packed
    places: Tensor  # (M,)
    labels: Tensor  # (M,)
    signals: tuple[Signal, ...] = ()


def local_mask(sequence: Tensor, reach: int) -> Tensor:
    """Which of three neighbouring blocks of keys each token may see: those of its own sequence.

    No sequence is longer than ``reach``, so a block of that many queries finds all its keys in the block before, its
    own and the one after. That makes attention over a flat row exact with plain batched kernels and static shapes.
    """
    total = sequence.shape[0]
    padded = F.pad(sequence, (0, -total % reach), value=-1)
    rows = padded.view(-1, reach)
    keys = torch.cat([_shift(rows, 1), rows, _shift(rows, -1)], dim=1)
    # Filling (-1) sees filling: a row of the mask without any key would turn into NaN.
    return (rows[:, :, None] == keys[:, None, :])[:, None]


def _shift(rows: Tensor, by: int) -> Tensor:
    """Blocks moved by one place, the free end filled with -2 (a sequence that nobody has) or with zeros."""
    free = torch.full_like(rows[:1], -2 if not rows.is_floating_point() else 0.0)
    return torch.cat([free, rows[:-1]]) if by > 0 else torch.cat([rows[1:], free])


def local_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, reach: int) -> Tensor:
    """Attention in blocks, see ``local_mask``. Takes and returns (T, heads, head width)."""
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
    """PyTorch's own variable-length flash attention (CUDA, half precision)."""
    from torch.nn.attention.varlen import varlen_attn

    out = varlen_attn(query, key, value, cu, cu, longest, longest)
    return out if isinstance(out, Tensor) else out[0]


def normed(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Layer norm in fp32 whatever the compute type: the sums of squares want the range."""
    return F.layer_norm(x.float(), (x.shape[-1],), weight, bias, eps)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A dense map in the compute type of ``x``; the master weights stay in fp32."""
    return F.linear(x, weight.to(x.dtype), bias.to(x.dtype))


def dropped(x: Tensor, dropout: float) -> Tensor:
    """Dropout with a rate known beforehand: at 0 there is no trace of it in the compiled code."""
    return F.dropout(x, dropout, training=True) if dropout else x


def layer_forward(
    x: Tensor, cu: Tensor, mask: Tensor | None, heads: int, reach: int, eps: float, dropout: float,
    weights: list[Tensor],
) -> Tensor:  # fmt: skip
    """One post-norm layer. A plain function of tensors, so that one compilation is shared by all layers.

    Dropout falls on the two outputs before they are added. On attention probabilities, where a stock BERT has it too,
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
    """The MLM head with the decoder tied to the token embeddings: rows of ``x`` to logits."""
    w, b, n_w, n_b, bias = weights
    h = normed(F.gelu(linear(x, w, b)), n_w, n_b, eps).to(x.dtype)
    return F.linear(h, embedding.to(x.dtype), bias.to(x.dtype))


def head_loss(x: Tensor, embedding: Tensor, weights: list[Tensor], labels: Tensor, eps: float) -> Tensor:
    return F.cross_entropy(head_forward(x, embedding, weights, eps).float(), labels)


def signal_loss(
    x: Tensor, embedding: Tensor, weights: list[Tensor], labels: Tensor, counts: Tensor, eps: float
) -> Tensor:
    """As ``head_loss``, but a mean in which row r counts ``counts[r]``."""
    each = F.cross_entropy(head_forward(x, embedding, weights, eps).float(), labels, reduction="none")
    return (counts * each).sum() / counts.sum().clamp(min=1e-6)


class Layer(nn.Module):
    """The parameters of one layer, in the order ``layer_forward`` takes them."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, ffn = shape.width, shape.ffn
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width, eps=shape.eps)
        self.up = nn.Linear(width, ffn)
        self.down = nn.Linear(ffn, width)
        self.norm2 = nn.LayerNorm(width, eps=shape.eps)

    def weights(self) -> list[Tensor]:
        parts = (self.qkv, self.out, self.norm1, self.up, self.down, self.norm2)
        return [p for part in parts for p in (part.weight, part.bias)]


class MaskedLM(nn.Module):
    """Encoder and MLM head. ``attention`` is ``varlen`` (CUDA, bf16) or ``sdpa`` (anywhere).

    ``dropout`` acts in training mode alone, and never where ``eager`` is asked for.
    """

    def __init__(
        self, shape: Shape, *, attention: str = "sdpa", dtype: torch.dtype = torch.float32, dropout: float = 0.0
    ) -> None:
        super().__init__()
        if attention not in ("varlen", "sdpa"):
            raise ValueError(f"attention must be 'varlen' or 'sdpa', not {attention!r}")
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
        """Compile the layer and the head. The embeddings stay eager: their gradient is a sort there, and atomic
        additions (thousands of [MASK] into one row) when compiled."""
        self._layer = torch.compile(layer_forward, dynamic=False, fullgraph=True)
        self._loss = torch.compile(head_loss, dynamic=False, fullgraph=True)
        self._signal = torch.compile(signal_loss, dynamic=False, fullgraph=True)

    def eager_parts(self) -> None:
        self._layer, self._loss, self._signal = layer_forward, head_loss, signal_loss

    def head_weights(self) -> list[Tensor]:
        norm = self.transform_norm
        return [self.transform.weight, self.transform.bias, norm.weight, norm.bias, self.bias]

    def hidden(self, batch: Packed, *, eager: bool = False) -> Tensor:
        """The last layer's states, (T, width)."""
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
        """Mean cross-entropy at the masked places, then that of each signal; the head runs on those rows alone."""
        x = self.hidden(batch.packed, eager=eager)
        function, signal = (head_loss, signal_loss) if eager else (self._loss, self._signal)
        embedding, head, eps = self.tokens.weight, self.head_weights(), self.shape.eps
        found = [function(x.index_select(0, batch.places), embedding, head, batch.labels, eps)]
        for asked in batch.signals:
            # A [CLS] is asked more than once: the gradient of plain indexing adds repeated rows up in fp32.
            found.append(signal(x[asked.rows], embedding, head, asked.labels, asked.weights, eps))
        return found

    def loss(self, batch: Batch, *, eager: bool = False) -> Tensor:
        """The loss of masked language modelling alone."""
        return self.losses(batch._replace(signals=()), eager=eager)[0]

    def logits(self, batch: Packed) -> Tensor:
        """Logits for every token, eager (for tests and small work)."""
        return head_forward(self.hidden(batch, eager=True), self.tokens.weight, self.head_weights(), self.shape.eps)


def try_compile(model: MaskedLM, probe: Callable[[], object]) -> bool:
    """Compile, run ``probe`` once, and go back to eager with a warning when anything in it fails."""
    model.compile_parts()
    try:
        probe()
    except Exception as error:  # the compiler can fail in any way; none of them may cost the run
        warnings.warn(f"torch.compile failed, going on eager: {type(error).__name__}: {error}", stacklevel=2)
        model.eager_parts()
        return False
    return True
