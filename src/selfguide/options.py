"""Options as frozen dataclasses: each declares its own rule, and one place checks types and rules.

    @dataclass(frozen=True)
    class ContrastOptions(CheckedOptions):
        temperature: Annotated[float, Above(0)] = 0.05
        pooling: Annotated[str, OneOf("mean", "cls")] = "mean"

Values come from Python, the command line and JSON files alike, so a wrong one is refused in a sentence that names the
option, what it got and what it takes. A loss or function checks a single argument with :func:`check`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Protocol, get_args, get_origin, get_type_hints

from selfguide.errors import UsageError

_TYPES: dict[type, tuple[str, tuple[type, ...]]] = {
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    bool: ("true or false", (bool,)),
    str: ("text", (str,)),
}


class Rule(Protocol):
    """What an option's value must satisfy."""

    def problem(self, name: str, value: Any) -> str | None:
        """Return the sentence that refuses the value, or ``None`` where it is allowed."""


@dataclass(frozen=True)
class Above:
    """A finite number greater than a bound; ``or_else``: one more value."""

    bound: float
    or_else: float | None = None
    or_else_means: str = ""

    def problem(self, name: str, value: Any) -> str | None:
        """See :class:`Rule`."""
        if (math.isfinite(value) and value > self.bound) or (self.or_else is not None and value == self.or_else):
            return None
        finite = "" if math.isfinite(value) else " and finite"
        more = f", or {self.or_else:g} ({self.or_else_means})" if self.or_else is not None else ""
        return f"{name} must be above {self.bound:g}{finite}{more}, got {value}."


@dataclass(frozen=True)
class AtLeast:
    """A finite number that is not smaller than a bound; ``or_else``: one more value."""

    bound: float
    or_else: float | None = None
    or_else_means: str = ""

    def problem(self, name: str, value: Any) -> str | None:
        """See :class:`Rule`."""
        if (math.isfinite(value) and value >= self.bound) or (self.or_else is not None and value == self.or_else):
            return None
        more = f", or {self.or_else:g} ({self.or_else_means})" if self.or_else is not None else ""
        return f"{name} must be at least {self.bound:g}{more}, got {value}."


@dataclass(frozen=True)
class Between:
    """A number between two bounds, which are allowed themselves unless said otherwise; ``or_else``: one more value."""

    low: float
    high: float
    open_low: bool = False
    open_high: bool = False
    or_else: float | None = None
    or_else_means: str = ""

    def problem(self, name: str, value: Any) -> str | None:
        """See :class:`Rule`."""
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        if (above and below) or (self.or_else is not None and value == self.or_else):
            return None
        low = f"{'above' if self.open_low else 'at least'} {_plain(self.low)}"
        high = f"{'below' if self.open_high else 'at most'} {_plain(self.high)}"
        more = f", or {self.or_else:g} ({self.or_else_means})" if self.or_else is not None else ""
        return f"{name} must be {low} and {high}{more}, got {value}."


def _plain(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


LARGEST_SEED = 2**32 - 1
"""NumPy's limit."""
SEED = Between(0, LARGEST_SEED)


class OneOf:
    """One of a few words."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def problem(self, name: str, value: Any) -> str | None:
        """See :class:`Rule`."""
        if value in self.choices:
            return None
        return f"{name} must be one of {', '.join(self.choices)}, got {value!r}."


class SeveralOf:
    """One or more of a few words, separated by commas."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def problem(self, name: str, value: Any) -> str | None:
        """See :class:`Rule`."""
        if all(word.strip() in self.choices for word in value.split(",")):
            return None
        return f"{name} must be one of {', '.join(self.choices)}, or several separated by commas, got {value!r}."


class NotEmpty:
    """A text of at least one character."""

    def problem(self, name: str, value: Any) -> str | None:
        """See :class:`Rule`."""
        return None if value else f"{name} must not be empty."


def check(name: str, value: Any, *rules: Rule) -> None:
    """Refuse a value that breaks a rule.

    Args:
        name: What to call the option in the error.
        value: The value, of the right type already.
        *rules: What it must satisfy.

    Raises:
        UsageError: A rule is broken; the message names the option, the value and what it takes.
    """
    for rule in rules:
        problem = rule.problem(name, value)
        if problem is not None:
            raise UsageError(problem)


def check_options(options: Any) -> None:
    """Check the types and the declared rules of every field of a dataclass.

    Args:
        options: An instance whose fields are annotated with ``int``, ``float``, ``bool``, ``str`` or a ``Literal`` of words,
            possibly optional (``int | None``) and with rules for values other than ``None``: ``Annotated[float, Above(0)]``.

    Raises:
        UsageError: A value has another type or breaks a rule.
    """
    hints = get_type_hints(type(options), include_extras=True)
    for item in fields(options):
        value = getattr(options, item.name)
        kind, rules = _split(hints[item.name])
        if isinstance(kind, UnionType):
            if value is None:
                continue
            (kind,) = (choice for choice in get_args(kind) if choice is not NoneType)
        name, allowed = _TYPES[kind]
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            raise UsageError(f"{item.name} must be {name}, got {value!r}.")
        check(item.name, value, *rules)


class CheckedOptions:
    """Base of option dataclasses that checks every field when an instance is made.

    A subclass with a rule across several fields defines ``__post_init__`` and calls ``super().__post_init__()`` first.
    """

    def __post_init__(self) -> None:
        """Check types and declared rules."""
        check_options(self)

    def without(self, *names: str) -> dict[str, Any]:
        """Return the options by name, except the given ones: the arguments of a loss, without the student's pooling."""
        return {name: value for name, value in vars(self).items() if name not in names}


def parse_value(word: str, kind: Any, name: str) -> Any:
    """Turn a word of the command line into a value of an option's type.

    Args:
        word: What was typed.
        kind: The option's type, with or without rules.
        name: What to call the option in an error.

    Returns:
        The value.

    Raises:
        UsageError: The word is not a value of that type.
    """
    kind, _ = _split(kind)
    # Optional[...] and the like: the first type that takes the word.
    candidates = [item for item in get_args(kind) or (kind,) if item is not type(None)]
    for candidate in candidates:
        try:
            if candidate is bool:
                return {"true": True, "false": False, "1": True, "0": False}[word.lower()]
            return candidate(word)
        except (ValueError, KeyError):
            continue
    expected = " or ".join(_TYPES[candidate][0] if candidate in _TYPES else str(candidate) for candidate in candidates)
    raise UsageError(f"{name} takes {expected}, not {word!r}.")


def _split(hint: Any) -> tuple[Any, tuple[Rule, ...]]:
    """Return the plain type of an annotation, and the rules it carries."""
    kind, *rules = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if get_origin(kind) is Literal:
        return str, (OneOf(*get_args(kind)), *rules)
    return kind, tuple(rules)
