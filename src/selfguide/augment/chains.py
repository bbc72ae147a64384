"""Augmentations by name, applied one after the other: ``shuffle+token-cutoff``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from selfguide.errors import UsageError

T = TypeVar("T")


def compose(*steps: Callable[[T], T]) -> Callable[[T], T]:
    """Return a function that applies the steps one after the other."""

    def augment(value: T) -> T:
        for step in steps:
            value = step(value)
        return value

    return augment


def chain(names: str, steps: Mapping[str, Callable[[T], T]]) -> Callable[[T], T]:
    """Look up one augmentation, or several joined by ``+``.

    Args:
        names: One of the names in ``steps``, or several joined by ``+``.
        steps: The augmentations by name.

    Returns:
        The augmentations as one function.

    Raises:
        UsageError: A name is unknown.
    """
    chosen = [name.strip() for name in names.split("+")]
    for name in chosen:
        if name not in steps:
            raise UsageError(
                f"There is no augmentation {name!r} (in {names!r}); choose one of {', '.join(steps)}, "
                "or join several with +."
            )
    return compose(*(steps[name] for name in chosen))
