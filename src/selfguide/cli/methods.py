"""``selfguide methods``."""

from __future__ import annotations

from typing import Annotated

import typer

_GROUPS = {
    "Nothing is trained": [("pooling", False)],
    "A map is fitted on vectors of the text": [("calibration", False)],
    "The encoder is tuned on the text, without labels": [("tuning", False)],
    "The encoder is tuned on labelled pairs": [("tuning", True)],
}


def methods(
    name: Annotated[str | None, typer.Argument(help="Show this method's options.", show_default=False)] = None,
) -> None:
    """List the methods, or explain one.

    **Examples**

        selfguide methods

        selfguide methods sg-opt
    """
    from rich.console import Console
    from rich.table import Table

    from selfguide.methods.registry import METHODS, entry, method_class

    console = Console(markup=False)  # an explanation may well speak of [CLS]
    if name is None:
        # In four short tables, so that a narrow terminal wraps the explanation and nothing else.
        for heading, belongs in _GROUPS.items():
            console.print(heading, style="bold")
            table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
            table.add_column(no_wrap=True, min_width=19)
            table.add_column()
            for item in METHODS:
                if (item.family, item.needs_labels) in belongs:
                    table.add_row(item.name, f"{item.summary}; {item.inference_cost} ({item.reference})")
            console.print(table)
            console.print()
        console.print("`selfguide methods NAME` shows a method's options.")
        return

    from selfguide.cli.options import documented_options

    item = entry(name)
    cls = method_class(name)
    console.print(f"{item.name}: {item.summary}. {item.reference}.")
    table = Table("option", "default", "meaning", box=None, padding=(0, 2, 0, 0))
    for flag, default, meaning in documented_options(cls.Options, skip=item.preset):
        table.add_row(flag, default, meaning)
    console.print(table)
    table = Table("training setting", "default", "meaning", box=None, padding=(0, 2, 0, 0))
    changed = {field: str(getattr(cls.defaults, field)) for field in cls.defaults.__dataclass_fields__}
    for flag, _, meaning in documented_options(type(cls.defaults)):
        table.add_row(flag, changed[flag[2:].replace("-", "_")], meaning)
    console.print(table)
