"""Render a report: one HTML file, nothing loaded from anywhere, the same bytes for the same content."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jinja2 import Environment

from selfguide.report.figures import svg
from selfguide.report.inlining import csp_hash, environment, resource
from selfguide.report.table import settings_table


def render(
    template: str,
    *,
    title: str,
    kicker: str,
    lead: str,
    facts: Mapping[str, str],
    sections: Mapping[str, tuple[str, Any]],
    **content: Any,
) -> str:
    """Render a report.

    Args:
        template: Which report: ``run``, ``comparison``, ``study`` or ``scores``.
        title: The page's name.
        kicker: What kind of report it is.
        lead: A sentence or two below the title.
        facts: The few numbers that the page begins with.
        sections: By the key of the template's block, the section's heading and what it is about; a section that has nothing
            to show is left out.
        content: What the blocks show.

    Returns:
        The whole file.
    """
    shown = {key: heading for key, (heading, subject) in sections.items() if subject}
    return render_page(template, title=title, kicker=kicker, lead=lead, facts=facts, sections=shown, **content)


def render_page(template: str, *, style: str = "style.css", script: str = "script.js", **content: Any) -> str:
    """Render a page with its style and script inside.

    Args:
        template: Name of the template.
        style: File of the style, in this package.
        script: File of the script.
        content: What the template shows.

    Returns:
        The whole file.
    """
    page = _environment().get_template(f"{template}.html.j2").render(
        style=resource(style), script=resource(script), **content
    )  # fmt: skip
    # A file name in a configuration may hold bytes that are not UTF-8; they become question marks.
    return page.encode("utf-8", "replace").decode("utf-8")


@lru_cache(maxsize=1)
def _environment() -> Environment:
    made = environment("selfguide.report", keep_trailing_newline=True)
    made.filters |= {
        "csp_hash": csp_hash,
        "pretty_json": lambda value: json.dumps(value, indent=2, ensure_ascii=False),
        "settings_table": settings_table,
        "svg": svg,
    }
    made.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    return made
