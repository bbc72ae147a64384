"""Whether a tokenizer knows the language of a text.

Measured against English, in tokens per byte: a letter of Arabic or Korean takes two or three bytes and says more, so that a
tokenizer made for a language needs about as many tokens for a byte of it as one made for English needs for English.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from selfguide.data.resources import demo_sentences
from selfguide.words import split_words

MOST_UNKNOWN = 0.05
"""A text with a larger share of unknown tokens is foreign to the vocabulary."""
MOST_PIECES = 1.3
"""So is a text that needs more than this many times as many tokens per byte as English."""
_ENGLISH = 400
_FEWEST_BYTES = 400
"""A shorter text is foreign only if most of its tokens are unknown: a name or two would decide the other measure."""


class VocabularyFit(NamedTuple):
    """How a tokenizer splits a text."""

    pieces: float
    """Tokens per byte, in those of English."""
    unknown: float
    """Share of the tokens that is unknown."""

    @property
    def foreignness(self) -> float:
        """A number above 1 where the text is foreign to the vocabulary."""
        return max(self.pieces / MOST_PIECES, self.unknown / MOST_UNKNOWN)

    def describe(self) -> str:
        """Return in words what was measured."""
        unknown = f"{100 * self.unknown:.0f} % of its tokens are unknown"
        return f"{unknown}, and a byte takes {self.pieces:.1f} times as many as one of English"


def vocabulary_fit(
    tokenizer: Any, sentences: Sequence[str], english: Sequence[str] | None = None
) -> VocabularyFit | None:
    """Measure how a tokenizer splits sentences.

    Args:
        tokenizer: The encoder's tokenizer.
        sentences: A sample of the text.
        english: English sentences to compare with; by default some of the package's.

    Returns:
        What was found; None for an encoder of word embeddings, whose tokenizer is of another kind, and for no text.
    """
    if not callable(tokenizer) or not any(sentences):
        return None
    base, _ = _count_tokens(tokenizer, demo_sentences()[:_ENGLISH] if english is None else english)
    pieces, unknown = _count_tokens(tokenizer, sentences)
    return VocabularyFit(pieces / base, unknown)


def foreign_text(tokenizer: Any, sentences: Sequence[str]) -> str | None:
    """Return a sentence where a tokenizer does not know the language of a text.

    Args:
        tokenizer: The encoder's tokenizer.
        sentences: A sample of the text.

    Returns:
        The sentence, or None where it knows the language.
    """
    # Numbers, punctuation and emoji belong to no language; a log file takes twice the tokens of prose in any.
    words = [" ".join(word for word in split_words(sentence) if word[0].isalpha()) for sentence in sentences]
    fit = vocabulary_fit(tokenizer, words)
    short = sum(len(text.encode()) for text in words) < _FEWEST_BYTES
    if fit is None or fit.foreignness <= 1 or (short and fit.unknown <= 0.5):
        return None
    return (
        f"the encoder's tokenizer hardly knows the language of this text: {fit.describe()}; choose an encoder that was made for "
        "the language."
    )


def _count_tokens(tokenizer: Any, sentences: Sequence[str]) -> tuple[float, float]:
    """Return tokens per byte of text, and the share of them that is unknown."""
    rows = tokenizer(list(sentences), add_special_tokens=False, verbose=False)["input_ids"]
    tokens = [token for row in rows for token in row]
    size = sum(len(sentence.encode()) for sentence in sentences)
    unknown = sum(token == tokenizer.unk_token_id for token in tokens)
    return len(tokens) / max(1, size), unknown / max(1, len(tokens))
