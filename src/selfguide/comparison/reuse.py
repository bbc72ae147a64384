"""What one cell has trained need not be trained again by another: ``simcse+whitening`` begins where ``simcse`` ended.

Only where the encoders are kept (``--keep``), and only from a finished cell of the same comparison whose stages are the first
stages of this one, with the same seed, on the same encoder, text and dev pairs. The kept folder holds the very weights that the
next stage would have got, so the result is the same; the cell's file says whose encoder it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from selfguide.comparison.cells import Cell, CellFolder, SharedSetting

ENCODERS = "encoders"


@dataclass(frozen=True)
class ReusableCell:
    """A finished cell to go on from."""

    label: str
    folder: Path
    stages: int
    """How many of the stages it has behind it."""
    steps: int


def find_reusable_cell(cell: Cell, setting: SharedSetting, output: Path) -> ReusableCell | None:
    """The finished cell that has most of this cell's stages behind it, if any."""
    cells = CellFolder(output)
    if len(cell.spec.stages) < 2 or not cells.folder.is_dir():
        return None
    for done in range(len(cell.spec.stages) - 1, 0, -1):
        first = Cell(replace(cell.spec, stages=cell.spec.stages[:done]), cell.seed, cell.order)
        for record, stem in cells.read_scored():
            folder = output / ENCODERS / stem
            same = record.seed == cell.seed and record.rerun_reason(first, setting) is None
            if same and folder.is_dir():
                return ReusableCell(record.label, folder, done, record.steps)
    return None
