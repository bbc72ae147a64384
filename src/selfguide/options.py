"""Checks that the options of methods, training settings and the command line share: types, bounds, words to values."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any, get_args, get_type_hints

from selfguide.errors import UsageError

_TYPES: dict[type, tuple[str, tuple[type, ...]]] = {
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    bool: ("true or false", (bool,)),
    str: ("text", (str,)),
}


def require_types(options: Any) -> None:
    """Refuse values of the wrong type in words: options come from Python and from JSON files too."""
    kinds = get_type_hints(type(options))
    for item in fields(options):
        value = getattr(options, item.name)
        name, allowed = _TYPES[kinds[item.name]]
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            raise UsageError(f"{item.name} must be {name}, got {value!r}.")


def parse_value(word: str, kind: Any, name: str) -> Any:
    """A word of the command line as a value of an option's type; ``name`` is what to call the option in an error."""
    # Optional[...] and the like: the first type that takes the word.
    candidates = [item for item in get_args(kind) or (kind,) if item is not type(None)]
    for candidate in candidates:
        try:
            if candidate is bool:
                return {"true": True, "false": False, "1": True, "0": False}[word.lower()]
            return candidate(word)
        except (ValueError, KeyError):
            continue
    told = " or ".join(_TYPES[candidate][0] if candidate in _TYPES else str(candidate) for candidate in candidates)
    raise UsageError(f"{name} takes {told}, not {word!r}.")


def at_least(value: float, name: str, bound: float, exclusive: bool = False) -> None:
    good = math.isfinite(value) and (value > bound if exclusive else value >= bound)
    if not good:
        raise UsageError(f"{name} must be {'above' if exclusive else 'at least'} {bound}, got {value}.")
