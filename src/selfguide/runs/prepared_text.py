"""The text of a run: cleaned once, written as a memory-mapped dataset, and checked before training on it.

It is on disk so that its size does not matter, and so that a resumed run trains on the same text even if it came from a pipe.
"""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfguide.data import Sentences
from selfguide.data.blocks import regrouped
from selfguide.engine.vocabulary_fit import foreign_text
from selfguide.errors import SelfguideError
from selfguide.files import file_digest, read_json, write_text
from selfguide.progress import Reporter, is_main_process
from selfguide.training.distributed import wait_for_everyone
from selfguide.training.settings import TrainingSettings

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

_DIGEST = "digest of text.arrow"


def prepare_text(
    work: Path, sentences: Sentences | None, settings: TrainingSettings, reporter: Reporter
) -> tuple[Dataset, dict[str, Any]]:
    """Write the cleaned text into the work folder, unless a resumed run finds it there.

    Args:
        work: The run's work folder.
        sentences: The text; ``None`` if the folder has it.
        settings: The training settings, for the processes to wait for one another.
        reporter: Shows progress and the summary.

    Returns:
        The text as a memory-mapped dataset with the column ``sentence``, and its summary.

    Raises:
        SelfguideError: Fewer than two sentences are left.
    """
    from datasets import Dataset

    arrow, summary_file = work / "text.arrow", work / "text.json"
    if is_main_process() and not summary_file.is_file():
        assert sentences is not None
        digest = _write_arrow(arrow, sentences, reporter)
        summary = {**sentences.summary.as_dict(), "fingerprint": sentences.summary.fingerprint}
        if sentences.summary.kept < 2:
            raise SelfguideError(
                f"There is too little to train on: {sentences.summary.describe()}. "
                "Contrastive training needs at least two different sentences, and pays off from a few hundred on."
            )
        for note in sentences.described():
            reporter.note(note)
        write_text(summary_file, json.dumps(summary | {_DIGEST: digest}, indent=2))
    elif is_main_process():
        _check(arrow, summary_file)
    wait_for_everyone(settings)
    summary = read_json(summary_file)
    summary.pop(_DIGEST, None)
    return Dataset.from_file(str(arrow)), summary


def _check(arrow: Path, summary_file: Path) -> None:
    """Refuse the text of an interrupted run that is not as it was written."""
    try:
        digest = read_json(summary_file).get(_DIGEST)
        sound = digest in (None, file_digest(arrow))
    except (OSError, ValueError, AttributeError):
        sound = False
    if not sound:
        raise SelfguideError(
            f"The text of the interrupted run, {arrow}, is damaged or gone; start the run over with --overwrite."
        )


class _DigestedFile(io.FileIO):
    """A new file, and the digest of what has been written; reading gigabytes again would take seconds."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "wb")
        self.digest = hashlib.sha256()

    def write(self, content: Any) -> int:
        """Write all of it."""
        left = memoryview(content)
        self.digest.update(left)
        while len(left):
            left = left[super().write(left) :]
        return len(content)


def _write_arrow(path: Path, sentences: Sentences, reporter: Reporter, chunk: int = 10_000) -> str:
    """Write the sentences, and return the digest of the file."""
    import pyarrow as pa

    schema = pa.schema([("sentence", pa.string())])
    with (
        _DigestedFile(path) as file,
        pa.PythonFile(file, "w") as sink,
        pa.ipc.new_stream(sink, schema) as writer,
        reporter.bar("reading", None, "sentences") as advance,
    ):
        for array in regrouped(sentences.blocks(), chunk):
            writer.write_batch(pa.record_batch([array], schema=schema))
            advance(len(array), "")
    return file.digest.hexdigest()


def check_text(text: Dataset, encoder: SentenceTransformer, reporter: Reporter) -> None:
    """Warn about a text that is likely to be useless for training.

    Args:
        text: The text as a dataset.
        encoder: The encoder to be tuned, whose tokenizer reads a sample.
        reporter: Gets the warnings.
    """
    count = len(text)
    if not callable(encoder.tokenizer):  # an encoder of static word embeddings has another kind of tokenizer
        return
    step = max(1, count // 500)
    sample = [text[index]["sentence"] for index in range(0, count, step)]
    unknown = encoder.tokenizer.unk_token_id
    special = set(encoder.tokenizer.all_special_ids) - {unknown}
    tokens = [[token for token in ids if token not in special] for ids in encoder.tokenizer(sample)["input_ids"]]
    lengths = sorted(len(ids) for ids in tokens)
    if lengths[len(lengths) // 2] < 3:
        reporter.warn("half of the lines have fewer than three tokens: these look like words or labels, not sentences.")
    flat = [token for ids in tokens for token in ids]
    if foreign := foreign_text(encoder.tokenizer, sample):
        reporter.warn(foreign)
    if count >= 50 and len(set(flat)) < 20:
        reporter.warn(
            f"the text uses only {len(set(flat))} different tokens: its sentences are too alike to tell apart."
        )
