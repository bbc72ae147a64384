"""Domains: train on one text, test on another. Does a text of the test's own domain help, and does a foreign one hurt?

Every method is tuned on each text, on the same number of sampled sentences, and scored on every test set: a matrix, text ×
test set, for each method. A field whose test set is made of the text's own sentences is marked with the same number on its
row and its column. ``mean`` and ``bow`` learn nothing from a text, so they are rows without one.

Texts and test sets are named in :mod:`selfguide.studies.domain_data`; a text may also be anything that ``selfguide train``
reads, and a test set a task or a file of pairs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from selfguide.comparison.texts import NamedText
from selfguide.data import Sentences
from selfguide.files import private_folder
from selfguide.studies.base import FULL, SMALL, Findings, Grid, Measurement, Plan, Setup, Study
from selfguide.studies.context import MeasurementContext
from selfguide.studies.domain_data import DOMAINS, HALVES, PAIRS, TWITTER, own_test, pairs_file, sample_text
from selfguide.studies.outcome import Column, Outcome, Table, TableRow, matrix
from selfguide.studies.specs import known_settings, labels_of
from selfguide.studies.values import Value, difference, mean_value, scores_to_json, value_from_json

UNTUNED = ("mean", "bow")
NONE = "none"
"""In the list of test sets: only the tasks."""
_MARKS = "①②③④⑤⑥⑦⑧⑨"
_CAPTION = (
    "The score on the test set of a column after tuning on the text of a row, with one deviation over seeds; the last rows are "
    "not tuned. Compare within a column."
)
_MARKED = " Where the row and the column have the same number, the test set is made of the text's own sentences."
_OWN = (
    Column("method", "method"),
    Column("test", "test set"),
    Column("text", "its own text"),
    Column("own", "tuned on it"),
    Column("others", "mean of other texts"),
    Column("difference", "difference", sign=True),
)
_OWN_NOTE = "Differences are paired by seed; ± is one deviation over seeds."
Scores = defaultdict[tuple[str, str | None], dict[str, Value | None]]
"""By method and text (None: untuned), the score on each test set."""


class Domains(Study):
    """Texts × test sets, a matrix for each method."""

    name = "domains"
    title = "Texts and test sets"
    question = "Does it matter which text a method is tuned on, and does a text of the test set's own kind help?"
    reference = "Kim, Yoo and Lee, ACL 2021"
    small = replace(SMALL, values={"texts": HALVES, "tests": HALVES, "methods": ("sg-opt", "simcse")})
    full = replace(
        FULL,
        limit=4000,  # the medical questions are the smallest text, with some 4,500 sentences
        values={"texts": tuple(DOMAINS), "tests": tuple(PAIRS), "methods": ("sg-opt", "simcse")},
    )

    def plan(self, setup: Setup) -> Plan:
        """See :meth:`Study.plan`."""
        scale, methods = setup.scale, list(setup.values("methods"))
        scored = {"seeds": list(scale.seeds), "tests": [test for test in setup.values("tests") if test != NONE]}
        settings = known_settings(methods, (*scale.settings, *scale.user_settings))
        tuned = {"methods": methods, "settings": settings, "limit": scale.limit, **scored}
        measurements = [
            Measurement(_key(text), f"{__name__}:tuned_on", {"text": text, **tuned}) for text in self._texts(setup)
        ]
        if scored["tests"]:
            measurements.append(Measurement("untuned-pairs", f"{__name__}:untuned_on_pairs", scored))
        return Plan((Grid("untuned", UNTUNED, "rows without a text"),), tuple(measurements), tuple(methods))

    def outcome(self, findings: Findings) -> Outcome:
        """See :meth:`Study.outcome`."""
        texts, methods = self._texts(findings.setup), labels_of(findings.setup.values("methods"))
        tests, scores = _scores(findings, texts)
        # A mark for each text that has a test set of its own here: text → (test set, mark).
        own = [(text, test) for text in texts if (test := own_test(text)) in tests and test]
        marks = {text: (test, mark) for (text, test), mark in zip(own, _MARKS, strict=False)}
        rows: list[TableRow] = [
            {"method": method, "text": _short(text), **scores[method, text]} for method in methods for text in texts
        ]
        rows += [{"method": method, "text": NONE, **scores[method, None]} for method in UNTUNED]
        columns = [Column("method", "method"), Column("text", "text")]
        columns += [Column(key, title, better="high") for key, title in tests.items()]
        tables = [Table("scores", "Scores by text and test set", columns, rows)]
        own_rows: list[TableRow] = []
        for method in methods:
            for text, test in own:
                value = scores[method, text].get(test)
                others = mean_value([scores[method, other].get(test) for other in texts if other != text])
                row: TableRow = {"method": method, "test": tests[test], "text": text, "own": value, "others": others}
                own_rows.append({**row, "difference": difference(value, others)})
        if own_rows:
            tables.append(Table("own", "The test set's own text against the others", _OWN, own_rows, [_OWN_NOTE]))
        caption = f"{_CAPTION}{_MARKED if marks else ''}"
        of_test, of_text = dict(marks.values()), {text: mark for text, (_, mark) in marks.items()}
        across = {key: f"{title} {of_test.get(key, '')}".strip() for key, title in tests.items()}
        figures = []
        for method in methods:
            down = {f"{_short(text)} {of_text.get(text, '')}".strip(): scores[method, text] for text in texts}
            down |= {f"no text: {label}": scores[label, None] for label in UNTUNED}
            title, axes = f"{method}: text × test set", ("tested on", "tuned on")
            figures.append(matrix(f"matrix-{slug(method)}", title, caption, axes, across, down))
        return Outcome(tables, figures, _notes(findings, texts))

    def _texts(self, setup: Setup) -> list[str]:
        """Return the study's list, and the text that ``--text`` adds to it."""
        named = () if setup.scale.text in (self.small.text, self.full.text) else (setup.scale.text,)
        return list(dict.fromkeys([*setup.values("texts"), *named]))


