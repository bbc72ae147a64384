"""The grammar of a comparison's rows: labels, chained stages and their options.

Values are still text here; :mod:`selfguide.comparison.specs` turns them into options.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from selfguide.errors import UsageError
from selfguide.methods import registry

_OPTION = re.compile(r":(?=[A-Za-z_][\w-]*=)")  # a colon inside a value, as in a path, starts no option


@dataclass
class Change:
    """A ``--set``: a value for the methods it names, or for all."""

    words: str
    target: str
    name: str
    value: str
    used: bool = False


def listed(words: str) -> list[str]:
    """Split rows at commas; what follows a comma and starts no row belongs to the value before it.

    Args:
        words: The argument as typed.

    Returns:
        The rows.
    """
    found: list[str] = []
    for piece in words.split(","):
        _, rest = labelled(piece.strip())
        starts = rest != piece.strip() or _starts_with_method(rest)
        if found and ":" in found[-1] and not starts and piece.strip():
            found[-1] += "," + piece
        elif piece.strip():
            found.append(piece.strip())
    return found


def labelled(words: str) -> tuple[str, str]:
    """Return the label (or nothing) and the rest: an equals sign before the first colon is not an option's."""
    label, equals, rest = words.partition("=")
    if equals and ":" not in label:
        if not label.strip() or not rest.strip():
            raise UsageError(f"{words!r} has no label or no method: write label=method.")
        return label.strip(), rest.strip()
    return "", words


def chain(words: str) -> list[str]:
    """Split a row into its stages. A name with a plus in it is one method, and 1e+5 is one value.

    Args:
        words: A row.

    Returns:
        The stages, in order.
    """
    parts, found = words.split("+"), list[str]()
    while parts:
        reach = _longest_name(parts)
        if not reach and found and ":" in found[-1]:
            found[-1] += "+" + parts.pop(0)
            continue
        reach = reach or 1  # the registry reports what is wrong with the name
        found.append("+".join(parts[:reach]))
        del parts[:reach]
    return found


def _longest_name(parts: list[str]) -> int:
    for reach in range(len(parts), 0, -1):
        if ":" not in "".join(parts[: reach - 1]) and _is_method(_OPTION.split("+".join(parts[:reach]))[0]):
            return reach
    return 0


def _starts_with_method(words: str) -> bool:
    """Return whether a row or a chain starts with a method."""
    name = _OPTION.split(words)[0]
    return _is_method(name) or re.split(r"[:+]", name)[0] in names()


def _is_method(name: str) -> bool:
    """Return whether words without options are a method's name or ``package.module:Class``."""
    return name.partition(":")[0] in names() or registry.is_path(name)


def named_stage(words: str) -> tuple[str, dict[str, str]]:
    """Split a stage into the method's reference and its options.

    Args:
        words: A stage.

    Returns:
        The reference, and the values by option, as text.
    """
    name, *options = _OPTION.split(words)
    if ":" in name and (name.partition(":")[0] in names() or not registry.is_path(name)):
        raise UsageError(f"{words}: an option is written :name=value, as in {name.partition(':')[0]}:epochs=2.")
    registry.info(name)
    values = dict[str, str]()
    for option in options:
        key, _, value = option.partition("=")
        values[key.replace("-", "_")] = value
    return name, values


def change(words: str) -> Change:
    """Read a ``--set``.

    Args:
        words: The argument as typed.

    Returns:
        The change, and which method it is for.

    Raises:
        UsageError: It is not of this form.
    """
    key, equals, value = words.partition("=")
    target, _, name = key.rpartition(".")
    if not equals or not name:
        raise UsageError(f"--set {words} has no value: write method.name=value, such as simcse.learning_rate=5e-5.")
    return Change(words, target.strip(), name.strip().replace("-", "_"), value.strip())


def names() -> set[str]:
    """Return the names of all methods, plug-ins included."""
    return registry.names()
