"""InferSent: a bidirectional LSTM over fixed word vectors, trained to classify labelled pairs of sentences.

The vector e_t of each word comes from a file and is not trained. An LSTM reads the sentence in both directions, and the
maximum of each dimension over all words is the sentence's embedding:

    h_t  = (→LSTM(e_1 … e_t), ←LSTM(e_T … e_t)),    u = max over t of h_t, dimension by dimension

The loss is :class:`~selfguide.losses.NLISoftmaxLoss` with the product u ∘ v and three linear layers. A sentence begins with
<s>, so that none is empty: its vector is zero unless the file has one. A word without a vector is left out.

Neither the encoder nor the text of the run is used. The finished encoder is made of stock modules, ``WordEmbeddings``,
``LSTM`` and ``Pooling``; <s> is its default prompt, which ``encode`` puts before every sentence.

Differences from the authors' released code: ``hidden`` is 512 by default, so the embedding dimension is 1,024 (published:
2,048 and 4,096); AdamW with warm-up and decay, where theirs is SGD from 0.1, times 0.99 each epoch and divided by 5 when the
accuracy on SNLI's dev pairs falls, for up to 20 epochs; words are split at white space and stripped of punctuation, where
theirs are those of NLTK (*don't* is found only if the file has it whole, or the text has *do n't*); there is no </s>.

Reference: Conneau et al., Supervised Learning of Universal Sentence Representations from Natural Language Inference Data,
EMNLP 2017.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import LSTM, Pooling, WordEmbeddings
from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer
from transformers import set_seed

from selfguide.data.nli import COLUMNS, NO_FILE, check_option, read_nli
from selfguide.errors import UsageError
from selfguide.losses.nli import NLISoftmaxLoss
from selfguide.methods.base import TuningMethod
from selfguide.models.word_vectors import WordVectors, read_word_vectors
from selfguide.options import AtLeast, CheckedOptions
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
class InferSentOptions(CheckedOptions):
    """Options of InferSent."""

    nli: str = NO_FILE
    """Labelled pairs (a file must be named): label, premise, hypothesis, with tabs; patterns and commas make it several."""
    vectors: str = NO_FILE
    """File of word vectors (one must be named): GloVe .txt or .zip, word2vec .bin, fastText .vec, a .json; .gz and .tgz too."""
    hidden: Annotated[int, AtLeast(1)] = 512
    """Width of the LSTM in each direction; the embedding is twice as wide (published: 2048)."""
    classifier: Annotated[int, AtLeast(1)] = 512
    """Width of the classifier's linear layers."""
    keep: Annotated[int, AtLeast(0)] = 100_000
    """How many of the file's most frequent words to keep, besides every word of the pairs; 0: all."""
    lower: bool = True
    """Lower-case text and words; for vectors with upper-case words, such as GloVe 840B, use --no-lower."""


class InferSent(TuningMethod):
    """``--method infersent``; the encoder it is given is ignored."""

    name = "infersent"
    summary = "an LSTM over word vectors from a file, trained to classify labelled pairs (InferSent)"
    reference = "Conneau et al., EMNLP 2017"
    needs_labels = True
    cost = "one pass of a small LSTM"
    Options = InferSentOptions
    options: InferSentOptions
    defaults = TrainingSettings(batch_size=64, learning_rate=1e-3, epochs=5.0, gradient_clip=5.0, patience=0)
    citation = CITATION
    search = {
        "learning_rate": (1e-4, 3e-4, 1e-3, 3e-3),
        "batch_size": (32, 64, 128),
        "hidden": (256, 512, 1024),
        "classifier": (256, 512),
    }

    _vectors: WordVectors

    def check(self) -> None:
        """See :meth:`Method.check`."""
        check_option(self.options.nli, self.name)
        if self.options.vectors in (NO_FILE, ""):
            raise UsageError(
                "The method infersent has no word vectors to read sentences with. Name a file of them with --vectors FILE, "
                "such as GloVe's (nlp.stanford.edu/projects/glove)."
            )

    def dataset(self, text: Dataset) -> Dataset:
        """See :meth:`TuningMethod.dataset`."""
        options = self.options
        pairs = read_nli(options.nli, self.context.reporter)
        wanted = {BEGIN, *words_of(pairs)} if options.keep else set()
        self._vectors = read_word_vectors(options.vectors, options.keep, wanted, options.lower)
        return with_prompt(pairs)

    def student(self, encoder: SentenceTransformer) -> SentenceTransformer:
        """See :meth:`TuningMethod.student`; the encoder is ignored."""
        set_seed(self.context.settings.seed)  # for the initial weights of the LSTM
        return bilstm_encoder(self._vectors, self.options.hidden, self.options.lower, str(encoder.device))

    def loss(self, student: SentenceTransformer) -> NLISoftmaxLoss:
        """See :meth:`TuningMethod.loss`."""
        return NLISoftmaxLoss(student, product=True, hidden=self.options.classifier)


def with_prompt(pairs: Dataset) -> Dataset:
    """Return the pairs with <s> before every sentence: ``encode`` adds the default prompt, a trainer does not."""
    from datasets import Dataset

    texts = {name: [f"{BEGIN} {sentence}" for sentence in pairs[name]] for name in COLUMNS}
    return Dataset.from_dict({**texts, "label": pairs["label"]})


def words_of(pairs: Dataset) -> set[str]:
    """Return every form in which the tokenizer looks up a word of the pairs: as it is, without punctuation, in lower case."""
    words = {
        word for rows in pairs.iter(batch_size=4096) for name in COLUMNS for text in rows[name] for word in text.split()
    }
    bare = {word.strip(string.punctuation) for word in words}
    return {form for word in words | bare for form in (word, word.lower()) if form}


def bilstm_encoder(vectors: WordVectors, hidden: int, lower: bool, device: str) -> SentenceTransformer:
    """Build an encoder of word vectors, a bidirectional LSTM with random weights, and the maximum over its outputs.

    Args:
        vectors: The words and their vectors.
        hidden: Width of the LSTM in each direction.
        lower: Lower-case the text.
        device: Where to put the encoder.

    Returns:
        An encoder of stock modules.
    """
    width = vectors.matrix.shape[1]
    extra = [word for word in (PADDING, BEGIN) if word not in set(vectors.words)]  # padding gets id 0
    table = np.concatenate([np.zeros((len(extra), width), dtype=np.float32), vectors.matrix])
    tokenizer = WhitespaceTokenizer([*extra, *vectors.words], stop_words=[], do_lower_case=lower)
    lstm = LSTM(width, hidden)
    return SentenceTransformer(
        modules=[WordEmbeddings(tokenizer, table), lstm, Pooling(lstm.get_embedding_dimension(), pooling_mode="max")],
        prompts={"begin": f"{BEGIN} "},
        default_prompt_name="begin",
        device=device,
    )
