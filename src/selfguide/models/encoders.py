"""Encoders: from a name to a :class:`~sentence_transformers.SentenceTransformer`.

A name is ``mini`` (the encoder inside the package), a folder (of transformers or of sentence-transformers) or a hub name.
The result consists of stock sentence-transformers modules in fp32, so that it can be saved and loaded anywhere without
``trust_remote_code``. The exception are folders with a module of :mod:`selfguide.models.modules`, which only selfguide loads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer, WeightedLayerPooling
from torch import nn
from transformers.utils import logging as transformers_logging

from selfguide.data.resources import MINI, mini_folder
from selfguide.errors import SelfguideError, UsageError, one_line
from selfguide.models.families import family_of
from selfguide.models.folders import is_own_folder, read_folder
from selfguide.models.hub import why_missing
from selfguide.models.integrity import check_folder, restore_interrupted
from selfguide.models.layers import hidden_states, model_inputs, parse_layers
from selfguide.options import OneOf, check
from selfguide.progress import quiet_loggers

if TYPE_CHECKING:
    from transformers import PreTrainedModel

POOLINGS = ("cls", "mean", "max", "last2", "first-last")
TWO_LAYERS = {"last2": (-2, -1), "first-last": (1, -1)}
"""Poolings over the mean of two layers, and which layers; negative ones count from the end."""


def load_encoder(
    name_or_path: str | Path | SentenceTransformer,
    pooling: str | None = None,
    layer: int | None = None,
    max_length: int | None = None,
    device: str | None = None,
) -> SentenceTransformer:
    """Load an encoder as a ``SentenceTransformer`` in fp32.

    Args:
        name_or_path: ``"mini"``, a folder, a hub name, or a loaded encoder, which is used as it is.
        pooling: ``cls``, ``mean``, ``max``, ``last2`` (mean of the last two layers) or ``first-last``. ``None`` keeps the
            pooling of a sentence-transformers folder, and is the mean of the last layer for a plain Transformer.
        layer: Pool the tokens of this layer (0 is the embedding layer, −1 the last) instead of the last one.
        max_length: Truncate sentences after this many tokens; the encoder's position limit applies as well.
        device: ``"cpu"``, ``"cuda"`` or ``"mps"``; ``"auto"`` or ``None`` for the best device there is.

    Returns:
        The encoder.

    Raises:
        SelfguideError: There is no such encoder, or it cannot be loaded.
        UsageError: There is no such pooling, layer or device.

    Example::

        encoder = selfguide.load_encoder("mini", pooling="mean", layer=6)
        vectors = encoder.encode(["A sentence.", "Another one."])
    """
    if isinstance(name_or_path, SentenceTransformer):
        encoder = name_or_path
    else:
        encoder = _load(str(name_or_path), None if device == "auto" else device)
    if pooling is not None or layer is not None:
        encoder = with_pooling(encoder, pooling or "mean", layer)
    if max_length is not None:
        encoder.max_seq_length = allowed_length(encoder, max_length)
    return encoder


def load(path: str | Path, device: str | None = None) -> SentenceTransformer:
    """Load a finished folder as it is, also one with modules that sentence-transformers does not have.

    Args:
        path: The folder.
        device: As for :func:`load_encoder`.

    Returns:
        The encoder.

    Example::

        encoder = selfguide.load("notes-encoder")
        vectors = encoder.encode(["A sentence.", "Another one."])
    """
    return load_encoder(path, device=device)


def transformer_of(encoder: SentenceTransformer) -> Transformer:
    """Return the Transformer module of an encoder.

    Args:
        encoder: The encoder.

    Returns:
        Its first module.

    Raises:
        SelfguideError: It starts with another module, or with an encoder-decoder model.
    """
    first = encoder[0]
    if not isinstance(first, Transformer) or not isinstance(getattr(first, "model", None), nn.Module):
        raise SelfguideError(
            f"This encoder starts with {type(first).__name__}, not with a Transformer: it has no layers to take views from. "
            "Choose a BERT-like encoder."
        )
    if getattr(first.model.config, "is_encoder_decoder", False):
        raise SelfguideError(
            f"{type(first.model).__name__} is an encoder-decoder model; selfguide needs a plain encoder such as BERT, "
            "RoBERTa, DistilBERT, ELECTRA, ALBERT, MPNet, XLM-R, DeBERTa-v2 or ModernBERT."
        )
    return first


def backbone(encoder: SentenceTransformer) -> PreTrainedModel:
    """Return the Hugging Face model inside an encoder."""
    return transformer_of(encoder).model


def input_names(encoder: SentenceTransformer) -> tuple[str, ...]:
    """Return the names of the tensors that an encoder's Transformer takes."""
    names = tuple(encoder.tokenizer.model_input_names)
    return names if "attention_mask" in names else (*names, "attention_mask")


