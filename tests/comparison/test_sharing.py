"""Several processes on one comparison: each cell is run once, and everybody ends with the whole table."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import selfguide
from selfguide.comparison.cells import Cell, CellFolder, CellRecord, SharedSetting
from selfguide.comparison.sharing import SharedCells
from selfguide.comparison.specs import parse_specs
from selfguide.comparison.worker import CellJob
from selfguide.errors import FolderInUse
from selfguide.locks import claim, inside, joined
from selfguide.progress import Reporter
from toys import toy_sentences

SETTING = SharedSetting("mini", "aa", ("text",), "ff", 10, None, None, {"demo": "cc"}, {"similarity": "cosine"})


def _jobs(folder: Path) -> list[CellJob]:
    specs = parse_specs("mean,simcse", (), device="cpu")
    cells = [
        Cell(spec, seed, order) for order, spec in enumerate(specs) for seed in ((1, 2) if spec.seeded else (None,))
    ]
    return [CellJob(cell, SETTING, folder, folder, "mini") for cell in cells]


def _record(job: CellJob, **facts: Any) -> CellRecord:
    return CellRecord.of(job.cell, SETTING, **facts)


def test_cells_are_taken_once(tmp_path: Path) -> None:
    mine, other = (SharedCells(_jobs(tmp_path), Reporter(quiet=True)) for _ in range(2))
    with mine.claims(), other.claims():
        ours, theirs = mine.available(), other.available()
        first, second, third = next(ours), next(theirs), next(ours)
        assert len({first.stem, second.stem, third.stem}) == 3
        assert (next(ours, None), next(theirs, None)) == (None, None)
        # What the other finished, also if it failed, is read; what nobody is at any more is free.
        CellFolder(tmp_path).write(second.cell, record := _record(second, error="It broke."))
        other.finished(record)
        assert next(mine.available(), None) is None
        assert mine.finished_elsewhere() == [record]
        assert mine.left == 0
        assert (other.left, mine.finished_elsewhere()) == (2, [])
    assert [job.stem for job in other.available()] == [first.stem, third.stem]  # released without a record: run them


def test_what_was_there_before_is_not_taken_for_the_work_of_another(tmp_path: Path) -> None:
    """With ``--again``, or after a failure."""
    jobs = _jobs(tmp_path)
    CellFolder(tmp_path).write(jobs[0].cell, _record(jobs[0], error="Of yesterday."))
    (tmp_path / "cells" / f".{jobs[0].stem}.12-0.tmp.json").write_text("half")
    shared = SharedCells(jobs, Reporter(quiet=True))
    with shared.claims():
        assert [job.stem for job in shared.available()] == [job.stem for job in jobs]
    assert [path.name for path in (tmp_path / "cells").iterdir()] == [f"{jobs[0].stem}.json"]


def test_a_half_written_cell_is_no_cell(tmp_path: Path) -> None:
    job = _jobs(tmp_path)[0]
    CellFolder(tmp_path).write(job.cell, _record(job))
    (tmp_path / "cells" / f".{job.stem}.12-0.tmp.json").write_text("half")
    assert list(CellFolder(tmp_path).records_by_stem()) == [job.stem]


def test_another_setting_is_refused_while_one_is_at_work(bert: Path, tmp_path: Path) -> None:
    with joined(inside(tmp_path), tmp_path, "another setting"), pytest.raises(FolderInUse, match="since 20"):
        selfguide.compare(bert, toy_sentences(20), "mean", tasks="demo", output=tmp_path, device="cpu")
    assert not list(tmp_path.iterdir())


COMPARE = (
    "import sys, selfguide; from toys import toy_sentences\n"
    "found = selfguide.compare(sys.argv[1], toy_sentences(60), 'mean,bow,simcse:max_steps=6', 2, 'demo',"
    " output=sys.argv[2], report=False, device='cpu', jobs=1)\n"
    "print(len(found.records), [record.name for record in found.failed])\n"
)


@pytest.mark.slow
def test_two_processes_share_and_the_survivor_takes_over(bert: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [sys.executable, "-c", COMPARE, str(bert), str(out)]
    path = os.pathsep.join(["tests/support", *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "PYTHONPATH": path}
    doomed, other = (subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env) for _ in range(2))
    until = time.monotonic() + 120
    while not list(out.glob("cells/*.json")):
        assert time.monotonic() < until
        time.sleep(0.02)
    doomed.send_signal(signal.SIGKILL)
    doomed.communicate()
    assert other.communicate(timeout=300)[0] == "5 []\n"
    assert len(list(out.glob("cells/*.json"))) == 5
    assert len(json.loads((out / "comparison.json").read_text())["rows"]) == 3
    assert not list(out.rglob(".*"))


def test_a_claim_ends_with_its_process(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from selfguide.locks import claim\n"
        "mine = claim(Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / ".cell.lock")], check=False)
    mine = claim(tmp_path / ".cell.lock")
    assert mine is not None
    mine.release()
