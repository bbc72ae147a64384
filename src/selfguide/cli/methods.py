"""``selfguide methods``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from selfguide.cli.choices import newcomer_lines

if TYPE_CHECKING:
    from rich.console import Console

    from selfguide.methods.registry import MethodInfo

_GROUPS = {
    "Nothing is trained": ("pooling", False),
    "A map is fitted on embeddings of the text": ("calibration", False),
    "The encoder is tuned on the text, without labels": ("tuning", False),
    "The encoder is tuned on labelled pairs": ("tuning", True),
}


def methods(
    name: Annotated[str | None, typer.Argument(help="Show this method's options.", show_default=False)] = None,
) -> None:
    """List the methods, or explain one.

    Installed packages add methods through the entry-point group `selfguide.methods`; any other is named as
    package.module:Class.

    **Examples**

        selfguide methods

        selfguide methods sg-opt

        selfguide methods my_package.methods:MyMethod
    """
    from rich.console import Console

    console = Console(markup=False)  # rich would take [CLS] in a description for markup
    if name is None:
        _list(console)
    else:
        _explain(console, name)


def _list(console: Console) -> None:
    from selfguide.methods.registry import builtin_methods, plugins

    added = plugins()
    usable = [*builtin_methods(), *(info for info in added if not info.problem)]
    for line in newcomer_lines():
        console.print(line, soft_wrap=True, highlight=False)
    console.print("All methods:", style="bold")
    console.print()
    # In short tables, so that a narrow terminal wraps the explanation and nothing else.
    for heading, group in _GROUPS.items():
        _table(console, heading, [info for info in usable if (info.family, info.needs_labels) == group])
    for info in added:
        if info.problem:
            typer.echo(f"selfguide: {info.problem}", err=True)
    console.print("`selfguide methods NAME` shows a method's options.")


def _table(console: Console, heading: str, rows: list[MethodInfo]) -> None:
    from rich.table import Table

    console.print(heading, style="bold")
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True, min_width=19)
    table.add_column()
    for info in rows:
        table.add_row(info.name, f"{info.summary}; {info.cost}" + (f" ({info.reference})" if info.reference else ""))
    console.print(table)
    console.print()


def _explain(console: Console, name: str) -> None:
    from rich.table import Table

    from selfguide.cli.options import documented_options
    from selfguide.methods.registry import method_class

    cls = method_class(name)
    console.print(f"{cls.name}: {cls.summary}." + (f" {cls.reference}." if cls.reference else ""))
    table = Table("option", "default", "meaning", box=None, padding=(0, 2, 0, 0))
    for flag, default, meaning in documented_options(cls.Options, skip=cls.preset):
        table.add_row(flag, default, meaning)
    if table.row_count:
        console.print(table)
    table = Table("training setting", "default", "meaning", box=None, padding=(0, 2, 0, 0))
    for flag, _, meaning in documented_options(type(cls.defaults)):
        table.add_row(flag, str(getattr(cls.defaults, flag[2:].replace("-", "_"))), meaning)
    console.print(table)
