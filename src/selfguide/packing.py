"""Batches without padding: several sentences share a row, and a block-diagonal mask keeps them apart.

A padded batch of sixteen ordinary sentences is more than half padding, and every layer computes it. Packed, the sentences
lie end to end in a few rows of about equal length; positions start anew with each sentence and attention sees only its own
block, so that every real token gets the state it gets in the padded batch. The states are laid out as padded again before
they leave, and nobody outside needs to know.

    with packed(model):
        output = model(input_ids=…, attention_mask=…)      # same shapes, same values at real tokens, zeros at padding
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

# Families whose positions can be given from outside and whose attention takes a 4-D mask. The others run padded.
PACKABLE = ("bert",)
# Attention grows with the square of a row's length, everything else with the number of tokens: rows stay about this long.
ROW_TOKENS = 256


def can_pack(model: nn.Module) -> bool:
    """Whether a Hugging Face model can run packed."""
    config = getattr(model, "config", None)
    return getattr(config, "model_type", None) in PACKABLE and getattr(config, "_attn_implementation", "") in (
        "sdpa",
        "eager",
    )


@dataclass(frozen=True)
class Layout:
    """Where each real token of a padded batch lies in the packed rows."""

    source: Tensor
    """Index of every packed token in the flattened padded batch."""
    target: Tensor
    """Index of the same token in the flattened rows."""
    positions: Tensor
    """(rows, length): position of the token within its sentence."""
    sentence: Tensor
    """(rows, length): which sentence a slot belongs to; −1 for the few slots left over."""


def layout(attention_mask: Tensor) -> Layout:
    """Lay the sentences of a padded batch into rows, the longest first, each into the row with most room."""
    mask = attention_mask.detach().to("cpu").bool()
    lengths = mask.sum(dim=1).tolist()
    rows = max(1, -(-sum(lengths) // max(ROW_TOKENS, *lengths)))
    loads = [0] * rows
    placed: list[tuple[int, int]] = [(0, 0)] * len(lengths)
    for number in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        row = loads.index(min(loads))
        placed[number] = (row, loads[row])
        loads[row] += lengths[number]
    length = max(loads)
    positions = torch.zeros(rows, length, dtype=torch.long)
    sentence = torch.full((rows, length), -1)
    source, target = [], []
    for number, (row, start) in enumerate(placed):
        here = slice(start, start + lengths[number])
        positions[row, here] = torch.arange(lengths[number])
        sentence[row, here] = number
        source.append(mask[number].nonzero().squeeze(1) + number * mask.shape[1])
        target.append(torch.arange(lengths[number]) + row * length + start)
    device = attention_mask.device
    return Layout(*(item.to(device) for item in (torch.cat(source), torch.cat(target), positions, sentence)))


@contextmanager
def packed(*models: nn.Module) -> Iterator[None]:
    """Inside the block, the given models run packed where they can; the others as ever."""
    with ExitStack() as stack:
        for model in models:
            if can_pack(model):
                stack.enter_context(_packed_forward(model))
        yield


@contextmanager
def _packed_forward(model: nn.Module) -> Iterator[None]:
    plain = model.forward

    def forward(input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None, **options: Any) -> Any:
        plan = layout(attention_mask)
        rows = plan.positions
        block = plan.sentence.unsqueeze(2) == plan.sentence.unsqueeze(
            1
        )  # left-over slots see one another, and nobody else
        output = plain(
            input_ids=_gather(input_ids, plan),
            attention_mask=block.unsqueeze(1),
            token_type_ids=None if token_type_ids is None else _gather(token_type_ids, plan),
            position_ids=rows,
            **options,
        )
        shape = attention_mask.shape
        output.last_hidden_state = _scatter(output.last_hidden_state, plan, shape)
        if output.hidden_states is not None:
            output.hidden_states = tuple(_scatter(states, plan, shape) for states in output.hidden_states)
        return output

    model.forward = forward
    try:
        yield
    finally:
        del model.forward  # the class's own again


def _gather(values: Tensor, plan: Layout) -> Tensor:
    rows = values.new_zeros(plan.positions.numel())
    rows[plan.target] = values.reshape(-1)[plan.source]
    return rows.view_as(plan.positions)


def _scatter(states: Tensor, plan: Layout, shape: torch.Size) -> Tensor:
    flat = states.reshape(-1, states.shape[-1])
    padded = flat.new_zeros(shape[0] * shape[1], states.shape[-1])
    return padded.index_copy(0, plan.source, flat[plan.target]).view(*shape, -1)
