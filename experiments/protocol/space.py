"""The trials of a method: settings drawn from the search space that it declares, under one budget for all."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from selfguide.methods import registry

TRIALS = 12
"""Trials of every method; the first has the method's own settings."""
SEED = 19
"""Seed of the draws."""


@dataclass(frozen=True)
class Budget:
    """What a trial may see, how often it is judged, and when it stops: the same for every method."""

    sentences: int = 30_910
    """Rows of the training set that a run sees at most: two passes over STS-B's 15,455 sentences."""
    between: int = 800
    """Rows between two dev evaluations."""
    patience: int = 10
    """Dev evaluations without a new best before a run stops."""

    def settings(self, batch_size: int) -> dict[str, int]:
        """Return the training settings of a run with this batch size.

        Args:
            batch_size: Rows a step.

        Returns:
            ``max_steps``, ``dev_every`` and ``patience``.
        """
        return {
            "max_steps": math.ceil(self.sentences / batch_size),
            "dev_every": max(1, round(self.between / batch_size)),
            "patience": self.patience,
        }

    def as_dict(self) -> dict[str, int]:
        """Return the budget as plain values, for results files."""
        return asdict(self)


@dataclass(frozen=True)
class Trial:
    """One setting of one method."""

    method: str
    number: int
    changes: Mapping[str, Any]
    """What differs from the method's own settings."""

    @property
    def label(self) -> str:
        """Return the name of its row in a comparison."""
        return f"{self.method}@{self.number}"

    def words(self, source: str, budget: Budget) -> str:
        """Return the row as a comparison takes it.

        Args:
            source: The option that names the file the method needs, if it needs one.
            budget: The budget.

        Returns:
            ``label=method:option=value…``.
        """
        return f"{self.label}={self.spec(source, budget)}"

    def spec(self, source: str, budget: Budget) -> str:
        """Return the row without its label; see :meth:`words`."""
        cls = registry.method_class(self.method)
        batch_size = int(self.changes.get("batch_size", cls.defaults.batch_size))
        usable = {
            name: value for name, value in budget.settings(batch_size).items() if name not in cls.refused_settings()
        }
        options = [f"{name}={as_word(value)}" for name, value in {**self.changes, **usable}.items()]
        return ":".join([self.method, *filter(None, [source]), *options])


def draw(
    method: str, count: int = TRIALS, seed: int = SEED, first: Mapping[str, Any] | None = None
) -> tuple[Trial, ...]:
    """Draw the trials of a method.

    Args:
        method: A method that declares a search space.
        count: How many; fewer where the space is smaller.
        seed: Seed of the draws.
        first: What the first trial is told besides the method's own settings.

    Returns:
        The method's own settings first, then different points of its space, drawn uniformly.
    """
    space = registry.method_class(method).search
    names = sorted(space)
    size = math.prod(len(space[name]) for name in names)
    generator = random.Random(f"{seed} {method}")
    drawn: list[dict[str, Any]] = [dict(first or {})]
    seen: set[tuple[Any, ...]] = set()
    while len(drawn) < count and len(seen) < size:
        if size <= 4 * count:  # a small space is shuffled, so that no point is drawn in vain for long
            points = list(itertools.product(*(space[name] for name in names)))
            generator.shuffle(points)
            found = [dict(zip(names, point, strict=True)) for point in points]
            drawn += found[: count - len(drawn)]
            break
        point = tuple(generator.choice(space[name]) for name in names)
        if point not in seen:
            seen.add(point)
            drawn.append(dict(zip(names, point, strict=True)))
    return tuple(Trial(method, number, changes) for number, changes in enumerate(drawn, 1))


def as_word(value: Any) -> str:
    """Return a value as a comparison's row has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
