"""Splitting paragraphs into sentences, by the rules of their language."""

from __future__ import annotations

from selfguide.data.cleaning import MarkedText, Record, Row
from selfguide.errors import SelfguideError


def require_splitter() -> None:
    """Refuse to split where the package that does it is missing.

    Raises:
        SelfguideError: sentencex is not installed.
    """
    try:
        import sentencex  # noqa: F401
    except ImportError:
        raise SelfguideError("Splitting sentences needs the extra split: pip install 'selfguide[split]'") from None


def split_rows(rows: list[Row], language: str) -> list[Row]:
    """Split rows into sentences; blank, missing and bad ones stay one row, so that they are counted.

    Args:
        rows: The rows.
        language: A code of ISO 639-1; sentencex falls back to a related language, and to English.

    Returns:
        The sentences in order; those of a row with replaced bytes are all marked.
    """
    from sentencex import segment

    found: list[Row] = []
    for row in rows:
        if row is None or not row.strip() or (isinstance(row, MarkedText) and (row.bad or row.truncated)):
            found.append(row)
            continue
        sentences = [sentence for sentence in segment(language, str(row)) if sentence.strip()]
        replaced = isinstance(row, MarkedText) and row.replaced
        pieces = (MarkedText(one, replaced=True) if replaced and "\ufffd" in one else one for one in sentences)
        found.extend([Record.of(one, row.columns) for one in pieces] if isinstance(row, Record) else pieces)
    return found
