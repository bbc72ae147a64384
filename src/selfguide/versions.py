"""Versions of the packages that a result depends on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from selfguide import __version__

_PACKAGES = ("torch", "transformers", "sentence-transformers", "tokenizers", "numpy")


def versions(*more: str) -> dict[str, str]:
    """Return the versions of selfguide, Python and the packages that selfguide builds on.

    Args:
        *more: Other packages that matter to the result at hand.

    Returns:
        Name → version; ``unknown`` where a package has no metadata.
    """
    found = {"selfguide": __version__, "python": platform.python_version()}
    for name in (*_PACKAGES, *more):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found
