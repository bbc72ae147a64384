"""An encoder's graph with the weights of its dense maps in eight bits.

Weights get one scale a column, and the inputs of a map are rounded as they come, with one scale for the whole tensor. A few
maps do not bear that: where one number in a thousand is a hundred times the others (often what a feed-forward part has
after its Gelu), the scale is that number's and the others round to nothing. So each map is tried on a few sentences first:
with x its inputs, q(x) the same rounded and W its weights, the error of a token is

    ‖(q(x) − x) W‖ / ‖x W‖

and maps whose median error is above a fifth stay as they are. No grades are needed for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

LARGEST_ERROR = 0.2
_SENTENCES = 64


def quantise(plain: Path, path: Path, model: SentenceTransformer) -> None:
    """Write the eight-bit graph of a plain one."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    errors = rounding_errors(plain, model)
    quantize_dynamic(
        plain,
        path,
        op_types_to_quantize=["MatMul"],
        weight_type=QuantType.QInt8,
        per_channel=True,
        # Without VNNI pairs of products are added in 16 bits, where eight bits a weight can overflow.
        reduce_range=not has_vnni(),
        nodes_to_exclude=[name for name, error in errors.items() if error > LARGEST_ERROR],
    )


def rounding_errors(plain: Path, model: SentenceTransformer) -> dict[str, float]:
    """By name of the graph's dense maps: the median over tokens of the error that rounding their inputs makes."""
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    graph = onnx.load(str(plain))
    weights = {item.name: item for item in graph.graph.initializer}
    # Name of the map, what goes in, its weights; attention multiplies two tensors that both depend on the text.
    maps = [
        (node.name, node.input[0], node.input[1])
        for node in graph.graph.node
        if node.op_type == "MatMul" and node.input[0] not in weights and node.input[1] in weights
    ]
    inputs = list(dict.fromkeys(given for _, given, _ in maps))
    graph.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in inputs)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # With all optimisations tensors that are asked for would be fused away.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])
    tokens = _sample(model)
    found = dict(zip(inputs, session.run(inputs, tokens), strict=True))
    real = tokens["attention_mask"].astype(bool)
    return {
        name: rounding_error(found[given], numpy_helper.to_array(weights[weight]), real) for name, given, weight in maps
    }


def rounding_error(states: NDArray[Any], weights: NDArray[Any], real: NDArray[Any]) -> float:
    """The median over tokens of ‖(q(x) − x) W‖ / ‖x W‖; ``real`` (batch, length) says which are tokens and not padding."""
    low, high = min(float(states.min()), 0.0), max(float(states.max()), 0.0)
    scale = (high - low) / 255 or 1.0
    zero = round(-low / scale)
    rounded = (np.clip(np.round(states / scale) + zero, 0, 255) - zero) * scale
    if states.shape[:-1] == real.shape:
        states, rounded = states[real], rounded[real]
    whole = np.linalg.norm(states @ weights, axis=-1)
    wrong = np.linalg.norm((rounded - states) @ weights, axis=-1)
    return float(np.median(wrong / np.maximum(whole, np.finfo(np.float32).tiny)))


def _sample(model: SentenceTransformer) -> dict[str, NDArray[Any]]:
    """Some of the package's sentences, evenly from its text, as one batch."""
    from selfguide.data.resources import demo_sentences
    from selfguide.engine.tokens import length_limit, tokenise

    sentences = demo_sentences()
    few = sentences[:: max(1, len(sentences) // _SENTENCES)][:_SENTENCES]
    tokenizer: Any = model.tokenizer
    padding = int(getattr(tokenizer, "pad_token_id", 0) or 0)
    ids, mask = tokenise(tokenizer, few, length_limit(model)).padded(padding)
    return {"input_ids": ids, "attention_mask": mask}


def has_vnni() -> bool:
    """Whether the processor multiplies eight-bit numbers without a detour over sixteen bits."""
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return "avx512_vnni" in flags or "avx_vnni" in flags or "asimddp" in flags
