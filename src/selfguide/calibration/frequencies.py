"""Token frequencies, and the SIF weights that follow from them.

A frequent token says little about the meaning of a sentence. The weight of a token t with probability p(t) is

    w(t) = a / (a + p(t))                    (SIF: Arora, Liang and Ma, ICLR 2017)

so that "the" counts for little, and a rare or unseen token for 1. Special tokens ([CLS], [SEP], padding, the unknown token)
weigh 0.

Probabilities have one of three sources:

* ``table``: the counts of 40,000 general English words, shipped with the package. Each word is tokenised and its count added
  to its pieces;
* ``text``: the tokens of the user's own text;
* ``both``: the text, with the table as a prior worth ``PRIOR_TOKENS`` tokens:  p = (n_text + m · p_table) / (N_text + m).

The table was made by ``python -m selfguide.calibration.frequencies make``; its card is ``resources/frequencies/README.md``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from selfguide.errors import SelfguideError
from selfguide.files import json_digest
from selfguide.options import OneOf, check
from selfguide.words import split_words

if TYPE_CHECKING:
    from datasets import Dataset
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import WordWeights
    from tokenizers import Tokenizer

    from selfguide.progress import Reporter

SOURCES = ("table", "text", "both")
PRIOR_TOKENS = 100_000.0
TABLE = "english.tsv.xz"
MOST_UNSEEN = 0.3
"""Warn when a larger share of a text's words is missing from the table; in English prose a few per cent are."""
# A word keeps its inner apostrophe (don't), but a final 's is a word of its own; abbreviations (u.s.) and numbers (1,000)
# stay whole; every punctuation mark is a word.
_WORD = re.compile(r"(?:[^\W\d_]\.){2,}|[^\W\d_]+(?:'(?!s\b)[^\W\d_]+)*|'s\b|\d+(?:[.,]\d+)*|[^\w\s]|_")

# Probabilities by the English table, by the digest of the tokenizer.
_english: dict[str, NDArray[np.float64]] = {}
_MOST_KEPT = 8


@dataclass(frozen=True)
class Vocabulary:
    """What counting needs of a tokenizer."""

    tokens: list[str]
    """The tokens, by id."""
    special: frozenset[int]
    """Ids of special tokens."""
    split: Callable[[list[str]], list[list[int]]]
    """Tokenises texts into ids, without special tokens."""
    tokenizer: Tokenizer | None = None
    """The tokenizer behind ``split``, where it is one of the ``tokenizers`` library."""

    @cached_property
    def english(self) -> NDArray[np.float64]:
        """p(t) by the English table; tokenising its words takes a second, so it is done once for each tokenizer."""
        if self.tokenizer is None:
            return _english_probabilities(self)
        key = _digest(self.tokenizer, self.special)
        if key not in _english:
            if len(_english) == _MOST_KEPT:
                _english.pop(next(iter(_english)))
            _english[key] = _english_probabilities(self)
            _english[key].setflags(write=False)
        return _english[key]

    @classmethod
    def of_encoder(cls, encoder: SentenceTransformer) -> Vocabulary:
        """Return the vocabulary of an encoder that starts with a Transformer."""
        tokenizer: Any = encoder.tokenizer

        def split(texts: list[str]) -> list[list[int]]:
            # verbose=False: the ids do not go through the model, so long sentences need no warning.
            ids_only = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
            return list(tokenizer(texts, add_special_tokens=False, **ids_only)["input_ids"])

        fast = getattr(tokenizer, "backend_tokenizer", None)
        return cls(_by_id(tokenizer.get_vocab()), frozenset(tokenizer.all_special_ids), split, fast)

    @classmethod
    def of_tokenizer(cls, tokenizer: Tokenizer, special: Iterable[int] = ()) -> Vocabulary:
        """Return the vocabulary of a tokenizer of the ``tokenizers`` library.

        Args:
            tokenizer: The tokenizer.
            special: Ids of its special tokens.
        """

        def split(texts: list[str]) -> list[list[int]]:
            return [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]

        return cls(_by_id(tokenizer.get_vocab()), frozenset(special), split, tokenizer)


def sif_weights(
    vocabulary: Vocabulary, text: Dataset, source: str, a: float, reporter: Reporter | None = None
) -> NDArray[np.float64]:
    """Return the SIF weight of every token of a vocabulary.

    Args:
        vocabulary: The vocabulary.
        text: The user's text.
        source: Where frequencies come from, one of ``SOURCES``.
        a: a of the formula.
        reporter: Warned where the English table does not fit the text.

    Returns:
        The weights, by token id; 0 for special tokens.
    """
    return weights_of(vocabulary, probabilities(vocabulary, text, source, reporter), a)


def weights_of(vocabulary: Vocabulary, probabilities: NDArray[np.float64], a: float) -> NDArray[np.float64]:
    """Return the SIF weights that follow from token probabilities; 0 for special tokens."""
    weights = a / (a + probabilities)
    weights[list(vocabulary.special)] = 0.0
    return weights


