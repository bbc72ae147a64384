"""Options that several commands share, and turning ``--name value`` words into a method's options."""

from __future__ import annotations

import difflib
import functools
import inspect
import shlex
import typing
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from selfguide.errors import UsageError
from selfguide.options import parse_value

Encoder = Annotated[
    str, typer.Option("--encoder", "-e", help="mini (inside the package), a folder, or a hub name.", show_default=True)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No notes and no progress bar; warnings and errors stay.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")]


Pooling = Annotated[
    str | None,
    typer.Option(help="cls, mean, max, last2 or first-last; default: the encoder's own.", show_default=False),
]
Data = Annotated[Path | None, typer.Option(help="Data folder; empty: what SELFGUIDE_DATA says.", show_default=False)]


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Expand a dataclass among a command's parameters: each of its fields becomes an option.

    Args:
        command: The command.

    Returns:
        A function with an option for each field, which makes the dataclasses and calls the command.
    """
    hints = typing.get_type_hints(command, include_extras=True)
    groups: dict[str, tuple[type[Any], list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if not is_dataclass(kind):
            parameters.append(parameter.replace(annotation=kind, kind=parameter.KEYWORD_ONLY))
            continue
        of_fields = typing.get_type_hints(kind, include_extras=True)
        groups[parameter.name] = (typing.cast("type[Any]", kind), [item.name for item in fields(kind)])
        parameters += [
            inspect.Parameter(item.name, parameter.KEYWORD_ONLY, default=item.default, annotation=of_fields[item.name])
            for item in fields(kind)
        ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        made = {name: kind(**{field: given.pop(field) for field in names}) for name, (kind, names) in groups.items()}
        command(**given, **made)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def method_options(words: list[str], method: str, other_flags: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Separate the texts from the method's options among the arguments that typer does not know, in any order.

    ``notes.txt --temperature 0.05 --no-freeze-layer-0`` gives ``["notes.txt"]`` and
    ``{"temperature": 0.05, "freeze_layer_0": False}``.

    Args:
        words: The arguments.
        method: The method whose options are looked up.
        other_flags: Further flags to suggest for a mistyped option.

    Returns:
        The texts, and the options by name.

    Raises:
        UsageError: An option is unknown, or lacks its value.
    """
    from selfguide.methods.base import option_types
    from selfguide.methods.registry import method_class

    cls = method_class(method)
    types = {name: kind for name, kind in option_types(cls.Options).items() if name not in cls.preset}
    switches = {f"no_{name}": name for name, kind in types.items() if kind is bool}
    texts: list[str] = []
    values: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            texts.append(word)
            continue
        flag, equals, value = word.partition("=")
        key = flag[2:].replace("-", "_") if flag.startswith("--") else ""
        if key in switches and not equals:
            values[switches[key]] = False
        elif types.get(key) is bool and not equals:
            values[key] = True
        elif key in types:
            if not equals and (not rest or rest[0].startswith("--")):
                raise UsageError(f"{flag} needs a value.")
            values[key] = parse_value(value if equals else rest.pop(0), types[key], flag)
        else:
            raise UsageError(_unknown(flag, method, list(types), other_flags))
    return texts, values


def _unknown(flag: str, method: str, names: Sequence[str], other_flags: Sequence[str]) -> str:
    own = ["--" + name.replace("_", "-") for name in names]
    close = difflib.get_close_matches(flag, [*own, *other_flags], n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    return f"There is no option {flag}.{hint} The method {method} takes {', '.join(own)}; see also --help."


def documented_options(cls: type[Any], skip: typing.Container[str] = ()) -> list[tuple[str, str, str]]:
    """Describe each field of an options dataclass by the docstring below it.

    Args:
        cls: The dataclass.
        skip: Fields to leave out.

    Returns:
        (flag, default, explanation) of each field, in their order.
    """
    explanations = _field_docs(cls)
    rows = []
    for item in fields(cls):
        if item.name in skip:
            continue
        default = "" if item.default is MISSING else str(item.default) or "(none)"
        rows.append(("--" + item.name.replace("_", "-"), default, explanations.get(item.name, "")))
    return rows


def _field_docs(cls: type[Any]) -> dict[str, str]:
    """The string below each field in the source: Python keeps none of them, so they are read from there."""
    import ast
    import textwrap

    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    docs: dict[str, str] = {}
    for parent in cls.__bases__:  # options may build on another method's
        docs |= _field_docs(parent) if is_dataclass(parent) else {}
    for before, after in zip(body.body, body.body[1:], strict=False):
        match before, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = " ".join(text.split())
    return docs


def command_typed(words: list[str]) -> str:
    """Return the command for the record, without the options that name folders of this machine."""
    own = ("--data", "--output", "-o")
    kept, skip = [], False
    for word in words:
        if not skip and word not in own and not word.startswith(("--data=", "--output=")):
            kept.append(word)
        skip = not skip and word in own
    return shlex.join(["selfguide", *kept])
