"""Batches without padding: several sentences share a row, and a block-diagonal mask keeps them apart.

More than half of a padded batch of sixteen ordinary sentences is padding, and every layer computes it. Packed, the sentences
lie end to end in a few rows of about equal length; positions restart with each sentence and attention sees only the
sentence's own block, so that every real token gets the state it gets in the padded batch. The states are laid out as a padded
batch again before they are returned, so callers see no difference:

    with packed(model):
        output = model(input_ids=…, attention_mask=…)      # same shapes, same values at real tokens, zeros at padding

Code that knows the lengths before the batch goes to a GPU makes the layout there (:func:`layout_of`), because reading them
back from the device would stall it. Where only the first token of each sentence is read ([CLS]), the last layer computes
nothing else (``firsts``).

This is the unpadded path for training: it runs the Hugging Face modules themselves, so that autograd, dropout, adapters and
hooks work as always. Inference has its own (:mod:`selfguide.engine.unpadded`), which needs none of these and saves the
block mask and the scattering by computing the layers over one flat row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfguide.models.families import family_of

ENABLED = True
"""Whether packing is used at all; tests and benchmarks turn it off to compare with padded batches."""
ROW_TOKENS, ROW_TOKENS_ON_GPU = 96, 256
"""Approximate length of a row. The cost of attention, and of drawing its dropout masks, grows with the square of it, and a CPU
pays for that; a GPU is as fast with fewer rows."""


def can_pack(model: nn.Module) -> bool:
    """Return whether a Hugging Face model can run packed."""
    attention = getattr(getattr(model, "config", None), "_attn_implementation", "")
    return ENABLED and family_of(model).packable and attention in ("sdpa", "eager")


@dataclass(frozen=True)
class Layout:
    """Map between the tokens of a padded batch and the packed rows."""

    source: Tensor
    """Index of every packed token in the flattened padded batch."""
    target: Tensor
    """Index of the same token in the flattened rows."""
    positions: Tensor
    """(rows, length): position of the token within its sentence."""
    sentence: Tensor
    """(rows, length): index of the sentence that a slot belongs to; −1 for unused slots."""
    first: Tensor
    """(batch,): index of each sentence's first token in the flattened rows."""
    padded: Tensor
    """(batch, longest): index of each token in the flattened rows, left-aligned; padding points to the first token."""
    real: Tensor
    """(batch, longest): mask of the tokens that are not padding."""

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Layout:
        """Return the layout with its tensors on another device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self, device: Any = None) -> Layout:
        """Return the layout in pinned memory; a ``DataLoader`` calls this."""
        return self._each(lambda tensor: tensor.pin_memory())

    def _each(self, change: Any) -> Layout:
        return replace(self, **{item.name: change(getattr(self, item.name)) for item in fields(self)})


def layout(attention_mask: Tensor) -> Layout:
    """Lay the sentences of a padded batch out in rows; on a GPU this waits for the mask to be read back.

    Args:
        attention_mask: Of the padded batch, (batch, length).

    Returns:
        Where each sentence goes.
    """
    mask = attention_mask.detach().to("cpu").bool()
    starts = mask.long().argmax(dim=1)  # not 0 where the tokenizer pads on the left
    lengths, width = mask.sum(dim=1).tolist(), mask.shape[1]
    if attention_mask.device.type == "cpu":
        return layout_of(lengths, width, starts.tolist())
    return layout_of(lengths, width, starts.tolist(), row_tokens=ROW_TOKENS_ON_GPU).to(attention_mask.device)


def layout_of(
    lengths: Sequence[int],
    width: int,
    starts: Sequence[int] | None = None,
    *,
    row_tokens: int = 0,
    even: int = 1,
    full_rows: bool = False,
) -> Layout:
    """Lay sentences of known lengths out in rows, the longest first, each in the row with most room.

    Args:
        lengths: Number of tokens of each sentence.
        width: Width of the padded batch that they come from.
        starts: Where each sentence starts in the padded batch; 0 if not given.
        row_tokens: Approximate length of a row; ``ROW_TOKENS`` if not given.
        even: Round the length of the rows and ``longest`` up to a multiple of this, so that few different shapes occur.
        full_rows: Make rows no shorter than ``row_tokens``, for the same reason.

    Returns:
        The layout, on the CPU.
    """
    longest = max(lengths)
    rows = max(1, -(-sum(lengths) // max(row_tokens or ROW_TOKENS, longest)))
    loads = [0] * rows
    placed: list[tuple[int, int]] = [(0, 0)] * len(lengths)
    for number in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        row = loads.index(min(loads))
        placed[number] = (row, loads[row])
        loads[row] += lengths[number]
    length = -(-max(*loads, row_tokens if full_rows else 1) // even) * even
    counts = torch.tensor(lengths)
    first = torch.tensor([row * length + start for row, start in placed])
    steps = torch.arange(-(-longest // even) * even)
    real = steps < counts.unsqueeze(1)
    target = (first.unsqueeze(1) + steps)[real]
    offsets = torch.arange(len(lengths)) * width + (torch.tensor(starts) if starts is not None else 0)
    # Not repeat_interleave: on a machine with many cores it wakes all of them for a few hundred numbers at every step.
    numbers = torch.arange(len(lengths)).unsqueeze(1).expand_as(real)[real]
    within = steps.expand_as(real)[real]
    return Layout(
        source=offsets[numbers] + within,
        target=target,
        positions=torch.zeros(rows * length, dtype=torch.long).index_copy(0, target, within).view(rows, length),
        sentence=torch.full((rows * length,), -1).index_copy(0, target, numbers).view(rows, length),
        first=first,
        padded=first.unsqueeze(1) + steps * real,
        real=real,
    )


@contextmanager
def packed(
    *models: nn.Module, plan: Layout | None = None, firsts: bool = False, gathered: bool = False
) -> Iterator[None]:
    """Run the given models packed inside the block, where their architecture allows it.

    Args:
        *models: Hugging Face models, which take and return padded batches as usual.
        plan: Layout of the one batch that will be run, if it is known.
        firsts: Of the last layer only the states of first tokens will be read; the others may be zeros.
        gathered: Token ids are passed in as rows already; mask and output are (batch, longest) as in ``plan``.

    Yields:
        Nothing; the models' own ``forward`` is restored when the block ends.
    """
    with ExitStack() as stack:
        for model in models:
            if can_pack(model):
                stack.enter_context(_packed_forward(model, plan, firsts, gathered))
        yield


@contextmanager
def _packed_forward(model: nn.Module, given: Layout | None, firsts: bool, gathered: bool) -> Iterator[None]:
    plain = model.forward

    def forward(attention_mask: Tensor, **inputs: Any) -> Any:
        plan = given if given is not None else layout(attention_mask)
        shape = None if gathered else attention_mask.shape
        with _last_layer_of_firsts(model, plan) if firsts else ExitStack():
            output = run_rows(model, inputs, plan, plain, gathered)
        output.last_hidden_state = _scatter(output.last_hidden_state, plan, shape)
        if output.hidden_states is not None:
            output.hidden_states = tuple(_scatter(states, plan, shape) for states in output.hidden_states)
        return output

    model.forward = forward
    try:
        yield
    finally:
        del model.forward  # uncovers the method of the class


def run_rows(
    model: nn.Module, inputs: dict[str, Any], plan: Layout, forward: Any = None, gathered: bool = False
) -> Any:
    """Run a model on the packed rows of a padded batch.

    Args:
        model: A model that can be packed.
        inputs: The model's keyword arguments without the attention mask.
        plan: Layout of the batch.
        forward: The model's own forward method, where ``model.forward`` is replaced.
        gathered: Token ids are rows already.

    Returns:
        The model's output, with states in the shape of the rows.
    """
    tokens = {name: inputs[name] for name in ("input_ids", "token_type_ids") if inputs.get(name) is not None}
    if not gathered:
        tokens = {name: gather(values, plan) for name, values in tokens.items()}
    others = {name: value for name, value in inputs.items() if name not in ("input_ids", "token_type_ids")}
    return (forward or model)(
        **tokens,
        **others,
        attention_mask=_block_mask(model, plan),
        position_ids=plan.positions + _first_position(model),
    )


def _block_mask(model: nn.Module, plan: Layout) -> Tensor:
    """Return the mask (rows, 1, length, length): a token sees its own sentence, an unused slot the unused slots."""
    block = (plan.sentence.unsqueeze(2) == plan.sentence.unsqueeze(1)).unsqueeze(1)
    if model.config._attn_implementation == "sdpa":  # type: ignore[union-attr]
        return block
    # Eager attention adds its mask to the scores.
    scores = torch.zeros(block.shape, dtype=next(model.parameters()).dtype, device=block.device)
    return scores.masked_fill(~block, torch.finfo(scores.dtype).min)


def _first_position(model: nn.Module) -> int:
    embeddings: Any = getattr(model, "embeddings", None)
    return int(embeddings.padding_idx) + 1 if family_of(model).positions_follow_padding else 0


@contextmanager
def _last_layer_of_firsts(model: nn.Module, plan: Layout) -> Iterator[None]:
    """Let BERT's last layer compute the first token of each sentence and leave zeros elsewhere.

    Keys and values are still computed for all tokens; queries, output projection and feed-forward network are not.
    """
    if not family_of(model).bert_layers:
        yield
        return
    layer: Any = model.encoder.layer[-1]  # type: ignore[union-attr,index]

    def forward(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        attention = layer.attention.self
        tokens = hidden_states.flatten(0, 1)
        own = tokens[plan.first]

        def heads(states: Tensor) -> Tensor:
            return states.view(len(own), -1, attention.num_attention_heads, attention.attention_head_size).transpose(
                1, 2
            )

        context = F.scaled_dot_product_attention(
            heads(attention.query(own)),
            heads(attention.key(tokens)[plan.padded]),
            heads(attention.value(tokens)[plan.padded]),
            attn_mask=plan.real[:, None, None, :],
            dropout_p=attention.dropout.p if attention.training else 0.0,
            scale=attention.scaling,
        )
        mixed = layer.attention.output(context.transpose(1, 2).reshape(len(own), -1), own)
        states = layer.feed_forward_chunk(mixed)
        return states.new_zeros(tokens.shape).index_copy(0, plan.first, states).view_as(hidden_states)

    layer.forward = forward
    try:
        yield
    finally:
        del layer.forward


def gather(values: Tensor, plan: Layout) -> Tensor:
    """Lay values of a padded batch, (batch, tokens), out as packed rows.

    Args:
        values: One value a token, such as its id.
        plan: Layout of the batch.

    Returns:
        The values as (rows, length), with zeros in unused slots.
    """
    rows = values.new_zeros(plan.positions.numel())
    return rows.index_copy(0, plan.target, values.reshape(-1)[plan.source]).view_as(plan.positions)


def _scatter(states: Tensor, plan: Layout, shape: torch.Size | None) -> Tensor:
    """Lay states of the rows out as a padded batch of this shape or, without one, of the shape of ``plan.padded``."""
    flat = states.reshape(-1, states.shape[-1])
    if shape is None:
        return flat[plan.padded] * plan.real.unsqueeze(-1)
    padded = flat.new_zeros(shape[0] * shape[1], states.shape[-1])
    return padded.index_copy(0, plan.source, flat[plan.target]).view(*shape, -1)