def continues_a_word(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """Return which tokens continue a word, by the prefixes that tokenizers use.

    WordPiece marks continuations (##), SentencePiece and byte-level BPE mark beginnings (▁, Ġ). Without such prefixes no
    token counts as a continuation.

    Args:
        vocabulary: The vocabulary.

    Returns:
        A mask, by token id.
    """
    tokens = vocabulary.tokens
    for mark, marks_beginnings in (("##", False), ("▁", True), ("Ġ", True)):
        marked = np.array([token.startswith(mark) and token != mark for token in tokens])
        if marked.any():
            return ~marked if marks_beginnings else marked
    return np.zeros(len(tokens), dtype=bool)


def piece_weights(vocabulary: Vocabulary, weight: float) -> NDArray[np.float64]:
    """Return a factor for each token: ``weight`` where it continues a word, else 1."""
    return np.where(continues_a_word(vocabulary), weight, 1.0)


def probabilities(
    vocabulary: Vocabulary, text: Dataset, source: str, reporter: Reporter | None = None
) -> NDArray[np.float64]:
    """Return the probability of every token.

    Args:
        vocabulary: The vocabulary.
        text: The user's text.
        source: ``table``, ``text`` or ``both``.
        reporter: Warned where the English table does not fit the text.

    Returns:
        The probabilities, by token id.
    """
    check("frequencies", source, OneOf(*SOURCES))
    if source == "table":
        return table_probabilities(vocabulary, text, reporter)
    counts = text_counts(vocabulary, text)
    if source == "text":
        return counts / max(1.0, float(counts.sum()))
    prior = table_probabilities(vocabulary, text, reporter)
    return (counts + PRIOR_TOKENS * prior) / (counts.sum() + PRIOR_TOKENS)


def text_counts(vocabulary: Vocabulary, text: Dataset, batch: int = 4096) -> NDArray[np.float64]:
    """Count the tokens of a text; special tokens are not counted.

    Args:
        vocabulary: The vocabulary.
        text: A dataset with a column ``sentence``.
        batch: Sentences tokenised at a time.

    Returns:
        The counts, by token id.
    """
    counts = np.zeros(len(vocabulary.tokens))
    for rows in text.iter(batch_size=batch):
        pieces = vocabulary.split(list(rows["sentence"]))
        counts += np.bincount([token for ids in pieces for token in ids], minlength=len(counts))
    counts[list(vocabulary.special)] = 0.0
    return counts


def table_probabilities(
    vocabulary: Vocabulary, text: Dataset | None = None, reporter: Reporter | None = None
) -> NDArray[np.float64]:
    """Return token probabilities by the English table.

    Args:
        vocabulary: The vocabulary.
        text: With a reporter, checked against the table.
        reporter: Warned where the table does not fit the text.

    Returns:
        The probabilities, by token id.
    """
    if text is not None and reporter is not None:
        _check_fit(text, reporter)
    return vocabulary.english.copy()


def _digest(tokenizer: Tokenizer, special: frozenset[int]) -> str:
    """Return a hash of everything that decides how words are split; truncation and padding do not."""
    content = json.loads(tokenizer.to_str())
    return json_digest([sorted(special), {**content, "truncation": None, "padding": None}])


def _english_probabilities(vocabulary: Vocabulary) -> NDArray[np.float64]:
    words, total = english_table()
    names, occurrences = list(words), list(words.values())
    splits = [vocabulary.split([shape(word) for word in names]) for shape in _shapes(vocabulary, names[:500])]
    pieces: list[int] = []
    weights: list[int] = []
    for count, same in zip(occurrences, zip(*splits, strict=True), strict=True):
        for ids in dict.fromkeys(map(tuple, same)):  # each tokenisation of the word, once
            pieces += ids
            weights += [count] * len(ids)
    counts = np.bincount(pieces, weights=weights, minlength=len(vocabulary.tokens)).astype(np.float64)
    # As in a text, probabilities are per token, not per word, so the total is in pieces too (of the first shape only).
    tokens = total * sum(map(operator.mul, occurrences, map(len, splits[0]))) / sum(occurrences)
    counts[list(vocabulary.special)] = 0.0
    return counts / tokens


def word_weights(vocabulary: Vocabulary, weights: NDArray[np.float64]) -> WordWeights:
    """Return token weights as a stock module, to go between a Transformer and a mean pooling."""
    from sentence_transformers.sentence_transformer.modules import WordWeights

    # Every token is listed, so that the module's fallback (the weight of the lower-cased token) never applies.
    return WordWeights(vocabulary.tokens, dict(zip(vocabulary.tokens, weights.tolist(), strict=True)))


@lru_cache(maxsize=1)
def english_table() -> tuple[dict[str, int], int]:
    """Return the shipped table: word → count, most frequent first, and the number of words counted in all.

    Raises:
        SelfguideError: The table is missing from the installation.
    """
    place = resources.files("selfguide") / "resources" / "frequencies" / TABLE
    if not place.is_file():
        raise SelfguideError(
            "The table of English word frequencies is missing from this installation; re-install selfguide, or count the "
            "frequencies in your text (--frequencies text)."
        )
    with place.open("rb") as packed:
        return parse_table(lzma.decompress(packed.read()).decode("utf-8"))


def parse_table(text: str) -> tuple[dict[str, int], int]:
    """Read what :func:`make_table` wrote: the total in the first line, then ``word<TAB>count``.

    Args:
        text: The table.

    Returns:
        The count of each word, and the total over all words, listed or not.
    """
    head, *lines = text.rstrip("\n").split("\n")
    rows = (line.split("\t") for line in lines)
    return {word: int(count) for word, count in rows}, int(head)


def count_words(lines: Iterable[str]) -> Counter[str]:
    """Count lower-cased words and punctuation marks.

    Args:
        lines: The text.

    Returns:
        The count of each.
    """
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(_WORD.findall(line.lower()))
    return counts


def make_table(files: Sequence[Path], output: Path, size: int = 40_000) -> int:
    """Count the words of text files and write a table of the most frequent ones.

    Args:
        files: Text files, plain, ``.gz`` or ``.xz``.
        output: The table to write (``.tsv.xz``).
        size: Number of words to keep.

    Returns:
        The number of words counted.
    """
    counts = count_words(_lines(files))
    total = sum(counts.values())
    # Equal counts in alphabetical order: the same text always gives the same file.
    top = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:size]
    content = "".join([f"{total}\n", *(f"{word}\t{count}\n" for word, count in top)])
    output.write_bytes(lzma.compress(content.encode("utf-8"), preset=9 | lzma.PRESET_EXTREME))
    return total


