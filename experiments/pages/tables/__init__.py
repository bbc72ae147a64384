"""Tables of the pages by name."""

from __future__ import annotations

from collections.abc import Callable

from experiments.pages.sources import Unknown
from experiments.pages.tables import choosing, encoders, fused, main, published, speed, studies

MAKERS: dict[str, Callable[[], str]] = (
    main.TABLES | published.TABLES | studies.TABLES | fused.TABLES | speed.TABLES | encoders.TABLES | choosing.TABLES
)


def made(name: str) -> str:
    """Make a table.

    Args:
        name: Its name in the page.

    Returns:
        The table in Markdown.

    Raises:
        Unknown: There is no such table.
    """
    if name not in MAKERS:
        raise Unknown(f"There is no table {name}; there are {', '.join(sorted(MAKERS))}.")
    return MAKERS[name]()