# -- measuring -----------------------------------------------------------------------------------------------------------


def tuned_on(
    context: MeasurementContext,
    text: str,
    methods: list[str],
    settings: list[str],
    seeds: list[int],
    tests: list[str],
    limit: int | None,
) -> dict[str, Any]:
    """Tune methods × seeds on one text, and score them on every test set.

    Args:
        context: What the study runs on.
        text: Half or domain to tune on.
        methods: The methods.
        settings: Changes of their settings.
        seeds: The seeds.
        tests: The test sets.
        limit: Sentences of the text; ``None``: all.

    Returns:
        The scores, as the study's record keeps them.
    """
    with private_folder("selfguide-domains-") as work:
        sample = sample_text(text, limit, context, work)
        pairs = [*context.pairs, *(pairs_file(test, context, work) for test in tests)]
        rows = {"methods": methods, "settings": settings, "seeds": seeds, "tasks": context.tasks, "pairs": pairs}
        found = context.compare(_key(text), sample.named(), **rows)
    return {"text": sample.name, "sentences": len(sample.sentences), "digest": sample.fingerprint, **found}


def untuned_on_pairs(context: MeasurementContext, seeds: list[int], tests: list[str]) -> dict[str, Any]:
    """Score the rows without a text on the test sets that are not tasks; the grid scores them on the tasks.

    Args:
        context: What the study runs on.
        seeds: Seeds of rows that have some.
        tests: The test sets.

    Returns:
        The scores, as the study's record keeps them.
    """
    with private_folder("selfguide-domains-") as work:
        pairs = [pairs_file(test, context, work) for test in tests]
        text = NamedText(Sentences.from_strings(context.sentences()), ("no text",))
        return context.compare("untuned-pairs", text, methods=UNTUNED, seeds=seeds, tasks="", pairs=pairs)


def _key(text: str) -> str:
    """Return the key of a text's measurement."""
    return f"text-{slug(text)}"


def slug(name: str) -> str:
    """Return a name reduced to what a file name may hold."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", Path(name).name).strip("-.") or "text"


# -- tables and figures --------------------------------------------------------------------------------------------------


def _scores(findings: Findings, texts: Sequence[str]) -> tuple[dict[str, str], Scores]:
    """Return the titles of the test sets (tasks, then pairs, then averages), and the scores."""
    results: list[tuple[str | None, dict[str, Any] | None]] = [(text, findings.results[_key(text)]) for text in texts]
    untuned = scores_to_json(findings.summary("untuned"))
    titles: dict[str, str] = {}
    scores: Scores = defaultdict(dict)
    for text, result in [(None, untuned), *results, (None, findings.results.get("untuned-pairs"))]:
        if result:
            titles |= result["titles"]
            for label, row in result["rows"].items():
                scores[label, text] |= {key: value_from_json(by_seed) for key, by_seed in row["scores"].items()}
    return dict(sorted(titles.items(), key=lambda item: item[0].endswith(" avg"))), scores


def _short(text: str) -> str:
    return text if text.startswith("data:") else Path(text).name


def _notes(findings: Findings, texts: Sequence[str]) -> list[str]:
    counts = [
        f"{_short(text)}: {result['sentences']:,}"
        for text in texts
        if (result := findings.results[_key(text)]) is not None
    ]
    notes = [f"Sentences of each text: {', '.join(counts)}."] if counts else []
    if set(HALVES) & set(texts):
        notes.append(
            "The texts short and long are the halves of the demonstration's sentences by their number of words, and so are "
            "the test sets of these names: nothing in the data says what style a sentence is."
        )
    if "sts" in texts:
        notes.append(
            "The text sts is STS-B's train, dev and test sentences without grades. Thousands of them are in STS12 to STS16 "
            "too, so those test sets are not foreign to it."
        )
    tests = findings.setup.values("tests")
    if set(PAIRS) & set(tests):
        notes.append("mqp and twitter-url have labels 0 and 1: their score is the average precision of cosines × 100.")
    if TWITTER in tests:
        notes.append(
            "twitter-url: a pair is a paraphrase where 4 to 6 of 6 annotators say so; pairs with 3 are left out."
        )
    if findings.setup.scale.dev:
        notes.append(
            "The same dev pairs choose the checkpoints whatever the text, which suits test sets of their kind."
        )
    return notes
