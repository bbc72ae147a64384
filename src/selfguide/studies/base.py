"""What a study is, and how one adds another.

A study asks one question of an encoder, a text and some methods. It is one file in this folder and one line in
:mod:`selfguide.studies.registry`. It says two things:

``plan``
    what has to be run. A *grid* is a comparison: specs (:mod:`selfguide.comparison.specs`) × seeds on one text, scored on
    tasks; it is run by :func:`selfguide.compare`, so its cells resume and run side by side. A *measurement* is anything
    else: a function of this package, called with plain JSON arguments, that returns a plain JSON result; it is kept in a
    file of its own too. Measurements run after the grids, and may read the encoders that a grid has kept.

``outcome``
    what it comes to: tables and figures (:mod:`selfguide.studies.outcome`) made of the cells' numbers. It computes
    nothing that takes time and needs no model.

Everything else comes from the shared path: the text and its random draw, seeds, processes, ``study.json``, the tables in
Markdown and CSV, the pictures, the page, ``--set``. The smallest study there is::

    class Temperature(Study):
        small = replace(SMALL, values={"temperatures": (0.01, 0.1)})
        full = replace(FULL, values={"temperatures": (0.001, 0.01, 0.1, 1.0)})

        def plan(self, setup: Setup) -> Plan:
            specs = [f"{t:g}=sg-opt:temperature={t}" for t in setup.values("temperatures")]
            return Plan(grids=(Grid("temperature", tuple(specs)),))

        def outcome(self, found: Found) -> Outcome:
            summary = found.summary("temperature")
            rows = [{"temperature": row.label, **score_entries(row, summary)} for row in summary.rows]
            table = Table("scores", "Scores", (Column("temperature", "τ"), *score_columns(summary)), tuple(rows))
            points = [(float(row.label), value) for row in summary.rows if (value := main_value(row, summary))]
            line = Lines("temperature", "Score by temperature", "How to read it.", "τ", summary.main.title,
                         (Series("sg-opt", tuple(points)),), log=True)
            return Outcome((table,), (line,))

A measurement, with the function that makes it (``place`` tells it everything that is not an argument)::

    Measurement("layers-mean", "selfguide.studies.layers:probed", {"pooling": "mean"})

    def probed(place: Place, pooling: str) -> dict[str, Any]:
        encoder = place.load_encoder()                       # or place.kept("grid", "sg-opt", seed=1)
        rows = place.task_rows()                             # of the study's tasks; place.sentences() is the text
        return {"scores": [...]}

    found.results["layers-mean"]["scores"]                   # in ``outcome``; None where it failed
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfguide.errors import UsageError
from selfguide.options import parse_value

if TYPE_CHECKING:
    from selfguide.comparison.compare import Comparison
    from selfguide.comparison.summary import Summary
    from selfguide.studies.outcome import Outcome
    from selfguide.studies.registry import StudyEntry

DEMO = "demo"
"""The name of the package's own sentences, where a text is asked for."""


@dataclass(frozen=True)
class Scale:
    """How large a study is run: on what, how often, over which values."""

    text: str = DEMO
    """``demo``, ``data:stsb``, ``data:TASK``, or what `selfguide train` reads."""
    limit: int | None = None
    """So many of its sentences, drawn at random, always the same ones; the smaller draws are parts of the larger ones."""
    tasks: str = "demo"
    pairs: tuple[str, ...] = ()
    """Files of the user's own pairs, scored as tasks are."""
    dev: str | None = "demo-dev"
    seeds: tuple[int, ...] = (1,)
    settings: tuple[str, ...] = ()
    """Training settings and options of methods, as ``selfguide compare --set`` takes them, for all grids that know them."""
    asked: tuple[str, ...] = ()
    """The same from the user; what no method of the study knows is refused."""
    values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """What the study itself varies, by name; ``--set name=1,2,3`` changes it."""

    def changed(self, words: tuple[str, ...]) -> Scale:
        """With what ``--set`` says: lists of the study's own by their names, all else goes to the methods."""
        values, asked = dict(self.values), list(self.asked)
        for word in words:
            name, equals, given = word.partition("=")
            name = name.strip().replace("-", "_")
            if equals and name in values:
                values[name] = _parsed(name, given, values[name])
            else:
                asked.append(word)
        return replace(self, asked=tuple(asked), values=values)


