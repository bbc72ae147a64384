"""The two graphs of an exported encoder, and their smaller variants.

``model.onnx`` gives the states of the last layer; ``sentence_embedding.onnx`` the sentence's embedding. Both are cut out of one
export, so that their nodes have the same names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from selfguide.engine.onnx_export import INPUTS, SENTENCE, TOKEN_TYPES, TOKENS, exported
from selfguide.errors import SelfguideError

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto
    from sentence_transformers import SentenceTransformer

    from selfguide.engine.vector_form import VectorForm

# A protocol buffer cannot be larger.
_LARGEST = 2_000_000_000


@dataclass(frozen=True)
class Graphs:
    """The graphs of an encoder, in fp32."""

    tokens: ModelProto
    """From token ids to the states of the last layer."""
    sentence: ModelProto
    """From token ids to the embedding."""


def make_graphs(model: SentenceTransformer, form: VectorForm) -> Graphs:
    """Export an encoder.

    Args:
        model: The encoder.
        form: What is done to its embedding at the end; its ranges are known.

    Returns:
        The graphs.

    Raises:
        SelfguideError: The encoder is too large for one file, or PyTorch cannot export it.
    """
    size = sum(parameter.numel() for parameter in model.parameters()) * 4
    if size > _LARGEST:
        raise SelfguideError(
            f"The encoder has {size / 1e9:.1f} GB of weights, and an ONNX file holds less than 2: export a smaller one."
        )
    whole = exported(model, token_states=True, token_types=takes_token_types(model), tail=_FormModule(form))
    return Graphs(_cut(whole, TOKENS), _without_token_types(_cut(whole, SENTENCE)))


def takes_token_types(model: SentenceTransformer) -> bool:
    """Return whether users of the Transformer expect to pass token types: its tokenizer gives them, and it uses them."""
    config: Any = model[0].model.config
    names: Sequence[str] = getattr(model.tokenizer, "model_input_names", ())
    return TOKEN_TYPES in names and int(getattr(config, "type_vocab_size", 0) or 0) > 0


def half(graph: ModelProto) -> ModelProto:
    """Return a graph with weights and arithmetic in fp16; its inputs and outputs keep their types."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    return convert_float_to_float16(graph, keep_io_types=True)


class _FormModule(nn.Module):
    """:class:`selfguide.engine.vector_form.VectorForm` as a part of the graph."""

    starts: Tensor
    steps: Tensor

    def __init__(self, form: VectorForm) -> None:
        super().__init__()
        self.form = form
        if form.ranges is not None:
            starts, ends = torch.from_numpy(form.ranges.astype("float32"))
            steps = (ends - starts) / 255
            self.register_buffer("starts", starts)
            self.register_buffer("steps", torch.where(steps == 0, 1.0, steps))

    def forward(self, vectors: Tensor) -> Tensor:
        form = self.form
        vectors = vectors[:, : form.dim] if form.dim is not None else vectors
        if form.normalise:
            vectors = vectors / vectors.norm(dim=1, keepdim=True).clamp(min=1e-12)
        if form.takes_ranges:
            steps = torch.floor((vectors - self.starts) / self.steps).clamp(0, 255)
            return (steps - 128).to(torch.int8) if form.precision == "int8" else steps.to(torch.uint8)
        if form.precision.endswith("binary"):
            packed = _packed(vectors > 0)
            return (packed - 128).to(torch.int8) if form.precision == "binary" else packed.to(torch.uint8)
        return vectors


def _packed(bits: Tensor) -> Tensor:
    """Return eight bits as one number, the first as its highest; bits that are missing at the end are 0."""
    bits = nn.functional.pad(bits.to(torch.float32), (0, -bits.shape[1] % 8))
    values = torch.tensor([128.0, 64, 32, 16, 8, 4, 2, 1])
    return (bits.reshape(-1, bits.shape[1] // 8, 8) * values).sum(dim=2)


def _cut(graph: ModelProto, output: str) -> ModelProto:
    """Return the part of a graph that one of its outputs depends on."""
    from onnx import ModelProto

    cut = ModelProto()
    cut.CopyFrom(graph)
    inner = cut.graph
    makers = {name: node for node in inner.node for name in node.output}
    needed: set[str] = set()
    waiting = [output]
    while waiting:
        name = waiting.pop()
        if name in needed:
            continue
        needed.add(name)
        if name in makers:
            waiting += _reads(makers[name])
    for field in (inner.initializer, inner.value_info):
        _keep(field, [item for item in field if item.name in needed])
    _keep(inner.output, [item for item in inner.output if item.name == output])
    _keep(inner.node, [node for node in inner.node if needed & set(node.output)])
    return cut


def _reads(node: NodeProto) -> Iterator[str]:
    """Yield the names that a node reads, those inside its branches included."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for branch in (attribute.g, *attribute.graphs):
            for inside in branch.node:
                yield from _reads(inside)


def _keep(field: Any, items: list[Any]) -> None:
    copies = [type(item).FromString(item.SerializeToString()) for item in items]
    del field[:]
    field.extend(copies)


def _without_token_types(graph: ModelProto) -> ModelProto:
    """Return the graph with token types of 0 made inside: a sentence's embedding is never of a pair."""
    from onnx import TensorProto, helper

    inner = graph.graph
    kept = [item for item in inner.input if item.name in INPUTS]
    if len(kept) == len(inner.input):
        return graph
    zero = helper.make_tensor("zero", TensorProto.INT64, [1], [0])
    made = [
        helper.make_node("Shape", [INPUTS[0]], ["token_type_shape"], name="token_type_shape"),
        helper.make_node("ConstantOfShape", ["token_type_shape"], [TOKEN_TYPES], name=TOKEN_TYPES, value=zero),
        *inner.node,
    ]
    _keep(inner.input, kept)
    _keep(inner.node, made)
    return graph
