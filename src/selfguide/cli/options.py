"""Options that several commands share, and turning ``--name value`` words into a method's options."""

from __future__ import annotations

import typing
from dataclasses import MISSING, fields
from typing import Annotated, Any

import typer

from selfguide.errors import UsageError

Encoder = Annotated[
    str, typer.Option("--encoder", "-e", help="mini (inside the package), a folder, or a hub name.", show_default=True)
]
Column = Annotated[str | None, typer.Option(help="Column of a csv, tsv or parquet file: a name or a number from 0.")]
Field = Annotated[str | None, typer.Option(help="Field of a jsonl file; dots lead into nested objects.")]
ReplaceBadUtf8 = Annotated[
    bool, typer.Option("--replace-bad-utf8", help="Put U+FFFD where the text is not UTF-8 instead of stopping.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No notes and no progress bar; warnings and errors stay.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")]


def method_options(words: list[str], method: str) -> dict[str, Any]:
    """The words typer did not know, read as options of the method: ``--temperature 0.05``, ``--no-freeze-layer-0``."""
    from selfguide.methods.base import option_types
    from selfguide.methods.registry import entry, method_class

    cls = method_class(method)
    types = {name: kind for name, kind in option_types(cls.Options).items() if name not in entry(method).preset}
    values: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise UsageError(f"{word!r} is not understood here; texts come first, options start with --.")
        name, equals, value = word[2:].partition("=")
        key = name.replace("-", "_")
        switch_off = key.startswith("no_") and key not in types
        key = key.removeprefix("no_") if switch_off else key
        if key not in types:
            flags = ", ".join("--" + name.replace("_", "-") for name in types)
            raise UsageError(f"There is no option --{name}. The method {method} takes {flags}; see also --help.")
        if types[key] is bool:
            values[key] = not switch_off if not equals else _convert(value, bool, name)
            continue
        if not equals:
            if not rest:
                raise UsageError(f"--{name} needs a value.")
            value = rest.pop(0)
        values[key] = _convert(value, types[key], name)
    return values


def _convert(value: str, kind: Any, name: str) -> Any:
    if typing.get_origin(kind) is not None:  # Optional[...] and the like: the first type that takes the word
        candidates = [item for item in typing.get_args(kind) if item is not type(None)]
    else:
        candidates = [kind]
    for candidate in candidates:
        try:
            if candidate is bool:
                return {"true": True, "false": False, "1": True, "0": False}[value.lower()]
            return candidate(value)
        except (ValueError, KeyError):
            continue
    expected = " or ".join(getattr(candidate, "__name__", str(candidate)) for candidate in candidates)
    words = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}
    raise UsageError(f"--{name} takes {words.get(expected, expected)}, not {value!r}.")


def documented_options(cls: type[Any], skip: typing.Container[str] = ()) -> list[tuple[str, str, str]]:
    """(flag, default, explanation) of each field of an options dataclass, from the docstrings below the fields."""
    explanations = _field_docs(cls)
    rows = []
    for item in fields(cls):
        if item.name in skip:
            continue
        default = "" if item.default is MISSING else str(item.default)
        rows.append(("--" + item.name.replace("_", "-"), default, explanations.get(item.name, "")))
    return rows


def _field_docs(cls: type[Any]) -> dict[str, str]:
    """The string below each field in the source: Python keeps none of them, so they are read from there."""
    import ast
    import inspect
    import textwrap

    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    docs: dict[str, str] = {}
    for before, after in zip(body.body, body.body[1:], strict=False):
        match before, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = " ".join(text.split())
    return docs
