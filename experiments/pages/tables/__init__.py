"""Tables of the pages by name."""

from __future__ import annotations

from collections.abc import Callable

from experiments.pages.sources import Unknown
from experiments.pages.tables import (
    adapt,
    centring,
    choosing,
    cone,
    encoders,
    frontier,
    fused,
    main,
    multilingual,
    origins,
    published,
    robustness,
    scale,
    search,
    sentence_encoders,
    speed,
    static,
    studies,
    use,
    views,
)

MAKERS: dict[str, Callable[[], str]] = {
    name: maker
    for part in (
        main,
        published,
        studies,
        fused,
        speed,
        encoders,
        choosing,
        scale,
        search,
        static,
        origins,
        sentence_encoders,
        adapt,
        use,
        centring,
        cone,
        frontier,
        multilingual,
        robustness,
        views,
    )
    for name, maker in part.TABLES.items()
}


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
