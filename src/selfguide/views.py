"""Hidden states → views: one pooled vector for each layer of each sentence.

A view h_{i,k} is the pooled hidden state of sentence i at layer k, k = 0..l, where layer 0 is the output of the embedding
layer. Views of a batch have the shape (batch, layers, dim).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from selfguide.errors import SelfguideError, UsageError
from selfguide.packing import Layout, can_pack, layout, run_rows

VIEW_POOLINGS = ("max", "mean", "cls")


def pool(states: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """Pool token states (batch, tokens, dim) over the real tokens of ``mask`` (batch, tokens) into (batch, dim)."""
    real = mask.unsqueeze(-1).bool()
    if pooling == "max":
        return states.masked_fill(~real, torch.finfo(states.dtype).min).amax(dim=1)
    if pooling == "mean":
        return (states * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)
    if pooling == "cls":
        # The first *real* token: position 0 unless the tokenizer pads on the left.
        first = mask.long().argmax(dim=1)
        return states[torch.arange(len(states), device=states.device), first]
    raise UsageError(f"There is no view pooling {pooling!r}; choose one of {', '.join(VIEW_POOLINGS)}.")


def hidden_states(model: nn.Module, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """The hidden states of every layer, layer 0 first."""
    output = model(**inputs, output_hidden_states=True, return_dict=True)
    states = getattr(output, "hidden_states", None)
    if not states:
        raise SelfguideError(
            f"{type(model).__name__} gives no hidden states, so it has no views to guide with; "
            "choose a BERT-like encoder (see `selfguide train --help`)."
        )
    return tuple(states)


def layer_views(
    model: nn.Module,
    inputs: Mapping[str, Tensor],
    pooling: str,
    layers: Sequence[int],
    plan: Layout | None = None,
    gathered: bool = False,
) -> Tensor:
    """Views of a batch at the given layers: (batch, len(layers), dim).

    A model that can is run packed, and pooled straight from the rows, all layers at once. ``plan``: the batch's layout, if it
    is known. ``gathered``: the ids come in its rows already.
    """
    if not can_pack(model):
        states = hidden_states(model, inputs)
        return torch.stack([pool(states[layer], inputs["attention_mask"], pooling) for layer in layers], dim=1)
    plan = plan if plan is not None else layout(inputs["attention_mask"])
    tokens = {name: value for name, value in inputs.items() if name != "attention_mask"}
    output = run_rows(model, {**tokens, "output_hidden_states": True, "return_dict": True}, plan, gathered=gathered)
    batch, longest = plan.padded.shape
    rows = torch.stack([output.hidden_states[layer].flatten(0, 1) for layer in layers])
    by_sentence = rows[:, plan.padded].view(len(layers) * batch, longest, -1)
    mask = plan.real.repeat(len(layers), 1)
    return pool(by_sentence, mask, pooling).view(len(layers), batch, -1).transpose(0, 1)


def parse_layers(layers: str | int | Sequence[int], depth: int) -> tuple[int, ...]:
    """Which layers of an encoder with ``depth`` layers: ``"all"``, ``"4-8"``, ``"0,3,12"``, ``"last"`` or a list of numbers.

    Negative numbers count from the end, as in Python: −1 is the last layer.
    """
    wanted = _numbers(layers, depth)
    resolved = [number + depth + 1 if number < 0 else number for number in wanted]
    for given, number in zip(wanted, resolved, strict=True):
        if not 0 <= number <= depth:
            raise UsageError(
                f"There is no layer {given}: this encoder has layers 0 to {depth} (0 is the embedding layer)."
            )
    if not resolved or len(set(resolved)) != len(resolved):
        raise UsageError(f"layers {layers!r} must name at least one layer, and none twice.")
    return tuple(resolved)


def _numbers(layers: str | int | Sequence[int], depth: int) -> list[int]:
    if isinstance(layers, int):
        return [layers]
    if not isinstance(layers, str):
        return [int(layer) for layer in layers]
    if layers == "all":
        return list(range(depth + 1))
    if layers == "last":
        return [depth]
    numbers: list[int] = []
    try:
        for part in layers.split(","):
            low, dash, high = part.strip().partition("-") if not part.strip().startswith("-") else (part, "", "")
            numbers += range(int(low), int(high) + 1) if dash else [int(low)]
    except ValueError:
        raise UsageError(
            f"layers {layers!r} is not understood; write all, a range such as 4-8, or a list such as 0,3,12."
        ) from None
    return numbers


def model_inputs(features: Mapping[str, Any], names: Sequence[str]) -> dict[str, Tensor]:
    """Of a batch of sentence-transformers features, only the tensors the Transformer itself takes."""
    return {name: features[name] for name in names if name in features}
