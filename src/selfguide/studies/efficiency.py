"""Efficiency: what each method costs, in training and in use.

Every number is measured with nothing beside it, on a CPU in a fresh process, so that neither what an earlier method left in
memory nor a neighbour's work counts. Training is everything between the loaded encoder and the finished one, without dev
checks. Inference encodes the study's text with the finished encoder, in batches as `selfguide encode` makes them, and the
fastest of a few passes counts. Both come after a warm-up, since libraries are loaded when they are first needed.

Times on different machines, or on one at different hours, do not compare: so all are given as ratios too, against the mean of
the same round. One unit is the time in which the mean encodes the text, so that a training of 30 takes as long as encoding it
thirty times. Rounds go through all methods in turn, so that a slow quarter of an hour falls on all of them.

Memory on a GPU is the largest that torch had allocated at once, less what was allocated before. On a CPU it is the largest
resident size of the process, less what the interpreter and its libraries took after the warm-up, before the encoder was
loaded for good.
"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfguide.comparison.specs import Spec, parse_specs
from selfguide.comparison.summary import Value
from selfguide.errors import UsageError
from selfguide.studies.base import FULL, SMALL, Found, Grid, Measurement, Plan, Scale, Setup, Study
from selfguide.studies.graded_runs import runs_of
from selfguide.studies.measuring import Place, record_stem
from selfguide.studies.outcome import (
    Column,
    Dots,
    Entry,
    Figure,
    Outcome,
    Scatter,
    Table,
    main_value,
    over_seeds,
    score_columns,
    score_entries,
)
from selfguide.studies.texts import Drawn

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

GRID = "methods"
UNIT = "mean"
"""The method whose pass over the text is the unit of time."""
_METHODS = (UNIT, "wk", "whitening", "flow", "fused", "simcse", "sg-opt")
_MIB = 2**20
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_WARM_UP = 128
_GPU = "GPU"


class Efficiency(Study):
    """Methods × (training, inference) × (time, memory)."""

    # Half of the usual sentences and steps: fourteen processes that load their libraries take long enough.
    small = replace(
        SMALL,
        limit=200,
        settings=("max_steps=20", "batch_size=16", "dev_every=20", "head_size=512"),
        values={"methods": _METHODS, "rounds": (1,), "passes": (3,)},
    )
    full = replace(FULL, values={"methods": _METHODS, "rounds": (3,), "passes": (3,)})

    def plan(self, setup: Setup) -> Plan:
        methods = _with_unit(setup.values("methods"))
        firsts = {run.label: run.seed for run in reversed(runs_of(methods, setup.scale.seeds))}
        passes, rounds = _at_least_one(setup, "passes"), _at_least_one(setup, "rounds")
        specs = _resolved(methods, setup.scale)
        measurements = []
        for turn in range(1, rounds + 1):
            for spec in specs:
                label, seed = spec.label, firsts[spec.label]
                stages = [asdict(stage) for stage in spec.stages]
                training = {"stages": stages, "seed": seed, "turn": turn}
                encoding = {"label": label, "seed": seed, "turn": turn, "passes": passes}
                measurements += [
                    Measurement(_key("training", label, turn), f"{__name__}:training_cost", training, alone=True),
                    Measurement(
                        _key("inference", label, turn), f"{__name__}:inference_cost", encoding, (GRID,), alone=True
                    ),
                ]
        return Plan((Grid(GRID, methods, "what the methods come to", keep=True),), tuple(measurements))

    def outcome(self, found: Found) -> Outcome:
        summary = found.summary(GRID)
        rounds = _at_least_one(found.setup, "rounds")
        labels = [row.label for row in summary.rows]
        costs = {label: _costs(found.results, label, rounds) for label in labels}
        rows: list[dict[str, Entry]] = [
            {"method": row.label, **score_entries(row, summary), **costs[row.label]} for row in summary.rows
        ]
        name = Column("method", "method")
        score = score_columns(summary, every=False)
        device = next((result["memory"]["of"] for result in found.results.values() if result), "")
        tables = (
            Table("ratios", "Cost against the mean", (name, *score, *_RATIOS), tuple(rows), (_RATIO_NOTE,)),
            Table(
                "costs",
                f"Seconds and MiB on a {device}" if device else "Seconds and MiB",
                (name, *_SECONDS, *(() if device == _GPU else _PROCESS)),
                tuple(rows),
                (_SECONDS_NOTE if device == _GPU else f"{_SECONDS_NOTE} {_PROCESS_NOTE}",),
            ),
        )
        scores = {row.label: value for row in summary.rows if (value := main_value(row, summary))}
        return Outcome(tables, _figures(costs, scores, summary.main.title))


# -- measuring -----------------------------------------------------------------------------------------------------------


def training_cost(place: Place, stages: Sequence[Mapping[str, Any]], seed: int | None, turn: int) -> dict[str, Any]:
    """What a method takes from the loaded encoder to the finished one; the result is thrown away."""
    sentences = place.sentences()
    # One step on a few sentences first: libraries are loaded when they are needed, and that is not the method's time.
    _trained(place, stages, seed, sentences[:_WARM_UP], max_steps=1)
    with _Memory(place) as memory:
        seconds, steps = _trained(place, stages, seed, sentences)
    return {"seconds": seconds, "steps": steps, "turn": turn, "memory": memory.told()}


def _trained(
    place: Place, stages: Sequence[Mapping[str, Any]], seed: int | None, sentences: list[str], **changes: Any
) -> tuple[float, int]:
    """Seconds and steps of a method or a chain of them."""
    from selfguide.progress import Reporter
    from selfguide.runs.run import run
    from selfguide.training.configuration import RunConfig

    drawn = {} if seed is None else {"seed": seed}
    device = {} if place.device == "auto" else {"device": place.device}
    encoder: SentenceTransformer | None = None
    seconds, steps = 0.0, 0
    for stage in stages:
        config = RunConfig(
            text=("the study's text",),
            encoder=place.encoder,
            method=stage["method"],
            options=stage["options"],
            training={**stage["training"], **drawn, **device, **changes},
        )
        text = Drawn("", sentences).named().sentences
        encoder, record = run(config, None, Reporter(quiet=True), text, encoder, report=False)
        # Reading the text and loading the encoder come first, and are not the method's.
        seconds += record.seconds["total"] - record.seconds["text"]
        steps += record.steps
    return seconds, steps


def inference_cost(place: Place, label: str, seed: int | None, turn: int, passes: int) -> dict[str, Any]:
    """What the finished encoder takes to encode the study's text."""
    from selfguide.engine.encode import sentence_vectors

    sentences = place.sentences()
    sentence_vectors(place.kept(GRID, label, seed), sentences[:_WARM_UP], place.batch_size)
    with _Memory(place) as memory:
        encoder = place.kept(GRID, label, seed)
        times = [_timed(lambda: sentence_vectors(encoder, sentences, place.batch_size)) for _ in range(passes)]
    return {
        "seconds": min(times),
        "passes": times,
        "sentences": len(sentences),
        "dimensions": int(encoder.get_embedding_dimension() or 0),
        "turn": turn,
        "memory": memory.told(),
    }


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()  # gives arrays of the host, so a GPU has finished too
    return time.perf_counter() - began


