"""How many tokens of a sentence training sees.

The length of training and the encoder's own limit are two things: a short training length saves time, and the saved encoder
still reads sentences up to its own limit. Unless a length is asked for, training sees enough tokens for 99 % of the text's
sentences in full.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from selfguide.engine.tokens import LABELS, length_limit, token_counts
from selfguide.models.encoders import allowed_length

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    from selfguide.progress import Reporter

COVERED = 0.99
"""Share of the sentences that training sees in full, unless a length is asked for."""
_SAMPLE = 100_000
_CHUNK = 4096


def training_length(encoder: SentenceTransformer, text: Dataset, wanted: int) -> tuple[int, float]:
    """Choose the length to train with.

    Args:
        encoder: The encoder to be tuned; its own limit applies as well.
        text: The training set; of very long ones every n-th row is measured.
        wanted: The length asked for; 0 to follow the text.

    Returns:
        Tokens that training sees of a sentence, special tokens included, and the share of sentences that are longer.
    """
    limit = length_limit(encoder)
    lengths = _token_counts(encoder, text)
    if wanted:
        length = min(limit, allowed_length(encoder, wanted))
    elif lengths is None:
        length = limit
    else:
        length = min(limit, max(3, math.ceil(float(np.quantile(lengths, COVERED, method="higher")))))
    return length, 0.0 if lengths is None else float((lengths > length).mean())


def report_truncation(share: float, length: int, limit: int | None, reporter: Reporter) -> None:
    """Say what share of the sentences training truncates, if any."""
    if share > 0:
        percent = f"{100 * share:.1f} %" if share >= 0.001 else "fewer than 0.1 %"
        reporter.note(
            f"Training sees the first {length} tokens of a sentence: {percent} of the sentences are longer. "
            + (
                f"The saved encoder keeps its own limit of {limit} tokens."
                if limit
                else "The saved encoder has no limit."
            )
        )


def _token_counts(encoder: SentenceTransformer, text: Dataset) -> np.ndarray | None:
    """Count the tokens of every sentence, untruncated; ``None`` for an encoder without a tokenizer of that kind."""
    tokenizer = encoder.tokenizer
    if not callable(tokenizer):  # static word embeddings
        return None
    columns = [name for name in text.column_names if name not in LABELS]
    step = max(1, len(text) * len(columns) // _SAMPLE)
    counts: list[int] = []
    for column in columns:
        sentences = [str(sentence) for sentence in text[column][::step]]
        for start in range(0, len(sentences), _CHUNK):
            counts += token_counts(tokenizer, sentences[start : start + _CHUNK])
    return np.asarray(counts)
