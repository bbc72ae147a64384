"""Views: one pooled vector for each layer of each sentence.

A view h_{i,k} is the pooled hidden state of sentence i at layer k, k = 0..l, where layer 0 is the output of the embedding
layer. Views of a batch have the shape (batch, layers, dim).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from selfguide.engine.packing import Layout, can_pack, layout, run_rows
from selfguide.models.layers import hidden_states, pool


def layer_views(
    model: nn.Module,
    inputs: Mapping[str, Tensor],
    pooling: str,
    layers: Sequence[int],
    plan: Layout | None = None,
    gathered: bool = False,
) -> Tensor:
    """Compute the views of a batch; models that can be packed are, and all layers are pooled from the rows at once.

    Args:
        model: A Hugging Face model.
        inputs: Its keyword arguments, for a padded batch.
        pooling: How a layer's tokens are pooled.
        layers: The layers.
        plan: Layout of the batch, if it is known.
        gathered: Token ids are packed rows already.

    Returns:
        The views, (batch, len(layers), dim).
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
