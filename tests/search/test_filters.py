"""Conditions: what is true of the rows themselves must be what the index finds, and nothing else may get through."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfguide.errors import UsageError
from selfguide.search.columns import NUMBER, TEXT, TRUTH, WHOLE, Column
from selfguide.search.filters import filter_sql
from selfguide.search.store import Store

COLUMNS = [
    Column("year", "year", WHOLE),
    Column("weight", "weight", NUMBER),
    Column("done", "done", TRUTH),
    Column("Source of it", "column_3", TEXT),
    Column("meta.kind", "column_4", TEXT),
]
ROWS: list[dict[str, Any]] = [
    {"year": 1999 + number, "weight": number / 2, "done": number % 2 == 0, "Source of it": source, "meta.kind": "a.b"}
    for number, source in enumerate(
        ["it's", 'say "so"', "back\\slash", "100%", "a'; DROP TABLE rows; --", "", "%", "été"]
    )
] + [{}]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    found = Store(tmp_path_factory.mktemp("rows"), COLUMNS, 2)
    found.create()
    rows = [(f"row {number}", row, number) for number, row in enumerate(ROWS)]
    found.append(rows, np.ones((len(rows), 2), dtype=np.float32))
    return found


CASES: list[tuple[str, Callable[[dict[str, Any]], bool]]] = [
    ("year >= 2003", lambda row: row.get("year", 0) >= 2003),
    ("year = 2001.5", lambda row: False),
    ("year > 2001.5 and year<=2e3", lambda row: False),
    ("weight<1", lambda row: "weight" in row and row["weight"] < 1),
    ("weight in (0.5, 2)", lambda row: row.get("weight") in (0.5, 2)),
    ("done", lambda row: row.get("done") is True),
    ("not done", lambda row: row.get("done") is False),
    ("DONE = FALSE", lambda row: False),
    ("done != true", lambda row: row.get("done") is False),
    ("`Source of it` = 'it''s'", lambda row: row.get("Source of it") == "it's"),
    ('`Source of it` = "it\'s"', lambda row: row.get("Source of it") == "it's"),
    ("`Source of it` = \"say \"\"so\"\"\"", lambda row: row.get("Source of it") == 'say "so"'),
    ("`Source of it` contains '%'", lambda row: "%" in row.get("Source of it", "")),
    ("`Source of it` starts with 'back\\'", lambda row: row.get("Source of it", "").startswith("back\\")),
    ("`Source of it` in ('été', '%')", lambda row: row.get("Source of it") in ("été", "%")),
    ("`Source of it` not in ('été', '%')", lambda row: "Source of it" in row and row["Source of it"] not in ("été", "%")),
    ("`Source of it` = 'a''; DROP TABLE rows; --'", lambda row: row.get("Source of it", "").startswith("a';")),
    ("`Source of it` = '' or 1=1", lambda row: False),
    ("meta.kind = 'a.b' and (year < 2001 or year > 2004)", lambda row: "year" in row and not 2001 <= row["year"] <= 2004),
    ("year < 2001 or year > 2004 and done", lambda row: "year" in row and (row["year"] < 2001 or row["year"] in (2005,))),
    ("year is missing", lambda row: not row),
    ("year IS NOT NULL", lambda row: bool(row)),
    ("text = 'row 3'", lambda row: row is ROWS[3]),
]  # fmt: skip
WRONG = {"DONE = FALSE", "`Source of it` = '' or 1=1"}


@pytest.mark.parametrize(("condition", "true"), CASES, ids=[case[0] for case in CASES])
def test_a_condition_holds_for_the_rows_that_it_says(
    store: Store, condition: str, true: Callable[[dict[str, Any]], bool]
) -> None:
    if condition in WRONG:  # names of columns are those of the input, and a number is no column
        with pytest.raises(UsageError):
            filter_sql(condition, COLUMNS)
        return
    found = [
        key
        for batch in store.batches("_key", where=filter_sql(condition, COLUMNS))
        for key in batch["_key"].to_pylist()
    ]
    assert found == [number for number, row in enumerate(ROWS) if true(row)]


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("", "it ends: expected the name of a column"),
        (
            "nope = 3",
            "The filter names a column 'nope', and the columns are year, weight, done, Source of it, meta.kind, text.",
        ),
        ("year = 'x'", "'year' holds values of the type whole number"),
        ("year = true", "'year' holds values of the type whole number"),
        ("done contains 'x'", "not text"),
        ("year", "expected a comparison"),
        ("year = ", "it ends: expected a value"),
        ("year in (1, 2", "expected a comma or a closing parenthesis"),
        ("(year = 1", "expected and, or, or a closing parenthesis"),
        ("year = 1 year = 2", "expected and, or, or the end"),
        ("year = 1; drop", "where '; drop' stands, which is no part of a filter"),
        ("meta.kind = 'open", "a quotation mark is not closed"),
        ("year = 1 --", "which is no part of a filter"),
        ("year = 1e999", "too large"),
        ("_key = 3", "The filter names a column '_key'"),
        ("(" * 60 + "year = 1" + ")" * 60, "nested more than 50 deep"),
        ("year = 1 or " * 3000, "longer than 20,000 characters"),
    ],
)
def test_what_is_no_condition_is_refused_in_a_sentence(condition: str, says: str) -> None:
    with pytest.raises(UsageError) as error:
        filter_sql(condition, COLUMNS)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_compared_as_itself(store: Store, text: str) -> None:
    """As a literal, whatever it holds; and as a condition it is either refused or understood, never passed through."""
    text = text.encode("utf-8", "replace").decode()
    sql = filter_sql("`Source of it` = '" + text.replace("'", "''") + "'", COLUMNS)
    assert store.count(sql) == sum(row.get("Source of it") == text for row in ROWS)
    try:
        sql = filter_sql(text, COLUMNS)
    except UsageError:
        return
    store.count(sql)


PIECES = ["`Source of it`", *"year done = < ( ) and or not in is missing 2001 'a' true , contains 1.5".split()]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=9))
def test_whatever_is_accepted_lancedb_takes(store: Store, words: list[str]) -> None:
    try:
        sql = filter_sql(" ".join(words), COLUMNS)
    except UsageError:
        return
    assert 0 <= store.count(sql) <= len(ROWS)


def test_the_types_of_cells_are_found_from_all_of_them(tmp_path: Path) -> None:
    from selfguide.data import Sentences, TextOptions
    from selfguide.progress import Reporter
    from selfguide.search.columns import new_columns
    from selfguide.search.spool import Spool

    table = tmp_path / "rows.csv"
    table.write_text(
        "text,whole,zeros,mixed,number,truth,empty,Date of it\n"
        "the old man sings,1,007,1,1.5,true,,2024-01-02\n"
        "my sister sings too,-20,010,x,2,FALSE,,2024-01-03\n"
        "my sister sings too,-20,010,x,2,FALSE,,2024-01-03\n"
    )
    options = TextOptions(keep_duplicates=True)
    spool = Spool(Sentences([table], options), tmp_path, None, Reporter(quiet=True))
    columns = new_columns(spool.kinds)
    kinds = [(column.name, column.kind) for column in columns]
    names = ["whole", "zeros", "mixed", "number", "truth", "empty", "Date of it"]
    assert kinds == list(zip(names, [WHOLE, TEXT, TEXT, NUMBER, TRUTH, TEXT, TEXT], strict=True))
    rows = list(spool.rows(columns))
    assert [row.text for row in rows] == ["the old man sings", "my sister sings too"]
    values = {"whole": 1, "zeros": "007", "mixed": "1", "number": 1.5, "truth": True, "Date of it": "2024-01-02"}
    assert rows[0].columns == values
    assert rows[1].columns["truth"] is False
    assert [column.stored for column in columns][-1] == "column_6"