class _Memory:
    """The memory of what is done inside the ``with``: the largest, and what was there before."""

    def __init__(self, place: Place) -> None:
        import torch

        self._on_gpu = place.device != "cpu" and torch.cuda.is_available()
        self._before = self._peak = 0.0

    def __enter__(self) -> _Memory:
        import torch

        if self._on_gpu:
            torch.cuda.reset_peak_memory_stats()
            self._before = torch.cuda.memory_allocated() / _MIB
        else:
            _give_back()
            # Linux forgets the largest size so far when asked to. Where it cannot be asked, it is that of the warm-up.
            with suppress(OSError):
                _RESET.write_text("5")
            self._before = _resident("VmRSS")
        return self

    def __exit__(self, *error: object) -> None:
        import torch

        self._peak = torch.cuda.max_memory_allocated() / _MIB if self._on_gpu else _resident("VmHWM")

    def told(self) -> dict[str, Any]:
        """In MiB."""
        return {
            "of": _GPU if self._on_gpu else "CPU",
            "peak": round(self._peak, 2),
            "added": round(max(0.0, self._peak - self._before), 2),
        }


def _give_back() -> None:
    """Free memory goes back to the system, or work would seem to take none where it finds what the warm-up has left."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _resident(field: str) -> float:
    """The process's memory in MiB: now (``VmRSS``), or the largest so far (``VmHWM``).

    ``getrusage`` would not do on Linux: there, a new process inherits the largest size of the one that started it.
    """
    if _STATUS.is_file():
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
        return int(line.split()[1]) / 1024
    import resource
    import sys

    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest / (_MIB if sys.platform == "darwin" else 1024)


# -- what was asked for ----------------------------------------------------------------------------------------------------


def _with_unit(methods: Sequence[str]) -> tuple[str, ...]:
    return tuple(methods) if UNIT in methods else (UNIT, *methods)


def _at_least_one(setup: Setup, name: str) -> int:
    number = int(setup.values(name)[0])
    if number < 1:
        raise UsageError(f"{name} must be at least 1, got {number}.")
    return number


def _resolved(methods: Sequence[str], scale: Scale) -> tuple[Spec, ...]:
    """The methods with all their options, as the grid has them: of the study's own settings, those that one of them knows."""
    known = []
    for setting in scale.settings:
        with suppress(UsageError):
            parse_specs(methods, [setting])
            known.append(setting)
    return parse_specs(methods, [*known, *scale.asked])


