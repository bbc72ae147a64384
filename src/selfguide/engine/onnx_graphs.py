"""ONNX graphs of encoders, exported once and cached.

A graph holds the whole encoder, from token ids and attention mask to embeddings: Transformer, pooling and the modules after
it (Dense, Normalize, layer means). It is exported by ``torch.onnx`` and cached under the digest of everything that decides
the embeddings, so another encoder, or the same one trained further, gets another graph. In the int8 graph most linear layers
have eight-bit weights (:mod:`selfguide.engine.int8`); embedding layer, norms, attention and the modules after the Transformer
stay in fp32.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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

from selfguide.engine.cache import FOLDER_VARIABLE, GRAPHS, cache_folder
from selfguide.engine.digest import model_digest
from selfguide.engine.int8 import has_vnni, quantise
from selfguide.errors import SelfguideError
from selfguide.files import atomic_path
from selfguide.models.encoders import quiet_libraries

# To be increased when the same weights would give another graph.
VERSION = 2
# The first opset with a Gelu operator: composed of an error function it takes five passes over the widest tensor.
OPSET = 20
STOCK = (Transformer, Pooling, WeightedLayerPooling, WordWeights, Dense, Normalize, LayerNorm)


def graph_file(model: SentenceTransformer, int8: bool) -> Path:
    """Return the file of an encoder's graph, exported first if it is not cached.

    Args:
        model: The encoder, made of stock modules.
        int8: Whether linear layers have eight-bit weights.

    Returns:
        The file, in the cache folder.

    Raises:
        SelfguideError: The encoder cannot be exported, or the cache folder cannot be written.
    """
    _check(model)
    name = f"{model_digest(model)}-{VERSION}"
    if not int8:
        return _cached(name, lambda path: _export(model, path))
    return _cached(f"{name}-int8{'' if has_vnni() else '-reduced'}", lambda path: _export_int8(model, path))


def _cached(name: str, make: Callable[[Path], None]) -> Path:
    path = cache_folder(GRAPHS) / f"{name}.onnx"
    if path.is_file():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary:
            make(temporary)
    except OSError as error:
        raise SelfguideError(
            f"The encoder's graph cannot be cached in {path.parent}: {error.strerror or error}. "
            f"Set {FOLDER_VARIABLE} to a folder with room."
        ) from None
    return path


class _Whole(nn.Module):
    """An encoder as a function of token ids and attention mask."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.parts = nn.ModuleList(list(model))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        features: dict[str, Any] = {"input_ids": input_ids, "attention_mask": attention_mask, "modality": "text"}
        for part in self.parts:
            features = part(features)
        return features["sentence_embedding"]


def _check(model: SentenceTransformer) -> None:
    for module in model:
        if type(module) not in STOCK:
            raise SelfguideError(
                f"An encoder with {type(module).__name__} in it cannot run as ONNX: selfguide exports a Transformer with "
                "stock pooling, Dense and Normalize modules. Leave --backend out."
            )
    if not isinstance(model[0], Transformer):
        raise SelfguideError(
            f"An encoder that starts with {type(model[0]).__name__} cannot run as ONNX, and would not be faster for it. "
            "Leave --backend out."
        )
    if model.default_prompt_name is not None or model.truncate_dim is not None:
        raise SelfguideError(
            "An encoder with a default prompt or a truncated dimension cannot run as ONNX. Leave --backend out."
        )


def _export(model: SentenceTransformer, path: Path) -> None:
    limit = int(model.max_seq_length or 512)
    batch, length = torch.export.Dim("batch", min=1, max=1 << 16), torch.export.Dim("length", min=2, max=max(3, limit))
    ids = torch.full((3, min(7, limit)), 5)
    mask = torch.ones_like(ids)
    mask[1, 3:] = 0
    whole = _Whole(model).eval()
    with _on_cpu(model), _eager_attention(model), _quiet(), torch.no_grad():
        try:
            program = torch.onnx.export(
                whole,
                (ids, mask),
                dynamo=True,
                opset_version=OPSET,
                input_names=["input_ids", "attention_mask"],
                output_names=["vectors"],
                dynamic_shapes={"input_ids": {0: batch, 1: length}, "attention_mask": {0: batch, 1: length}},
                verbose=False,
            )
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise SelfguideError(
                f"PyTorch could not export this {type(model[0].model).__name__} to ONNX; leave --backend out. Its error: {reason}"
            ) from error
    assert program is not None
    program.save(str(path), external_data=False)


def _export_int8(model: SentenceTransformer, path: Path) -> None:
    with _quiet():
        quantise(graph_file(model, False), path, model)


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
def _quiet() -> Iterator[None]:
    """Silence the exporters' notes about optional packages and skipped steps."""
    names = ("torch.onnx", "onnxscript", "onnx_ir", "root")
    before = {name: logging.getLogger(name).level for name in names}
    with quiet_libraries(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for name in names:
                logging.getLogger(name).setLevel(logging.ERROR)
            yield
        finally:
            for name, level in before.items():
                logging.getLogger(name).setLevel(level)
