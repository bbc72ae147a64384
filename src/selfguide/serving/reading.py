"""Inputs of a request, in the form that an encoder's runner takes: tokens within the length limit, counted.

:class:`TokenReader` is for encoders with a fast tokenizer: text and token ids alike become ids, and the limit is the same for one
input and for many. :class:`TextReader` is for the others (static embeddings, word vectors, encoders with a default prompt), which
take sentences and tokenise them themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from selfguide.engine.tokens import Tokens
from selfguide.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

Inputs = list[str] | list[list[int]]


class TooLong(UsageError):
    """An input has more tokens than the server takes."""


class Read(NamedTuple):
    """The inputs of a request."""

    items: list[Any]
    """One entry a sentence, which :meth:`Reader.joined` puts together."""
    lengths: NDArray[np.int64]
    """Tokens of each."""


class Reader(Protocol):
    """Turns the inputs of a request into sentences that can be batched with those of others."""

    def read(self, inputs: Inputs, truncate: bool) -> Read:
        """Return the inputs read, with those beyond the limit truncated or refused."""

    def joined(self, items: list[Any]) -> Any:
        """Return entries of :class:`Read` put together as the runner takes them."""


class TokenReader:
    """Reads inputs for an encoder with a fast tokenizer.

    Args:
        tokenizer: Its Hugging Face tokenizer; a copy of it is used, so nothing else may change its settings meanwhile.
        limit: Maximum number of tokens.
    """

    def __init__(self, tokenizer: Any, limit: int) -> None:
        from tokenizers import Tokenizer

        self.limit = limit
        self._tokenizer: Any = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._size = int(self._tokenizer.get_vocab_size(with_added_tokens=True))
        # What the tokenizer puts around a sentence: [CLS] and [SEP].
        empty, probe = self._tokenizer.encode("").ids, self._tokenizer.encode("a").ids
        shared = next((n for n, (a, b) in enumerate(zip(empty, probe, strict=False)) if a != b), len(empty))
        self._head, self._tail = empty[:shared], empty[shared:]

    def read(self, inputs: Inputs, truncate: bool) -> Read:
        """Tokenise text, check token ids, and apply the limit to both.

        Args:
            inputs: Sentences, or lists of token ids with the special tokens.
            truncate: Truncate inputs beyond the limit instead of refusing them.

        Returns:
            The token ids.

        Raises:
            TooLong: An input is beyond the limit and is not to be truncated.
            UsageError: Token ids are not those of this encoder's tokenizer.
        """
        if inputs and isinstance(inputs[0], str):
            rows = [encoding.ids for encoding in self._tokenizer.encode_batch_fast(inputs)]
        else:
            rows = [self._checked(number, ids) for number, ids in enumerate(inputs)]
        if any(len(ids) > self.limit for ids in rows):
            if not truncate:
                number, ids = next((n, row) for n, row in enumerate(rows) if len(row) > self.limit)
                raise TooLong(too_long(number, len(rows), len(ids), self.limit))
            end = self._tail
            rows = [ids if len(ids) <= self.limit else [*ids[: self.limit - len(end)], *end] for ids in rows]
        return Read([np.asarray(ids, dtype=np.int64) for ids in rows], lengths_of(rows))

    def joined(self, items: list[Any]) -> Tokens:
        """Return token ids laid end to end."""
        return Tokens(np.concatenate(items), lengths_of(items))

    def _checked(self, number: int, ids: Any) -> list[int]:
        if max(ids) >= self._size or min(ids) < 0:
            wrong = next(value for value in ids if not 0 <= value < self._size)
            raise UsageError(
                f"Input {number} has the token id {wrong}, and this encoder's tokenizer has {self._size} ids, from 0: send ids "
                "of that tokenizer, or send text."
            )
        head, tail = self._head, self._tail
        if ids[: len(head)] != head or (tail and ids[-len(tail) :] != tail) or len(ids) < len(head) + len(tail):
            raise UsageError(
                f"Input {number} is not between the special tokens of this encoder's tokenizer ({head} … {tail}), so its ids "
                'seem to be those of another one: send what tokenizer(text)["input_ids"] gives, or send text.'
            )
        return ids


class TextReader:
    """Reads inputs for an encoder that tokenises sentences itself.

    Args:
        model: The encoder.
        limit: Maximum number of tokens; ``None``: there is none.
    """

    def __init__(self, model: SentenceTransformer, limit: int | None) -> None:
        self._tokenizer: Any = model.tokenizer
        self.limit = limit

    def read(self, inputs: Inputs, truncate: bool) -> Read:
        """Count the tokens of sentences, and refuse those beyond the limit.

        Args:
            inputs: Sentences.
            truncate: Leave inputs beyond the limit to the encoder, which truncates them.

        Returns:
            The sentences.

        Raises:
            TooLong: An input is beyond the limit and is not to be truncated.
            UsageError: The inputs are token ids.
        """
        sentences = [text for text in inputs if isinstance(text, str)]
        if len(sentences) < len(inputs):
            raise UsageError("This encoder takes text, not token ids: send the sentences.")
        lengths = self._lengths(sentences)
        if self.limit is not None and (lengths > self.limit).any():
            if not truncate:
                number = int(np.argmax(lengths > self.limit))
                raise TooLong(too_long(number, len(sentences), int(lengths[number]), self.limit))
            lengths = np.minimum(lengths, self.limit)
        return Read(sentences, lengths)

    def joined(self, items: list[Any]) -> list[str]:
        """Return the sentences."""
        return items

    def _lengths(self, sentences: Sequence[str]) -> NDArray[np.int64]:
        if callable(self._tokenizer):
            return lengths_of(self._tokenizer(list(sentences), verbose=False)["input_ids"])
        if hasattr(self._tokenizer, "encode_batch_fast"):
            return lengths_of([found.ids for found in self._tokenizer.encode_batch_fast(list(sentences))])
        return lengths_of([self._tokenizer.tokenize(sentence) for sentence in sentences])


def too_long(number: int, count: int, length: int, limit: int) -> str:
    """Return the sentence that refuses an input."""
    which = "The input" if count == 1 else f"Input {number} (counted from 0)"
    return (
        f'{which} has {length} tokens, and this server takes at most {limit}: shorten it, or send "truncate": true to have its '
        "end cut off."
    )


def lengths_of(rows: Sequence[Any]) -> NDArray[np.int64]:
    """Return the number of entries of each row."""
    return np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
