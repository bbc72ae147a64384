"""``selfguide.study``: run a study's grids and measurements, and write what they come to."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from selfguide.comparison.cells import Cell
from selfguide.comparison.compare import Comparison, compare
from selfguide.comparison.progress import duration
from selfguide.comparison.runner import process_count
from selfguide.comparison.specs import Spec, parse_specs
from selfguide.comparison.texts import DatasetLocator, dev_rows
from selfguide.errors import InterruptedRun, UsageError
from selfguide.evaluation.evaluate import load_tasks
from selfguide.progress import Reporter
from selfguide.studies import registry
from selfguide.studies.base import Found, Grid, Plan, Scale, Setup, Study, grid_folder
from selfguide.studies.files import StudyResult, results_of, write_study
from selfguide.studies.measuring import PROTOCOL, MeasurementJob, MeasurementRecord, Place, run_measurements
from selfguide.studies.texts import Drawn, Texts


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
    jobs: int | None = None,
    again: bool = False,
    device: str = "auto",
    command: str | None = None,
    quiet: bool = True,
) -> StudyResult:
    """Answer one question about the methods, on any encoder and text.

    Args:
        name: a study that ``selfguide study --list`` names.
        encoder: what every method starts from: ``"mini"``, a folder or a hub name.
        full: the papers' protocol on the data of SELFGUIDE_DATA, for a GPU, instead of a demonstration of minutes.
        text, limit, tasks, pairs, dev, seeds: others than the study's own; ``limit`` sentences are drawn at random, and
            ``pairs`` are files of graded pairs to score on.
        data: the data folder; None: what SELFGUIDE_DATA says.
        settings: ``"temperatures=0.01,0.1"`` for the study's own lists, ``"max_steps=100"`` or
            ``"simcse.learning_rate=5e-5"`` for the methods.
        output: folder for the cells, ``study.json``, tables and figures; what is finished there is not run again.
            None: nothing is kept.
        jobs: cells side by side, in as many processes.
        again: run finished cells all the same.

    Example::

        found = selfguide.study("temperature", output="study-temperature", quiet=False)
        print(found.markdown())
        found.results["tables"][0]["rows"]
    """
    reporter = Reporter(quiet=quiet)
    chosen = registry.make(name)
    files = (str(pairs),) if isinstance(pairs, str | Path) else tuple(map(str, pairs))
    scale = _scale(chosen, full, text, limit, tasks, files, dev, seeds).changed(tuple(settings))
    facts = _encoder_facts(encoder, device)
    texts = Texts(DatasetLocator(data))
    drawn = texts.draw(scale.text, scale.limit)
    setup = Setup(scale, full, facts.name, facts.depth, len(drawn.sentences))
    plan = chosen.plan(setup)
    with _folders(output) as (work, folder):
        running = _Running(
            chosen, plan, setup, facts, texts, work, folder, data, jobs, again, device, command, reporter
        )
        found, measured = running.run()
        outcome = chosen.outcome(found)
        results = results_of(chosen.entry, setup, plan, found, measured, outcome, running.provenance())
        result = StudyResult(results)
        if output is not None:
            write_study(result, folder)
        return result


@dataclass(frozen=True)
class _EncoderFacts:
    source: str
    """What to load."""
    name: str
    """What to call it: folders have no path in a record."""
    digest: str
    depth: int | None


def _encoder_facts(encoder: str | Path, device: str) -> _EncoderFacts:
    from selfguide.engine.digest import model_digest
    from selfguide.errors import SelfguideError
    from selfguide.models.encoders import depth, load_encoder, quiet_libraries

    with quiet_libraries():
        model = load_encoder(encoder, device=device)
        try:
            layers: int | None = depth(model)
        except SelfguideError:  # word vectors have none
            layers = None
        named = Path(encoder).name if Path(encoder).exists() else str(encoder)
        return _EncoderFacts(str(encoder), named, model_digest(model), layers)


def _scale(
    chosen: Study,
    full: bool,
    text: str | Path | None,
    limit: int | None,
    tasks: str | None,
    pairs: tuple[str, ...],
    dev: str | Path | None,
    seeds: int | Iterable[int] | None,
) -> Scale:
    """The study's own, but for what was asked for."""
    scale = chosen.full if full else chosen.small
    if text is not None:
        scale = replace(scale, text=str(text))
    if limit is not None:
        if limit < 2:
            raise UsageError(f"--limit must be at least 2 sentences, got {limit}.")
        scale = replace(scale, limit=limit)
    if tasks is not None or pairs:
        scale = replace(scale, tasks=tasks or "", pairs=pairs)
    if dev is not None:
        scale = replace(scale, dev=str(dev) or None)
    if seeds is not None:
        wanted = list(range(1, seeds + 1)) if isinstance(seeds, int) else list(dict.fromkeys(seeds))
        if not wanted or min(wanted) < 0:
            raise UsageError(f"Seeds are a number of at least 1, or a list of numbers from 0 on, not {seeds!r}.")
        scale = replace(scale, seeds=tuple(wanted))
    return scale


