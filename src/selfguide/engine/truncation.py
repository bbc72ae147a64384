"""How many sentences have more tokens than an encoder reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from selfguide.engine.tokens import length_limit

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def truncated_sentences(encoder: SentenceTransformer, sentences: Sequence[str]) -> int:
    """Count the sentences whose end an encoder does not read.

    Args:
        encoder: The encoder.
        sentences: The sentences.

    Returns:
        How many have more tokens than its limit; 0 for one without a limit, such as static word embeddings.
    """
    tokenizer, limit = encoder.tokenizer, encoder.max_seq_length
    if not sentences or not callable(tokenizer) or limit is None or limit == float("inf"):
        return 0
    rows = tokenizer(list(sentences), truncation=False, verbose=False)["input_ids"]
    return sum(len(ids) > length_limit(encoder) for ids in rows)
