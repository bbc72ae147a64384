"""Pages with their styles and scripts inside: the environment of the templates, and the hashes that a page's policy names."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@lru_cache
def environment(package: str, **options: Any) -> Environment:
    """Return the environment of a package's templates, in which everything is escaped and a missing name is an error.

    Args:
        package: The package with the folder ``templates``.
        **options: Further options of jinja2.

    Returns:
        The environment.
    """
    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        **options,
    )


@lru_cache
def resource(name: str, package: str = "selfguide.report") -> Markup:
    """Return a style or script as it stands in a page.

    Args:
        name: Its path in the package.
        package: The package.

    Returns:
        The content.
    """
    content = resources.files(package).joinpath(*name.split("/")).read_text(encoding="utf-8")
    return Markup("\n" + content.replace("\r\n", "\n"))


def csp_hash(content: str) -> str:
    """Return the hash by which a page's policy names a style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode("utf-8")).digest()).decode("ascii")
