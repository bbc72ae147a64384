"""Refused requests: a status, and a sentence in OpenAI's form."""

from __future__ import annotations

import json

from starlette.responses import Response

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class Refusal(Exception):
    """A refused request, with the error that its client gets.

    Args:
        status: HTTP status.
        message: A sentence that says what is wrong and how to fix it.
        code: An error code for programs.
        parameter: The field of the body that is wrong.
        retry_after: Seconds after which another try makes sense.
    """

    def __init__(
        self, status: int, message: str, *, code: str, parameter: str | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.parameter = status, message, code, parameter
        self.retry_after = retry_after

    def response(self) -> Response:
        """Return the response, in the form of OpenAI's errors."""
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        error = {"message": self.message, "type": kind, "param": self.parameter, "code": self.code}
        headers = {} if self.retry_after is None else {"retry-after": str(self.retry_after)}
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return Response(json.dumps({"error": error}), self.status, headers, "application/json")
