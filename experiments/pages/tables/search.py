"""Tables of the index: queries by the number of rows, and near-duplicates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from experiments.pages.sources import lookup
from experiments.pages.tables.markdown import table


def sizes() -> str:
    """Comparing with every row beside the vector index, by the number of rows."""
    found: list[dict[str, Any]] = lookup("search:steps/sizes/sizes")
    rows = [
        [
            f"{row['rows']:,}",
            f"{row['exact ms']:.1f} ms",
            f"{row['index ms']:.1f} ms",
            f"{row['recall@10']:.3f}",
            f"{row['index seconds']:.1f} s",
        ]
        for row in found
    ]
    return table("rows | every row | vector index | recall@10 | making the vector index", rows)


def queries() -> str:
    """Queries to the whole index, by mode."""
    found: dict[str, Any] = lookup("search:steps/queries")
    titles = {"hybrid": "`hybrid`", "vector": "`vector`", "vector, exact": "`vector`, `--exact`", "text": "`text`"}
    rows = [
        [title, f"{found[name]['median ms']:.0f} ms", f"{found[name]['p95 ms']:.0f} ms"]
        for name, title in titles.items()
    ]
    return table("mode | median | 95 % are below", rows)


def comparisons() -> str:
    """Near-duplicates by the number of rows."""
    found: list[dict[str, Any]] = lookup("search:steps/duplicates/comparisons")
    rows = [
        [
            f"{row['rows']:,}",
            f"{row['rows'] * (row['rows'] - 1) / 2e6:,.0f} million",
            f"{row['seconds']:.0f} s",
            f"{row['peak MB']:,.0f} MB",
            f"{row['threshold']:.2f}",
            f"{row['pairs']:,}",
        ]
        for row in found
    ]
    return table("rows | pairs compared | time | peak memory | cosine of the percentile | pairs above", rows)


TABLES: dict[str, Callable[[], str]] = {
    "search-sizes": sizes,
    "search-queries": queries,
    "search-duplicates": comparisons,
}
