"""Running a study's plan: its grids one after another, then its measurements."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from selfguide.comparison.cells import Cell
from selfguide.comparison.compare import Comparison, compare
from selfguide.comparison.progress import duration
from selfguide.comparison.runner import process_count
from selfguide.comparison.specs import Spec, parse_specs
from selfguide.comparison.texts import DatasetLocator, dev_rows
from selfguide.engine.digest import model_digest
from selfguide.errors import InterruptedRun, SelfguideError
from selfguide.evaluation.evaluate import load_tasks
from selfguide.files import write_text
from selfguide.models.encoders import depth, load_encoder, quiet_libraries
from selfguide.progress import Reporter, counted
from selfguide.studies.base import Findings, Grid, Measurement, Plan, Setup, grid_folder
from selfguide.studies.context import PROTOCOL, MeasurementContext
from selfguide.studies.measuring import MeasurementJob, MeasurementRecord, run_measurements
from selfguide.studies.specs import settings_by_grid
from selfguide.studies.texts import TextSample, TextSampler


@dataclass(frozen=True)
class EncoderFacts:
    """What a study records of its encoder."""

    source: str
    """What to load."""
    name: str
    """What to call it; a folder is recorded without its path."""
    digest: str
    depth: int | None

    @classmethod
    def of(cls, encoder: str | Path, device: str) -> EncoderFacts:
        """Load an encoder and describe it.

        Args:
            encoder: Name or folder.
            device: Where to load it.

        Returns:
            The facts.
        """
        with quiet_libraries():
            model = load_encoder(encoder, device=device)
            try:
                layers: int | None = depth(model)
            except SelfguideError:  # word vectors have no layers
                layers = None
            name = Path(encoder).name if Path(encoder).exists() else str(encoder)
            return cls(str(encoder), name, model_digest(model), layers)


@dataclass
class StudyRun:
    """A running study; see :func:`selfguide.study` for the options.

    Everything is validated when it is made, before the first cell runs.
    """

    title: str
    plan: Plan
    setup: Setup
    encoder: EncoderFacts
    texts: TextSampler
    work: Path
    """A folder for temporary files."""
    folder: Path
    """The study's folder."""
    data: str | Path | None
    jobs: int | None
    again: bool
    device: str
    command: str | None
    reporter: Reporter

    def __post_init__(self) -> None:
        """Resolve settings, tasks, dev pairs and text."""
        scale = self.setup.scale
        self.settings = settings_by_grid(self.plan, scale, self.device)
        self.specs = {
            grid.key: parse_specs(grid.specs, self.settings[grid.key], device=self.device) for grid in self.plan.grids
        }
        self.tasks = {item.task.name: item.digest for item in load_tasks(scale.tasks, scale.pairs, self.data, PROTOCOL)}
        self.dev = dev_rows(scale.dev, DatasetLocator(self.data))
        self.text = self.texts.sample(scale.text, scale.limit)
        self.seconds, self.steps = 0.0, 0  # of the grids that have run

    def run(self) -> tuple[Findings, list[MeasurementRecord]]:
        """Run the grids, then the measurements.

        Returns:
            The findings, and the measurements' records in the order of the plan.

        Raises:
            InterruptedRun: The user stopped it; what has finished is kept.
        """
        comparisons: dict[str, Comparison] = {}
        self._announce()
        for number, grid in enumerate(self.plan.grids, 1):
            if len(self.plan.grids) > 1:
                left = self._time_left(self.plan.grids[number - 1 :])
                self.reporter.note(f"Part {number} of {len(self.plan.grids)}, {grid.title or grid.key}{left}")
            comparisons[grid.key] = self._run_grid(grid)
        records = self._run_measurements() if self.plan.measurements else []
        return Findings(self.setup, comparisons, {record.key: record.result for record in records}), records

    def provenance(self) -> dict[str, Any]:
        """Return what the results file says about the origin of the numbers."""
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

    def _run_grid(self, grid: Grid) -> Comparison:
        scale = self.setup.scale
        began = time.monotonic()
        found = compare(
            self.encoder.source,
            self._text_of(grid).named(),
            grid.specs,
            scale.seeds,
            scale.tasks,
            pairs=scale.pairs,
            dev=scale.dev,
            data=self.data,
            settings=self.settings[grid.key],
            baseline=grid.baseline,
            output=grid_folder(self.folder, grid.key),
            report=False,
            jobs=self.jobs,
            again=self.again,
            keep=grid.keep,
            protocol=PROTOCOL,
            device=self.device,
            command=self.command,
            quiet=self.reporter.quiet,
        )
        self.seconds += time.monotonic() - began
        self.steps += self._steps([grid])
        return found

    def _text_of(self, grid: Grid) -> TextSample:
        return self.texts.sample(self.setup.scale.text, grid.limit or self.setup.scale.limit)

    def _cells(self, grid: Grid) -> list[Cell]:
        seeds = self.setup.scale.seeds
        return [Cell(spec, seed, 0) for spec in self.specs[grid.key] for seed in (seeds if spec.seeded else (None,))]

    def _steps(self, grids: Sequence[Grid]) -> int:
        return sum(cell.steps(len(self._text_of(grid).sentences)) for grid in grids for cell in self._cells(grid))

    def _announce(self) -> None:
        grids, measurements, steps = self.plan.grids, len(self.plan.measurements), self._steps(self.plan.grids)
        cells = f"{counted(sum(len(self._cells(grid)) for grid in grids), 'cell')} in {counted(len(grids), 'grid')}"
        parts = [cells] * bool(grids) + [counted(measurements, "measurement")] * bool(measurements)
        most = f", at most {counted(steps, 'training step')}" if steps else ""
        text = f"{self.text.name} ({counted(len(self.text.sentences), 'sentence')})"
        self.reporter.note(f"{self.title}: {' and '.join(parts)}{most}; encoder {self.encoder.name}, text {text}.")
        if not self.setup.full:
            self.reporter.note("This is the small setting, a demonstration; --full is the papers' protocol.")

    def _time_left(self, grids: Sequence[Grid]) -> str:
        """Estimate the time of the remaining grids from the steps of those that ran."""
        if not self.steps:
            return "."
        return f"; about {duration(self._steps(grids) * self.seconds / self.steps)} left for it and the parts after it."

    # -- measurements --------------------------------------------------------------------------------------------------

    def _run_measurements(self) -> list[MeasurementRecord]:
        context = self._context()
        jobs = [
            MeasurementJob(item, context, self._identity(item), self.work, self.command)
            for item in self.plan.measurements
        ]
        known = {job.stem: None if self.again else job.reusable_record() for job in jobs}
        due = [job for job in jobs if known[job.stem] is None]
        parallel = process_count(self.jobs, self.device, len(due))
        self.reporter.note(
            f"{len(due)} measurements to make ({len(jobs) - len(due)} are finished), {parallel} at a time."
            if due
            else f"All {len(jobs)} measurements are finished already; --again repeats them."
        )
        ended = 0
        began = time.monotonic()
        try:
            with closing(run_measurements(due, parallel)) as records:
                for ended, record in enumerate(records, 1):
                    known[record.key] = record
                    status = f"failed: {record.error}" if record.error else f"done, {duration(record.seconds)}"
                    left = duration((time.monotonic() - began) / ended * (len(due) - ended))
                    more = f"; about {left} left" if ended < len(due) else ""
                    self.reporter.note(f"[{ended} of {len(due)}] {record.key}: {status}{more}")
        except (KeyboardInterrupt, InterruptedRun):
            raise InterruptedRun(
                f"Interrupted. {len(jobs) - len(due) + ended} of {len(jobs)} measurements are kept; the same command continues."
            ) from None
        return [made for job in jobs if (made := known[job.stem]) is not None]

    def _context(self) -> MeasurementContext:
        scale, text = self.setup.scale, self.work / "study-text.txt"
        write_text(text, self.text.content)
        data = None if self.data is None else str(self.data)
        return MeasurementContext(
            self.encoder.source, self.device, data, text, self.folder, scale.dev, scale.tasks, scale.pairs
        )

    def _identity(self, measurement: Measurement) -> dict[str, Any]:
        """Return everything that decides a measurement's result, in the form of its record."""
        methods = self.plan.measured_methods
        return {
            "function": measurement.function,
            "arguments": measurement.arguments,
            "encoder": self.encoder.digest,
            "text": self.text.fingerprint,
            "tasks": self.tasks,
            "dev": self.dev.digest if self.dev else None,
            # With every option, so that a changed default makes a new measurement; cells that stay the same are reused.
            "measured": _stages(parse_specs(methods, device=self.device)) if methods else {},
            "after": {
                grid.key: {
                    "text": self._text_of(grid).fingerprint,
                    "seeds": list(self.setup.scale.seeds),
                    "rows": _stages(self.specs[grid.key]),
                }
                for grid in self.plan.grids
                if grid.key in measurement.after
            },
        }


def _stages(specs: Sequence[Spec]) -> dict[str, list[dict[str, Any]]]:
    return {spec.label: [asdict(stage) for stage in spec.stages] for spec in specs}
