"""Conditions on the columns of an index: what users write, checked against the columns, and the SQL that it becomes.

    year >= 2020 and (source = 'forum' or not resolved) and title contains 'late' and tag in ('a', 'b') and author is not missing

No user input is passed on verbatim: names are looked up among the columns, literals are read and written again.

=========================================  =================================================================================
``=`` ``!=`` ``<`` ``<=`` ``>`` ``>=``     with a literal: ``'text'`` (a quotation mark inside is doubled), ``12``, ``-0.5``,
                                           ``true``, ``false``
``in (…)``, ``not in (…)``                 one of several literals
``contains``, ``starts with``              for text, with a text; case matters
``is missing``, ``is not missing``         the value is (not) there; ``is null`` is the same
``and``, ``or``, ``not``, ``( )``          as usual; the name of a column of truth values is a condition by itself
=========================================  =================================================================================

A column whose name is not one plain word is written between backticks; ``text`` is the sentence itself. As in SQL, a comparison
is not true where the value is missing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from selfguide.data.messages import listed, shortened
from selfguide.errors import UsageError
from selfguide.search.columns import NUMBER, SENTENCE, TEXT, TRUTH, WHOLE, Column

_LONGEST = 20_000
_DEEPEST = 50
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
      | (?P<number>-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.]))
      | (?P<quoted>`[^`]+`)
      | (?P<name>[^\W\d][\w.]*)
      | (?P<sign><=|>=|!=|<>|==|=|<|>|\(|\)|,)
    )""",
    re.VERBOSE,
)
_COMPARISONS = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_KEYWORDS = ("and", "or", "not", "in", "is", "contains", "starts", "with", "missing", "null", "true", "false")


class _Token(NamedTuple):
    kind: str
    """text, number, name, quoted, sign or end."""
    content: str
    place: int


def filter_sql(condition: str, columns: Sequence[Column]) -> str:
    """Return the SQL of a condition.

    Args:
        condition: What the user wrote.
        columns: The columns of the index.

    Returns:
        SQL that LanceDB takes.

    Raises:
        UsageError: It is no condition, names an unknown column, or compares values of different types.
    """
    if len(condition) > _LONGEST:
        raise UsageError(f"The filter is longer than {_LONGEST:,} characters.")
    parser = _Parser(condition, columns)
    sql = parser.any_of(0)
    parser.expect_end()
    return sql


