"""A run's text with its back-translations: the pairs that a method trains on.

What was translated is kept in the run's work folder, line by line, so that an interrupted run does not translate anything
twice and trains on the same pairs.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from datasets import Dataset

from selfguide.augment.back_translation import TranslationSource, in_chunks, translator
from selfguide.errors import SelfguideError
from selfguide.progress import Reporter, is_main_process
from selfguide.training.distributed import runs_on_cpu, wait_for_everyone
from selfguide.training.trainer import FitContext


def translated_dataset(text: Dataset, source: TranslationSource, context: FitContext) -> Dataset:
    """Columns ``sentence`` and ``translation``: a row for each translation that says it in other words."""
    arrow, lines = context.work / "translations.arrow", context.work / "translations.jsonl"
    if is_main_process() and not arrow.is_file():
        _translate_into(lines, text, source, context)
        _write_pairs(arrow, text, lines, context.reporter)
    wait_for_everyone(context.settings)
    return Dataset.from_file(str(arrow))


def _translate_into(lines: Path, text: Dataset, source: TranslationSource, context: FitContext) -> None:
    """One line of translations for each sentence; goes on where a former run stopped."""
    done = _complete_lines(lines)
    if done == len(text):
        return
    device = _device(context)
    with lines.open("a", encoding="utf-8") as file:
        for rows in in_chunks(translator(source, device), text["sentence"], done, context.reporter):
            file.writelines(json.dumps(row) + "\n" for row in rows)
            file.flush()


def _complete_lines(lines: Path) -> int:
    """How many lines were written to their end; what was not is cut off."""
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
    if len({sentence for sentence, _ in kept}) < 2:
        raise SelfguideError(
            f"Of {len(text):,} sentences {without:,} have no back-translation and {same:,} come back as they were; fewer "
            "than two are left to train on. A file of pairs must hold the sentences as they stand in the text."
        )
    if without or same:
        reporter.note(
            f"Of {len(text):,} sentences {without:,} have no back-translation and {same:,} come back as they were: those "
            "are left out."
        )
    schema = pa.schema([("sentence", pa.string()), ("translation", pa.string())])
    fresh = arrow.with_suffix(".tmp")
    with pa.OSFile(str(fresh), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch([list(column) for column in zip(*kept, strict=True)], schema=schema))
    fresh.replace(arrow)


def _device(context: FitContext) -> str:
    if runs_on_cpu(context.settings):
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "mps"


def _plain(text: str) -> str:
    """What two texts have in common when only case and spacing differ."""
    return " ".join(text.casefold().split())
