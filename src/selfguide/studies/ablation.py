"""Ablation: SG-OPT with one component changed at a time, and the effect on the score.

The first row is SG-OPT as the setting has it. Every other row differs from it in one component: the objective (the steps from
SG to SG-OPT), the temperature τ, the weight λ of staying close to the guide, the projection head, the layers that give views,
the pooling of a view and of the student, whether layer 0 is trained too, and whether the guide is (through its views).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from selfguide.comparison.specs import parse_specs
from selfguide.comparison.summary import Row
from selfguide.errors import UsageError
from selfguide.report.plots import Dots
from selfguide.studies.base import FEW_STEPS, FULL, SMALL, Findings, Grid, Plan, Setup, Study
from selfguide.studies.outcome import (
    UNTUNED,
    Column,
    Outcome,
    Table,
    TableRow,
    main_value,
    score_columns,
    score_entries,
)

REFERENCE = "sg-opt"
OBJECTIVE = "loss"


class _Component(NamedTuple):
    """A component of the method: its title, the option that sets it, and the study's list of alternatives."""

    title: str
    option: str
    values: str


COMPONENTS = {
    OBJECTIVE: _Component("objective", "objective", "losses"),
    "temperature": _Component("temperature τ", "temperature", "temperatures"),
    "stay-close": _Component("stay-close λ", "stay_close", "stay_close"),
    "head": _Component("head", "head_size", "heads"),
    "layers": _Component("layers", "layers", "layers"),
    "view-pooling": _Component("view pooling", "view_pooling", "view_poolings"),
    "pooling": _Component("student's pooling", "pooling", "poolings"),
    "layer-0": _Component("layer 0 frozen", "freeze_layer_0", "freeze_layer_0"),
    "guide": _Component("guide tuned", "tune_guide", "tune_guide"),
}
_TITLES = {
    "head 0": "no head",
    "layer-0 False": "layer 0 trained too",
    "layer-0 True": "layer 0 frozen",
    "guide False": "guide fixed",
    "guide True": "guide trained too",
}
"""Titles of rows in the figure, where the component's title and the value would not do."""
LAYERS = ("all", "last", "upper", "lower", "without-0")
_TITLE = "SG-OPT with one thing changed"


class Ablation(Study):
    """One component changed at a time."""

    name = "ablation"
    title = "Ablation of SG-OPT"
    question = "Which parts of SG-OPT matter, and how much?"
    reference = "Kim, Yoo and Lee, ACL 2021"
    small = replace(
        SMALL,
        settings=FEW_STEPS,
        values={
            "parts": tuple(COMPONENTS),
            "losses": ("opt2", "opt1", "sg"),
            "temperatures": (0.1,),
            "stay_close": (0.0,),
            "heads": (0,),
            "layers": ("last", "upper"),
            "view_poolings": ("mean",),
            "poolings": ("mean",),
            "freeze_layer_0": (False,),
            "tune_guide": (True,),
        },
    )
    full = replace(
        FULL,
        values={
            **small.values,
            "temperatures": (0.001, 0.005, 0.05, 0.1, 0.5),
            "stay_close": (0.0, 0.01, 1.0),
            "heads": (0, 256, 1024),
            "layers": LAYERS[1:],
            "view_poolings": ("mean", "cls"),
        },
    )

    def plan(self, setup: Setup) -> Plan:
        """See :meth:`Study.plan`."""
        specs = [change.spec for change in _changes(setup)]
        return Plan((Grid("ablation", (REFERENCE, *specs, *UNTUNED), baseline=REFERENCE),))

    def outcome(self, findings: Findings) -> Outcome:
        """See :meth:`Study.outcome`."""
        summary = findings.summary("ablation")
        # Of each row: its label, its title in the figure, and the table's first two entries.
        named = [(REFERENCE, "SG-OPT", "SG-OPT", "as it is")]
        for change in _changes(findings.setup):
            setting = change.setting(summary[REFERENCE])
            named.append((change.label, change.title, COMPONENTS[change.part].title, setting))
        named += [(label, title, title, "") for label, title in UNTUNED.items()]
        rows: list[TableRow] = []
        for label, _, part, setting in named:
            row = summary[label]
            entries: TableRow = {"part": part, "setting": setting, **score_entries(row, summary), "steps": row.steps}
            versus = row.versus_baseline
            difference, p = (versus.difference, versus.p_value) if versus else (None, None)
            rows.append({**entries, "difference": difference, "p": p})
        columns = [Column("part", "part"), Column("setting", "setting"), *score_columns(summary)]
        columns += [Column("difference", "vs SG-OPT", sign=True), Column("p", "p", 3), Column("steps", "steps")]
        score = summary.main.title
        note = (
            f"Difference in {score}; p by a paired t-test over seeds, where there are at least three. "
            "Many rows are many tests: a lone small p is no finding."
        )
        caption = f"{score} of each variant: the mean (large dot), ± one deviation (bar) and every seed (small dots)."
        dots = tuple((title, value) for label, title, *_ in named if (value := main_value(summary[label], summary)))
        levels = {title: value.mean for title, value in dots if title == "SG-OPT"}
        figure = Dots("ablation", _TITLE, caption, score, dots, levels)
        return Outcome([Table("ablation", _TITLE, columns, rows, [note])], [figure])


@dataclass(frozen=True)
class _Change:
    """A row that differs from the reference in one component."""

    part: str
    value: Any
    given: Any
    """The value in the form of the method's option."""

    @property
    def label(self) -> str:
        return self.value if self.part == OBJECTIVE else f"{self.part} {self.value}"

    @property
    def spec(self) -> str:
        if self.part == OBJECTIVE:  # every objective is a method
            return str(self.value)
        return f"{self.label}={REFERENCE}:{COMPONENTS[self.part].option}={self.given}"

    @property
    def title(self) -> str:
        return _TITLES.get(self.label, f"{COMPONENTS[self.part].title} {self.value}")

    def setting(self, reference: Row) -> str:
        """Return the value, and the reference's that it replaces."""
        if isinstance(self.value, bool):
            return "yes" if self.value else "no"
        options = {**reference.stages[0]["options"], "objective": REFERENCE}
        former = options.get(COMPONENTS[self.part].option, "")
        return f"{self.value} instead of {f'{former:g}' if isinstance(former, float) else former}"


def _changes(setup: Setup) -> Iterator[_Change]:
    """Yield the changed rows, without values that the reference has already."""
    settings = (*setup.scale.settings, *setup.scale.user_settings)
    own = [setting for setting in settings if setting.partition("=")[0].rpartition(".")[0] in ("", REFERENCE)]
    options = {**parse_specs((REFERENCE,), own)[0].stages[0].options, "objective": REFERENCE}
    for part in setup.values("parts"):
        if part not in COMPONENTS:
            raise UsageError(f"There is no part {part!r} to change; there are {', '.join(COMPONENTS)}.")
        for value in setup.values(COMPONENTS[part].values):
            given = _layers(value, setup.depth) if part == "layers" else value
            if given != options[COMPONENTS[part].option]:
                yield _Change(part, value, given)


def _layers(name: str, depth: int | None) -> str:
    """Return named layers in the form of the method's option; any other form (4-8) is passed on."""
    if depth is None or name not in LAYERS:
        return name
    half = depth // 2
    return {"upper": f"{half + 1}-{depth}", "lower": f"0-{half}", "without-0": f"1-{depth}"}.get(name, name)
