"""Ablation: SG-OPT with one thing changed at a time, and what that does to the score.

The first row is SG-OPT as the setting has it. Every other row differs from it in one part: the objective (the steps from SG
to SG-OPT), the temperature τ, the weight λ of staying close to the guide, the projection head, the layers that give views,
how a view and the student's vector are pooled, whether layer 0 is trained too, and whether the guide is (through its views).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from selfguide.comparison.specs import parse_specs
from selfguide.comparison.summary import Row, Summary
from selfguide.errors import UsageError
from selfguide.studies.base import FEW_STEPS, FULL, SMALL, Found, Grid, Plan, Setup, Study
from selfguide.studies.outcome import Column, Dots, Entry, Outcome, Table, main_value, score_columns, score_entries

REFERENCE = "sg-opt"
LOSS = "loss"


@dataclass(frozen=True)
class _Part:
    """A part of the method: the option that says it, and the study's list of what it is changed to."""

    title: str
    option: str
    values: str


PARTS = {
    LOSS: _Part("objective", "objective", "losses"),
    "temperature": _Part("temperature τ", "temperature", "temperatures"),
    "stay-close": _Part("stay-close λ", "stay_close", "stay_close"),
    "head": _Part("head", "head_size", "heads"),
    "layers": _Part("layers", "layers", "layers"),
    "view-pooling": _Part("view pooling", "view_pooling", "view_poolings"),
    "pooling": _Part("student's pooling", "pooling", "poolings"),
    "layer-0": _Part("layer 0 frozen", "freeze_layer_0", "freeze_layer_0"),
    "guide": _Part("guide tuned", "tune_guide", "tune_guide"),
}
_YES_OR_NO = {
    "layer-0": {"False": "layer 0 trained too", "True": "layer 0 frozen"},
    "guide": {"False": "guide fixed", "True": "guide trained too"},
}
LAYERS = ("all", "last", "upper", "lower", "without-0")
_UNTUNED = {"cls": "[CLS], untuned", "mean": "mean, untuned"}


class Ablation(Study):
    """One thing changed at a time."""

    small = replace(
        SMALL,
        settings=FEW_STEPS,
        values={
            "parts": tuple(PARTS),
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
            "parts": tuple(PARTS),
            "losses": ("opt2", "opt1", "sg"),
            "temperatures": (0.001, 0.005, 0.05, 0.1, 0.5),
            "stay_close": (0.0, 0.01, 1.0),
            "heads": (0, 256, 1024),
            "layers": LAYERS[1:],
            "view_poolings": ("mean", "cls"),
            "poolings": ("mean",),
            "freeze_layer_0": (False,),
            "tune_guide": (True,),
        },
    )

    def plan(self, setup: Setup) -> Plan:
        rows = [f"{label}={spec}" if label != spec else spec for _, label, spec in _changes(setup)]
        return Plan((Grid("ablation", (REFERENCE, *rows, *_UNTUNED), baseline=REFERENCE),))

    def outcome(self, found: Found) -> Outcome:
        summary = found.summary("ablation")
        reference = summary[REFERENCE]
        rows = [_entries(reference, summary, "SG-OPT", "as it is")]
        shown = [("SG-OPT", main_value(reference, summary))]
        for part, label, _ in _changes(found.setup):
            rows.append(_entries(summary[label], summary, PARTS[part].title, _instead(part, label, reference)))
            shown.append((_shown(part, label), main_value(summary[label], summary)))
        for label, title in _UNTUNED.items():
            rows.append(_entries(summary[label], summary, title, ""))
            shown.append((title, main_value(summary[label], summary)))
        columns = (
            Column("part", "part"),
            Column("setting", "setting"),
            *score_columns(summary),
            Column("difference", "vs SG-OPT", sign=True),
            Column("p", "p", decimals=3),
            Column("steps", "steps"),
        )
        table = Table("ablation", "SG-OPT with one thing changed", columns, tuple(rows), (
            f"Difference in {summary.main.title}; p by a paired t-test over seeds, where there are at least three. "
            "Many rows are many tests: a lone small p is no finding.",
        ))  # fmt: skip
        known = tuple((label, value) for label, value in shown if value is not None)
        figure = Dots(
            "ablation",
            "SG-OPT with one thing changed",
            f"{summary.main.title} of each variant: the mean (large dot), ± one deviation (bar) and every seed (small dots).",
            summary.main.title,
            known,
            {"SG-OPT": shown[0][1].mean} if shown[0][1] else {},
        )
        return Outcome((table,), (figure,))


def _changes(setup: Setup) -> Iterator[tuple[str, str, str]]:
    """Part, label and spec of each row; what the reference is already is left out."""
    options = _reference_options(setup)
    for part in setup.values("parts"):
        if part not in PARTS:
            raise UsageError(f"There is no part {part!r} to change; there are {', '.join(PARTS)}.")
        for value in setup.values(PARTS[part].values):
            if part == LOSS:
                if value != REFERENCE:
                    yield part, str(value), str(value)
                continue
            given = _layers(value, setup.depth) if part == "layers" else value
            if given != options[PARTS[part].option]:
                yield part, f"{part} {value}", f"{REFERENCE}:{PARTS[part].option}={given}"


def _reference_options(setup: Setup) -> dict[str, Any]:
    settings = (*setup.scale.settings, *setup.scale.asked)
    own = [word for word in settings if word.partition("=")[0].rpartition(".")[0] in ("", REFERENCE)]
    return parse_specs((REFERENCE,), own)[0].stages[0].options


def _layers(word: str, depth: int | None) -> str:
    """The layers of a word as the method's option says them; others (4-8) are passed on."""
    if depth is None or word not in LAYERS:
        return word
    half = depth // 2
    return {"upper": f"{half + 1}-{depth}", "lower": f"0-{half}", "without-0": f"1-{depth}"}.get(word, word)


def _shown(part: str, label: str) -> str:
    if part == LOSS:
        return f"objective {label}"
    value = label.removeprefix(f"{part} ")
    if part in _YES_OR_NO:
        return _YES_OR_NO[part][value]
    return "no head" if (part, value) == ("head", "0") else f"{PARTS[part].title} {value}"


def _instead(part: str, label: str, reference: Row) -> str:
    """What stands in the row, and what it stands in place of."""
    option = reference.stages[0]["options"].get(PARTS[part].option, "")
    value = label if part == LOSS else label.removeprefix(f"{part} ")
    if part in _YES_OR_NO:
        return {"False": "no", "True": "yes"}[value]
    if part == LOSS:
        return f"{value} instead of {REFERENCE}"
    return f"{value} instead of {option:g}" if isinstance(option, float) else f"{value} instead of {option}"


def _entries(row: Row, summary: Summary, part: str, setting: str) -> dict[str, Entry]:
    versus = row.versus_baseline
    return {
        "part": part,
        "setting": setting,
        **score_entries(row, summary),
        "difference": versus.difference if versus else None,
        "p": versus.p_value if versus else None,
        "steps": row.steps,
    }