@contextmanager
def _folders(output: str | Path | None) -> Iterator[tuple[Path, Path]]:
    """The folder of what is needed while the study runs, and that of what is kept."""
    with tempfile.TemporaryDirectory(prefix="selfguide-study-") as work:
        yield Path(work), Path(output) if output is not None else Path(work) / "output"


@dataclass
class _Running:
    """A study on its way: its grids one after the other, then its measurements."""

    study: Study
    plan: Plan
    setup: Setup
    encoder: _EncoderFacts
    texts: Texts
    work: Path
    folder: Path
    data: str | Path | None
    jobs: int | None
    again: bool
    device: str
    command: str | None
    reporter: Reporter

    def __post_init__(self) -> None:
        self.seconds_a_step: list[tuple[float, int]] = []
        # Everything that can be refused is looked at before the first cell runs.
        self.settings = _shared_out(self.plan, self.setup.scale, self.device)
        self.specs = {
            grid.key: parse_specs(grid.specs, self.settings[grid.key], device=self.device) for grid in self.plan.grids
        }
        scale = self.setup.scale
        self.tasks = {item.task.name: item.digest for item in load_tasks(scale.tasks, scale.pairs, self.data, PROTOCOL)}
        self.dev = dev_rows(scale.dev, DatasetLocator(self.data))
        self.text = self.texts.draw(scale.text, scale.limit)

    def run(self) -> tuple[Found, list[MeasurementRecord]]:
        """Grids, then measurements."""
        comparisons: dict[str, Comparison] = {}
        self._announce()
        for number, grid in enumerate(self.plan.grids, 1):
            if len(self.plan.grids) > 1:
                self.reporter.note(
                    f"Part {number} of {len(self.plan.grids)}, {grid.title or grid.key}{self._left(number - 1)}"
                )
            comparisons[grid.key] = self._grid(grid)
        measured = self._measurements()
        return Found(self.setup, comparisons, {record.key: record.result for record in measured}), measured

    def provenance(self) -> dict[str, Any]:
        """What the results file says about where the numbers come from."""
        return {
            "encoder": self.encoder.name,
            "encoder_digest": self.encoder.digest,
            "text": self.text.name,
            "text_digest": self.text.fingerprint,
            "sentences": len(self.text.sentences),
            "dev": self.dev.task.title if self.dev else None,
            "dev_digest": self.dev.digest if self.dev else None,
            "tasks": self.tasks,
            "protocol": asdict(PROTOCOL),
            "command": self.command,
        }

    # -- grids ---------------------------------------------------------------------------------------------------------

    def _grid(self, grid: Grid) -> Comparison:
        scale = self.setup.scale
        began = time.monotonic()
        found = compare(
            self.encoder.source,
            self._text_of(grid).named(),
            grid.specs,
            scale.seeds,
            grid.tasks or scale.tasks,
            pairs=() if grid.tasks else scale.pairs,
            dev=grid.dev or scale.dev,
            data=self.data,
            settings=self.settings[grid.key],
            baseline=grid.baseline,
            output=grid_folder(self.folder, grid.key),
            jobs=self.jobs,
            again=self.again,
            keep=grid.keep,
            protocol=PROTOCOL,
            device=self.device,
            command=self.command,
            quiet=self.reporter.quiet,
        )
        self.seconds_a_step.append((time.monotonic() - began, self._steps(grid)))
        return found

    def _text_of(self, grid: Grid) -> Drawn:
        scale = self.setup.scale
        return self.texts.draw(grid.text or scale.text, grid.limit or scale.limit)

    def _steps(self, grid: Grid) -> int:
        sentences = len(self._text_of(grid).sentences)
        return sum(cell.steps(sentences) for cell in _cells(self.specs[grid.key], self.setup.scale.seeds))

    def _announce(self) -> None:
        scale, grids = self.setup.scale, self.plan.grids
        cells = sum(len(_cells(specs, scale.seeds)) for specs in self.specs.values())
        parts = [f"{cells} cells in {len(grids)} grid{'s' * (len(grids) != 1)}"] if grids else []
        if self.plan.measurements:
            parts.append(f"{len(self.plan.measurements)} measurements")
        steps = sum(map(self._steps, grids))
        self.reporter.note(
            f"{self.study.entry.title}: {' and '.join(parts)}"
            + (f", at most {steps:,} training steps" if steps else "")
            + f"; encoder {self.encoder.name}, text {self.text.name} ({len(self.text.sentences):,} sentences)."
        )
        if not self.setup.full:
            self.reporter.note("This is the small setting, a demonstration; --full is the papers' protocol.")

    def _left(self, done: int) -> str:
        """How long the other grids may take, from the steps of those that ran in this process."""
        seconds, steps = (sum(values) for values in zip(*self.seconds_a_step, strict=True)) if done else (0.0, 0)
        if not steps:
            return "."
        left = sum(map(self._steps, self.plan.grids[done:])) * seconds / steps
        return f"; about {duration(left)} left for it and the parts after it."

    # -- measurements --------------------------------------------------------------------------------------------------

    def _measurements(self) -> list[MeasurementRecord]:
        """In the order of the plan."""
        if not self.plan.measurements:
            return []
        place = self._place()
        jobs = [
            MeasurementJob(
                item, place, self._identity(item.function, item.arguments, item.after), self.work, self.command
            )
            for item in self.plan.measurements
        ]
        known = {job.stem: None if self.again else job.finished() for job in jobs}
        due = [job for job in jobs if known[job.stem] is None]
        side_by_side = process_count(self.jobs, self.device, len(due))
        self.reporter.note(
            f"{len(due)} measurements to make ({len(jobs) - len(due)} are finished), {side_by_side} at a time."
            if due
            else f"All {len(jobs)} measurements are finished already; --again repeats them."
        )
        ended = 0
        began = time.monotonic()
        try:
            with closing(run_measurements(due, side_by_side)) as records:
                for record in records:
                    ended += 1
                    known[record.key] = record
                    told = f"failed: {record.error}" if record.error else f"done, {duration(record.seconds)}"
                    left = duration((time.monotonic() - began) / ended * (len(due) - ended))
                    more = f"; about {left} left" if ended < len(due) else ""
                    self.reporter.note(f"[{ended} of {len(due)}] {record.key}: {told}{more}")
        except (KeyboardInterrupt, InterruptedRun):
            raise InterruptedRun(
                f"Interrupted. {len(jobs) - len(due) + ended} of {len(jobs)} measurements are kept; the same command goes on."
            ) from None
        return [made for job in jobs if (made := known[job.stem]) is not None]

    def _place(self) -> Place:
        text = self.work / "study-text.txt"
        text.write_text("".join(sentence + "\n" for sentence in self.text.sentences), encoding="utf-8", newline="\n")
        data = None if self.data is None else str(self.data)
        scale = self.setup.scale
        return Place(self.encoder.source, self.device, data, text, self.folder, scale.dev, scale.tasks, scale.pairs)

    def _measured(self) -> Sequence[Spec]:
        """The methods that only measurements train."""
        return parse_specs(self.plan.measured, device=self.device) if self.plan.measured else ()

    def _identity(self, function: str, arguments: dict[str, Any], after: Sequence[str]) -> dict[str, Any]:
        scale = self.setup.scale
        return {
            "function": function,
            "arguments": arguments,
            "encoder": self.encoder.digest,
            "text": self.text.fingerprint,
            "tasks": self.tasks,
            "dev": self.dev.digest if self.dev else None,
            # With every option, so that another default is another measurement; the cells that stay the same are kept.
            "measured": {spec.label: [asdict(stage) for stage in spec.stages] for spec in self._measured()},
            "after": {
                grid.key: {
                    "text": self._text_of(grid).fingerprint,
                    "seeds": list(scale.seeds),
                    "rows": {spec.label: [asdict(stage) for stage in spec.stages] for spec in self.specs[grid.key]},
                }
                for grid in self.plan.grids
                if grid.key in after
            },
        }


def _cells(specs: Sequence[Spec], seeds: Sequence[int]) -> list[Cell]:
    return [Cell(spec, seed, 0) for spec in specs for seed in (seeds if spec.seeded else (None,))]


def _shared_out(plan: Plan, scale: Scale, device: str) -> dict[str, tuple[str, ...]]:
    """To each grid the settings that some method of it knows; what was asked for and none knows is refused."""
    fitting: dict[str, list[str]] = {grid.key: [] for grid in plan.grids}
    for setting in (*scale.settings, *scale.asked):
        refused = UsageError(f"--set {setting}: this study takes {', '.join(scale.values) or 'nothing'} to be set.")
        used = False
        for key, specs in (*((grid.key, grid.specs) for grid in plan.grids), (None, plan.measured)):
            if not specs:
                continue
            try:
                parse_specs(specs, [setting], device=device)
            except UsageError as error:
                refused = error
                continue
            used = True
            if key is not None:
                fitting[key].append(setting)
        if setting in scale.asked and not used:
            raise refused
    return {grid.key: (*fitting[grid.key], *grid.settings) for grid in plan.grids}
