"""Options of the commands that read text, which each declares by naming one dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from selfguide.cli.options import spread
from selfguide.cli.text_options import ReadingOptions, RowOptions
from selfguide.errors import UsageError


@dataclass(frozen=True)
class _Two:
    one: int = 1
    two: str = "b"


def test_a_dataclass_stands_for_its_fields() -> None:
    seen: list[Any] = []

    @spread
    def command(name: str, quiet: bool = False, *, both: _Two) -> None:
        """What it does."""
        seen.append((name, quiet, both))

    parameters = inspect.signature(command).parameters
    assert {name: item.default for name, item in parameters.items()} == {
        "name": inspect.Parameter.empty,
        "quiet": False,
        "one": 1,
        "two": "b",
    }
    assert command.__doc__ == "What it does."
    command(name="it", quiet=True, one=2, two="c")
    assert seen == [("it", True, _Two(2, "c"))]


@pytest.mark.parametrize("kind", [RowOptions, ReadingOptions])
def test_what_the_command_line_says_is_how_the_text_is_read(kind: Callable[..., RowOptions]) -> None:
    made = kind(column="1", encoding="latin1", replace_bad_utf8=True).text_options(limit=5)
    assert (made.column, made.encoding, made.on_bad_utf8, made.limit) == ("1", "latin1", "replace", 5)
    assert kind().text_options().on_bad_utf8 == "error"
    with pytest.raises(UsageError, match="header must be one of auto, yes, no"):
        kind(header="perhaps").text_options()


def test_map_reads_text_as_the_other_commands_do(command: Callable[..., Any], tmp_path: Any) -> None:
    (tmp_path / "notes.csv").write_text("id;body\n1;a b\n", encoding="utf-8")
    outcome = command("map", tmp_path / "notes.csv", "--header", "perhaps", "--output", tmp_path / "map.html")
    assert outcome.code == 2
    assert "header must be one of auto, yes, no" in outcome.err
