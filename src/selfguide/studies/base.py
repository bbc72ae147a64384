"""What a study is, and how to add one.

A study answers one question about an encoder, a text and some methods. It is one file in this folder, listed in
:mod:`selfguide.studies.registry`, and implements two methods:

``plan``
    What has to be run. A *grid* is a comparison, specs (:mod:`selfguide.comparison.specs`) × seeds on one text, scored on
    tasks; :func:`selfguide.compare` runs it, so its cells resume and run in parallel. A *measurement* is anything else: a
    function of this package that takes and returns plain JSON values, kept in a file of its own. Measurements run after
    the grids, and may read the encoders that a grid has kept.

``outcome``
    Tables and figures (:mod:`selfguide.studies.outcome`) made of the results. It needs no model and computes nothing slow.

Text sampling, seeds, processes, ``--set``, ``study.json``, tables, figures and the page are shared. The smallest study::

    class Temperature(Study):
        name = "temperature"                                 # metadata are literals: listings read them from the source
        title = "Temperature"
        question = "How much does the temperature of the loss matter?"
        small = replace(SMALL, values={"temperatures": (0.01, 0.1)})
        full = replace(FULL, values={"temperatures": (0.001, 0.01, 0.1, 1.0)})

        def plan(self, setup: Setup) -> Plan:
            specs = [f"{t:g}=sg-opt:temperature={t}" for t in setup.values("temperatures")]
            return Plan(grids=(Grid("temperature", tuple(specs)),))

        def outcome(self, findings: Findings) -> Outcome:
            summary = findings.summary("temperature")
            rows = [{"temperature": row.label, **score_entries(row, summary)} for row in summary.rows]
            return Outcome([Table("scores", "Scores", [Column("temperature", "τ"), *score_columns(summary)], rows)])

A measurement is ``Measurement("probe", "selfguide.studies.layers:probed", {"pooling": "mean"})``; its function is called as
``probed(context, pooling="mean")`` with a :class:`~selfguide.studies.context.MeasurementContext`, and ``outcome`` finds what
it returns in ``findings.results["probe"]``, None where it failed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from selfguide.errors import UsageError
from selfguide.options import parse_value

if TYPE_CHECKING:
    from selfguide.comparison.compare import Comparison
    from selfguide.comparison.summary import Summary
    from selfguide.studies.outcome import Outcome

DEMO = "demo"
"""The name of the package's own sentences, accepted as a text everywhere."""
DEMO_DEV = "demo-dev"
"""The graded pairs that choose checkpoints on these sentences, and on these alone."""


@dataclass(frozen=True)
class Scale:
    """The size of a study: its data, its seeds and the values it varies."""

    text: str = DEMO
    """``demo``, ``data:stsb``, ``data:TASK``, or anything that `selfguide train` reads."""
    limit: int | None = None
    """Number of sentences sampled from the text; smaller samples are subsets of larger ones. None: all of them."""
    tasks: str = "demo"
    pairs: tuple[str, ...] = ()
    """Files of the user's own pairs, scored like tasks."""
    dev: str | None = DEMO_DEV
    seeds: tuple[int, ...] = (1,)
    settings: tuple[str, ...] = ()
    """Training settings and method options in the form of ``selfguide compare --set``; a grid gets those it knows."""
    user_settings: tuple[str, ...] = ()
    """The same from the user; one that no method of the study knows is refused."""
    values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """What the study itself varies, by name; ``--set name=1,2,3`` changes it."""

    def with_settings(self, assignments: Iterable[str]) -> Scale:
        """Return the scale with the assignments of ``--set`` applied.

        Args:
            assignments: ``name=value``; a name in ``values`` changes the study's own list, any other goes to the methods.

        Raises:
            UsageError: A value of the study's own list is missing or of another type.
        """
        values, others = dict(self.values), list(self.user_settings)
        for assignment in assignments:
            name, equals, given = assignment.partition("=")
            name = name.strip().replace("-", "_")
            if equals and name in values:
                values[name] = _parse_list(name, given, values[name])
            else:
                others.append(assignment)
        return replace(self, user_settings=tuple(others), values=values)


