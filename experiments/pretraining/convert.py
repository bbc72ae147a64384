"""Conversion between our packed model and stock BERT folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from .config import Shape
from .model import MaskedLM
from .tokenizer import PAD, TOKENIZER_FILES

SHARD_LIMIT = 14_500_000
HEAD_FILE = "mlm-head.safetensors"

# Our name -> the stock name, both without ".weight" and ".bias".
_LAYER = {
    "out": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "norm2": "output.LayerNorm",
}
_EMBEDDINGS = {
    "tokens.weight": "embeddings.word_embeddings.weight",
    "places.weight": "embeddings.position_embeddings.weight",
    "types.weight": "embeddings.token_type_embeddings.weight",
    "norm.weight": "embeddings.LayerNorm.weight",
    "norm.bias": "embeddings.LayerNorm.bias",
}
_HEAD = {
    "transform.weight": "cls.predictions.transform.dense.weight",
    "transform.bias": "cls.predictions.transform.dense.bias",
    "transform_norm.weight": "cls.predictions.transform.LayerNorm.weight",
    "transform_norm.bias": "cls.predictions.transform.LayerNorm.bias",
    "bias": "cls.predictions.bias",
}


def stock_config(shape: Shape) -> dict[str, Any]:
    """Return a BERT configuration, with dropout 0.1 for fine-tuning whatever pre-training used."""
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "attention_probs_dropout_prob": 0.1,
        "classifier_dropout": None,
        "dtype": "float16",
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": shape.width,
        "initializer_range": shape.init_range,
        "intermediate_size": shape.ffn,
        "layer_norm_eps": shape.eps,
        "max_position_embeddings": shape.positions,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "pad_token_id": PAD,
        "type_vocab_size": shape.types,
        "vocab_size": shape.vocab,
    }


def shape_of(config: dict[str, Any]) -> Shape:
    """Return the shape that a stock configuration describes."""
    if config.get("hidden_act", "gelu") != "gelu":
        raise ValueError("Only the exact GELU is supported.")
    return Shape(
        vocab=config["vocab_size"],
        layers=config["num_hidden_layers"],
        width=config["hidden_size"],
        heads=config["num_attention_heads"],
        ffn=config["intermediate_size"],
        positions=config["max_position_embeddings"],
        types=config["type_vocab_size"],
        eps=config["layer_norm_eps"],
        init_range=config["initializer_range"],
    )


def to_stock(model: MaskedLM) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return our weights under the stock names: those of ``BertModel`` without pooler, and those of the MLM head."""
    own = model.state_dict()
    encoder = {stock: own[name] for name, stock in _EMBEDDINGS.items()}
    for number in range(model.shape.layers):
        stem = f"encoder.layer.{number}."
        for end in ("weight", "bias"):
            pieces = own[f"layers.{number}.qkv.{end}"].chunk(3)
            for which, piece in zip(("query", "key", "value"), pieces, strict=True):
                encoder[f"{stem}attention.self.{which}.{end}"] = piece
            for name, stock in _LAYER.items():
                encoder[f"{stem}{stock}.{end}"] = own[f"layers.{number}.{name}.{end}"]
    return encoder, {stock: own[name] for name, stock in _HEAD.items()}


def from_stock(model: MaskedLM, encoder: dict[str, Tensor], head: dict[str, Tensor] | None) -> None:
    """Load stock weights into our model.

    Args:
        model: The model, which is changed.
        encoder: Weights of a ``BertModel``, with or without the prefix ``bert.``.
        head: Weights of the MLM head; None keeps the head's initialisation.
    """
    encoder = {name.removeprefix("bert."): tensor for name, tensor in encoder.items()}
    own = dict(model.state_dict())
    own.update({name: encoder[stock] for name, stock in _EMBEDDINGS.items()})
    for number in range(model.shape.layers):
        stem = f"encoder.layer.{number}."
        for end in ("weight", "bias"):
            pieces = [encoder[f"{stem}attention.self.{which}.{end}"] for which in ("query", "key", "value")]
            own[f"layers.{number}.qkv.{end}"] = torch.cat(pieces)
            for name, stock in _LAYER.items():
                own[f"layers.{number}.{name}.{end}"] = encoder[f"{stem}{stock}.{end}"]
    if head is not None:
        own.update({name: head[stock] for name, stock in _HEAD.items()})
    model.load_state_dict({name: tensor.float() for name, tensor in own.items()})


