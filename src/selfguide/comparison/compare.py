"""``selfguide.compare``: methods × seeds × tasks on one encoder and one text."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from selfguide.comparison.cells import Cell, CellFolder, CellRecord, SharedSetting, split_by_setting
from selfguide.comparison.progress import CellProgress, duration, seconds_left
from selfguide.comparison.runner import check_jobs, process_count, run_jobs, split_finished
from selfguide.comparison.sharing import SharedCells
from selfguide.comparison.specs import GivenMethods, Spec, parse_specs, without_rows
from selfguide.comparison.summary import Summary, summarise
from selfguide.comparison.tables import as_latex, as_markdown, write_tables
from selfguide.comparison.texts import (
    AnyText,
    DatasetLocator,
    NamedText,
    dev_rows,
    named_text,
    read_sentences,
    write_pairs,
    write_sentences,
)
from selfguide.comparison.worker import DEV, ENCODER, ROWS, TEXT, CellJob, ScoringData
from selfguide.data import TextOptions
from selfguide.data.kept_inputs import check_results_folder
from selfguide.errors import InterruptedRun, UsageError
from selfguide.evaluation.evaluate import load_tasks, warn_of_languages
from selfguide.evaluation.protocol import Protocol
from selfguide.files import private_folder
from selfguide.locks import owned_folder, waited_for
from selfguide.options import LARGEST_SEED
from selfguide.progress import Reporter, counted
from selfguide.report.folders import write_report_or_warn
from selfguide.system import cores

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@dataclass(frozen=True)
class Comparison:
    """The cells of a comparison and their summary."""

    records: tuple[CellRecord, ...]
    summary: Summary

    @property
    def failed(self) -> tuple[CellRecord, ...]:
        """Cells without scores; ``error`` says why."""
        return tuple(record for record in self.records if record.error is not None)

    def markdown(self) -> str:
        """Return the table with its notes in Markdown."""
        return as_markdown(self.summary)

    def latex(self) -> str:
        """Return the table as a booktabs tabular."""
        return as_latex(self.summary)

    def write(self, folder: str | Path) -> list[Path]:
        """Write ``comparison.csv``, ``.md``, ``.tex`` and ``.json``.

        Args:
            folder: Where to write; it is created if need be.

        Returns:
            The paths of the files.
        """
        return write_tables(self.summary, self.records, Path(folder))


def compare(
    encoder: str | Path | SentenceTransformer,
    text: AnyText | NamedText,
    methods: GivenMethods,
    seeds: int | Iterable[int] = 3,
    tasks: str | Iterable[str] = "demo",
    *,
    pairs: str | Path | Iterable[str | Path] = (),
    dev: str | Path | None = None,
    data: str | Path | None = None,
    settings: Iterable[str] = (),
    baseline: str | None = None,
    output: str | Path | None = None,
    report: bool = True,
    jobs: int | None = None,
    again: bool = False,
    keep: bool = False,
    protocol: Protocol | None = None,
    text_options: TextOptions | None = None,
    allow_partial: bool = False,
    download: bool = True,
    device: str = "auto",
    batch_size: int = 64,
    command: str | None = None,
    quiet: bool = True,
) -> Comparison:
    """Train and score methods with several seeds each.

    Args:
        encoder: The encoder that every method starts from: ``"mini"``, a folder, a hub name, or a SentenceTransformer.
        text: Text as :func:`selfguide.train` takes it, or ``"data:stsb"``: STS-B's sentences without their grades.
        methods: Rows as text, ``"mean,simcse:epochs=2,sg-opt+whitening"`` (:mod:`selfguide.comparison.specs`); or a list of
            such texts, method classes, instances and functions that make a loss; or a mapping from labels to these.
        seeds: How many (1, 2, 3 …), or which. Methods that draw nothing at random are run once.
        tasks: Tasks to score on, as in :func:`selfguide.evaluate`.
        pairs: Files of graded pairs to score on.
        dev: A file of graded pairs or a task such as ``"stsb-dev"``, which chooses the checkpoints of tuned methods.
        data: The data folder; ``None`` means the one that SELFGUIDE_DATA names.
        settings: ``"simcse.learning_rate=5e-5"`` for one method, ``"epochs=2"`` for all.
        baseline: The row that others are tested against; the first unless given.
        output: Folder for cells, tables and page; cells that are finished there are not run again. ``None`` keeps nothing.
        report: Write ``report.html`` into the folder.
        jobs: Number of cells that run at the same time, each in its own process.
        again: Run finished cells again.
        keep: Keep the encoders too, under ``output/encoders``.
        protocol: How scores are computed.
        text_options: How the text is read.
        allow_partial: Score files that miss rows.
        download: Look for missing data on the hub.
        device: ``"cpu"``, ``"cuda"``, ``"mps"`` or ``"auto"``.
        batch_size: Sentences in a forward pass when scoring.
        command: The command line, for the record.
        quiet: Show no progress.

    Returns:
        The cells and their summary; a cell that failed is one of them.

    Raises:
        UsageError: An argument is wrong; nothing has been run.
        InterruptedRun: The comparison was interrupted; finished cells are kept.

    Example::

        found = selfguide.compare("mini", "notes.txt", "mean,whitening,sg-opt", seeds=3, output="comparison", quiet=False)
        print(found.markdown())
        found.summary["sg-opt"].values["demo"].mean
    """
    reporter = Reporter(quiet=quiet)
    check_jobs(jobs)
    settings = tuple(settings)
    specs = parse_specs(methods, settings, device=device)
    for unheard in without_rows(settings, specs):
        reporter.note(f"--set {unheard}=… reaches no row: none of the methods compared uses it.")
    if baseline is not None and baseline not in [spec.label for spec in specs]:
        raise UsageError(
            f"There is no row {baseline!r} to compare with; there are {', '.join(s.label for s in specs)}."
        )
    if output is not None:
        check_results_folder(Path(output))
    if keep and output is None:
        raise UsageError("To keep the encoders, name the folder of the comparison: output=FOLDER.")
    cells = _cells(specs, _seeds(seeds))
    protocol = protocol or Protocol()
    locator = DatasetLocator(data, protocol.text, allow_partial, download)
    # Validate everything before the first cell runs.
    rows = ScoringData(
        load_tasks(tasks, pairs, data, protocol, allow_partial=allow_partial, download=download),
        dev_rows(dev, locator),
        protocol,
    )
    material = named_text(text, locator, text_options or TextOptions())
    with _folders(output) as (work, folder):
        setting = _prepared(work, encoder, material, rows, device, reporter)
        name = str(encoder) if isinstance(encoder, str | Path) else ""
        every = [CellJob(cell, setting, work, folder, name, keep, device, batch_size, command) for cell in cells]
        with owned_folder(folder, setting.digest):
            done, due = split_finished(every, again, reporter)
            # A method that exists in this process alone cannot be run by another.
            at_once = process_count(jobs, device, len(due)) if all(spec.portable for spec in specs) else 1
            done += _run(due, done, at_once, output, reporter)
            place = {(cell.spec.label, cell.seed): number for number, cell in enumerate(cells)}
            records = tuple(sorted(done, key=lambda record: place[record.label, record.seed]))
            found = Comparison(records, summarise(records, baseline))
            if output is not None:
                with waited_for(folder / ".tables.lock"):
                    found.write(folder)
                    if report:
                        write_report_or_warn(folder, reporter)
        return found


def compare_from(folder: str | Path, baseline: str | None = None) -> tuple[Comparison, list[CellRecord]]:
    """Make a comparison from the files of its cells.

    Args:
        folder: The folder of the comparison.
        baseline: The row that others are tested against; the first unless given.

    Returns:
        The comparison, and the cells left out: those of another text, encoder, tasks or protocol than the newest one.
    """
    fitting, others = split_by_setting(CellFolder(Path(folder)).read_all())
    return Comparison(tuple(fitting), summarise(fitting, baseline)), others


def _seeds(seeds: int | Iterable[int]) -> list[int]:
    wanted = list(range(1, seeds + 1)) if isinstance(seeds, int) else list(seeds)
    if not wanted or min(wanted) < 0 or max(wanted) > LARGEST_SEED:
        raise UsageError(
            f"Seeds are a number of at least 1, or a list of numbers from 0 to {LARGEST_SEED}, not {seeds!r}."
        )
    return list(dict.fromkeys(wanted))


def _cells(specs: Sequence[Spec], seeds: Sequence[int]) -> list[Cell]:
    return [Cell(spec, seed, order) for order, spec in enumerate(specs) for seed in (seeds if spec.seeded else (None,))]


@contextmanager
def _folders(output: str | Path | None) -> Iterator[tuple[Path, Path]]:
    """Yield the temporary folder that the cells share, and the folder of what is kept."""
    with private_folder("selfguide-compare-") as work:
        yield work, Path(output) if output is not None else work / "output"


def _prepared(
    work: Path,
    encoder: str | Path | SentenceTransformer,
    text: NamedText,
    rows: ScoringData,
    device: str,
    reporter: Reporter,
) -> SharedSetting:
    """Write what all cells need into the work folder, and return what identifies it."""
    from selfguide.engine.digest import model_digest
    from selfguide.engine.vocabulary_fit import foreign_text
    from selfguide.models.encoders import load_encoder, quiet_libraries
    from selfguide.runs.run import GIVEN_ENCODER

    with quiet_libraries():
        model = load_encoder(encoder, device=device)
        digest = model_digest(model)
        if isinstance(encoder, str | Path):
            named = Path(encoder).name if Path(encoder).exists() else str(encoder)
        else:
            named = GIVEN_ENCODER
            model.save(str(work / ENCODER), create_model_card=False)
    write_sentences(text, work / TEXT, reporter)
    if foreign := foreign_text(getattr(model, "tokenizer", None), list(islice(read_sentences(work / TEXT), 500))):
        reporter.warn(foreign)
    warn_of_languages(getattr(model, "tokenizer", None), named, rows.tasks, reporter)
    if rows.dev is not None:
        write_pairs(rows.dev, work / DEV)
    (work / ROWS).write_bytes(pickle.dumps(rows))
    summary = text.sentences.summary
    return SharedSetting(
        encoder=named,
        encoder_digest=digest,
        text=text.names,
        fingerprint=summary.fingerprint or "",
        sentences=summary.kept,
        dev=rows.dev.task.title if rows.dev else None,
        dev_digest=rows.dev.digest if rows.dev else None,
        tasks={item.task.name: item.digest for item in rows.tasks},
        protocol=asdict(rows.protocol),
    )


def _run(
    due: Sequence[CellJob], done: Sequence[CellRecord], side_by_side: int, output: str | Path | None, reporter: Reporter
) -> list[CellRecord]:
    if not due:
        all_done = f"All {len(done)} cells are" if len(done) != 1 else "The cell is"
        reporter.note(f"{all_done} finished already; --again repeats {'them' if len(done) != 1 else 'it'}.")
        return []
    sentences = due[0].setting.sentences
    cells = [job.cell for job in due]
    steps = sum(cell.steps(sentences) for cell in cells)
    guess = seconds_left(cells, done, sentences, side_by_side)
    work = f"{counted(len(due), 'cell')} to run ({len(done)} finished), at most {counted(steps, 'training step')}"
    place = f"{side_by_side} at a time on {counted(cores(), 'core')}" + (f"; about {duration(guess)}" if guess else "")
    reporter.note(f"{work} on {counted(sentences, 'sentence')}; {place}.")
    progress = CellProgress(cells, done, sentences, side_by_side, reporter)
    ended: list[CellRecord] = []
    shared = SharedCells(due, reporter)
    try:
        with progress.bar(), shared.claims():
            while True:
                with closing(run_jobs(shared.available(), side_by_side)) as records:
                    for record in records:
                        shared.finished(record)
                        ended.append(record)
                        progress.done(record)
                for record in shared.finished_elsewhere():
                    ended.append(record)
                    progress.done(record)
                if not shared.left:
                    break
                shared.wait()
    except (KeyboardInterrupt, InterruptedRun):
        total = counted(len(done) + len(due), "cell")
        kept = f" {len(done) + len(ended)} of {total} kept in {output}; the same command continues."
        raise InterruptedRun("Interrupted." + (kept if output is not None else "")) from None
    return ended