SMALL = Scale(limit=400, settings=("max_steps=40", "batch_size=16", "dev_every=20", "head_size=512"))
"""A demonstration: minutes on two cores. What it shows is how the study works, not what is true."""
FEW_STEPS = ("max_steps=20", "batch_size=16", "dev_every=20", "head_size=512")
"""Settings for a demonstration of a dozen rows."""
FULL = Scale("data:stsb", None, "sts", dev="stsb-dev", seeds=(1, 2, 3))
"""The papers' protocol: STS-B's sentences, the seven STS sets, checkpoints by STS-B dev. For a GPU and SELFGUIDE_DATA."""


@dataclass(frozen=True)
class Setup:
    """What a plan may depend on."""

    scale: Scale
    full: bool
    encoder: str
    depth: int | None
    """The encoder's layers, layer 0 not counted; None for one without a Transformer."""
    sentences: int
    """How many sentences the scale's text comes to."""

    def values(self, name: str) -> tuple[Any, ...]:
        """The values that the study varies under this name."""
        return self.scale.values[name]


@dataclass(frozen=True)
class Grid:
    """A comparison: specs × seeds on one text. What is None is the scale's."""

    key: str
    """Names its folder, so letters, digits and dashes."""
    specs: tuple[str, ...]
    """``label=method:option=value``, a row each."""
    title: str = ""
    """For people, while it runs."""
    text: str | None = None
    limit: int | None = None
    tasks: str | None = None
    dev: str | None = None
    settings: tuple[str, ...] = ()
    baseline: str | None = None
    """The row that others are tested against; the first unless named."""
    keep: bool = False
    """Keep the encoders for measurements to read."""


@dataclass(frozen=True)
class Measurement:
    """A function of this package, called with plain arguments in whatever process."""

    key: str
    """Names its file, so letters, digits, dots and dashes."""
    function: str
    """``selfguide.studies.MODULE:FUNCTION``; called as ``FUNCTION(place, **arguments)``, returns a plain dict."""
    arguments: dict[str, Any] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    """Keys of grids whose kept encoders it reads; it is made again when those change."""
    alone: bool = False
    """With nothing beside it, whatever ``--jobs`` says, and on a CPU in a fresh process: for time and memory."""


@dataclass(frozen=True)
class Plan:
    """What has to be run."""

    grids: tuple[Grid, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    measured: tuple[str, ...] = ()
    """Methods that measurements train by themselves: what is ``--set`` for one of these is no mistake."""

    def __post_init__(self) -> None:
        for kind in (self.grids, self.measurements):
            keys = [item.key for item in kind]
            if len(set(keys)) != len(keys):
                raise ValueError(f"two parts of the plan have one key: {sorted(keys)}")


@dataclass(frozen=True)
class Found:
    """What was run, for ``outcome`` to make tables of."""

    setup: Setup
    comparisons: Mapping[str, Comparison]
    """By the grid's key."""
    results: Mapping[str, dict[str, Any] | None]
    """By the measurement's key; None where it failed."""

    def summary(self, grid: str) -> Summary:
        """Means and deviations of a grid's rows."""
        return self.comparisons[grid].summary


class Study(ABC):
    """One question. Subclasses say ``small``, ``full``, :meth:`plan` and :meth:`outcome`."""

    small: Scale = SMALL
    full: Scale = FULL

    def __init__(self, entry: StudyEntry) -> None:
        self.entry = entry

    @abstractmethod
    def plan(self, setup: Setup) -> Plan:
        """What has to be run."""

    @abstractmethod
    def outcome(self, found: Found) -> Outcome:
        """Tables and figures of what was run; rows that failed are there too, with nothing in them."""


def grid_folder(output: Path, key: str) -> Path:
    """Where a grid's cells and tables are: a folder as `selfguide compare` writes it."""
    return output / "grids" / key


def _parsed(name: str, given: str, former: tuple[Any, ...]) -> tuple[Any, ...]:
    kind = type(former[0]) if former else str
    words = [word.strip() for word in given.split(",") if word.strip()]
    if not words:
        raise UsageError(f"--set {name}= names no value; write --set {name}={','.join(map(str, former))}, say.")
    return tuple(parse_value(word, kind, name) for word in words)
