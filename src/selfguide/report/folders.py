"""From a folder to its page: what the folder holds decides which report it is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selfguide.errors import SelfguideError, UsageError
from selfguide.evaluation.results import SCORES_FILE, ScoreFolder
from selfguide.files import write_text
from selfguide.progress import Reporter
from selfguide.report.evidence import RunEvidence, evidence_of
from selfguide.training.configuration import RUN_FILE

PAGE = "report.html"
COMPARISON_FILE = "comparison.json"
STUDY_FILE = "study.json"


def write_report(folder: str | Path, output: str | Path | None = None) -> Path:
    """Write the report of a study, a comparison, a finished run or a folder of scores; returns where (``report.html`` in it)."""
    folder = Path(folder)
    content = _page_of(folder)
    path = folder / PAGE if output is None else Path(output)
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file in it, such as {path / PAGE}.")
    _write(path, content)
    return path


def write_run_report(folder: Path, evidence: RunEvidence | None, reporter: Reporter) -> None:
    """The page of a run whose ``run.json`` is in the folder; a run is worth more than its page, so trouble is a warning."""
    from selfguide.report.run_page import run_page

    try:
        _write(folder / PAGE, _made(folder / RUN_FILE, lambda run: run_page(run, evidence)))
    except SelfguideError as error:
        if os.environ.get("SELFGUIDE_DEBUG") == "1":
            raise
        reporter.warn(f"the run has no {PAGE}: {error}")


def _page_of(folder: Path) -> str:
    if not folder.is_dir():
        raise SelfguideError(
            f"There is no folder {folder}: name what `selfguide train`, `compare`, `study` or `eval` wrote, the folder itself."
        )
    if (folder / STUDY_FILE).is_file():
        from selfguide.report.study_page import study_page

        return _made(folder / STUDY_FILE, study_page)
    if (folder / COMPARISON_FILE).is_file():
        from selfguide.report.comparison_page import comparison_page

        return _made(folder / COMPARISON_FILE, comparison_page)
    if (folder / RUN_FILE).is_file():
        from selfguide.report.run_page import run_page

        # What was measured during the run cannot be measured again: an earlier page carries it.
        evidence = evidence_of(folder / PAGE)
        return _made(folder / RUN_FILE, lambda run: run_page(run, evidence))
    if (folder / SCORES_FILE).is_file():
        from selfguide.report.scores_page import scores_page

        scores = ScoreFolder(folder).scores
        if not scores:
            raise SelfguideError(f"{folder / SCORES_FILE} holds no scores yet; `selfguide eval` puts some there.")
        return scores_page(scores)
    if (folder / "cells").is_dir():
        raise SelfguideError(
            f"The comparison in {folder} has no tables yet; `selfguide compare --from {folder}` makes them of its cells."
        )
    if (folder / "grids").is_dir() or (folder / "measurements").is_dir():
        raise SelfguideError(
            f"The study in {folder} is not finished; the command that began it goes on with it and writes the page."
        )
    raise SelfguideError(
        f"There is nothing to report on in {folder}: no {STUDY_FILE}, {COMPARISON_FILE}, {RUN_FILE} or {SCORES_FILE}. Name "
        "a folder that `selfguide study`, `compare`, `train` or `eval` wrote."
    )


def _made(path: Path, make: Callable[[dict[str, Any]], str]) -> str:
    """The page of a file's content; a file of another kind or version is said to be one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise TypeError("not an object")
        return make(content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        if os.environ.get("SELFGUIDE_DEBUG") == "1":
            raise
        raise SelfguideError(
            f"{path} is not what this version of selfguide writes under that name ({type(error).__name__}: {error}); "
            "it may be of another version, or have been changed by hand."
        ) from None


def _write(path: Path, content: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, content)
    except OSError as error:
        raise SelfguideError(f"The report cannot be written to {path}: {error.strerror or error}.") from None
