"""Named recipes: what ``--preset`` sets on the commands ``tokenizer`` and ``train``; options given beside it override it."""

from __future__ import annotations

from typing import Any

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    # The embedded encoder's recipe is what the options' defaults are.
    "mini": {"tokenizer": {}, "train": {}},
    # Three languages of very different amounts of text. Square roots (temperature 2) give English half of the tokens instead of
    # two thirds, and let no language be read much more often than the text of `mini` was.
    "multi": {
        "tokenizer": {"vocab": 30_000, "alphabet": 300, "multilingual": True, "temperature": 2.0},
        "train": {
            "temperature": 2.0,
            "minutes": 45.0,
            "decay": 0.5,
            "dropout": 0.1,
            "cls_own": 0.3,
            "cls_next": 0.1,
            "stretch": 8.5,
            "resume": True,
            "size_limit": 0,
        },
    },
}


def defaults(preset: str, command: str) -> dict[str, Any]:
    """Return what a preset sets on a command.

    Args:
        preset: A name of :data:`PRESETS`.
        command: The command.

    Returns:
        Values of options by their names; none for commands that have no preset.
    """
    return PRESETS[preset].get(command, {})
