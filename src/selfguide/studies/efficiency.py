"""Efficiency: what each method costs, in training and in use.

Every number is measured with nothing beside it, on a CPU in a new process, so that neither the memory of an earlier method nor
other work counts. Training is everything between the loaded encoder and the finished one, without dev checks. Inference
encodes the study's text with the finished encoder, in the batches of `selfguide encode`; the fastest of a few passes counts.
Both come after a warm-up, since libraries are loaded when they are first needed.

Times on different machines, or on one at different hours, do not compare. So all are given as ratios too, against the mean of
the same round: one unit is the time in which the mean encodes the text, so that a training of 30 takes as long as encoding it
thirty times. A round goes through all methods, so that a slow quarter of an hour affects all of them.

Memory on a GPU is the peak that torch had allocated, minus what was allocated before. On a CPU it is the peak resident
size of the process, less its size after the warm-up, before the encoder was loaded for good.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from selfguide.comparison.specs import parse_specs
from selfguide.engine.encode import sentence_vectors
from selfguide.methods import registry
from selfguide.options import AtLeast, check
from selfguide.progress import Reporter
from selfguide.report.plots import Dots, Figure, Scatter
from selfguide.runs.run import run
from selfguide.studies.base import FEW_STEPS, FULL, SMALL, Findings, Grid, Measurement, Plan, Setup, Study
from selfguide.studies.context import MeasurementContext
from selfguide.studies.memory import GPU, PeakMemory
from selfguide.studies.outcome import Column, Outcome, Table, TableRow, main_value, score_columns, score_entries
from selfguide.studies.specs import GridRun, known_settings, runs_of
from selfguide.studies.texts import TextSample
from selfguide.studies.values import Value, known_over_seeds
from selfguide.training.configuration import RunConfig

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

GRID = "methods"
UNIT = "mean"
"""The method whose pass over the text is the unit of time."""
_METHODS = (UNIT, "wk", "whitening", "flow", "fused", "simcse", "sg-opt")
_WARM_UP = 128


class Efficiency(Study):
    """Methods × (training, inference) × (time, memory)."""

    name = "efficiency"
    title = "Time and memory"
    question = "What do the methods cost, in training and in use?"
    reference = "Kim, Yoo and Lee, ACL 2021"
    # Half of the usual sentences and steps, because fourteen processes that load their libraries take long enough.
    small = replace(SMALL, limit=200, settings=FEW_STEPS, values={"methods": _METHODS, "rounds": (1,), "passes": (3,)})
    full = replace(FULL, values={"methods": _METHODS, "rounds": (3,), "passes": (3,)})

    def plan(self, setup: Setup) -> Plan:
        """See :meth:`Study.plan`."""
        scale, methods = setup.scale, tuple(setup.values("methods"))
        methods = methods if UNIT in methods else (UNIT, *methods)
        first_seeds = {run.label: run.seed for run in reversed(runs_of(methods, scale.seeds))}
        passes, rounds = _at_least_one(setup, "passes"), _at_least_one(setup, "rounds")
        # With all their options, as the grid runs them.
        specs = parse_specs(methods, [*known_settings(methods, scale.settings), *scale.user_settings])
        measurements = []
        for turn in range(1, rounds + 1):
            for spec in specs:
                shared = {"seed": first_seeds[spec.label], "turn": turn}
                training = {"stages": [asdict(stage) for stage in spec.stages], **shared}
                inference = {"label": spec.label, "passes": passes, **shared}
                for kind, arguments, after in (("training", training, ()), ("inference", inference, (GRID,))):
                    key, function = _key(kind, spec.label, turn), f"{__name__}:{kind}_cost"
                    measurements.append(Measurement(key, function, arguments, after, isolated=True))
        return Plan((Grid(GRID, methods, "what the methods come to", keep=True),), tuple(measurements))

    def outcome(self, findings: Findings) -> Outcome:
        """See :meth:`Study.outcome`."""
        summary = findings.summary(GRID)
        rounds = _at_least_one(findings.setup, "rounds")
        costs = {row.label: _costs(findings.results, row.label, rounds) for row in summary.rows}
        rows: list[TableRow] = [
            {"method": row.label, **score_entries(row, summary), **costs[row.label]} for row in summary.rows
        ]
        method = Column("method", "method")
        device = next((result["memory"]["of"] for result in findings.results.values() if result), "")
        # On a GPU all measurements share a process, whose peak memory is no method's own.
        process, note = ((), _SECONDS_NOTE) if device == GPU else (_PROCESS, f"{_SECONDS_NOTE} {_PROCESS_NOTE}")
        ratios = [method, *score_columns(summary, every=False), *_RATIOS]
        title = f"Seconds and MiB on a {device}" if device else "Seconds and MiB"
        tables = [
            Table("ratios", "Cost against the mean", ratios, rows, [_RATIO_NOTE]),
            Table("costs", title, [method, *_SECONDS, *process], rows, [note]),
        ]
        scores = {row.label: value for row in summary.rows if (value := main_value(row, summary))}
        return Outcome(tables, _figures(costs, scores, summary.main.title))


def _at_least_one(setup: Setup, name: str) -> int:
    check(name, number := int(setup.value(name)), AtLeast(1))
    return number


def _key(kind: str, label: str, turn: int) -> str:
    return f"{kind}-{GridRun(label, None).stem.removesuffix('.once')}-{turn}"


# -- measuring -----------------------------------------------------------------------------------------------------------


def training_cost(
    context: MeasurementContext, stages: Sequence[Mapping[str, Any]], seed: int | None, turn: int
) -> dict[str, Any]:
    """Measure a method from the loaded encoder to the finished one; the encoder is discarded.

    Args:
        context: What the study runs on.
        stages: The method's configurations.
        seed: The seed; ``None`` for a method without one.
        turn: Number of the repetition.

    Returns:
        Seconds and memory, as the study's record keeps them.
    """
    sentences = context.sentences()
    # One step on a few sentences first, so that loading libraries does not count.
    _train(context, stages, seed, sentences[:_WARM_UP], max_steps=1)
    with PeakMemory(context.on_gpu) as memory:
        seconds, steps = _train(context, stages, seed, sentences)
    return {"seconds": seconds, "steps": steps, "turn": turn, "memory": memory.to_dict()}


def _train(
    context: MeasurementContext, stages: Sequence[Mapping[str, Any]], seed: int | None, text: list[str], **changes: Any
) -> tuple[float, int]:
    """Run a chain of methods and return its seconds and steps."""
    changes |= {} if seed is None else {"seed": seed}
    changes |= {} if context.device == "auto" else {"device": context.device}
    encoder: SentenceTransformer | None = None
    seconds, steps = 0.0, 0
    for stage in stages:
        refused = registry.method_class(stage["method"]).refused_settings()
        training = {**stage["training"], **{name: value for name, value in changes.items() if name not in refused}}
        config = RunConfig(("the study's text",), context.encoder, stage["method"], stage["options"], training)
        sentences = TextSample("", text).named().sentences
        encoder, record = run(config, None, Reporter(quiet=True), sentences, encoder, report=False)
        # Reading the text and loading the encoder are no part of the method.
        seconds += record.seconds["total"] - record.seconds["text"]
        steps += record.steps
    return seconds, steps


def inference_cost(context: MeasurementContext, label: str, seed: int | None, turn: int, passes: int) -> dict[str, Any]:
    """Measure how the finished encoder encodes the study's text.

    Args:
        context: What the study runs on.
        label: The row.
        seed: The seed; ``None`` for a row without one.
        turn: Number of the repetition.
        passes: How often the text is encoded.

    Returns:
        Seconds of each pass, dimensions and memory, as the study's record keeps them.
    """
    sentences = context.sentences()
    sentence_vectors(context.kept_encoder(GRID, label, seed), sentences[:_WARM_UP], context.batch_size)
    times = []
    with PeakMemory(context.on_gpu) as memory:
        encoder = context.kept_encoder(GRID, label, seed)
        for _ in range(passes):
            began = time.perf_counter()
            sentence_vectors(encoder, sentences, context.batch_size)  # arrays of the host, so a GPU has finished too
            times.append(time.perf_counter() - began)
    return {
        "seconds": min(times),
        "passes": times,
        "sentences": len(sentences),
        "dimensions": int(encoder.get_embedding_dimension() or 0),
        "turn": turn,
        "memory": memory.to_dict(),
    }


# -- tables and figures --------------------------------------------------------------------------------------------------

_RATIO_NOTE = (
    "The unit is what the mean takes to encode the text once: its time, and its memory, in the same round; ± over rounds. "
    "The mean trains nothing; its time is that of starting a run."
)
_SECONDS_NOTE = (
    "Training without dev checks; inference is one pass over the text, the fastest of a few. Memory is the largest, less what "
    "there was before: on a CPU the libraries, on a GPU what earlier work had left."
)
_PROCESS_NOTE = "Process: with the libraries."
_RATIOS = (
    Column("training ratio", "training, passes", 1, "low"),
    Column("inference ratio", "inference, passes", 2, "low"),
    Column("training memory ratio", "training memory ×", 2, "low"),
    Column("inference memory ratio", "inference memory ×", 2, "low"),
)
_SECONDS = (
    Column("training seconds", "training s", 2, "low"),
    Column("steps", "steps"),
    Column("inference seconds", "inference s", 3, "low"),
    Column("sentences a second", "sentences/s", 0, "high"),
    Column("training memory", "training MiB", 0, "low"),
    Column("inference memory", "inference MiB", 0, "low"),
)
_PROCESS = (Column("training peak", "training, process MiB", 0), Column("inference peak", "inference, process MiB", 0))
_NUMBERS: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "seconds": lambda result: result["seconds"],
    "memory": lambda result: result["memory"]["added"],
    "peak": lambda result: result["memory"]["peak"],
    "rate": lambda result: result["sentences"] / result["seconds"],
}


def _costs(results: Mapping[str, Mapping[str, Any] | None], label: str, rounds: int) -> TableRow:
    """Return a method's numbers over the rounds; a ratio is taken within its round."""

    def over_rounds(kind: str, name: str, ratio: bool = False) -> Value | None:
        number = _NUMBERS[name]
        found: dict[int | None, float | None] = {}
        for turn in range(1, rounds + 1):
            own, unit = results[_key(kind, label, turn)], results[_key("inference", UNIT, turn)]
            if own is not None and not ratio:
                found[turn] = number(own)
            elif own is not None and unit is not None and number(unit) > 0:
                found[turn] = number(own) / number(unit)
        return known_over_seeds(found)

    trained = results[_key("training", label, 1)]
    costs: TableRow = {"steps": trained["steps"] if trained else None}
    costs["sentences a second"] = over_rounds("inference", "rate")
    for kind in ("training", "inference"):
        costs |= {f"{kind} {name}": over_rounds(kind, name) for name in ("seconds", "memory", "peak")}
        costs[f"{kind} ratio"] = over_rounds(kind, "seconds", ratio=True)
        costs[f"{kind} memory ratio"] = over_rounds(kind, "memory", ratio=True)
    return costs


