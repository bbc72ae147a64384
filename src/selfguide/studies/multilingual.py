"""Multilingual: tune on English sentences alone, and test in other languages and across two of them.

The encoder must know those languages from its pre-training; an English one has nothing to carry over. Whether it knows them
is measured by its tokenizer on the test sets themselves: a language is *foreign* to a vocabulary if more than 5 % of the
tokens are unknown, or if a byte of its text takes over 1.3 times as many tokens as a byte of English. (By bytes, since a
letter of Arabic or Korean takes two or three and says more. Measured with vocabularies of both kinds: English ones need 1.4
to 4.2 times as many tokens, or know few; multilingual ones 0.7 to 1.15 times, and up to 1.5 for a language of which they have
read little.) Of a test set in two languages the more foreign side counts. If most test sets are foreign, the study says so
and tunes nothing, unless ``--set force=true``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from selfguide.comparison.summary import Summary
from selfguide.comparison.texts import NamedText
from selfguide.data import Sentences
from selfguide.data.resources import MINI
from selfguide.engine.vocabulary_fit import MOST_PIECES, MOST_UNKNOWN, VocabularyFit, vocabulary_fit
from selfguide.errors import UsageError
from selfguide.evaluation.tasks import TASKS, tasks_named
from selfguide.studies.base import FULL, SMALL, Findings, Grid, Measurement, Plan, Setup, Study
from selfguide.studies.context import GradedPairs, MeasurementContext
from selfguide.studies.outcome import UNTUNED, Column, Outcome, Table, TableRow, matrix
from selfguide.studies.specs import known_settings, labels_of
from selfguide.studies.values import Value, difference, mean_value, value_from_json

_SENTENCES = 2000  # of each side of a test set, and of the English text: enough to count tokens
_KINDS = {"en": "English", "one": "another language", "two": "two languages"}
_ADVICE = (
    "Name a multilingual encoder, such as --encoder bert-base-multilingual-cased or xlm-roberta-base; --set force=true runs "
    "this one all the same."
)
_SCORE_CAPTION = "The score of each method on each test set, with one deviation over seeds."
_GAIN_CAPTION = "The score less that of the untuned [CLS] on the same test set: above 0, tuning on English has helped."
_GAIN_NOTE = "Mean over the test sets of a kind, less the same of the untuned [CLS]; ± is one deviation over seeds."
_TRANSLATED = (
    "KorSTS and STS-B de and es are translations of STS-B test, whose English sentences are in the text, without grades; the "
    "checkpoints are chosen by English pairs."
)
Rows = dict[str, dict[str, Value | None]]
"""By method, the score of each test set and kind of test set."""


class Multilingual(Study):
    """Methods, tuned on English, × test sets in other languages."""

    name = "multilingual"
    title = "Other languages"
    question = "Does tuning on English sentences help in other languages?"
    needs = "a multilingual encoder"
    small = replace(SMALL, tasks="sts17", values={"methods": ("sg-opt", "simcse"), "force": (False,)})
    full = replace(FULL, tasks="stsb,sts17,stsb-de,stsb-es,korsts", values=small.values)

    def plan(self, setup: Setup) -> Plan:
        """See :meth:`Study.plan`."""
        scale, methods, force = setup.scale, list(setup.values("methods")), bool(setup.value("force"))
        if setup.depth is None:
            raise UsageError(f"{setup.encoder} has no Transformer to tune. {_ADVICE}")
        if not scale.pairs and all(kind_of(task.language) == "en" for task in tasks_named(scale.tasks)):
            raise UsageError(f"All test sets of {scale.tasks!r} are in English; name others, as in --tasks sts17.")
        if setup.encoder == MINI and not force:
            raise UsageError(f"The encoder mini knows English only, so there is nothing to carry over. {_ADVICE}")
        arguments = {
            "methods": methods,
            "settings": known_settings(methods, (*scale.settings, *scale.user_settings)),
            "seeds": list(scale.seeds),
            "force": force,
        }
        measurements = (
            Measurement("vocabulary", f"{__name__}:vocabulary"),
            Measurement("tuned", f"{__name__}:tuned_in_english", arguments),
        )
        grid = Grid("untuned", tuple(UNTUNED), "the untuned encoder")
        return Plan((grid,), measurements, tuple(methods))

    def outcome(self, findings: Findings) -> Outcome:
        """See :meth:`Study.outcome`."""
        tuned, pieces = findings.results["tuned"], findings.results["vocabulary"]
        if tuned is not None and "refused" in tuned:
            raise UsageError(tuned["refused"])
        summary = findings.summary("untuned")
        tests = {column.key: column.title for column in summary.columns if not column.average}
        kinds = {kind: _KINDS[kind] for kind in _by_kind(tests)}
        scores = _scores(labels_of(findings.setup.values("methods")), summary, tuned)
        base = scores["cls, untuned"]
        gains: Rows = {
            method: {key: difference(value, base.get(key)) for key, value in row.items()}
            for method, row in scores.items()
            if not method.endswith(", untuned")
        }
        method = Column("method", "method")
        columns = [method, *(Column(key, title, better="high") for key, title in tests.items())]
        columns += [Column(kind, f"mean, {title}", better="high") for kind, title in kinds.items()]
        rows: list[TableRow] = [{"method": label, **row} for label, row in scores.items()]
        gain_columns = [method, *(Column(kind, title, sign=True) for kind, title in kinds.items())]
        gain_rows: list[TableRow] = [
            {"method": m, **{kind: row.get(kind) for kind in kinds}} for m, row in gains.items()
        ]
        tables = [
            Table("scores", "Scores after tuning on English", columns, rows),
            Table("gains", "What tuning on English gives, by kind of test set", gain_columns, gain_rows, [_GAIN_NOTE]),
            *([_vocabulary_table(pieces)] if pieces else []),
        ]
        axes = ("test set", "method")
        figures = [
            matrix("scores", "Scores after tuning on English", _SCORE_CAPTION, axes, tests, scores),
            matrix("gains", "What tuning on English gives", _GAIN_CAPTION, axes, tests, gains),
        ]
        foreign = [task["title"] for task in pieces["tasks"].values() if task["foreign"]] if pieces else []
        known = f"This encoder's vocabulary does not know the languages of {', '.join(foreign)}."
        notes = [known] * bool(foreign) + [_TRANSLATED] * (findings.setup.scale.text == FULL.text)
        return Outcome(tables, figures, notes)


def kind_of(language: str) -> str:
    """Return ``en``, ``one`` for another language, ``two`` for two of them, or ``""`` where it is not known."""
    sides = set(language.split("-"))
    if language == "unknown":
        return ""
    return "en" if sides == {"en"} else "one" if len(sides) == 1 else "two"


# -- measuring -----------------------------------------------------------------------------------------------------------


def vocabulary(context: MeasurementContext) -> dict[str, Any]:
    """Measure how the encoder's tokenizer splits the test sets that are not in English.

    Args:
        context: What the study runs on.

    Returns:
        By set, the share of unknown tokens and how many times as many tokens a byte takes as in English.
    """
    tokenizer = context.load_encoder().tokenizer
    english = context.sentences()[:_SENTENCES]
    tasks: dict[str, Any] = {}
    for data in context.task_rows():
        if kind_of(data.task.language) == "en":
            continue
        pairs = GradedPairs.of(data)
        sides = (vocabulary_fit(tokenizer, side[:_SENTENCES], english) for side in (pairs.first, pairs.second) if side)
        fit = max((side for side in sides if side is not None), key=lambda side: side.foreignness)
        tasks[data.task.name] = {
            "title": data.task.title,
            "language": data.task.language,
            "unknown": fit.unknown,
            "pieces": fit.pieces,
            "foreign": fit.foreignness > 1,
        }
    return {"tasks": tasks}


def tuned_in_english(
    context: MeasurementContext, methods: list[str], settings: list[str], seeds: list[int], force: bool
) -> dict[str, Any]:
    """Tune methods × seeds on the English text and score them on every test set, or return why not.

    Args:
        context: What the study runs on.
        methods: The methods.
        settings: Changes of their settings.
        seeds: The seeds.
        force: Tune although the tokenizer does not know the languages.

    Returns:
        The scores, or the reason, as the study's record keeps them.
    """
    refused = None if force else _refusal(vocabulary(context)["tasks"])
    if refused is not None:
        return {"refused": refused}
    text = NamedText(Sentences.from_strings(context.sentences()), ("the study's text",))
    rows = {"methods": methods, "settings": settings, "seeds": seeds, "tasks": context.tasks, "pairs": context.pairs}
    return context.compare("tuned", text, **rows)


def _refusal(tasks: Mapping[str, Mapping[str, Any]]) -> str | None:
    foreign = [task for task in tasks.values() if task["foreign"]]
    if 2 * len(foreign) <= len(tasks):
        return None
    reasons = ", ".join(
        f"{task['title']} ({VocabularyFit(task['pieces'], task['unknown']).describe()})" for task in foreign[:2]
    )
    more = f" and {len(foreign) - 2} more" if len(foreign) > 2 else ""
    return f"This encoder's vocabulary does not know the languages of {reasons}{more}. {_ADVICE}"


# -- tables and figures --------------------------------------------------------------------------------------------------


def _scores(methods: Sequence[str], summary: Summary, tuned: Mapping[str, Any] | None) -> Rows:
    rows: Rows = {f"{row.label}, untuned": dict(row.values) for row in summary.rows}
    for label in methods:
        scores = tuned["rows"][label]["scores"] if tuned else {}
        rows[label] = {key: value_from_json(by_seed) for key, by_seed in scores.items()}
    for row in rows.values():
        for kind, tests in _by_kind(row).items():
            values = [row[test] for test in tests]
            row[kind] = None if None in values else mean_value(values)
    return rows


def _by_kind(tests: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the test sets by kind of language, without empty kinds."""
    languages = {task.name: task.language for task in TASKS}
    found = {kind: [test for test in tests if kind_of(languages.get(test, "unknown")) == kind] for kind in _KINDS}
    return {kind: names for kind, names in found.items() if names}


def _vocabulary_table(pieces: Mapping[str, Any]) -> Table:
    columns = [
        Column("test", "test set"),
        Column("unknown", "% of tokens unknown", decimals=1),
        Column("pieces", "tokens per byte, English = 1"),
        Column("foreign", "to this vocabulary"),
    ]
    rows: list[TableRow] = []
    for task in pieces["tasks"].values():
        row: TableRow = {"test": task["title"], "unknown": 100.0 * task["unknown"], "pieces": task["pieces"]}
        rows.append({**row, "foreign": "foreign" if task["foreign"] else "known"})
    note = (
        f"Foreign: over {100 * MOST_UNKNOWN:.0f} % unknown, or over {MOST_PIECES:g} times the tokens; of two languages, the "
        "more foreign one counts."
    )
    return Table("vocabulary", "How the vocabulary covers the languages", columns, rows, [note])