def depth(encoder: SentenceTransformer) -> int:
    """Return the number of layers above the embedding layer."""
    return len(_probe(encoder)) - 1


def with_pooling(encoder: SentenceTransformer, pooling: str, layer: int | None = None) -> SentenceTransformer:
    """Return an encoder with the same Transformer and another pooling, made of stock modules.

    Args:
        encoder: The encoder; its weights are shared, not copied.
        pooling: One of ``POOLINGS``.
        layer: Layer to pool instead of the last one; not for poolings over two layers.

    Returns:
        The new encoder.

    Raises:
        UsageError: There is no such pooling or layer, or the two exclude each other.
    """
    check("pooling", pooling, OneOf(*POOLINGS))
    if layer is not None and pooling in TWO_LAYERS:
        raise UsageError(f"pooling {pooling!r} has its own layers: leave layer={layer} out.")
    transformer = transformer_of(encoder)
    width = int(transformer.get_embedding_dimension())
    modules: list[nn.Module] = [transformer]
    if pooling in TWO_LAYERS or layer is not None:
        count = depth(encoder)
        chosen = parse_layers(TWO_LAYERS[pooling] if layer is None else layer, count)
        transformer.model.config.output_hidden_states = True
        modules.append(_layer_mean(width, count, chosen))
    modules.append(Pooling(width, pooling_mode="mean" if pooling in TWO_LAYERS else pooling))
    rebuilt = SentenceTransformer(
        modules=modules,
        device=str(encoder.device),
        prompts=dict(encoder.prompts),
        default_prompt_name=encoder.default_prompt_name,
        similarity_fn_name=encoder.similarity_fn_name,
    )
    rebuilt.max_seq_length = encoder.max_seq_length
    return rebuilt


def layer_zero_parameters(encoder: SentenceTransformer) -> list[nn.Parameter]:
    """Return the parameters of layer 0, which are those that autograd finds its output to depend on.

    This works for every architecture without a list of names: BERT's embeddings, ELECTRA's embeddings and their projection,
    ALBERT's factorised ones, and so on.

    Args:
        encoder: The encoder.

    Returns:
        The parameters.

    Raises:
        SelfguideError: None were found.
    """
    model = backbone(encoder)
    parameters = list(model.parameters())
    wanted = [parameter.requires_grad for parameter in parameters]
    try:
        model.requires_grad_(True)
        with torch.enable_grad(), _evaluating(model):
            first = hidden_states(model, _probe_inputs(encoder))[0]
            grads = torch.autograd.grad(first.sum(), parameters, allow_unused=True)
    finally:
        for parameter, flag in zip(parameters, wanted, strict=True):
            parameter.requires_grad_(flag)
    found = [parameter for parameter, grad in zip(parameters, grads, strict=True) if grad is not None]
    if not found:
        raise SelfguideError(
            f"Layer 0 of {type(model).__name__} cannot be distinguished from its other layers, so it cannot be frozen; "
            "pass --no-freeze-layer-0 to train it as well."
        )
    return found


def freeze_layer_zero(encoder: SentenceTransformer) -> None:
    """Exclude layer 0 from training."""
    for parameter in layer_zero_parameters(encoder):
        parameter.requires_grad_(False)


def freeze_unused(encoder: SentenceTransformer) -> None:
    """Exclude BERT's pooler from training: no token vector depends on it, and distributed training needs all gradients."""
    pooler = getattr(backbone(encoder), "pooler", None)
    if isinstance(pooler, nn.Module):
        pooler.requires_grad_(False)


