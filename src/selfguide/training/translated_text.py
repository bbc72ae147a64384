"""Pairs of sentences and back-translations to train on.

Translations are cached in the run's work folder, line by line, so that an interrupted run translates nothing twice and
trains on the same pairs.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from datasets import Dataset

from selfguide.augment.back_translation import TranslationSource, in_chunks, translator
from selfguide.errors import SelfguideError
from selfguide.files import atomic_path, is_sealed, seal
from selfguide.progress import Reporter, is_main_process
from selfguide.training.distributed import runs_on_cpu, wait_for_everyone
from selfguide.training.trainer import FitContext


def translated_dataset(text: Dataset, source: TranslationSource, context: FitContext) -> Dataset:
    """Pair each sentence with its back-translations, leaving out those that repeat the sentence.

    Args:
        text: Dataset with a column ``sentence``.
        source: Where the back-translations come from.
        context: The run, whose work folder caches them.

    Returns:
        A dataset with the columns ``sentence`` and ``translation``, one row per usable translation.

    Raises:
        SelfguideError: Fewer than two sentences have a usable translation.
    """
    arrow, lines = context.work / "translations.arrow", context.work / "translations.jsonl"
    if is_main_process() and not is_sealed(arrow):
        _translate_into(lines, text, source, context)
        _write_pairs(arrow, text, lines, context.reporter)
        seal(arrow)
    wait_for_everyone(context.settings)
    return Dataset.from_file(str(arrow))


def _translate_into(lines: Path, text: Dataset, source: TranslationSource, context: FitContext) -> None:
    """Append one line of translations per sentence, starting where an earlier run stopped."""
    done = _count_complete_lines(lines)
    if done == len(text):
        return
    with lines.open("a", encoding="utf-8") as file:
        for rows in in_chunks(translator(source, _device(context)), text["sentence"], done, context.reporter):
            file.writelines(json.dumps(row) + "\n" for row in rows)
            file.flush()


def _count_complete_lines(lines: Path) -> int:
    """Count the complete lines, and cut off an incomplete last one."""
    if not lines.is_file():
        return 0
    content = lines.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        lines.write_bytes(whole)
    return whole.count(b"\n")


def _write_pairs(arrow: Path, text: Dataset, lines: Path, reporter: Reporter) -> None:
    import pyarrow as pa

    kept: list[tuple[str, str]] = []
    without = same = 0
    with lines.open(encoding="utf-8") as file:
        for sentence, line in zip(text["sentence"], file, strict=True):
            found = json.loads(line)
            other = [translation for translation in found if _plain(translation) not in ("", _plain(sentence))]
            without += not found
            same += bool(found) and not other
            kept += [(sentence, translation) for translation in other]
    counts = f"Of {len(text):,} sentences {without:,} have no back-translation and {same:,} come back as they were"
    if len({sentence for sentence, _ in kept}) < 2:
        raise SelfguideError(
            f"{counts}; fewer than two are left to train on. A file of pairs must hold the sentences as they stand in "
            "the text."
        )
    if without or same:
        reporter.note(f"{counts}: those are left out.")
    schema = pa.schema([("sentence", pa.string()), ("translation", pa.string())])
    with (
        atomic_path(arrow) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_stream(sink, schema) as writer,
    ):
        writer.write_batch(pa.record_batch([list(column) for column in zip(*kept, strict=True)], schema=schema))


def _device(context: FitContext) -> str:
    if runs_on_cpu(context.settings):
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "mps"


def _plain(text: str) -> str:
    """Return the text normalised for comparison, without differences of case and spacing."""
    return " ".join(text.casefold().split())
