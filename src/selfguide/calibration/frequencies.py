"""How often each token of a tokenizer occurs, and the weights that follow from it.

A frequent token says little about what a sentence means. The weight of a token t with probability p(t) is

    w(t) = a / (a + p(t))                    (SIF: Arora, Liang and Ma, ICLR 2017)

so that "the" counts for little, a rare word for 1, and a token that was never seen for 1 too. Special tokens ([CLS], [SEP],
padding, the unknown token) weigh 0.

Probabilities come from one of three places:

* ``table``: a list of 40,000 general English words with their counts, shipped with the package. Each word is split by the
  tokenizer and its count added to its pieces;
* ``text``: the tokens of the user's own text;
* ``both``: the text, with the table as a prior worth ``PRIOR_TOKENS`` tokens:  p = (n_text + m · p_table) / (N_text + m).

The table was made by ``python -m selfguide.calibration.frequencies make``; its card is ``resources/frequencies/README.md``.
"""

from __future__ import annotations

import argparse
import gzip
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

from selfguide.errors import SelfguideError, UsageError

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
# A word keeps its inner apostrophe (don't), but a final 's is a word of its own; abbreviations (u.s.) and numbers (1,000)
# stay whole; every mark is a word.
_WORD = re.compile(r"(?:[^\W\d_]\.){2,}|[^\W\d_]+(?:'(?!s\b)[^\W\d_]+)*|'s\b|\d+(?:[.,]\d+)*|[^\w\s]|_")


@dataclass(frozen=True)
class Vocabulary:
    """What the counting needs to know of a tokenizer: its tokens by number, which are special, and how it splits."""

    tokens: list[str]
    special: frozenset[int]
    split: Callable[[list[str]], list[list[int]]]

    @cached_property
    def english(self) -> NDArray[np.float64]:
        """p(t) by the English table; splitting its words takes a second, so it is done once."""
        return _english_chances(self)

    @classmethod
    def of_encoder(cls, encoder: SentenceTransformer) -> Vocabulary:
        """The vocabulary of an encoder that starts with a Transformer."""
        tokenizer: Any = encoder.tokenizer

        def split(texts: list[str]) -> list[list[int]]:
            # verbose=False: nothing is fed to the model, so there is no need to warn of long sentences.
            ids_only = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
            return list(tokenizer(texts, add_special_tokens=False, **ids_only)["input_ids"])

        return cls(_by_number(tokenizer.get_vocab()), frozenset(tokenizer.all_special_ids), split)

    @classmethod
    def of_tokenizer(cls, tokenizer: Tokenizer, special: Iterable[int] = ()) -> Vocabulary:
        """The vocabulary of a bare tokenizer of the ``tokenizers`` library."""

        def split(texts: list[str]) -> list[list[int]]:
            return [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]

        return cls(_by_number(tokenizer.get_vocab()), frozenset(special), split)


def sif_weights(
    vocabulary: Vocabulary, text: Dataset, source: str, a: float, reporter: Reporter | None = None
) -> NDArray[np.float64]:
    """The weight of every token of a vocabulary, by its number: a / (a + p), 0 for special tokens."""
    return weights_of(vocabulary, probabilities(vocabulary, text, source, reporter), a)


def weights_of(vocabulary: Vocabulary, chances: NDArray[np.float64], a: float) -> NDArray[np.float64]:
    """The weights that follow from the tokens' probabilities."""
    weights = a / (a + chances)
    weights[list(vocabulary.special)] = 0.0
    return weights