class _Parser:
    """Reads a condition from left to right, one method for each rule of the grammar."""

    def __init__(self, condition: str, columns: Sequence[Column]) -> None:
        # The sentence itself is called text, and a column of this name cannot be asked for.
        self._columns = {column.name: column for column in columns} | {SENTENCE: Column(SENTENCE, SENTENCE, TEXT)}
        self._tokens = list(_tokens(condition))
        self._next = 0

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._token
        self._next += token.kind != "end"
        return token

    def _met(self, *words: str) -> bool:
        """Take these keywords or signs if they are next."""
        ahead = self._tokens[self._next : self._next + len(words)]
        if [token.content.lower() for token in ahead if token.kind in ("name", "sign")] != list(words):
            return False
        self._next += len(words)
        return True

    def _wrong(self, wanted: str, token: _Token | None = None) -> UsageError:
        token = token or self._token
        found = "it ends" if token.kind == "end" else f"{shortened(token.content)} stands"
        return UsageError(f"The filter is wrong at character {token.place + 1}, where {found}: {wanted}.")

    def expect_end(self) -> None:
        if self._token.kind != "end":
            raise self._wrong("expected and, or, or the end")

    def any_of(self, depth: int) -> str:
        parts = [self._all_of(depth)]
        while self._met("or"):
            parts.append(self._all_of(depth))
        return parts[0] if len(parts) == 1 else "(" + " OR ".join(parts) + ")"

    def _all_of(self, depth: int) -> str:
        parts = [self._single(depth)]
        while self._met("and"):
            parts.append(self._single(depth))
        return parts[0] if len(parts) == 1 else "(" + " AND ".join(parts) + ")"

    def _single(self, depth: int) -> str:
        if depth > _DEEPEST:
            raise UsageError(f"The filter is nested more than {_DEEPEST} deep.")
        if self._met("not"):
            return f"(NOT {self._single(depth + 1)})"
        if self._met("("):
            inner = self.any_of(depth + 1)
            if not self._met(")"):
                raise self._wrong("expected and, or, or a closing parenthesis")
            return inner
        return self._comparison()

    def _comparison(self) -> str:
        column = self._column()
        name = f"`{column.stored}`"
        if self._met("is"):
            there = self._met("not")
            if not (self._met("missing") or self._met("null")):
                raise self._wrong("expected missing, or not missing")
            return f"({name} IS NOT NULL)" if there else f"({name} IS NULL)"
        outside = self._met("not", "in")
        if outside or self._met("in"):
            return f"({name} {'NOT IN' if outside else 'IN'} ({', '.join(self._list(column))}))"
        function = "contains" if self._met("contains") else "starts_with" if self._met("starts", "with") else None
        if function is not None:
            if column.kind != TEXT:
                raise self._wrong(f"{shortened(column.name)} holds values of the type {column.kind}, not text")
            return f"{function}({name}, {self._literal(column)})"
        sign = self._token
        if sign.kind == "sign" and sign.content in _COMPARISONS:
            self._take()
            return f"({name} {_COMPARISONS[sign.content]} {self._literal(column)})"
        if column.kind == TRUTH:
            return f"({name} = true)"
        raise self._wrong("expected a comparison such as = 'text', < 12, in (…), contains 'text' or is missing")

    def _column(self) -> Column:
        token = self._take()
        if token.kind not in ("name", "quoted") or (token.kind == "name" and token.content.lower() in _KEYWORDS):
            raise self._wrong("expected the name of a column", token)
        name = token.content.strip("`") if token.kind == "quoted" else token.content
        if name not in self._columns:
            has = listed(list(self._columns))
            raise UsageError(f"The filter names a column {shortened(name)}, and the columns are {has}.")
        return self._columns[name]

    def _list(self, column: Column) -> list[str]:
        if not self._met("("):
            raise self._wrong("expected values between parentheses, such as ('a', 'b')")
        values = [self._literal(column)]
        while self._met(","):
            values.append(self._literal(column))
        if not self._met(")"):
            raise self._wrong("expected a comma or a closing parenthesis")
        return values

    def _literal(self, column: Column) -> str:
        token = self._take()
        word = token.content.lower() if token.kind == "name" else ""
        kind = TEXT if token.kind == "text" else NUMBER if token.kind == "number" else None
        kind = TRUTH if word in ("true", "false") else kind
        if kind is None:
            raise self._wrong("expected a value: 'text' between quotation marks, a number, true or false", token)
        if kind == TEXT == column.kind:
            mark = token.content[0]
            text = token.content[1:-1].replace(2 * mark, mark)
            return "'" + text.replace("'", "''") + "'"
        if kind == TRUTH == column.kind:
            return word
        if kind == NUMBER and column.kind in (WHOLE, NUMBER):
            return _number(token.content, column.kind)
        raise self._wrong(f"{shortened(column.name)} holds values of the type {column.kind}", token)


def _number(word: str, kind: str) -> str:
    """Return a number as SQL; a fraction is compared with whole numbers as a number."""
    value = float(word)
    if value in (float("inf"), float("-inf")):
        raise UsageError(f"The filter has a number that is too large: {shortened(word, quote=False)}.")
    if kind == WHOLE and re.fullmatch(r"-?[0-9]{1,18}", word):
        return str(int(word))
    return f"CAST({value!r} AS DOUBLE)"


def _tokens(condition: str) -> list[_Token]:
    found: list[_Token] = []
    place, end = 0, len(condition.rstrip())
    while place < end:
        match = _TOKEN.match(condition, place)
        if match is None or match.lastgroup is None:
            start = place + len(condition[place:]) - len(condition[place:].lstrip())
            shown = shortened(condition[start : start + 12])
            hint = (
                ": a quotation mark is not closed" if condition[start] in "'\"`" else ", which is no part of a filter"
            )
            raise UsageError(f"The filter is wrong at character {start + 1}, where {shown} stands{hint}.")
        found.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
        place = match.end()
    return [*found, _Token("end", "", end)]
