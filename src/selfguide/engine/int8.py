"""Dynamic int8 quantisation of an encoder's ONNX graph.

Weights of linear layers have one scale a column; their inputs are quantised at run time, with one scale a tensor. A few
layers do not tolerate this: where one activation in a thousand is a hundred times the others (often after the Gelu of a
feed-forward network), it sets the scale and the others round to 0. So each layer is tried on a few sentences first: with x
its inputs, q(x) the same quantised and W its weights, the error of a token is

    ‖(q(x) − x) W‖ / ‖x W‖

and layers whose median error is above a fifth stay in fp32. This needs no labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

LARGEST_ERROR = 0.2
_SENTENCES = 64
# Tokens of a sentence: the inputs of all layers are in memory at once.
_TOKENS = 48


def quantise(plain: Path, path: Path, keep: Sequence[str], *, reduce_range: bool) -> None:
    """Quantise a graph.

    Args:
        plain: The fp32 graph.
        path: The file to write.
        keep: Names of the nodes of linear layers that stay in fp32, beside those of Dense modules.
        reduce_range: Give weights seven bits. Processors without VNNI add pairs of products in 16 bits, which eight-bit
            weights can overflow.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # Dense modules after the Transformer, which the quantiser makes products of matrices first.
    dense = [f"{node.name}_MatMul" for node in onnx.load(str(plain)).graph.node if node.op_type == "Gemm"]
    quantize_dynamic(
        plain,
        path,
        op_types_to_quantize=["MatMul"],
        weight_type=QuantType.QInt8,
        per_channel=True,
        reduce_range=reduce_range,
        nodes_to_exclude=[*keep, *dense],
    )


def layers_in_fp32(plain: Path, model: SentenceTransformer, sentences: Sequence[str] | None = None) -> list[str]:
    """Return which linear layers do not tolerate quantisation.

    Args:
        plain: The fp32 graph.
        model: The encoder of the graph.
        sentences: Text to try them on; ``None`` takes a few sentences of the package's demonstration.

    Returns:
        Names of the layers' nodes.
    """
    errors = rounding_errors(plain, model, sentences)
    return [name for name, error in errors.items() if error > LARGEST_ERROR]


def rounding_errors(
    plain: Path, model: SentenceTransformer, sentences: Sequence[str] | None = None
) -> dict[str, float]:
    """Return the median quantisation error of each linear layer's inputs, on a few sentences.

    Args:
        plain: The fp32 graph.
        model: The encoder of the graph.
        sentences: As for :func:`layers_in_fp32`.

    Returns:
        The errors, by name of the layer's node.
    """
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    graph = onnx.load(str(plain))
    weights = {item.name: item for item in graph.graph.initializer}
    # Name, input and weights of each linear layer. The products of attention have no weights: both sides depend on the text.
    layers = [
        (node.name, node.input[0], node.input[1])
        for node in graph.graph.node
        if node.op_type == "MatMul" and node.input[0] not in weights and node.input[1] in weights
    ]
    inputs = list(dict.fromkeys(given for _, given, _ in layers))
    graph.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in inputs)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # With all optimisations some of the requested tensors would be fused away.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])
    tokens = _sample(model, sentences)
    found = dict(zip(inputs, session.run(inputs, tokens), strict=True))
    real = tokens["attention_mask"].astype(bool)
    return {
        name: rounding_error(found[given], numpy_helper.to_array(weights[weight]), real)
        for name, given, weight in layers
    }


def rounding_error(states: NDArray[Any], weights: NDArray[Any], real: NDArray[Any]) -> float:
    """Return the median over tokens of ‖(q(x) − x) W‖ / ‖x W‖.

    Args:
        states: x, (batch, length, inputs).
        weights: W, (inputs, outputs).
        real: (batch, length): mask of the tokens that are not padding.
    """
    low, high = min(float(states.min()), 0.0), max(float(states.max()), 0.0)
    scale = (high - low) / 255 or 1.0
    zero = round(-low / scale)
    rounded = (np.clip(np.round(states / scale) + zero, 0, 255) - zero) * scale
    if states.shape[:-1] == real.shape:
        states, rounded = states[real], rounded[real]
    whole = np.linalg.norm(states @ weights, axis=-1)
    wrong = np.linalg.norm((rounded - states) @ weights, axis=-1)
    return float(np.median(wrong / np.maximum(whole, np.finfo(np.float32).tiny)))


def _sample(model: SentenceTransformer, sentences: Sequence[str] | None) -> dict[str, NDArray[Any]]:
    """Return a batch of sentences, evenly spaced in the given text or in the package's demonstration text."""
    from selfguide.data.resources import demo_sentences
    from selfguide.engine.tokens import length_limit, tokenise

    sentences = sentences or demo_sentences()
    few = list(sentences[:: max(1, len(sentences) // _SENTENCES)][:_SENTENCES])
    tokenizer: Any = model.tokenizer
    padding = int(getattr(tokenizer, "pad_token_id", 0) or 0)
    ids, mask = tokenise(tokenizer, few, min(_TOKENS, length_limit(model))).padded(padding)
    return {"input_ids": ids, "attention_mask": mask}


def has_vnni() -> bool:
    """Return whether the processor adds products of eight-bit numbers in 32 bits."""
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return "avx512_vnni" in flags or "avx_vnni" in flags or "asimddp" in flags
