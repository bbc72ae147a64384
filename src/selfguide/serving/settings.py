"""The settings of a server."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from selfguide.data.resources import MINI
from selfguide.engine.backends import BACKENDS
from selfguide.errors import SelfguideError, UsageError
from selfguide.options import Above, AtLeast, Between, CheckedOptions, OneOf

LOOPBACK = ("127.0.0.1", "localhost", "::1")
KEY_VARIABLE = "SELFGUIDE_API_KEY"


@dataclass(frozen=True)
class ServeOptions(CheckedOptions):
    """The options of a server that are plain values.

    Raises:
        UsageError: A value breaks its rule.
    """

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Between(0, 65_535)] = 8000
    """Port to listen on; 0 for any that is free."""
    backend: Annotated[str, OneOf(*BACKENDS)] = "torch"
    """As for ``encode``."""
    device: str = "auto"
    """As for ``encode``."""
    normalise: bool = False
    """Scale each vector to length 1."""
    max_length: Annotated[int | None, AtLeast(3)] = None
    """Maximum tokens of an input; ``None`` for the encoder's own."""
    too_long: Annotated[str, OneOf("refuse", "truncate")] = "refuse"
    """How to handle an input with more tokens, unless the request says."""
    max_inputs: Annotated[int, AtLeast(1)] = 2048
    """Maximum inputs of a request."""
    max_batch_tokens: Annotated[int | None, AtLeast(1)] = None
    """Tokens that are computed together; ``None`` chooses by the device."""
    max_waiting: Annotated[int, AtLeast(1)] = 4096
    """Inputs that may be under way at a time, over all requests and encoders."""
    max_body_mb: Annotated[float, Above(0)] = 8.0
    """Maximum size of a request's body."""
    request_timeout: Annotated[float, Above(0)] = 60.0
    """Seconds after which a request is given up."""
    queue_timeout: Annotated[float, Above(0)] = 30.0
    """Seconds after which a request is given up whose computation has not begun."""
    grace: Annotated[float, Above(0)] = 30.0
    """Seconds that requests under way have when the server is stopped."""

    @property
    def max_body(self) -> int:
        """Maximum size of a request's body in bytes."""
        return int(self.max_body_mb * 1_000_000)


@dataclass(frozen=True)
class ServeSettings:
    """All settings of a server.

    Raises:
        UsageError: The options contradict one another.
    """

    encoders: dict[str, str]
    """Name of each encoder in requests, and its folder; the first answers requests that name none."""
    options: ServeOptions = field(default_factory=ServeOptions)
    keys: tuple[str, ...] = ()
    """Requests must carry one of these; none are needed if it is empty."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names under which a server on a loopback address may be reached, such as that of a proxy."""
    map: Path | None = None
    """A page that ``selfguide map`` wrote."""
    index: Path | None = None
    """An index that ``selfguide index`` made with one of the encoders; without ``map``, a map is drawn from it."""

    def __post_init__(self) -> None:
        """Check rules that concern several options."""
        if not self.encoders:
            raise UsageError("Name the encoder to serve: a folder, a hub name, or mini.")
        if self.options.max_inputs > self.options.max_waiting:
            raise UsageError(
                f"A request of --max-inputs {self.options.max_inputs} inputs could never be taken with --max-waiting "
                f"{self.options.max_waiting}: lower the one, or raise the other."
            )
        if self.map is not None and not self.map.is_file():
            raise SelfguideError(f"There is no map at {self.map}: `selfguide map` writes one.")


def named_encoders(words: list[str]) -> dict[str, str]:
    """Return the encoders that the command line names.

    Args:
        words: ``FOLDER`` or ``NAME=FOLDER`` each; the name of a folder is its last part, that of a hub name all of it.

    Returns:
        Name → folder.

    Raises:
        UsageError: Two have one name, or one is not given where its name is.
    """
    found: dict[str, str] = {}
    for word in words:
        name, equals, place = word.partition("=")
        if not equals or "/" in name:
            place, name = word, word if word == MINI or not Path(word).exists() else Path(word).resolve().name
        if not name or not place:
            raise UsageError(f"{word!r} is neither a folder nor NAME=FOLDER.")
        if name in found:
            raise UsageError(f"Two encoders are called {name}: give one of them another name, as in other={place}.")
        found[name] = place
    return found


def read_keys(path: Path | None, variable: str | None) -> tuple[str, ...]:
    """Return the keys that requests may carry.

    Args:
        path: A file with a key a line, or ``None``.
        variable: The value of ``SELFGUIDE_API_KEY``, or ``None``.

    Returns:
        The keys; none if there is neither.

    Raises:
        SelfguideError: The file cannot be read or is empty, or a key has characters that no header can carry.
    """
    lines: list[str] = []
    if path is not None:
        try:
            lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise SelfguideError(f"The keys in {path} cannot be read: {reason}.") from None
        lines = [line for line in lines if line]
        if not lines:
            raise SelfguideError(f"{path} holds no key: write one a line.")
    elif variable is not None:
        lines = [variable.strip()]
        if not lines[0]:
            raise SelfguideError(f"{KEY_VARIABLE} is set but empty: unset it to serve without a key.")
    if any(not key.isascii() or not key.isprintable() or " " in key for key in lines):
        raise SelfguideError("An API key must consist of printable ASCII characters without spaces.")
    return tuple(lines)
