"""Encode several versions of a batch in one forward pass, with changes at the embedding layer.

Contrastive losses compare versions of the same sentences. :func:`twice` and :func:`stacked` make one batch of them and
:func:`embed` encodes it, without padding where the architecture can run packed. A ``change`` passed to :func:`embed` receives
the embedding layer's output (batch, tokens, width), after position embeddings and normalisation, and returns the input of the
first layer: augmentations (:func:`augmented`) or noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from selfguide.augment.embeddings import Augmentation, token_batch
from selfguide.engine.packing import can_pack, layout, packed
from selfguide.errors import SelfguideError
from selfguide.models.families import family_of

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Features = dict[str, Any]
"""A tokenised batch, as sentence-transformers passes it to a loss."""
Change = Callable[[Tensor], Tensor]
"""A function of the embedding layer's output."""


def twice(features: Mapping[str, Any]) -> Features:
    """Return the batch concatenated with itself."""
    return {name: torch.cat([value, value]) if _is_tokens(value) else value for name, value in features.items()}


def stacked(batches: Sequence[Mapping[str, Any]], padding: int) -> Features:
    """Concatenate batches, padded on the right to a common length.

    Args:
        batches: Tokenised batches with the same fields.
        padding: Id of the tokenizer's padding token.

    Returns:
        One batch with the rows of all of them, in their order.
    """
    width = max(batch["input_ids"].shape[1] for batch in batches)
    joined: Features = {}
    for name, value in batches[0].items():
        if not _is_tokens(value):
            joined[name] = value
            continue
        fill = padding if name == "input_ids" else 0
        joined[name] = torch.cat(
            [nn.functional.pad(batch[name], (0, width - batch[name].shape[1]), value=fill) for batch in batches]
        )
    return joined


def from_ids(sequences: Sequence[Sequence[int]], like: Mapping[str, Any], padding: int) -> Features:
    """Make a batch of lists of token ids.

    Args:
        sequences: Token ids of each sentence, special tokens included.
        like: A batch whose fields and device the new one gets.
        padding: Id of the tokenizer's padding token.

    Returns:
        The padded batch.
    """
    device = like["input_ids"].device
    rows = nn.utils.rnn.pad_sequence(
        [torch.tensor(sequence, dtype=torch.long) for sequence in sequences], batch_first=True, padding_value=padding
    )
    lengths = torch.tensor([len(sequence) for sequence in sequences]).unsqueeze(1)
    made: Features = {name: value for name, value in like.items() if not _is_tokens(value)}
    made["input_ids"] = rows.to(device)
    made["attention_mask"] = (torch.arange(rows.shape[1]) < lengths).long().to(device)
    if "token_type_ids" in like:
        made["token_type_ids"] = torch.zeros_like(made["input_ids"])
    return made


def rewritten(
    encoder: SentenceTransformer, features: Mapping[str, Any], frame: set[int], rewrite: Callable[[str], str]
) -> Features:
    """Decode a batch, change the text of each sentence and tokenise it again.

    Args:
        encoder: The encoder whose tokenizer made the batch.
        features: The tokenised batch.
        frame: Ids of [CLS], [SEP] and padding, which are left out of the text.
        rewrite: Applied to each sentence as the tokenizer decodes it: truncated, and lower-cased if the encoder is.

    Returns:
        The new batch, on the device of the old one.
    """
    ids = features["input_ids"]
    own = ([token for token in row if token not in frame] for row in ids.tolist())
    texts = [rewrite(encoder.tokenizer.decode(row, clean_up_tokenization_spaces=False)) for row in own]
    made = encoder.preprocess(texts)
    return {name: value.to(ids.device) if isinstance(value, Tensor) else value for name, value in made.items()}


def embed(model: nn.Module, transformer: nn.Module, features: Features, change: Change | None = None) -> Features:
    """Encode a batch, packed where the architecture allows it.

    Args:
        model: The encoder, or its distributed wrapper.
        transformer: The Hugging Face model inside it.
        features: The tokenised batch.
        change: Applied to the embedding layer's output, if given.

    Returns:
        The model's output, with ``sentence_embedding`` and ``token_embeddings``.
    """
    with packed(transformer):
        if change is None:
            return model(features)
        with _changed(transformer, change, features["attention_mask"]):
            return model(features)


def augmented(
    model: nn.Module, transformer: nn.Module, features: Features, augmentations: Sequence[Augmentation], frame: set[int]
) -> list[Tensor]:
    """Encode a batch under several augmentations in one forward pass.

    Args:
        model: The encoder, or its distributed wrapper.
        transformer: The Hugging Face model inside it.
        features: The tokenised batch.
        augmentations: The augmentations, one for each version.
        frame: Ids of [CLS], [SEP] and padding (:func:`selfguide.augment.embeddings.frame_ids`).

    Returns:
        The sentence embeddings (batch, dim) under each augmentation.
    """
    width = embedding_width(transformer)
    plain = token_batch(features["input_ids"], features["attention_mask"], frame, width)
    versions = [augmentation(plain) for augmentation in augmentations]
    factor = torch.cat([version.factor for version in versions])
    batch = stacked([{**features, "input_ids": version.input_ids} for version in versions], padding=0)
    vectors = embed(model, transformer, batch, lambda states: states * factor.to(states.dtype))["sentence_embedding"]
    return list(vectors.chunk(len(versions)))


def embedding_layer(transformer: nn.Module) -> nn.Module:
    """Return the embedding layer of a Hugging Face model.

    Raises:
        SelfguideError: The model has none that can be changed from outside.
    """
    layer = getattr(transformer, "embeddings", None)
    if not isinstance(layer, nn.Module):
        raise SelfguideError(
            f"{type(transformer).__name__} has no embedding layer that can be changed from outside, which augmentations at "
            "the embedding layer need; choose a BERT-like encoder, or a method without them (simcse, mirror)."
        )
    return layer


def embedding_width(transformer: nn.Module) -> int:
    """Return the width of the embedding layer's output, which some families project to the hidden size afterwards."""
    config: Any = transformer.config
    return int(config.embedding_size if family_of(transformer).projects_embeddings else config.hidden_size)


@contextmanager
def _changed(transformer: nn.Module, change: Change, mask: Tensor) -> Iterator[None]:
    """Apply ``change`` to the embedding layer's output inside the block, laid out as padded as ``mask`` is."""
    plan = layout(mask) if can_pack(transformer) else None

    def hook(module: Any, inputs: Any, output: Tensor) -> Tensor:
        if plan is None:
            return change(output)
        flat = output.reshape(-1, output.shape[-1])
        padded = flat.new_zeros(mask.numel(), flat.shape[-1]).index_copy(0, plan.source, flat[plan.target])
        done = change(padded.view(*mask.shape, -1)).reshape(padded.shape)
        return flat.index_copy(0, plan.target, done[plan.source]).view_as(output)

    handle = embedding_layer(transformer).register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def _is_tokens(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() == 2