SMALL = Scale(limit=400, settings=("max_steps=40", "batch_size=16", "dev_every=20", "head_size=512"))
"""A demonstration of minutes on two cores: it shows how a study works and says little about its question."""
FEW_STEPS = ("max_steps=20", "batch_size=16", "dev_every=20", "head_size=512")
"""Settings for a demonstration of a dozen rows."""
FULL = Scale("data:stsb", None, "sts", dev="stsb-dev", seeds=(1, 2, 3))
"""The papers' protocol, for a GPU and SELFGUIDE_DATA: STS-B's sentences, seven STS sets, checkpoints chosen by STS-B dev."""


@dataclass(frozen=True)
class Setup:
    """What a plan may depend on."""

    scale: Scale
    full: bool
    encoder: str
    depth: int | None
    """The encoder's layers, layer 0 not counted; None for one without a Transformer."""
    sentences: int
    """Number of sentences in the sampled text."""

    def values(self, name: str) -> tuple[Any, ...]:
        """Return the values that the study varies under this name."""
        return self.scale.values[name]

    def value(self, name: str) -> Any:
        """Return the only value under a name that takes one.

        Raises:
            UsageError: There are several.
        """
        values = self.values(name)
        if len(values) != 1:
            raise UsageError(f"--set {name}= takes one value here, not {len(values)}.")
        return values[0]


@dataclass(frozen=True)
class Grid:
    """A comparison, specs × seeds on one text. A field that is None takes the scale's value."""

    key: str
    """Names its folder: letters, digits and dashes."""
    specs: tuple[str, ...]
    """``label=method:option=value``, one for each row."""
    title: str = ""
    """Shown while it runs."""
    limit: int | None = None
    baseline: str | None = None
    """The row that the others are tested against; the first unless named."""
    keep: bool = False
    """Whether to keep the encoders for measurements."""


@dataclass(frozen=True)
class Measurement:
    """A function of this package to be called with plain arguments, possibly in another process."""

    key: str
    """Names its file: letters, digits, dots and dashes."""
    function: str
    """``selfguide.studies.MODULE:FUNCTION``; called as ``FUNCTION(context, **arguments)``, it returns a plain dict."""
    arguments: dict[str, Any] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    """Keys of grids whose kept encoders it reads; it is repeated when those change."""
    isolated: bool = False
    """Whether it measures time or memory: nothing runs beside it, and on a CPU it gets a new process."""


@dataclass(frozen=True)
class Plan:
    """What has to be run."""

    grids: tuple[Grid, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    measured_methods: tuple[str, ...] = ()
    """Methods that measurements train themselves, so that ``--set`` may name their options too."""

    def __post_init__(self) -> None:
        """Refuse keys that occur twice."""
        for kind in (self.grids, self.measurements):
            keys = [item.key for item in kind]
            if len(set(keys)) != len(keys):
                raise ValueError(f"two parts of the plan have one key: {sorted(keys)}")


@dataclass(frozen=True)
class Findings:
    """The results of a plan."""

    setup: Setup
    comparisons: Mapping[str, Comparison]
    """By the grid's key."""
    results: Mapping[str, dict[str, Any] | None]
    """By the measurement's key; None where it failed."""

    def summary(self, grid: str) -> Summary:
        """Return means and deviations of a grid's rows."""
        return self.comparisons[grid].summary


class Study(ABC):
    """One question. The metadata must be literals: listings read them without importing the class."""

    name: ClassVar[str]
    title: ClassVar[str]
    question: ClassVar[str]
    """What it answers, in one sentence."""
    reference: ClassVar[str] = ""
    """The paper whose table or figure it reproduces."""
    needs: ClassVar[str] = ""
    """What it needs beyond any encoder and text, as in "a multilingual encoder"."""
    small: Scale = SMALL
    full: Scale = FULL

    @abstractmethod
    def plan(self, setup: Setup) -> Plan:
        """Return what has to be run.

        Raises:
            UsageError: The setup makes no sense for this study.
        """

    @abstractmethod
    def outcome(self, findings: Findings) -> Outcome:
        """Return tables and figures of the results; rows that failed are included and left empty."""


def grid_folder(output: Path, key: str) -> Path:
    """Return the folder of a grid's cells and tables, in the layout of `selfguide compare`."""
    return output / "grids" / key


def _parse_list(name: str, given: str, former: tuple[Any, ...]) -> tuple[Any, ...]:
    kind = type(former[0]) if former else str
    words = [word.strip() for word in given.split(",") if word.strip()]
    if not words:
        raise UsageError(f"--set {name}= names no value; write --set {name}={','.join(map(str, former))}, say.")
    return tuple(parse_value(word, kind, name) for word in words)
