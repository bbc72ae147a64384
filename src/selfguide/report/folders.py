"""Write the page of a folder: what the folder holds decides which report it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import UndefinedError

from selfguide.engine.similarity_scale import SimilarityScale, read_scale
from selfguide.errors import SelfguideError, UsageError
from selfguide.evaluation.results import SCORES_FILE, ScoreFolder
from selfguide.files import read_json, write_text
from selfguide.progress import Reporter
from selfguide.report.comparison_page import comparison_page
from selfguide.report.evidence import RunEvidence, read_evidence
from selfguide.report.run_page import run_page
from selfguide.report.scores_page import scores_page
from selfguide.report.study_page import study_page
from selfguide.system import debugging
from selfguide.training.configuration import RUN_FILE

PAGE = "report.html"
COMPARISON_FILE = "comparison.json"
STUDY_FILE = "study.json"


def write_report(folder: str | Path, output: str | Path | None = None) -> Path:
    """Write the page of a study, a comparison, a finished run or a folder of scores.

    Args:
        folder: What ``selfguide study``, ``compare``, ``train`` or ``eval`` wrote.
        output: The file to write; ``report.html`` in the folder unless given.

    Returns:
        The path of the page.

    Raises:
        SelfguideError: There is nothing to report on in the folder, or the page cannot be written.
        UsageError: The output is not the name of a page.
    """
    folder = Path(folder)
    path = folder / PAGE if output is None else Path(output)
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file in it, such as {path / PAGE}.")
    if path.suffix.lower() not in (".html", ".htm"):  # another file would be replaced without a question
        raise UsageError(f"--output {path} must end in .html.")
    content = _page_of(folder)
    _write(path, content)
    return path


def write_report_or_warn(folder: Path, reporter: Reporter, evidence: RunEvidence | None = None) -> None:
    """Write ``report.html`` at the end of a run, a comparison or a study, whose results are worth more than their page.

    Args:
        folder: What the run, comparison or study wrote.
        reporter: Gets a warning where the page cannot be written.
        evidence: What was measured of a run's encoder before and after training.
    """
    try:
        _write(folder / PAGE, _page_of(folder, evidence))
    except SelfguideError as error:
        if debugging():
            raise
        reporter.warn(f"no {PAGE} was written: {error}")


def _page_of(folder: Path, evidence: RunEvidence | None = None) -> str:
    if not folder.is_dir():
        raise SelfguideError(
            f"There is no folder {folder}: name what `selfguide train`, `compare`, `study` or `eval` wrote, the folder itself."
        )
    if (folder / STUDY_FILE).is_file():
        return _made(folder / STUDY_FILE, study_page)
    if (folder / COMPARISON_FILE).is_file():
        return _made(folder / COMPARISON_FILE, comparison_page)
    if (folder / RUN_FILE).is_file():
        # What was measured during the run cannot be measured again: an earlier page carries it.
        known = evidence or read_evidence(folder / PAGE)
        return _made(folder / RUN_FILE, lambda run: run_page(run, known, _scale(folder)))
    if (folder / SCORES_FILE).is_file():
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
            f"The study in {folder} is not finished; the command that started it continues it and writes the page."
        )
    raise SelfguideError(
        f"There is nothing to report on in {folder}: no {STUDY_FILE}, {COMPARISON_FILE}, {RUN_FILE} or {SCORES_FILE}. Name "
        "a folder that `selfguide study`, `compare`, `train` or `eval` wrote."
    )


def _scale(folder: Path) -> SimilarityScale | None:
    """Return what the folder keeps of the cosines of its text; ``None`` where that is damaged."""
    try:
        return read_scale(folder)
    except SelfguideError:
        return None


def _made(path: Path, make: Callable[[dict[str, Any]], str]) -> str:
    """Make the page of a file's content; a file of another kind or version is a ``SelfguideError``."""
    try:
        content = read_json(path)
        if not isinstance(content, dict):
            raise TypeError("not an object")
        return make(content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, UndefinedError) as error:
        if debugging():
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
