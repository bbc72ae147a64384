"""The rows of the protocol on encoders that are sentence encoders already, as far as they have been run."""

from __future__ import annotations

from collections.abc import Callable

from experiments.pages.sources import lookup
from experiments.pages.tables.markdown import SET_TITLES, seven, table

TITLES = {"mean": "as it is (mean)", "whitening": "whitening of the mean"}


def minilm_rows() -> str:
    """all-MiniLM-L6-v2, by row.

    Returns:
        The table in Markdown, with the rows that the file has.
    """
    rows = [seven(TITLES.get(name, name), f"sentence-minilm:{name}/values") for name in lookup("sentence-minilm:")]
    return table(" | ".join(["", *SET_TITLES, "average"]), rows)


TABLES: dict[str, Callable[[], str]] = {"sentence-minilm": minilm_rows}
