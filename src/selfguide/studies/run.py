"""``selfguide.study``: answer one question about the methods."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from selfguide.comparison.runner import check_jobs
from selfguide.comparison.texts import DatasetLocator
from selfguide.data.kept_inputs import check_results_folder
from selfguide.errors import UsageError
from selfguide.files import private_folder
from selfguide.locks import owned_folder
from selfguide.options import LARGEST_SEED, AtLeast, check
from selfguide.progress import Reporter
from selfguide.report.folders import write_report_or_warn
from selfguide.studies import registry
from selfguide.studies.base import DEMO, DEMO_DEV, Setup
from selfguide.studies.execution import EncoderFacts, StudyRun
from selfguide.studies.files import StudyResult, results_of, write_study
from selfguide.studies.texts import TextSampler


def study(
    name: str,
    *,
    encoder: str | Path = "mini",
    full: bool = False,
    text: str | Path | None = None,
    limit: int | None = None,
    tasks: str | None = None,
    pairs: str | Path | Iterable[str | Path] = (),
    dev: str | Path | None = None,
    seeds: int | Iterable[int] | None = None,
    data: str | Path | None = None,
    settings: Iterable[str] = (),
    output: str | Path | None = None,
    report: bool = True,
    jobs: int | None = None,
    again: bool = False,
    device: str = "auto",
    command: str | None = None,
    quiet: bool = True,
) -> StudyResult:
    """Answer one question about the methods, on any encoder and text.

    Args:
        name: A study that ``selfguide study --list`` names.
        encoder: What every method starts from: ``"mini"``, a folder or a hub name.
        full: Run the papers' protocol on the data of SELFGUIDE_DATA, for a GPU, instead of a demonstration of minutes.
        text: A text other than the study's own: a file, ``data:stsb``, ``data:TASK``.
        limit: Number of sentences to sample from the text.
        tasks: Tasks to score, as for :func:`selfguide.evaluate`.
        pairs: Files of pairs to score on.
        dev: Graded pairs or a task to choose checkpoints by; ``""``: none. By default the demonstration's for its own text, none
            for yours.
        seeds: How many (1, 2, 3 …), or which.
        data: The data folder; None: SELFGUIDE_DATA.
        settings: ``"temperatures=0.01,0.1"`` for the study's own lists, ``"max_steps=100"`` or
            ``"simcse.learning_rate=5e-5"`` for the methods.
        output: Folder for the cells, ``study.json``, tables and figures; what has finished there is not run again.
            None: nothing is kept.
        report: Write ``report.html`` into the folder.
        jobs: How many cells run in parallel processes.
        again: Run finished cells and measurements again.
        device: ``cpu``, ``cuda``, ``mps`` or ``auto``.
        command: The command line, for the record.
        quiet: Print no notes.

    Returns:
        The numbers, tables and figures of ``study.json``.

    Raises:
        UsageError: The study or one of its settings does not exist, or makes no sense.
        InterruptedRun: The user stopped it; the same call continues.

    Example::

        found = selfguide.study("temperature", output="study-temperature", quiet=False)
        print(found.markdown())
        found.results["tables"][0]["rows"]
    """
    check_jobs(jobs)
    chosen = registry.make(name)
    scale = chosen.full if full else chosen.small
    files = (str(pairs),) if isinstance(pairs, str | Path) else tuple(map(str, pairs))
    if text is not None:
        scale = replace(scale, text=str(text))
    if limit is not None:
        check("--limit", limit, AtLeast(2))
        scale = replace(scale, limit=limit)
    if tasks is not None or files:
        scale = replace(scale, tasks=tasks or "", pairs=files)
    if dev is not None:
        scale = replace(scale, dev=str(dev) or None)
    if output is not None:
        check_results_folder(Path(output))
    if seeds is not None:
        wanted = list(range(1, seeds + 1)) if isinstance(seeds, int) else list(dict.fromkeys(seeds))
        if not wanted or min(wanted) < 0 or max(wanted) > LARGEST_SEED:
            raise UsageError(
                f"Seeds are a number of at least 1, or a list of numbers from 0 to {LARGEST_SEED}, not {seeds!r}."
            )
        scale = replace(scale, seeds=tuple(wanted))
    scale = scale.with_settings(settings)
    reporter = Reporter(quiet=quiet)
    own_text = scale.text != DEMO or scale.values.get("texts") != chosen.small.values.get("texts")
    if dev is None and own_text and scale.dev == DEMO_DEV:
        # The demonstration's pairs say nothing about which weights are best for another text.
        scale = replace(scale, dev=None)
        reporter.note("Without pairs of your own (--dev), the last weights of each run count, not the best.")
    facts = EncoderFacts.of(encoder, device)
    texts = TextSampler(DatasetLocator(data))
    setup = Setup(scale, full, facts.name, facts.depth, len(texts.sample(scale.text, scale.limit).sentences))
    plan = chosen.plan(setup)
    how = (data, jobs, again, device, command, reporter)
    with private_folder("selfguide-study-") as work, ExitStack() as stack:
        folder = Path(output) if output is not None else work / "output"
        run = StudyRun(chosen.title, plan, setup, facts, texts, work, folder, *how)
        if output is not None:
            stack.enter_context(owned_folder(folder))
        findings, records = run.run()
        outcome = chosen.outcome(findings)
        result = StudyResult(results_of(chosen, setup, plan, findings, records, outcome, run.provenance()))
        if output is not None:
            write_study(result, folder)
            if report:
                write_report_or_warn(folder, run.reporter)
        return result
