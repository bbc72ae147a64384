"""The table of what earlier results files do not record."""

from __future__ import annotations

from collections.abc import Callable

from experiments.origins import EARLIER


def _earlier() -> str:
    lines = ["| file | it lacks | why |", "|---|---|---|"]
    for path, lacking in EARLIER.items():
        by_reason: dict[str, list[str]] = {}
        for field, reason in lacking.items():
            by_reason.setdefault(reason, []).append(field)
        for reason, fields in by_reason.items():
            lines.append(f"| [{path.removeprefix('experiments/')}](../../{path}) | {', '.join(fields)} | {reason} |")
    return "\n".join(lines)


TABLES: dict[str, Callable[[], str]] = {"origins": _earlier}
