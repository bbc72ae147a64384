"""The recommended first commands, by what a user starts from."""

from __future__ import annotations

from selfguide.methods.registry import FOR_SMALL_TEXTS

RECOMMENDED: tuple[tuple[str, str], ...] = (
    (
        "A sentence encoder that is good already (all-MiniLM-L6-v2, all-mpnet-base-v2 …)",
        "selfguide adapt notes.txt --encoder sentence-transformers/all-MiniLM-L6-v2",
    ),
    (
        "A raw language model (BERT … or mini, which is inside) and thousands of sentences",
        "selfguide train notes.txt --encoder bert-base-uncased",
    ),
    (
        "A raw language model and some hundreds of sentences",
        f"selfguide train notes.txt --encoder bert-base-uncased --method {FOR_SMALL_TEXTS}",
    ),
)
"""A starting point, and the recommended command for it."""

_PAIRS = (
    "Graded pairs of your own? --dev pairs.tsv lets them choose the weights; `selfguide compare` tries several methods."
)


def newcomer_lines() -> list[str]:
    """Return the recommended choices, for the overview and for the list of methods."""
    lines = ["What do you have, besides a text of one sentence a line?", ""]
    for number, (what, command) in enumerate(RECOMMENDED, 1):
        lines += [f"  {number}. {what}:", f"       {command}"]
    return [*lines, "", _PAIRS, ""]
