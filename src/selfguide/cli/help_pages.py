"""Help for narrow terminals: names of options are folded, where typer would cut them off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from typer.core import TyperCommand


class HelpfulCommand(TyperCommand):
    """A command whose help shows every option with its whole name."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        _fold_names()
        super().format_help(ctx, formatter)


class _Folding:
    """A highlighter of typer's whose text goes on in the next line of a column that is too narrow for it."""

    def __init__(self, highlighter: Callable[[Any], Any]) -> None:
        self._highlighter = highlighter

    def __call__(self, text: Any) -> Any:
        """Return the highlighted text."""
        found = self._highlighter(text)
        found.overflow = "fold"
        return found


def _fold_names() -> None:
    from typer import rich_utils  # here, because it is imported for help alone

    for name in ("highlighter", "negative_highlighter"):
        former = getattr(rich_utils, name, None)
        if former is not None and not isinstance(former, _Folding):
            setattr(rich_utils, name, _Folding(former))