def _check_device(device: str | None) -> None:
    if device is None or device == "cpu":
        return
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    kind = device.partition(":")[0]
    if kind not in there:
        raise UsageError(f"There is no device {device!r}; choose cpu, cuda or mps.")
    if not there[kind]:
        raise UsageError(f"There is no {kind.upper()} device here; leave --device out, or use --device cpu.")


def _load(name: str, device: str | None) -> SentenceTransformer:
    _check_device(device)
    path = mini_folder() if name == MINI else Path(name)
    restore_interrupted(path)
    if path.exists() and not path.is_dir():
        raise SelfguideError(f"{name} is a file; an encoder is a folder with a config.json, a hub name, or 'mini'.")
    if path.is_dir() and not (path / "config.json").is_file() and not (path / "modules.json").is_file():
        raise SelfguideError(f"The folder {name} holds no encoder: there is no config.json or modules.json in it.")
    if path.is_dir():
        check_folder(path)
    elif missing := why_missing(name):
        raise SelfguideError(missing)
    target = str(path) if path.is_dir() else name
    with quiet_libraries(), _fixed_initialisation():
        try:
            # Always fp32: a folder saved in fp16 would otherwise be trained in fp16.
            if path.is_dir() and is_own_folder(path):
                encoder = read_folder(path, device, torch.float32)
            else:
                encoder = SentenceTransformer(target, device=device, model_kwargs={"dtype": torch.float32})
        except SelfguideError:
            raise
        except Exception as error:
            raise SelfguideError(_load_failure(name, path.is_dir(), error)) from error
    return encoder


@contextmanager
def _fixed_initialisation() -> Iterator[None]:
    """Draw weights that a checkpoint lacks (BERT's pooler) from a fixed seed, and leave the global generator untouched.

    No embedding depends on them, but they are saved, and two runs of one configuration should write the same file.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        yield


def _load_failure(name: str, local: bool, error: Exception) -> str:
    reason = one_line(error)[:300]
    if "trust_remote_code" in str(error):
        return (
            f"The encoder {name} needs code that comes with it, and selfguide runs no such code. If you trust it, load it "
            "yourself (SentenceTransformer(name, trust_remote_code=True)) and pass the object in Python."
        )
    if local:
        return f"The encoder in {name} could not be loaded: {reason}"
    return f"The encoder {name} could not be loaded from the model hub: {reason}"


def allowed_length(encoder: SentenceTransformer, wanted: int) -> int:
    """Return the requested length, limited to what the encoder's positions allow.

    Args:
        encoder: The encoder.
        wanted: Tokens, special tokens included.

    Returns:
        Tokens.

    Raises:
        UsageError: Fewer than three tokens are asked for.
    """
    if wanted < 3:
        raise UsageError(f"max_length must be at least 3 tokens ([CLS], one word piece, [SEP]), got {wanted}.")
    if not isinstance(encoder[0], Transformer):  # word vectors have no position limit
        return wanted
    model = backbone(encoder)
    positions = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions <= 0:
        return wanted
    return min(wanted, positions - family_of(model).reserved_positions)


def _layer_mean(width: int, count: int, chosen: tuple[int, ...]) -> WeightedLayerPooling:
    weights = torch.zeros(count + 1)
    weights[list(chosen)] = 1.0
    module = WeightedLayerPooling(width, num_hidden_layers=count, layer_start=0, layer_weights=nn.Parameter(weights))
    return module.requires_grad_(False)


def _probe_inputs(encoder: SentenceTransformer) -> dict[str, torch.Tensor]:
    features = encoder.preprocess(["a b"])
    inputs = model_inputs(features, input_names(encoder))
    return {name: value.to(encoder.device) for name, value in inputs.items()}


@torch.no_grad()
def _probe(encoder: SentenceTransformer) -> tuple[torch.Tensor, ...]:
    model = backbone(encoder)
    with _evaluating(model):
        return hidden_states(model, _probe_inputs(encoder))


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Silence the libraries' notes about unused heads and unreachable hubs.

    Yields:
        Nothing; log levels and progress bars are restored when the block ends.
    """
    bars = transformers_logging.is_progress_bar_enabled()
    with quiet_loggers("sentence_transformers", "huggingface_hub", "transformers"):
        transformers_logging.disable_progress_bar()
        try:
            yield
        finally:
            if bars:
                transformers_logging.enable_progress_bar()
