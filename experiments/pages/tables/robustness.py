"""Tables of the campaigns that kill commands, break their disk, damage their files and feed them nonsense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from experiments.pages.sources import lookup
from experiments.pages.tables.markdown import table


def kills() -> str:
    """Kills by command and by moment."""
    return f"{_counts('kills', 'command')}\n\n{_counts('kills', 'where', 'moment')}"


def together() -> str:
    """Two at once by command, and what came of the second."""
    noticed: dict[str, int] = lookup("robustness:campaigns/together/noticed")
    ends = table("what came of it | cases", [[name, f"{count:,}"] for name, count in noticed.items()])
    return f"{_counts('together', 'command')}\n\n{ends}"


def faults() -> str:
    """Failing calls by kind and by command."""
    return f"{_counts('faults', 'fault')}\n\n{_counts('faults', 'command')}"


def damage() -> str:
    """Damaged files by what they are, by damage, and what came of it."""
    noticed: dict[str, int] = lookup("robustness:campaigns/damage/noticed")
    ends = table("what came of it | cases", [[name, f"{count:,}"] for name, count in noticed.items()])
    return f"{_counts('damage', 'kind', 'file')}\n\n{_counts('damage', 'damage')}\n\n{ends}"


def fuzz() -> str:
    """Nonsense by kind, and the exit codes."""
    codes: dict[str, int] = lookup("robustness:campaigns/fuzz/codes")
    ends = table("exit code | cases", [[code, f"{count:,}"] for code, count in codes.items()])
    return f"{_counts('fuzz', 'kind', 'input')}\n\n{ends}"


def _counts(campaign: str, kind: str, title: str = "") -> str:
    found: dict[str, Any] = lookup(f"robustness:campaigns/{campaign}")
    rows = [[name, f"{row['cases']:,}", f"{row['defects']:,}"] for name, row in found[f"by_{kind}"].items()]
    rows.append(["all", f"{found['cases']:,}", f"{found['defects']:,}"])
    return table(f"{title or kind} | cases | not as it should be", rows)


TABLES: dict[str, Callable[[], str]] = {
    "robustness-kills": kills,
    "robustness-together": together,
    "robustness-faults": faults,
    "robustness-damage": damage,
    "robustness-fuzz": fuzz,
}