def _shards(tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """Group whole layers into files below the size limit."""
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        key = name.split(".")[2] if name.startswith("encoder.") else "embeddings"
        groups.setdefault(key, {})[name] = tensor
    shards: list[dict[str, Tensor]] = [{}]
    for group in groups.values():
        size = sum(t.nbytes for t in group.values())
        if shards[-1] and sum(t.nbytes for t in shards[-1].values()) + size > SHARD_LIMIT:
            shards.append({})
        shards[-1].update(group)
    return shards


def export(model: MaskedLM, tokenizer: Path, out: Path, *, limit: int = 0) -> int:
    """Write ``out/encoder`` (a stock BertModel folder, fp16) and ``out/head`` (to continue training).

    Args:
        model: The model.
        tokenizer: The folder of its tokenizer, which is copied.
        out: The target folder; its encoder is replaced only when the new one is complete.
        limit: Largest size of the encoder in bytes; 0 for none.

    Returns:
        The size of the encoder in bytes.

    Raises:
        ValueError: The weights are not finite in fp16, or the encoder is too large.
    """
    encoder, head = to_stock(model)
    half = {name: t.detach().to("cpu", torch.float16).contiguous().clone() for name, t in encoder.items()}
    if not all(bool(torch.isfinite(t).all()) for t in half.values()):
        raise ValueError("The weights are not finite in fp16, so nothing is exported.")
    fresh = out / "encoder.partial"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    shards = _shards(half)
    where: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors" if len(shards) > 1 else "model.safetensors"
        save_file(shard, fresh / name, metadata={"format": "pt"})
        (fresh / name).chmod(0o644)  # safetensors writes files that only their owner can read
        where.update(dict.fromkeys(shard, name))
    if len(shards) > 1:
        index = {"metadata": {"total_size": sum(t.nbytes for t in half.values())}, "weight_map": where}
        (fresh / "model.safetensors.index.json").write_text(json.dumps(index) + "\n", encoding="utf-8")
    (fresh / "config.json").write_text(json.dumps(stock_config(model.shape), indent=1) + "\n", encoding="utf-8")
    for name in TOKENIZER_FILES:
        shutil.copyfile(tokenizer / name, fresh / name)
    size = sum(p.stat().st_size for p in fresh.iterdir())
    if limit and size > limit:
        raise ValueError(f"The exported folder has {size:,} bytes, more than {limit:,}.")
    shutil.rmtree(out / "encoder", ignore_errors=True)
    fresh.rename(out / "encoder")
    (out / "head").mkdir(exist_ok=True)
    save_file({n: t.detach().to("cpu", torch.float16).contiguous() for n, t in head.items()}, out / "head" / HEAD_FILE)
    return size


def read_export(folder: Path) -> tuple[Shape, dict[str, Tensor], dict[str, Tensor] | None]:
    """Read an export: its shape, its encoder's weights and, if it is there, its head."""
    encoder_folder = folder / "encoder" if (folder / "encoder").is_dir() else folder
    config = json.loads((encoder_folder / "config.json").read_text(encoding="utf-8"))
    encoder: dict[str, Tensor] = {}
    for path in sorted(encoder_folder.glob("model*.safetensors")):
        encoder.update(load_file(path))
    heads = [p for p in (folder / "head" / HEAD_FILE, folder.parent / "head" / HEAD_FILE) if p.exists()]
    return shape_of(config), encoder, load_file(heads[0]) if heads else None
