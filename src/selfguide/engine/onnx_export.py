"""From an encoder to an ONNX graph, by ``torch.onnx``.

A graph is a function of token ids and attention mask. It holds the Transformer and, if asked for, everything after it
(pooling, layer means, Dense, Normalize), up to the sentence's embedding.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    LayerNorm,
    Normalize,
    Pooling,
    Transformer,
    WeightedLayerPooling,
    WordWeights,
)
from torch import Tensor, nn

from selfguide.errors import SelfguideError, one_line
from selfguide.models.encoders import quiet_libraries
from selfguide.progress import quiet_loggers

if TYPE_CHECKING:
    from onnx import ModelProto

# The first opset with a Gelu operator: composed of an error function it takes five passes over the widest tensor.
OPSET = 20
STOCK = (Transformer, Pooling, WeightedLayerPooling, WordWeights, Dense, Normalize, LayerNorm)
TOKENS, SENTENCE = "last_hidden_state", "sentence_embedding"
"""Names of the outputs: the states of the last layer, and the embedding."""
INPUTS = ("input_ids", "attention_mask")
TOKEN_TYPES = "token_type_ids"


def obstacle(model: SentenceTransformer) -> str | None:
    """Return why an encoder cannot be exported, as a sentence; ``None`` if it can."""
    for module in model:
        if type(module) not in STOCK:
            return (
                f"An encoder with {type(module).__name__} in it cannot run as ONNX: selfguide exports a Transformer with "
                "stock pooling, Dense and Normalize modules."
            )
    if not isinstance(model[0], Transformer):
        return (
            f"An encoder that starts with {type(model[0]).__name__} cannot run as ONNX, and would not be faster for it."
        )
    return None


def exported(
    model: SentenceTransformer, *, token_states: bool = False, token_types: bool = False, tail: nn.Module | None = None
) -> ModelProto:
    """Export an encoder.

    Args:
        model: The encoder, for which :func:`obstacle` finds none.
        token_states: Whether the last layer is an output too, before the embedding.
        token_types: Whether the token types are an input too.
        tail: Applied to the embedding.

    Returns:
        The graph, with its weights.

    Raises:
        SelfguideError: PyTorch cannot export the encoder.
    """
    limit = int(model.max_seq_length or 512)
    batch, length = torch.export.Dim("batch", min=1, max=1 << 16), torch.export.Dim("length", min=2, max=max(3, limit))
    ids = torch.full((3, min(7, limit)), 5)
    mask = torch.ones_like(ids)
    mask[1, 3:] = 0
    inputs = dict(zip((*INPUTS, TOKEN_TYPES), (ids, mask, torch.zeros_like(ids)), strict=True))
    if not token_types:
        del inputs[TOKEN_TYPES]
    whole = _Whole(model, token_states, tail).eval()
    with _on_cpu(model), _eager_attention(model), quiet_export(), torch.no_grad():
        try:
            program = torch.onnx.export(
                whole,
                tuple(inputs.values()),
                dynamo=True,
                opset_version=OPSET,
                input_names=list(inputs),
                output_names=[TOKENS, SENTENCE] if token_states else [SENTENCE],
                dynamic_shapes={name: {0: batch, 1: length} for name in inputs},
                verbose=False,
            )
        except Exception as error:
            reason = one_line(error)[:200]
            raise SelfguideError(
                f"PyTorch could not export this {type(model[0].model).__name__} to ONNX. Its error: {reason}"
            ) from error
    assert program is not None
    graph = program.model_proto
    # The exporter records the shapes of weights twice; onnxruntime's quantiser transposes weights and fails on the
    # record.
    weights = {item.name for item in graph.graph.initializer}
    notes = [item for item in graph.graph.value_info if item.name not in weights]
    del graph.graph.value_info[:]
    graph.graph.value_info.extend(notes)
    _remove_traces(graph)
    return graph


def _remove_traces(model: Any) -> None:
    """Take out where in the source each node comes from: the exporter notes files with their paths on this machine."""
    graph = model.graph
    nodes = [*graph.node, *(node for function in model.functions for node in function.node)]
    for item in (
        model,
        graph,
        *nodes,
        *graph.value_info,
        *graph.input,
        *graph.output,
        *graph.initializer,
        *model.functions,
    ):
        for name in ("metadata_props", "doc_string"):
            if name in item.DESCRIPTOR.fields_by_name:
                item.ClearField(name)


class _Whole(nn.Module):
    """An encoder as a function of token ids and attention mask."""

    def __init__(self, model: SentenceTransformer, token_states: bool, tail: nn.Module | None) -> None:
        super().__init__()
        self.parts = nn.ModuleList(list(model))
        self.token_states = token_states
        self.tail = tail or nn.Identity()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        features: dict[str, Any] = {"input_ids": input_ids, "attention_mask": attention_mask, "modality": "text"}
        if token_type_ids is not None:
            features[TOKEN_TYPES] = token_type_ids
        first, *rest = self.parts
        features = first(features)
        states = features["token_embeddings"]
        for part in rest:
            features = part(features)
        vectors = self.tail(features[SENTENCE])
        return (states, vectors) if self.token_states else vectors


@contextmanager
def _eager_attention(model: SentenceTransformer) -> Iterator[None]:
    """Export eager attention: scaled dot-product attention becomes three times as many nodes that do the same."""
    transformer: Any = model[0].model
    before = transformer.config._attn_implementation
    transformer.set_attn_implementation("eager")
    try:
        yield
    finally:
        transformer.set_attn_implementation(before)


@contextmanager
def _on_cpu(model: SentenceTransformer) -> Iterator[None]:
    before = model.device
    model.to("cpu")
    try:
        yield
    finally:
        model.to(before)


@contextmanager
def quiet_export() -> Iterator[None]:
    """Silence the exporters' notes about optional packages and skipped steps.

    Yields:
        Nothing; log levels are restored when the block ends.
    """
    loggers = quiet_loggers("torch.onnx", "onnxscript", "onnx_ir", "root")
    with quiet_libraries(), warnings.catch_warnings(), loggers:
        warnings.simplefilter("ignore")
        yield
