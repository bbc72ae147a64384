"""Options of the commands that read text: how a file becomes sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from selfguide.data import TextOptions


def _option(help: str, **more: Any) -> Any:
    return typer.Option(help=help, rich_help_panel="Text", **more)


@dataclass(frozen=True)
class RowOptions:
    """How the rows of a file are read, for a command that needs each of them."""

    column: Annotated[
        str | None, _option("Column of a csv, tsv or parquet file: a name or a number from 0.", show_default=False)
    ] = None
    field: Annotated[
        str | None, _option("Field of a jsonl file; dots lead into nested objects.", show_default=False)
    ] = None
    header: Annotated[str, _option("Whether the first row of a csv or tsv file is a header: auto, yes or no.")] = "auto"
    delimiter: Annotated[
        str | None,
        _option(
            "What separates cells: a character, or comma, semicolon, tab, pipe, none. Default: found from the first rows.",
            show_default=False,
        ),
    ] = None
    encoding: Annotated[str, _option("Encoding of the text, such as latin1, cp1252 or utf-16.")] = "utf-8"
    replace_bad_utf8: Annotated[bool, _option("Put U+FFFD where the text is not UTF-8 instead of stopping.")] = False

    def text_options(self, **others: Any) -> TextOptions:
        """Return how the text is to be read.

        Args:
            **others: Options that the command decides.

        Returns:
            The options; a value that is not allowed is a ``UsageError``.
        """
        given = vars(self) | others
        replace = given.pop("replace_bad_utf8")
        return TextOptions(**given, on_bad_utf8="replace" if replace else "error")


@dataclass(frozen=True)
class ReadingOptions(RowOptions):
    """How a text is read, for a command that may leave rows out and make several sentences of one."""

    skip_bad_rows: Annotated[
        int,
        _option("Leave out up to N rows that have too many or too few cells, or are not valid CSV or JSON."),
    ] = 0
    split_sentences: Annotated[bool, _option("Split paragraphs into sentences (extra: selfguide[split]).")] = False
    language: Annotated[str, _option("Language of --split-sentences, a code such as en, de or zh.")] = "en"
