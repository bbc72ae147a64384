"""Multilingual: tune on English sentences alone, and test in other languages and across two of them.

The encoder must know those languages from its pre-training; an English one has nothing to carry over. Whether it knows them
is read off its word pieces, on the test sets themselves: a language is *foreign* to a vocabulary if more than 5 % of the
pieces are unknown, or if a byte of its text takes over 1.3 times as many pieces as a byte of English. (By bytes, since a
letter of Arabic or Korean takes two or three and says more. Measured with vocabularies of both kinds: English ones need 1.4
to 4.2 times as many pieces, or know few; multilingual ones 0.7 to 1.15 times, and up to 1.5 for a language that they have
read little of.) Of a test set in two languages the stranger side counts. If most test sets are foreign, the study
says so and tunes nothing, unless ``--set force=true``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from selfguide.comparison.summary import Summary, Value
from selfguide.comparison.texts import NamedText
from selfguide.data import Sentences
from selfguide.errors import UsageError
from selfguide.evaluation.tasks import TASKS, tasks_named
from selfguide.studies.base import FULL, SMALL, Found, Grid, Measurement, Plan, Setup, Study
from selfguide.studies.domains import compared, difference, fitting, labels_of, value_of
from selfguide.studies.measuring import Place
from selfguide.studies.outcome import Column, Entry, Figure, Matrix, Outcome, Table, over_seeds

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

UNTUNED = ("cls", "mean")
MINI = "mini"  # as selfguide.models.encoders has it, which imports torch
MOST_UNKNOWN = 0.05
MOST_PIECES = 1.3
_SENTENCES = 2000  # of a side of a test set, and of the English text: pieces are counted well enough on them
_KINDS = {"en": "English", "one": "another language", "two": "two languages"}
_WAY_OUT = (
    "Name a multilingual encoder, such as --encoder bert-base-multilingual-cased or xlm-roberta-base; --set force=true runs "
    "this one all the same."
)


class Multilingual(Study):
    """Methods, tuned on English, × test sets in other languages."""

    small = replace(SMALL, tasks="sts17", values={"methods": ("sg-opt", "simcse"), "force": (False,)})
    full = replace(FULL, tasks="stsb,sts17,stsb-de,stsb-es,korsts", values=small.values)

    def plan(self, setup: Setup) -> Plan:
        scale, methods, force = setup.scale, list(setup.values("methods")), all(setup.values("force"))
        if setup.depth is None:
            raise UsageError(f"{setup.encoder} has no Transformer to tune. {_WAY_OUT}")
        if not scale.pairs and all(kind_of(task.language) == "en" for task in tasks_named(scale.tasks)):
            raise UsageError(f"All test sets of {scale.tasks!r} are in English; name others, as in --tasks sts17.")
        if setup.encoder == MINI and not force:
            raise UsageError(f"The encoder mini knows English only, so there is nothing to carry over. {_WAY_OUT}")
        arguments = {
            "methods": methods,
            "settings": fitting(methods, (*scale.settings, *scale.asked)),
            "seeds": list(scale.seeds),
            "force": force,
        }
        measurements = (
            Measurement("vocabulary", f"{__name__}:vocabulary"),
            Measurement("tuned", f"{__name__}:tuned_in_english", arguments),
        )
        return Plan((Grid("untuned", UNTUNED, "the untuned encoder"),), measurements, tuple(methods))

    def outcome(self, found: Found) -> Outcome:
        tuned, pieces = found.results["tuned"], found.results["vocabulary"]
        if tuned is not None and "refused" in tuned:
            raise UsageError(tuned["refused"])
        summary = found.summary("untuned")
        rows = _rows_found(found, summary, tuned)
        titles = {column.key: column.title for column in summary.columns if not column.average}
        kinds = _kinds(titles)
        return Outcome(
            (_scores(rows, titles, kinds), *_gains(rows, kinds), *_vocabulary_table(pieces)),
            _figures(rows, titles),
            _notes(found, pieces),
        )


def kind_of(language: str) -> str:
    """``en``, ``one`` other language, ``two`` of them, or nothing known."""
    sides = set(language.split("-"))
    if language == "unknown":
        return ""
    return "en" if sides == {"en"} else "one" if len(sides) == 1 else "two"


# -- what is measured ----------------------------------------------------------------------------------------------------


def vocabulary(place: Place) -> dict[str, Any]:
    """How the encoder's word pieces take the test sets that are not in English."""
    encoder = place.load_encoder()
    english, _ = _pieces(encoder, place.sentences()[:_SENTENCES])
    tasks: dict[str, Any] = {}
    for data in place.task_rows():
        if kind_of(data.task.language) == "en":
            continue
        sides = [
            [sentence for part in data.parts for sentence in part.first],
            [sentence for part in data.parts for sentence in part.second or []],
        ]
        counts = [_pieces(encoder, side[:_SENTENCES]) for side in sides if side]
        shares = [(per_byte / english, unknown) for per_byte, unknown in counts]
        pieces, unknown = max(shares, key=lambda share: _strangeness(*share))
        tasks[data.task.name] = {
            "title": data.task.title,
            "language": data.task.language,
            "unknown": unknown,
            "pieces": pieces,
            "foreign": _strangeness(pieces, unknown) > 1,
        }
    return {"tasks": tasks}


