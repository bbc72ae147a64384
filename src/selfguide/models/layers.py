"""Hidden states of a Transformer: which layers there are, and how a layer's tokens become one vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from selfguide.errors import SelfguideError, UsageError

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