def _figures(costs: Mapping[str, TableRow], scores: Mapping[str, Value], score: str) -> list[Figure]:
    def dots(name: str) -> tuple[tuple[str, Value], ...]:
        return tuple((label, value) for label, cost in costs.items() if isinstance(value := cost[name], Value))

    unit, training = "passes of the mean over the text", dots("training ratio")
    figures: list[Figure] = []
    if points := {label: ((value.mean, scores[label].mean),) for label, value in training if label in scores}:
        caption = "Up is better, left is cheaper; a method without training stands at the left edge."
        alt = "; ".join(f"{label}: {x:.1f} passes, {y:.2f}" for label, ((x, y),) in points.items()) + "."
        title, across = f"{score} by training time", f"training time, {unit}"
        figures.append(Scatter("score-by-training", title, caption, across, score, points, alt=alt))
    if training:
        figures.append(Dots("training-time", "Training time", f"In {unit}; lower is cheaper.", unit, training))
        caption = "One pass over the text; the mean is 1, lower is cheaper."
        figures.append(Dots("inference-time", "Inference time", caption, unit, dots("inference ratio")))
        caption = "The largest memory; 1 is what the mean takes to encode the text, lower is cheaper."
        memory, across = dots("training memory ratio"), "× the mean's while encoding"
        figures.append(Dots("training-memory", "Memory while training", caption, across, memory))
    return figures
