"""Hidden states of a Transformer: layer numbers, and poolings of a layer's tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from selfguide.errors import SelfguideError, UsageError
from selfguide.options import OneOf, check

VIEW_POOLINGS = ("max", "mean", "cls")


def pool(states: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """Pool the states of a batch's tokens.

    Args:
        states: (batch, tokens, dim).
        mask: (batch, tokens): 0 or False at padding.
        pooling: One of ``VIEW_POOLINGS``.

    Returns:
        One vector a sentence, (batch, dim).

    Raises:
        UsageError: There is no such pooling.
    """
    check("view pooling", pooling, OneOf(*VIEW_POOLINGS))
    real = mask.unsqueeze(-1).bool()
    if pooling == "max":
        return states.masked_fill(~real, torch.finfo(states.dtype).min).amax(dim=1)
    if pooling == "mean":
        return (states * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)
    # The first token that is not padding: position 0 unless the tokenizer pads on the left.
    first = mask.long().argmax(dim=1)
    return states[torch.arange(len(states), device=states.device), first]


def hidden_states(model: nn.Module, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """Run a model and return the hidden states of every layer.

    Args:
        model: A Hugging Face model.
        inputs: Its keyword arguments.

    Returns:
        The states (batch, tokens, dim), layer 0 first.

    Raises:
        SelfguideError: The model returns none.
    """
    output = model(**inputs, output_hidden_states=True, return_dict=True)
    states = getattr(output, "hidden_states", None)
    if not states:
        raise SelfguideError(
            f"{type(model).__name__} gives no hidden states, so it has no views to guide with; "
            "choose a BERT-like encoder (see `selfguide train --help`)."
        )
    return tuple(states)


def parse_layers(layers: str | int | Sequence[int], depth: int) -> tuple[int, ...]:
    """Resolve a choice of layers.

    Args:
        layers: ``"all"``, ``"last"``, a range ``"4-8"``, a list ``"0,3,12"`` or ``[0, 3, 12]``, or one number. Negative
            numbers count from the end, as in Python: −1 is the last layer.
        depth: Number of layers above the embedding layer, which is layer 0.

    Returns:
        The layers' numbers.

    Raises:
        UsageError: The choice is not understood, empty, has a layer twice or one that does not exist.
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
    """Return those features of a sentence-transformers batch that the Transformer takes, by name."""
    return {name: features[name] for name in names if name in features}
