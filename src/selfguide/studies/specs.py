"""The rows of a study's grids: which settings their methods know, and their runs, row by row and seed by seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from selfguide.comparison.cells import Cell
from selfguide.comparison.specs import Spec, parse_specs
from selfguide.errors import UsageError
from selfguide.studies.base import Measurement, Plan, Scale

Result = dict[str, Any]


def labels_of(methods: Sequence[str]) -> list[str]:
    """Return the row labels of specs."""
    return [spec.label for spec in parse_specs(methods)]


def known_settings(methods: Sequence[str], settings: Iterable[str]) -> list[str]:
    """Return the settings that at least one of the methods knows."""
    return [setting for setting in settings if _refusal(methods, setting) is None]


def settings_by_grid(plan: Plan, scale: Scale, device: str) -> dict[str, tuple[str, ...]]:
    """Assign to each grid the settings that at least one of its methods knows.

    Args:
        plan: The study's grids, and the methods that its measurements train.
        scale: The study's settings and the user's.
        device: As for :func:`selfguide.compare`.

    Returns:
        Settings by the grid's key.

    Raises:
        UsageError: No method of the study knows one of the user's settings.
    """
    found: dict[str, tuple[str, ...]] = {grid.key: () for grid in plan.grids}
    for setting in (*scale.settings, *scale.user_settings):
        refusals = {grid.key: _refusal(grid.specs, setting, device) for grid in plan.grids}
        for key, refusal in refusals.items():
            if refusal is None:
                found[key] += (setting,)
        every = [*refusals.values()]
        if plan.measured_methods:
            every.append(_refusal(plan.measured_methods, setting, device))
        if setting in scale.user_settings and None not in every:
            takes = ", ".join(scale.values) or "nothing"
            raise (every or [None])[-1] or UsageError(f"--set {setting}: what can be set in this study is {takes}.")
    return found


def _refusal(methods: Sequence[str], setting: str, device: str = "auto") -> UsageError | None:
    try:
        parse_specs(methods, [setting], device=device)
    except UsageError as error:
        return error
    return None


@dataclass(frozen=True)
class GridRun:
    """A row of a grid with one of its seeds; None where nothing is drawn at random."""

    label: str
    seed: int | None

    @property
    def stem(self) -> str:
        """The file name of its cell without suffix, which is also the name of its kept encoder's folder."""
        return Cell(Spec(self.label, "", ()), self.seed, 0).stem

    def measurement(self, function: str, grid: str, **arguments: Any) -> Measurement:
        """Return the measurement of the encoder that the grid keeps of this run.

        Args:
            function: The address of a function of ``label``, ``seed`` and the arguments.
            grid: The grid's key.
            **arguments: Further arguments of the function.
        """
        return Measurement(self.stem, function, {"label": self.label, "seed": self.seed, **arguments}, after=(grid,))


def runs_of(specs: Sequence[str], seeds: Sequence[int]) -> list[GridRun]:
    """Return the runs of a grid, row by row."""
    return [GridRun(spec.label, seed) for spec in parse_specs(specs) for seed in (seeds if spec.seeded else (None,))]


def results_by_label(
    runs: Sequence[GridRun], results: Mapping[str, Result | None]
) -> dict[str, dict[int | None, Result]]:
    """Return the results of the runs' measurements by label and seed, without those that failed."""
    found: dict[str, dict[int | None, Result]] = {run.label: {} for run in runs}
    for run in runs:
        if (result := results[run.stem]) is not None:
            found[run.label][run.seed] = result
    return found
