"""InferSent: a bidirectional LSTM over fixed word vectors, trained to classify labelled pairs of sentences.

Each word's vector e_t comes from a file and stays as it is. An LSTM reads the sentence from both sides, and the largest value
of each dimension over all words is the sentence's vector:

    h_t  = (→LSTM(e_1 … e_t), ←LSTM(e_T … e_t)),    u = max over t of h_t, dimension by dimension
    loss = mean over pairs of −log softmax(g(u, v, |u − v|, u ∘ v))[label]

u and v are the vectors of premise and hypothesis, g is three linear maps one after the other, dropped afterwards
(:mod:`selfguide.losses.nli`). A sentence begins with <s>, so that none is empty: its vector is zeros unless the file has one.
A word without a vector is left out.

The encoder that the run is given is not used, nor is its text trained on. The finished encoder is made of stock modules,
``WordEmbeddings``, ``LSTM`` and ``Pooling``; <s> is its default prompt, which ``encode`` puts before every sentence.

Differences from the authors' released code: ``hidden`` is 512 by default, so vectors have 1,024 numbers (published: 2,048 and
4,096); AdamW with a climb and a fall of the rate, where theirs is SGD from 0.1, times 0.99 each epoch and divided by 5 when the
accuracy on SNLI's dev pairs falls, for up to 20 epochs; words are split at white space and freed of marks around them, where
theirs are those of NLTK (*don't* is found only if the file has it whole, or the text has *do n't*); there is no </s>.

Reference: Conneau et al., Supervised Learning of Universal Sentence Representations from Natural Language Inference Data,
EMNLP 2017.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import LSTM, Pooling, WordEmbeddings
from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer
from transformers import set_seed

from selfguide.data.nli import COLUMNS, NO_FILE, check_option, read_nli
from selfguide.errors import UsageError
from selfguide.losses.nli import PairLoss
from selfguide.methods.base import TuningMethod
from selfguide.models.word_vectors import WordVectors, read_word_vectors
from selfguide.options import require_types
from selfguide.training.settings import TrainingSettings

if TYPE_CHECKING:
    from datasets import Dataset

BEGIN = "<s>"
PADDING = "[PAD]"

CITATION = """\
@inproceedings{conneau-etal-2017-supervised,
    title = "Supervised Learning of Universal Sentence Representations from Natural Language Inference Data",
    author = {Conneau, Alexis and Kiela, Douwe and Schwenk, Holger and Barrault, Lo{\\"i}c and Bordes, Antoine},
    booktitle = "Proceedings of EMNLP 2017",
    year = "2017",
}"""


@dataclass(frozen=True)
class InferSentOptions:
    """Options of InferSent."""

    nli: str = NO_FILE
    """Labelled pairs (a file must be named): label, premise, hypothesis, with tabs; patterns and commas make it several."""
    vectors: str = NO_FILE
    """File of word vectors (one must be named): GloVe .txt or .zip, word2vec .bin, fastText .vec, a .json; .gz and .tgz too."""
    hidden: int = 512
    """Width of the LSTM in each direction; the vector is twice as wide (published: 2048)."""
    classifier: int = 512
    """Width of the classifier's linear maps."""
    keep: int = 100_000
    """How many of the file's most frequent words to keep, besides every word of the pairs; 0: all."""
    lower: bool = True
    """Lower-case text and words; for vectors with upper-case words, such as GloVe 840B, say --no-lower."""

    def __post_init__(self) -> None:
        require_types(self)
        for name, least in (("hidden", 1), ("classifier", 1), ("keep", 0)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} must be at least {least}, got {getattr(self, name)}.")


class InferSent(TuningMethod):
    """``--method infersent``; the encoder it is given is ignored."""

    name = "infersent"
    summary = "an LSTM over word vectors from a file, trained to classify labelled pairs (InferSent)"
    reference = "Conneau et al., EMNLP 2017"
    needs_labels = True
    cost = "one pass of a small LSTM"
    Options = InferSentOptions
    options: InferSentOptions
    defaults = TrainingSettings(batch_size=64, learning_rate=1e-3, epochs=5.0, gradient_clip=5.0)
    citation = CITATION

    _vectors: WordVectors

    def check(self) -> None:
        check_option(self.options.nli, self.name)
        if self.options.vectors in (NO_FILE, ""):
            raise UsageError(
                "The method infersent has no word vectors to read sentences with. Name a file of them with --vectors FILE, "
                "such as GloVe's (nlp.stanford.edu/projects/glove)."
            )

    def dataset(self, text: Dataset) -> Dataset:
        options = self.options
        pairs = read_nli(options.nli, self.context.reporter)
        wanted = {BEGIN, *words_of(pairs)} if options.keep else set()
        self._vectors = read_word_vectors(options.vectors, options.keep, wanted, options.lower)
        return begun(pairs)

    def student(self, encoder: SentenceTransformer) -> SentenceTransformer:
        set_seed(self.context.settings.seed)  # for the LSTM's first weights
        return bilstm_encoder(self._vectors, self.options.hidden, self.options.lower, str(encoder.device))

    def loss(self, student: SentenceTransformer) -> PairLoss:
        return PairLoss(student, product=True, hidden=self.options.classifier)


def begun(pairs: Dataset) -> Dataset:
    """The pairs with <s> before every sentence: encoding puts the default prompt there, a trainer does not."""
    from datasets import Dataset

    texts = {name: [f"{BEGIN} {sentence}" for sentence in pairs[name]] for name in COLUMNS}
    return Dataset.from_dict({**texts, "label": pairs["label"]})


def words_of(pairs: Dataset) -> set[str]:
    """Every form under which the tokenizer looks for a word of the pairs: as it is, without marks, in lower case."""
    words = {
        word for rows in pairs.iter(batch_size=4096) for name in COLUMNS for text in rows[name] for word in text.split()
    }
    bare = {word.strip(string.punctuation) for word in words}
    return {form for word in words | bare for form in (word, word.lower()) if form}


def bilstm_encoder(vectors: WordVectors, hidden: int, lower: bool, device: str) -> SentenceTransformer:
    """Word vectors, a bidirectional LSTM with fresh weights, and the maximum over its outputs."""
    width = vectors.matrix.shape[1]
    extra = [word for word in (PADDING, BEGIN) if word not in set(vectors.words)]  # padding is number 0
    table = np.concatenate([np.zeros((len(extra), width), dtype=np.float32), vectors.matrix])
    tokenizer = WhitespaceTokenizer([*extra, *vectors.words], stop_words=[], do_lower_case=lower)
    lstm = LSTM(width, hidden)
    return SentenceTransformer(
        modules=[WordEmbeddings(tokenizer, table), lstm, Pooling(lstm.get_embedding_dimension(), pooling_mode="max")],
        prompts={"begin": f"{BEGIN} "},
        default_prompt_name="begin",
        device=device,
    )
