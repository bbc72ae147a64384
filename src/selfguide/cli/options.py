"""Options that several commands share, and turning ``--name value`` words into a method's options."""

from __future__ import annotations

import difflib
import shlex
import typing
from collections.abc import Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any

import typer

from selfguide.errors import UsageError
from selfguide.options import parse_value

Encoder = Annotated[
    str, typer.Option("--encoder", "-e", help="mini (inside the package), a folder, or a hub name.", show_default=True)
]
Column = Annotated[str | None, typer.Option(help="Column of a csv, tsv or parquet file: a name or a number from 0.")]
Field = Annotated[str | None, typer.Option(help="Field of a jsonl file; dots lead into nested objects.")]
Header = Annotated[str, typer.Option(help="Whether the first row of a csv or tsv file is a header: auto, yes or no.")]
Delimiter = Annotated[
    str | None,
    typer.Option(
        help="What separates cells: a character, or comma, semicolon, tab, pipe, none. Default: found from the first rows.",
        show_default=False,
    ),
]
Encoding = Annotated[str, typer.Option(help="Encoding of the text, such as latin1, cp1252 or utf-16.")]
SkipBadRows = Annotated[
    int,
    typer.Option(help="Leave out up to so many rows with too many or too few cells, or that are no valid CSV or JSON."),
]
SplitSentences = Annotated[
    bool,
    typer.Option("--split-sentences", help="Split paragraphs into sentences (extra: selfguide[split])."),
]
Language = Annotated[str, typer.Option(help="Language of --split-sentences, a code such as en, de or zh.")]
ReplaceBadUtf8 = Annotated[
    bool, typer.Option("--replace-bad-utf8", help="Put U+FFFD where the text is not UTF-8 instead of stopping.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No notes and no progress bar; warnings and errors stay.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")]


def method_options(words: list[str], method: str, other_flags: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Separate the texts from the method's options in the words that typer did not know, in whatever order they come.

    ``notes.txt --temperature 0.05 --no-freeze-layer-0`` gives ``["notes.txt"]`` and
    ``{"temperature": 0.05, "freeze_layer_0": False}``.

    Args:
        words: The words.
        method: The method whose options they may be.
        other_flags: What else could be meant by a mistyped option.

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
    import inspect
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
