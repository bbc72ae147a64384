"""Reading text: sentences to train on or encode, graded pairs, labelled pairs, and the files of the package.

======================  ================================================================================================
``sentences``           :class:`Sentences`, the iterable that everything else is for, and :func:`open_text`
``options``             :class:`TextOptions` and :class:`TextSummary`
``sources``             from paths, globs, ``-`` and ``hf:owner/name`` to readers
``readers``             plain lines, csv, tsv, JSON lines, strings in memory
``dataset_readers``     Parquet files and Hugging Face datasets
``lines``               decompression, UTF-8 and line numbers
``cleaning``            normalisation and filtering of rows
``dedup``               removal of repeated sentences in little memory
``pairs``, ``nli``      graded pairs; pairs labelled for natural language inference
``resources``           the embedded encoder and the demonstration data
======================  ================================================================================================

Nothing here imports torch, and heavy packages (pyarrow, datasets, numpy) are imported only when a source needs them, so that
a wrong path is reported in milliseconds.
"""

from __future__ import annotations

from selfguide.data.options import TextOptions, TextSummary
from selfguide.data.sentences import Sentences, open_text

__all__ = ["Sentences", "TextOptions", "TextSummary", "open_text"]