def _key(what: str, label: str, turn: int) -> str:
    return f"{what}-{record_stem(label, None).removesuffix('.once')}-{turn}"


# -- what it comes to ------------------------------------------------------------------------------------------------------

_RATIO_NOTE = (
    "The unit is what the mean takes to encode the text once: its time, and its memory, in the same round; ± over rounds. "
    "The mean trains nothing: what stands there is the start of a run."
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
# On a GPU the process stays for all measurements, and its largest memory is no method's own.
_PROCESS = (
    Column("training peak", "training, process MiB", 0),
    Column("inference peak", "inference, process MiB", 0),
)
Results = Mapping[str, Mapping[str, Any] | None]
Costs = dict[str, Entry]


def _costs(results: Results, label: str, rounds: int) -> Costs:
    """A method's numbers over the rounds; a ratio is taken within its round."""

    def over(what: str, number: Callable[[Mapping[str, Any]], float], against: str = "") -> Value | None:
        found: dict[int | None, float] = {}
        for turn in range(1, rounds + 1):
            mine = results[_key(what, label, turn)]
            unit = results[_key(against, UNIT, turn)] if against else None
            if mine is not None and not against:
                found[turn] = number(mine)
            elif mine is not None and unit is not None and number(unit) > 0:
                found[turn] = number(mine) / number(unit)
        return over_seeds(found) if found else None

    trained = results[_key("training", label, 1)]
    return {
        "training seconds": over("training", _seconds),
        "inference seconds": over("inference", _seconds),
        "sentences a second": over("inference", lambda result: result["sentences"] / result["seconds"]),
        "training memory": over("training", _added),
        "inference memory": over("inference", _added),
        "training peak": over("training", lambda result: result["memory"]["peak"]),
        "inference peak": over("inference", lambda result: result["memory"]["peak"]),
        "training ratio": over("training", _seconds, "inference"),
        "inference ratio": over("inference", _seconds, "inference"),
        "training memory ratio": over("training", _added, "inference"),
        "inference memory ratio": over("inference", _added, "inference"),
        "steps": trained["steps"] if trained else None,
    }


def _seconds(result: Mapping[str, Any]) -> float:
    return float(result["seconds"])


def _added(result: Mapping[str, Any]) -> float:
    return float(result["memory"]["added"])


def _figures(costs: Mapping[str, Costs], scores: Mapping[str, Value], score: str) -> tuple[Figure, ...]:
    def dots(name: str) -> tuple[tuple[str, Value], ...]:
        return tuple((label, value) for label, cost in costs.items() if isinstance(value := cost[name], Value))

    training = {label: cost["training ratio"] for label, cost in costs.items()}
    points = {
        label: ((value.mean, scores[label].mean),)
        for label, value in training.items()
        if isinstance(value, Value) and label in scores
    }
    told = "; ".join(f"{label}: {x:.1f} passes, {y:.2f}" for label, ((x, y),) in points.items())
    unit = "passes of the mean over the text"
    drawn: list[Figure] = []
    if points:
        drawn.append(
            Scatter(
                "score-by-training",
                f"{score} by training time",
                "Up is better, left is cheaper; a method without training stands at the left edge.",
                f"training time, {unit}",
                score,
                points,
                f"{told}.",
            )
        )
    if dots("training ratio"):
        drawn += [
            Dots("training-time", "Training time", f"In {unit}; lower is cheaper.", unit, dots("training ratio")),
            Dots(
                "inference-time",
                "Inference time",
                "One pass over the text; the mean is 1, lower is cheaper.",
                unit,
                dots("inference ratio"),
            ),
            Dots(
                "training-memory",
                "Memory while training",
                "The largest memory; 1 is what the mean takes to encode the text, lower is cheaper.",
                "× the mean's while encoding",
                dots("training memory ratio"),
            ),
        ]
    return tuple(drawn)
