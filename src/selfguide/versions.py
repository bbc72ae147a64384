"""The versions that a result depends on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from selfguide import __version__

_PACKAGES = ("torch", "transformers", "sentence-transformers", "tokenizers", "numpy")


def versions(*more: str) -> dict[str, str]:
    """selfguide, Python and the packages below it; ``more`` names others that matter to the result at hand."""
    found = {"selfguide": __version__, "python": platform.python_version()}
    for name in (*_PACKAGES, *more):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a wheel without its notes: the result is no worse for it
            found[name] = "unknown"
    return found