def main(arguments: Sequence[str] | None = None) -> None:
    """``python -m selfguide.calibration.frequencies make --text FILE … --out FILE``: make a table of word frequencies."""
    parser = argparse.ArgumentParser(prog="python -m selfguide.calibration.frequencies", description=main.__doc__)
    make = parser.add_subparsers(required=True).add_parser("make", help="count words and write the table")
    make.add_argument("--text", type=Path, nargs="+", required=True, help="text files, plain, .gz or .xz")
    make.add_argument("--out", type=Path, required=True, help="the table to write (.tsv.xz)")
    make.add_argument("--size", type=int, default=40_000, help="how many words to keep (default: 40000)")
    given = parser.parse_args(arguments)
    total = make_table(given.text, given.out, given.size)
    print(f"{total:,} words counted; the table is {given.out} ({given.out.stat().st_size:,} bytes).")


def _check_fit(text: Dataset, reporter: Reporter) -> None:
    step = max(1, len(text) // 500)
    # Words, not tokens: pieces of words are shared by languages that use the same letters.
    words = [
        word
        for index in range(0, len(text), step)
        for word in split_words(text[index]["sentence"].lower())
        if word[0].isalpha()
    ]
    known, _ = english_table()
    unseen = sum(word not in known for word in words)
    if words and unseen > MOST_UNSEEN * len(words):
        reporter.warn(
            f"{100 * unseen / len(words):.0f} % of this text's words are not in the table of English frequencies; "
            "if the text is not English, use --frequencies text."
        )


def _by_id(vocabulary: dict[str, int]) -> list[str]:
    """Return the tokens by id; ids without a token (some vocabularies have gaps) get a unique placeholder."""
    tokens = [f"<no token {number}>" for number in range(max(vocabulary.values()) + 1)]
    for token, number in vocabulary.items():
        tokens[number] = token
    return tokens


def _shapes(vocabulary: Vocabulary, words: list[str]) -> list[Callable[[str], str]]:
    """Return the forms of a word in running text that this tokenizer distinguishes, found by trying a few words.

    After a space or not, capitalised or not: for some tokenizers these are all different tokens. Each gets the word's
    frequency, since the weight belongs to the word in all its forms.
    """
    every: list[Callable[[str], str]] = [
        lambda word: f" {word}",
        lambda word: word,
        lambda word: word.capitalize(),
        lambda word: f" {word.capitalize()}",
    ]
    splits: list[list[list[int]]] = []
    distinct = []
    for shape in every:
        split = vocabulary.split([shape(word) for word in words])
        if split not in splits:
            splits.append(split)
            distinct.append(shape)
    return distinct


def _lines(files: Iterable[Path]) -> Iterator[str]:
    for path in files:
        try:
            with _open(path) as file:
                yield from file
        except (OSError, EOFError, lzma.LZMAError) as error:
            raise SelfguideError(f"{path} cannot be read: {error}.") from None


def _open(path: Path) -> IO[str]:
    openers: dict[str, Callable[..., Any]] = {".xz": lzma.open, ".gz": gzip.open}
    return openers.get(path.suffix, open)(path, "rt", encoding="utf-8", errors="replace")


if __name__ == "__main__":
    main()
