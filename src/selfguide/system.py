"""This process and its machine: processor cores, installed packages, debugging, and the time."""

from __future__ import annotations

import os
import time
from importlib.util import find_spec

from selfguide.errors import UsageError


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def debugging() -> bool:
    """Return whether ``SELFGUIDE_DEBUG=1`` asks for tracebacks instead of sentences."""
    return os.environ.get("SELFGUIDE_DEBUG") == "1"


def timestamp() -> str:
    """Return date and time with the time zone, in ISO format, for records."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def require_packages(purpose: str, extra: str, *packages: str) -> None:
    """Check that packages are installed, without importing them.

    Args:
        purpose: What needs them, as the beginning of the error's sentence.
        extra: The extra of selfguide that installs them.
        *packages: Their names as modules.

    Raises:
        UsageError: One is missing.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"{purpose} {' and '.join(missing)}, which is not installed: pip install 'selfguide[{extra}]'."
        )
