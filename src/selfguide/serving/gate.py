"""What every request passes on its way in and out: host name, API key, metrics, and unexpected errors."""

from __future__ import annotations

import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

from selfguide.serving.admission import Hosts, Keys
from selfguide.serving.refusals import Refusal
from selfguide.serving.state import State

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Probes come without a key, and neither page says anything about text.
_OPEN = ("/health", "/ready", "/", "/docs", "/openapi.json")
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
]


class Gate:
    """Wraps the application.

    Args:
        app: The application.
        state: What the routes share.
    """

    def __init__(self, app: ASGIApp, state: State) -> None:
        self.app, self.state = app, state
        self._keys = Keys(state.settings.keys)
        self._hosts = Hosts(state.options.host, state.settings.allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 0

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", []), *_HEADERS]}
            await send(message)

        try:
            headers = dict(scope["headers"])
            self._hosts.check(headers.get(b"host"))
            if scope["path"] not in _OPEN:
                self._keys.check(headers.get(b"authorization"))
            await self.app(scope, receive, counted)
        except Refusal as refusal:
            await refusal.response()(scope, receive, counted)
        except Exception as error:
            _log(error)  # the route has answered already
        finally:
            route: Any = scope.get("route")
            path = getattr(route, "path", "other")
            self.state.metrics.requests.labels(path, str(status)).inc()
            self.state.metrics.seconds.labels(path).observe(time.perf_counter() - started)


def _log(error: Exception) -> None:
    """Report an unexpected error on standard error by its place, without its message, which might quote a client."""
    places = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-6:]]
    print(f"selfguide: bug: {type(error).__name__} at {' < '.join(reversed(places))}", file=sys.stderr, flush=True)