def _strangeness(pieces: float, unknown: float) -> float:
    """Above 1 the text is foreign to the vocabulary."""
    return max(pieces / MOST_PIECES, unknown / MOST_UNKNOWN)


def _pieces(encoder: SentenceTransformer, sentences: Sequence[str]) -> tuple[float, float]:
    """Pieces for each byte of text, and the share of them that is unknown."""
    tokenizer = encoder.tokenizer
    pieces = [piece for row in tokenizer(list(sentences), add_special_tokens=False)["input_ids"] for piece in row]
    written = sum(len(sentence.encode()) for sentence in sentences)
    return len(pieces) / max(1, written), sum(piece == tokenizer.unk_token_id for piece in pieces) / max(1, len(pieces))


def tuned_in_english(
    place: Place, methods: list[str], settings: list[str], seeds: list[int], force: bool
) -> dict[str, Any]:
    """Methods × seeds on the English text, scored on every test set; or the sentence that says why not."""
    refused = None if force else _refusal(vocabulary(place)["tasks"])
    if refused is not None:
        return {"refused": refused}
    text = NamedText(Sentences.from_strings(place.sentences()), ("the study's text",))
    return compared(place, "tuned", text, methods, settings, seeds, place.tasks)


def _refusal(tasks: Mapping[str, Mapping[str, Any]]) -> str | None:
    foreign = [task for task in tasks.values() if task["foreign"]]
    if 2 * len(foreign) <= len(tasks):
        return None
    told = ", ".join(
        f"{task['title']} ({100 * task['unknown']:.0f} % of its pieces are unknown, and a byte takes {task['pieces']:.1f} "
        "times as many as one of English)"
        for task in foreign[:2]
    )
    more = f" and {len(foreign) - 2} more" if len(foreign) > 2 else ""
    return f"This encoder's vocabulary does not know the languages of {told}{more}. {_WAY_OUT}"


# -- what it comes to ----------------------------------------------------------------------------------------------------

Rows = dict[str, dict[str, Value | None]]
"""By method, the score of each test set and kind of test set."""


def _rows_found(found: Found, summary: Summary, tuned: Mapping[str, Any] | None) -> Rows:
    rows: Rows = {f"{row.label}, untuned": dict(row.values) for row in summary.rows}
    for label in labels_of(found.setup.values("methods")):
        scores = tuned["rows"][label]["scores"] if tuned else {}
        rows[label] = {key: value_of(by_seed) for key, by_seed in scores.items()}
    for scores in rows.values():
        for kind, names in _kinds(scores).items():
            scores[kind] = _mean([scores[name] for name in names])
    return rows


def _kinds(keys: Mapping[str, Any]) -> dict[str, list[str]]:
    """Test sets by kind of language, kinds that are not here left out."""
    languages = {task.name: task.language for task in TASKS}
    named = {kind: [key for key in keys if kind_of(languages.get(key, "unknown")) == kind] for kind in _KINDS}
    return {kind: names for kind, names in named.items() if names}


