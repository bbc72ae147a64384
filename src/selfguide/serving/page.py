"""The pages of a server, which load nothing from anywhere else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from starlette.responses import HTMLResponse

from selfguide.report.inlining import csp_hash, environment, resource

if TYPE_CHECKING:
    from selfguide.serving.state import State

_PACKAGE = "selfguide.serving"


def front_page(state: State) -> HTMLResponse:
    """Return the page at ``/``: compare two sentences, search, the map, and how programs use the server.

    Args:
        state: The server.

    Returns:
        The response, whose policy lets nothing run but the page's own script.
    """
    encoders = [
        {
            "name": name,
            "width": encoder.known and encoder.known.width,
            "limit": encoder.known and encoder.known.max_length,
        }
        for name, encoder in state.encoders.items()
    ]
    return _page(
        "front.html.j2",
        script="front.js",
        encoders=encoders,
        key=bool(state.settings.keys),
        measured=sorted(state.scaled_by_index),
        search=state.searcher is not None,
        map=state.map is not None,
        framed=[] if state.map is None else state.map.hashes(),
    )


def api_page(description: dict[str, Any]) -> HTMLResponse:
    """Return the page at ``/docs``: every path with its fields, made of the OpenAPI description.

    Args:
        description: The OpenAPI description.

    Returns:
        The response.
    """
    return _page("api.html.j2", script=None, info=description["info"], operations=list(_operations(description)))


def _operations(description: dict[str, Any]) -> Any:
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            schema = content.get("schema", {})
            required = schema.get("required", [])
            fields = [
                {"name": name, "kind": _kind(found), "needed": name in required, "text": found.get("description", "")}
                for name, found in schema.get("properties", {}).items()
            ]
            answers = operation["responses"].get("200", {}).get("content", {}).get("application/json", {})
            name = answers.get("schema", {}).get("$ref", "").rpartition("/")[2]
            answer = description.get("components", {}).get("schemas", {}).get(name, {})
            yield {
                "method": method.upper(),
                "path": path,
                "text": operation.get("description") or operation.get("summary", ""),
                "fields": fields,
                "answer": list(answer.get("properties", {})),
            }


def _kind(schema: dict[str, Any]) -> str:
    """Return the type of a field in words."""
    if "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        return ", or ".join(_kind(choice) for choice in schema["anyOf"] if choice.get("type") != "null")
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "anything"))


def _page(template: str, script: str | None, framed: Sequence[str] = (), **content: Any) -> HTMLResponse:
    style = resource("style.css") + resource("templates/server.css", _PACKAGE)
    code = resource(f"templates/{script}", _PACKAGE) if script else ""
    page = environment(_PACKAGE).get_template(template).render(style=style, script=code, **content)
    # The map comes as a frame's content and not by an address, since a frame cannot send a key; it is under this policy, too.
    others = "".join(f" '{one}'" for one in framed)
    policy = (
        f"default-src 'none'; style-src '{csp_hash(style)}'{others}; img-src data:; base-uri 'none'; form-action 'none'"
    )
    if script:
        policy += f"; script-src '{csp_hash(code)}'{others}; connect-src 'self'"
    return HTMLResponse(page, headers={"content-security-policy": policy + "; frame-ancestors 'none'"})
