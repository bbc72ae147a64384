"""ONNX graphs of an encoder, made once and kept.

A graph holds the whole encoder: Transformer, pooling, and what follows (Dense, Normalize, layer means): token ids and mask
in, vectors out. It is made by ``torch.onnx`` and kept under the hash of everything that decides the vectors, so another
encoder, or the same one trained further, gets another graph. The int8 graph is the same with most of its dense maps in
eight bits (:mod:`selfguide.engine.int8`); embeddings, norms, attention and what follows the Transformer stay in fp32.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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

from selfguide.engine.digest import model_digest
from selfguide.engine.int8 import has_vnni, quantise
from selfguide.errors import SelfguideError
from selfguide.models.encoders import quiet_libraries

# Raised when the graph of the same weights would come out another way.
VERSION = 2
# The first with a Gelu of its own: spelt out as an error function it takes five passes over the widest tensor there is.
OPSET = 20
STOCK = (Transformer, Pooling, WeightedLayerPooling, WordWeights, Dense, Normalize, LayerNorm)


def graph_file(model: SentenceTransformer, int8: bool) -> Path:
    """The encoder's graph, made if it is not there yet."""
    _check(model)
    name = f"{model_digest(model)}-{VERSION}"
    plain = graphs_folder() / f"{name}.onnx"
    if not int8:
        return plain if plain.is_file() else _kept(plain, lambda fresh: _export(model, fresh))
    small = graphs_folder() / f"{name}-int8{'' if has_vnni() else '-reduced'}.onnx"
    return small if small.is_file() else _kept(small, lambda fresh: _make_small(model, fresh))


def graphs_folder() -> Path:
    """Where graphs are kept: in ``$SELFGUIDE_CACHE``, or in the user's cache folder. It may be deleted at any time."""
    own = os.environ.get("SELFGUIDE_CACHE")
    parent = Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "selfguide"
    return parent / "graphs"


class _Whole(nn.Module):
    """An encoder as a function of tensors."""

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
                f"PyTorch could not export this {type(model[0].model).__name__} to ONNX; leave --backend out. It said: {reason}"
            ) from error
    assert program is not None
    program.save(str(path), external_data=False)


def _make_small(model: SentenceTransformer, path: Path) -> None:
    with _quiet():
        quantise(graph_file(model, False), path, model)


def _kept(path: Path, make: Callable[[Path], None]) -> Path:
    """Make a file under another name and give it its own when it is complete."""
    fresh = path.with_name(f".{path.stem}.{os.getpid()}.tmp.onnx")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        make(fresh)
        fresh.replace(path)
    except OSError as error:
        raise SelfguideError(
            f"The encoder's graph cannot be kept in {path.parent}: {error.strerror or error}. "
            "Set SELFGUIDE_CACHE to a folder with room."
        ) from None
    finally:
        with suppress(OSError):  # where the folder is none, there is nothing to clear up either
            fresh.unlink(missing_ok=True)
    return path


@contextmanager
def _eager_attention(model: SentenceTransformer) -> Iterator[None]:
    """Plain attention: the fused one is exported as three times as many nodes that do the same."""
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
    """Without the exporters' notes on packages that are not there and steps that are not needed."""
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