def _mean(values: Sequence[Value | None]) -> Value | None:
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    return over_seeds({seed: fmean(value.by_seed[seed] for value in known) for seed in known[0].by_seed})


def _scores(rows: Rows, titles: Mapping[str, str], kinds: Mapping[str, Sequence[str]]) -> Table:
    columns = [Column("method", "method"), *(Column(key, title, better="high") for key, title in titles.items())]
    columns += [Column(kind, f"mean, {_KINDS[kind]}", better="high") for kind in kinds]
    lines: list[dict[str, Entry]] = [{"method": method, **scores} for method, scores in rows.items()]
    return Table("scores", "Scores after tuning on English", tuple(columns), tuple(lines))


def _tuned_gains(rows: Rows) -> dict[str, dict[str, Value | None]]:
    """Tuned rows less the untuned [CLS], by test set and kind."""
    start = rows[f"{UNTUNED[0]}, untuned"]
    tuned = {method: scores for method, scores in rows.items() if not method.endswith(", untuned")}
    return {
        method: {key: difference(value, start.get(key)) for key, value in scores.items()}
        for method, scores in tuned.items()
    }


def _gains(rows: Rows, kinds: Mapping[str, Sequence[str]]) -> tuple[Table, ...]:
    columns = (Column("method", "method"), *(Column(kind, _KINDS[kind], sign=True) for kind in kinds))
    lines: list[dict[str, Entry]] = [
        {"method": method, **{kind: gains.get(kind) for kind in kinds}} for method, gains in _tuned_gains(rows).items()
    ]
    note = "Mean over the test sets of a kind, less the same of the untuned [CLS]; ± is one deviation over seeds."
    return (Table("gains", "What tuning on English gives, by kind of test set", columns, tuple(lines), (note,)),)


def _vocabulary_table(pieces: Mapping[str, Any] | None) -> tuple[Table, ...]:
    if pieces is None:
        return ()
    columns = (
        Column("test", "test set"),
        Column("unknown", "% of pieces unknown", decimals=1),
        Column("pieces", "pieces for a byte, English = 1"),
        Column("foreign", "to this vocabulary"),
    )
    lines: list[dict[str, Entry]] = [
        {
            "test": task["title"],
            "unknown": 100.0 * task["unknown"],
            "pieces": task["pieces"],
            "foreign": "foreign" if task["foreign"] else "known",
        }
        for task in pieces["tasks"].values()
    ]
    note = (
        f"Foreign: over {100 * MOST_UNKNOWN:.0f} % unknown, or over {MOST_PIECES:g} times the pieces; of two languages, the "
        "stranger one counts."
    )
    return (Table("vocabulary", "How the vocabulary takes the languages", columns, tuple(lines), (note,)),)


def _figures(rows: Rows, titles: Mapping[str, str]) -> tuple[Figure, ...]:
    def matrix(key: str, title: str, caption: str, content: Rows) -> Matrix:
        values = tuple(tuple(scores.get(test) for test in titles) for scores in content.values())
        return Matrix(key, title, caption, "test set", "method", tuple(titles.values()), tuple(content), values)

    return (
        matrix(
            "scores",
            "Scores after tuning on English",
            "The score of each method on each test set, with one deviation over seeds.",
            rows,
        ),
        matrix(
            "gains",
            "What tuning on English gives",
            "The score less that of the untuned [CLS] on the same test set: above 0, tuning on English has helped.",
            _tuned_gains(rows),
        ),
    )


def _notes(found: Found, pieces: Mapping[str, Any] | None) -> tuple[str, ...]:
    notes = []
    foreign = [task["title"] for task in pieces["tasks"].values() if task["foreign"]] if pieces else []
    if foreign:
        notes.append(f"This encoder's vocabulary does not know the languages of {', '.join(foreign)}.")
    if found.setup.scale.text == FULL.text:
        notes.append(
            "KorSTS and STS-B de and es are translations of STS-B test, whose English sentences are in the text, without "
            "grades; the checkpoints are chosen by English pairs."
        )
    return tuple(notes)
