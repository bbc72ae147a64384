"""``selfguide cache``."""

from __future__ import annotations

from typing import Annotated

import typer


def cache(
    kind: Annotated[str | None, typer.Argument(help="Only this kind: views or graphs.", show_default=False)] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Delete the entries.")] = False,
) -> None:
    """Show or clear the cache: the guide's views (for training) and ONNX graphs (for encoding).

    The folder is `$SELFGUIDE_CACHE`, or `selfguide` in the user's cache folder. All of it can be computed again.

    **Examples**

        selfguide cache

        selfguide cache --clear views
    """
    from selfguide.engine import cache as store

    if clear:
        deleted = store.clear(kind)
        count = "1 entry" if len(deleted) == 1 else f"{len(deleted):,} entries"
        typer.echo(f"Deleted {count}, {_size(sum(entry.size for entry in deleted))}.")
        return
    found = store.entries(kind)
    typer.echo(f"{store.cache_root()}\n")
    typer.echo(f"{'kind':<8}{'entries':>8}{'size':>12}{'newest':>12}")
    for name, described in store.KINDS.items():
        own = [entry for entry in found if entry.kind == name]
        if kind in (None, name):
            newest = _age(min(entry.age for entry in own)) if own else ""
            size = _size(sum(entry.size for entry in own))
            typer.echo(f"{name:<8}{len(own):>8,}{size:>12}{newest:>12}   {described.description}")


def _size(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"


def _age(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return "just now"