def continues_a_word(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """Which tokens go on with a word that another has begun, by the marks that tokenizers use.

    WordPiece marks what goes on (##), SentencePiece and byte-level BPE what begins (▁, Ġ). Without marks none does.
    """
    tokens = vocabulary.tokens
    for mark, marks_beginnings in (("##", False), ("▁", True), ("Ġ", True)):
        marked = np.array([token.startswith(mark) and token != mark for token in tokens])
        if marked.any():
            return ~marked if marks_beginnings else marked
    return np.zeros(len(tokens), dtype=bool)


def piece_weights(vocabulary: Vocabulary, weight: float) -> NDArray[np.float64]:
    """What each token counts for its place in a word: ``weight`` if it goes on with one, else 1."""
    return np.where(continues_a_word(vocabulary), weight, 1.0)


def probabilities(
    vocabulary: Vocabulary, text: Dataset, source: str, reporter: Reporter | None = None
) -> NDArray[np.float64]:
    """p(t) of every token by its number, from the ``table``, the ``text`` or ``both``."""
    check_source(source)
    if source == "table":
        return table_probabilities(vocabulary, text, reporter)
    counts = text_counts(vocabulary, text)
    if source == "text":
        return counts / max(1.0, float(counts.sum()))
    prior = table_probabilities(vocabulary, text, reporter)
    return (counts + PRIOR_TOKENS * prior) / (counts.sum() + PRIOR_TOKENS)


def check_source(source: str) -> None:
    """Refuse a source of frequencies that there is not."""
    if source not in SOURCES:
        raise UsageError(f"There are no frequencies {source!r}; choose one of {', '.join(SOURCES)}.")


def text_counts(vocabulary: Vocabulary, text: Dataset, batch: int = 4096) -> NDArray[np.float64]:
    """How often each token occurs in a text, read in batches; special tokens are not counted."""
    counts = np.zeros(len(vocabulary.tokens))
    for rows in text.iter(batch_size=batch):
        pieces = vocabulary.split(list(rows["sentence"]))
        counts += np.bincount([token for ids in pieces for token in ids], minlength=len(counts))
    counts[list(vocabulary.special)] = 0.0
    return counts


def table_probabilities(
    vocabulary: Vocabulary, text: Dataset | None = None, reporter: Reporter | None = None
) -> NDArray[np.float64]:
    """p(t) by the English table. With a text and a reporter, warns where the table does not fit the text."""
    if text is not None and reporter is not None:
        _check_fit(vocabulary, text, vocabulary.english, reporter)
    return vocabulary.english.copy()


def _english_chances(vocabulary: Vocabulary) -> NDArray[np.float64]:
    words, total = english_table()
    names, occurrences = list(words), list(words.values())
    splits = [vocabulary.split([shape(word) for word in names]) for shape in _shapes(vocabulary, names[:500])]
    pieces: list[int] = []
    weights: list[int] = []
    for count, same in zip(occurrences, zip(*splits, strict=True), strict=True):
        for ids in dict.fromkeys(map(tuple, same)):  # each way the word is split, once
            pieces += ids
            weights += [count] * len(ids)
    counts = np.bincount(pieces, weights=weights, minlength=len(vocabulary.tokens)).astype(np.float64)
    # Probabilities are of tokens, as those of a text are, so the total is in pieces too (of the first shape alone).
    tokens = total * sum(map(operator.mul, occurrences, map(len, splits[0]))) / sum(occurrences)
    counts[list(vocabulary.special)] = 0.0
    return counts / tokens


def word_weights(vocabulary: Vocabulary, weights: NDArray[np.float64]) -> WordWeights:
    """The weights as a stock module, to stand between the token vectors and a mean pooling."""
    from sentence_transformers.sentence_transformer.modules import WordWeights

    # Every token is listed, so that the module's fall-back (a lower-cased namesake's weight) never applies.
    return WordWeights(vocabulary.tokens, dict(zip(vocabulary.tokens, weights.tolist(), strict=True)))


@lru_cache(maxsize=1)
def english_table() -> tuple[dict[str, int], int]:
    """The shipped table: word → count, most frequent first, and the number of words it was counted in."""
    place = resources.files("selfguide") / "resources" / "frequencies" / TABLE
    if not place.is_file():
        raise SelfguideError(
            "The table of English word frequencies is missing from this installation; re-install selfguide, or count the "
            "frequencies in your text (--frequencies text)."
        )
    with place.open("rb") as packed:
        return parse_table(lzma.decompress(packed.read()).decode("utf-8"))


def parse_table(text: str) -> tuple[dict[str, int], int]:
    """Read what :func:`make_table` wrote: the total in the first line, then ``word<TAB>count``."""
    head, *lines = text.rstrip("\n").split("\n")
    rows = (line.split("\t") for line in lines)
    return {word: int(count) for word, count in rows}, int(head)


def count_words(lines: Iterable[str]) -> Counter[str]:
    """Count lower-cased words and marks."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(_WORD.findall(line.lower()))
    return counts


def make_table(files: Sequence[Path], output: Path, size: int = 40_000) -> int:
    """Count the words of text files (plain, .gz or .xz) and write the most frequent ones; returns the total counted."""
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


def _check_fit(vocabulary: Vocabulary, text: Dataset, chances: NDArray[np.float64], reporter: Reporter) -> None:
    step = max(1, len(text) // 500)
    sample = [text[index]["sentence"] for index in range(0, len(text), step)]
    tokens = [token for ids in vocabulary.split(sample) for token in ids if token not in vocabulary.special]
    unseen = sum(1 for token in tokens if chances[token] == 0)
    if tokens and unseen > 0.3 * len(tokens):
        reporter.warn(
            f"{100 * unseen / len(tokens):.0f} % of this text's tokens are not in the table of English frequencies; "
            "if the text is not English, say --frequencies text."
        )


def _by_number(vocabulary: dict[str, int]) -> list[str]:
    """Tokens by number; numbers without a token (some vocabularies have gaps) get a name that no token has."""
    tokens = [f"<no token {number}>" for number in range(max(vocabulary.values()) + 1)]
    for token, number in vocabulary.items():
        tokens[number] = token
    return tokens


def _shapes(vocabulary: Vocabulary, words: list[str]) -> list[Callable[[str], str]]:
    """The shapes of a word in running text that this tokenizer tells apart, tried on a few words.

    After a space or not, at the head of a sentence or not: for some tokenizers these are all different tokens. Each gets the
    word's frequency, since the weight is the word's, whatever its shape.
    """
    every: list[Callable[[str], str]] = [
        lambda word: f" {word}",
        lambda word: word,
        lambda word: word.capitalize(),
        lambda word: f" {word.capitalize()}",
    ]
    splits: list[list[list[int]]] = []
    told_apart = []
    for shape in every:
        split = vocabulary.split([shape(word) for word in words])
        if split not in splits:
            splits.append(split)
            told_apart.append(shape)
    return told_apart


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
