"""Numbers, times and settings formatted for readers."""

from __future__ import annotations

import json
import math
from typing import Any


def number(value: float | None, decimals: int = 2, sign: bool = False) -> str:
    """Format a number with a true minus sign.

    Args:
        value: The number.
        decimals: How many digits follow the point.
        sign: Write a plus before positive numbers, as for differences.

    Returns:
        The number as text; empty where it is missing or not finite.
    """
    if value is None or not math.isfinite(value):
        return ""
    return f"{value:{'+' if sign else ''}.{decimals}f}".replace("-", "−")


def duration(seconds: float) -> str:
    """Format a time in seconds, minutes or hours.

    Args:
        seconds: The time.

    Returns:
        It with its unit, such as ``45 s`` or ``1.5 h``.
    """
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def setting(value: Any) -> str:
    """Format a value of a configuration.

    Args:
        value: The value.

    Returns:
        It as it is shown.
    """
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return f"{value:g}" if isinstance(value, float) else str(value)


def listed(values: dict[str, Any]) -> str:
    """Format settings on one line: ``epochs 2, seed 1``.

    Args:
        values: The settings by name.

    Returns:
        The line.
    """
    return ", ".join(f"{name} {setting(value)}" for name, value in values.items())
