"""Reuse of trained encoders between cells: ``simcse+whitening`` starts from the encoder that ``simcse`` trained.

Only where the encoders are kept (``--keep``), and only from a finished cell of the same comparison whose stages are the first
stages of this one, with the same seed, on the same encoder, text and dev pairs. The kept folder holds exactly the weights
that the next stage would have received, so the result is the same; the cell's file records which encoder was reused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from selfguide.comparison.cells import Cell, CellFolder, SharedSetting

ENCODERS = "encoders"


@dataclass(frozen=True)
class ReusableCell:
    """A finished cell with a kept encoder, whose stages are the first stages of another cell."""

    label: str
    folder: Path
    """Folder of its encoder."""
    stages: int
    """The number of stages that are done."""
    steps: int


def find_reusable_cell(cell: Cell, setting: SharedSetting, output: Path) -> ReusableCell | None:
    """Find the finished cell that has done most of a cell's stages.

    Args:
        cell: The cell that is to be run.
        setting: The setting of its comparison.
        output: Folder of the comparison.

    Returns:
        The finished cell, or None where there is none.
    """
    if len(cell.spec.stages) < 2:
        return None
    records = CellFolder(output).records_by_stem()
    for count in range(len(cell.spec.stages) - 1, 0, -1):
        first = Cell(replace(cell.spec, stages=cell.spec.stages[:count]), cell.seed, cell.order)
        for stem, record in records.items():
            folder = output / ENCODERS / stem
            if record.seed == cell.seed and record.rerun_reason(first, setting) is None and folder.is_dir():
                return ReusableCell(record.label, folder, count, record.steps)
    return None
