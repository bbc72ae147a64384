"""Admission of requests: limits on concurrent work, API keys and host names."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from types import TracebackType

from selfguide.serving.refusals import Refusal

# Bodies of the maximum size that may be held at a time.
_BODIES = 16


class Capacity:
    """Counts the inputs and bytes in progress, and refuses requests beyond the limits.

    Args:
        inputs: Maximum number of inputs.
        body: Maximum size of one body in bytes.
    """

    def __init__(self, inputs: int, body: int) -> None:
        self.inputs, self.bytes = inputs, _BODIES * body
        self.taken = 0
        self.held = 0

    def reserve(self) -> Reservation:
        """Return a reservation for a request, which counts as one input from its first byte on."""
        return Reservation(self)


class Reservation:
    """What one request occupies; released when the block ends.

    Args:
        capacity: Where it is counted.
    """

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self._inputs = 0
        self._bytes = 0

    def __enter__(self) -> Reservation:
        """Reserve the first place."""
        self.hold(1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release everything."""
        self._capacity.taken -= self._inputs
        self._capacity.held -= self._bytes

    def hold(self, inputs: int) -> None:
        """Reserve a place for each input, in place of those reserved before.

        Args:
            inputs: Number of inputs.

        Raises:
            Refusal: Too few places are free.
        """
        more = inputs - self._inputs
        if self._capacity.taken + more > self._capacity.inputs:
            raise Refusal(
                429,
                f"The queue is full ({self._capacity.inputs} inputs are under way): try again in a moment.",
                code="queue_full",
                retry_after=1,
            )
        self._capacity.taken += more
        self._inputs = inputs

    def keep(self, size: int) -> None:
        """Reserve space for further bytes of a body.

        Args:
            size: Number of bytes.

        Raises:
            Refusal: Too many large bodies are under way.
        """
        if self._capacity.held + size > self._capacity.bytes:
            message = "Too many large requests are under way: try again in a moment."
            raise Refusal(429, message, code="queue_full", retry_after=1)
        self._capacity.held += size
        self._bytes += size


class Keys:
    """Compares the key of a request with those that are allowed.

    Args:
        keys: The allowed ones; if there are none, every request may pass.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = [key.encode("ascii") for key in keys]

    def __bool__(self) -> bool:
        """Return whether requests need a key."""
        return bool(self._keys)

    def check(self, authorization: bytes | None) -> None:
        """Check the header ``Authorization``.

        Args:
            authorization: Its value.

        Raises:
            Refusal: It holds no key, or another one. How long that takes says nothing about the key.
        """
        if not self._keys:
            return
        scheme, _, given = (authorization or b"").partition(b" ")
        given = given.strip()
        if scheme.lower() != b"bearer" or not given:
            message = "This server needs an API key: send the header Authorization: Bearer KEY."
            raise Refusal(401, message, code="missing_api_key")
        # Every key is compared in full, so that the time does not depend on which one it was.
        if not sum(hmac.compare_digest(given, key) for key in self._keys):
            raise Refusal(401, "The API key is not one that this server knows.", code="invalid_api_key")


class Hosts:
    """Host names that the server answers to.

    A page from anywhere can make a browser send requests to 127.0.0.1 under a name that its owner lets point there. A server
    on a loopback address therefore answers only to the names of that address, and to ``further`` ones.

    Args:
        host: The address that the server listens on.
        further: Further names.
    """

    def __init__(self, host: str, further: Sequence[str] = ()) -> None:
        self._names: set[str] | None = None
        if host in ("localhost", "::1") or host.startswith("127."):
            self._names = {"localhost", "127.0.0.1", "::1", host, *(name.lower() for name in further)}

    def check(self, header: bytes | None) -> None:
        """Check the header ``Host``.

        Args:
            header: Its value.

        Raises:
            Refusal: It is another name.
        """
        if self._names is None:
            return
        name = (header or b"").decode("latin-1").lower()
        name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
        if name not in self._names:
            raise Refusal(
                403,
                "This server listens on a loopback address and answers to localhost only, not to the name in the header Host: "
                "behind a proxy, start it with --allowed-host NAME.",
                code="unknown_host",
            )
