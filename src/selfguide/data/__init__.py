"""Reading and cleaning sentences, streamed: files, globs, standard input, hub datasets and plain Python iterables.

Nothing here imports torch, and the heavy helpers (pyarrow, datasets, numpy) are imported only when a source needs them,
so that a wrong path is reported in milliseconds.
"""

from __future__ import annotations

from selfguide.data.options import TextOptions, TextSummary
from selfguide.data.sentences import Sentences, open_text

__all__ = ["Sentences", "TextOptions", "TextSummary", "open_text"]
