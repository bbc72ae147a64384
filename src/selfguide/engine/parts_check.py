"""Prove that a folder of parts holds every row of its text exactly once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from selfguide.data.slices import read
from selfguide.engine.parts import Manifest, is_finished, part_path
from selfguide.errors import SelfguideError

_BATCH = 4096
_SHOWN = 5


def check_parts(
    folder: Path, manifest: Manifest, advance: Callable[[int, str], None] = lambda count, extra: None
) -> None:
    """Read a text and its parts side by side.

    Every part of the manifest must be there and no other; its rows must have the ids and sentences of the text in their order,
    and an embedding each whose numbers are finite. The text must be the one that the manifest was made of.

    Args:
        folder: The folder.
        manifest: Its manifest.
        advance: Called with the number of rows that have been compared.

    Raises:
        SelfguideError: Something is missing, too much or wrong; the message says what.
    """
    wanted = {part_path(folder, number).name for number in range(len(manifest.slices))}
    there = {path.name for path in folder.glob("*.parquet") if not path.name.startswith(".")}
    if more := sorted(there - wanted):
        raise SelfguideError(
            f"{folder} holds {more[0]}, which is not a part of its manifest: its rows would count twice."
        )
    lacking = [number for number in range(len(manifest.slices)) if not is_finished(folder, manifest, number)]
    if lacking:
        rows = sum(manifest.slices[number].rows for number in lacking)
        shown = ", ".join(part_path(folder, number).name for number in lacking[:_SHOWN])
        more_parts = f" and {len(lacking) - _SHOWN:,} more" if len(lacking) > _SHOWN else ""
        raise SelfguideError(
            f"{rows:,} of {manifest.rows:,} rows are not there: {shown}{more_parts} "
            f"{'is' if len(lacking) == 1 else 'are'} missing, incomplete or of another text. The command that made the others "
            "makes them."
        )
    for number in range(len(manifest.slices)):
        _check_part(folder, manifest, number, advance)


def _check_part(folder: Path, manifest: Manifest, number: int, advance: Callable[[int, str], None]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    part, path = manifest.slices[number], part_path(folder, number)
    sentences = iter(read(part, manifest.options))
    row = part.first
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_BATCH):
                expected = list(islice(sentences, batch.num_rows))
                if batch.column("sentence").to_pylist() != expected:
                    for (
                        _
                    ) in sentences:  # at the end of the slice its digest says whether it is the text that has changed
                        pass
                _check_rows(path, batch, row, expected, manifest)
                row += batch.num_rows
                advance(batch.num_rows, "")
    except (pa.ArrowException, OSError) as error:
        raise SelfguideError(f"{path} is damaged ({error}); delete it, and make it again.") from None
    if next(sentences, None) is not None or row != part.first + part.rows:
        raise SelfguideError(f"{path} ends before its slice of the text does; delete it, and make it again.")


def _check_rows(path: Path, batch: Any, row: int, expected: list[str], manifest: Manifest) -> None:
    ids = batch.column("id").to_numpy(zero_copy_only=False)
    if not np.array_equal(ids, np.arange(row, row + len(ids))):
        wrong = int(np.flatnonzero(ids != np.arange(row, row + len(ids)))[0])
        raise SelfguideError(f"{path} has the row {ids[wrong]:,} where {row + wrong:,} is due.")
    found = batch.column("sentence").to_pylist()
    if found != expected:
        wrong = next((place for place, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]), 0)
        raise SelfguideError(f"{path}, row {row + wrong:,}: its sentence is not that of the text.")
    embeddings = batch.column("embedding")
    values = embeddings.flatten().to_numpy(zero_copy_only=False)
    if embeddings.null_count or len(values) != len(ids) * manifest.columns or not np.isfinite(values).all():
        raise SelfguideError(f"{path}, from row {row:,}: an embedding is missing or not finite.")
