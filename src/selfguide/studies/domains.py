"""Domains: train on one text, test on another. Does a text of the test's own kind help, and does a foreign one hurt?

Every method is tuned on each text in turn, on the same number of sentences drawn at random, and scored on every test set. A
method is then a matrix, text × test set; a field whose test set is made of the text's own sentences is marked with the same
number on its row and its column. ``mean`` and ``bow`` learn nothing from a text, so they are rows without one.

The small setting has one text only, the package's own, and nothing in it says what style a sentence is. It is cut in two
by a simple rule, the shorter half of the sentences (in words) and the longer half, and so are the test pairs. That shows how
the study works; short and long are hardly domains.

A text is a name below, or anything that ``selfguide train`` reads; a test set is a task, a name below or a file of pairs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from selfguide.comparison.specs import parse_specs
from selfguide.comparison.summary import AVERAGE, Summary, Value
from selfguide.comparison.texts import DatasetLocator, NamedText
from selfguide.data import Sentences, TextOptions
from selfguide.data.pairs import read_pairs
from selfguide.errors import SelfguideError, UsageError
from selfguide.evaluation.data import data_folder
from selfguide.studies.base import FULL, SMALL, Found, Grid, Measurement, Plan, Setup, Study, grid_folder
from selfguide.studies.measuring import PROTOCOL, Place
from selfguide.studies.outcome import Column, Entry, Figure, Matrix, Outcome, Table, over_seeds
from selfguide.studies.texts import Drawn, Texts

UNTUNED = ("mean", "bow")
NONE = "none"
_MARKS = "①②③④⑤⑥⑦⑧⑨"
_UNDECIDED = 3.0
"""Of six annotators, three said paraphrase: the corpus's own test leaves such pairs out."""


@dataclass(frozen=True)
class Domain:
    """A text of the data folder."""

    sources: tuple[str, ...]
    """Files below the folder, or ``data:TASK``."""
    columns: tuple[str, ...] = ()
    """Columns of sentences, where the files are tables."""
    own: str | None = None
    """The test set that is made of the same sentences."""


_NLI = ("snli.dev", "snli.test", "snli-sample.train", "mnli-sample-en.train", "mnli-taxinli")
DOMAINS = {
    "nli": Domain(tuple(f"nli/{name}.tsv" for name in _NLI), ("1", "2")),
    "sts": Domain(("data:stsb",), own="stsb"),
    "wiki": Domain(("text/wiki1m_for_simcse.head.txt",)),
    "everyday": Domain(("text/commonvoice_en_sentences.txt",)),
    "medical": Domain(("domain/mqp.tsv",), ("1", "2"), "mqp"),
    "tweets": Domain(("domain/twitter-url-test.tsv",), ("1", "2"), "twitter-url"),
}
HALVES = ("short", "long")
"""Halves of the demonstration's sentences and of its test pairs."""
PAIRS = {"mqp": "domain/mqp.tsv", "twitter-url": "domain/twitter-url-test.tsv"}


class Domains(Study):
    """Texts × test sets, a matrix for each method."""

    small = replace(SMALL, values={"texts": HALVES, "tests": HALVES, "methods": ("sg-opt", "simcse")})
    full = replace(
        FULL,
        limit=4000,  # the medical questions are the smallest text, with some 4,500 sentences
        values={"texts": tuple(DOMAINS), "tests": tuple(PAIRS), "methods": ("sg-opt", "simcse")},
    )

    def plan(self, setup: Setup) -> Plan:
        scale, methods = setup.scale, list(setup.values("methods"))
        common = {
            "methods": methods,
            "settings": fitting(methods, (*scale.settings, *scale.asked)),
            "seeds": list(scale.seeds),
            "tests": _tests(setup),
            "limit": scale.limit,
        }
        measurements = [
            Measurement(f"text-{slug(text)}", f"{__name__}:tuned_on", {"text": text, **common})
            for text in self._texts(setup)
        ]
        pairs = {"seeds": common["seeds"], "tests": common["tests"]}
        if pairs["tests"]:
            measurements.append(Measurement("untuned-pairs", f"{__name__}:untuned_on_pairs", pairs))
        return Plan((Grid("untuned", UNTUNED, "rows without a text"),), tuple(measurements), tuple(methods))

    def outcome(self, found: Found) -> Outcome:
        tests = _tests_found(found)
        texts = self._texts(found.setup)
        marks = _marks(texts, list(tests))
        rows = _rows_found(found, texts)
        methods = labels_of(found.setup.values("methods"))
        return Outcome(
            (_scores(rows, methods, texts, tests), *_own_and_others(rows, methods, marks, tests)),
            tuple(_matrix(rows, method, texts, tests, marks) for method in methods),
            _notes(found, texts),
        )

    def _texts(self, setup: Setup) -> list[str]:
        """The study's list, and what ``--text`` names besides."""
        named = () if setup.scale.text in (self.small.text, self.full.text) else (setup.scale.text,)
        return list(dict.fromkeys([*setup.values("texts"), *named]))


# -- what is run ---------------------------------------------------------------------------------------------------------


def tuned_on(
    place: Place,
    text: str,
    methods: list[str],
    settings: list[str],
    seeds: list[int],
    tests: list[str],
    limit: int | None,
) -> dict[str, Any]:
    """Methods × seeds tuned on one text, scored on every test set."""
    with TemporaryDirectory(prefix="selfguide-domains-") as work:
        drawn = _drawn(text, limit, place, Path(work))
        files = [_pairs_file(test, place, Path(work)) for test in tests]
        found = compared(place, f"text-{slug(text)}", drawn.named(), methods, settings, seeds, place.tasks, files)
    return {"text": drawn.name, "sentences": len(drawn.sentences), "digest": drawn.fingerprint, **found}


def untuned_on_pairs(place: Place, seeds: list[int], tests: list[str]) -> dict[str, Any]:
    """The rows without a text on the test sets that are no tasks; the grid has them on the tasks."""
    with TemporaryDirectory(prefix="selfguide-domains-") as work:
        files = [_pairs_file(test, place, Path(work)) for test in tests]
        text = NamedText(Sentences.from_strings(place.sentences()), ("no text",))
        return compared(place, "untuned-pairs", text, list(UNTUNED), [], seeds, "", files, own_pairs=False)


def compared(
    place: Place,
    key: str,
    text: NamedText,
    methods: Sequence[str],
    settings: Sequence[str],
    seeds: Sequence[int],
    tasks: str,
    files: Sequence[Path] = (),
    *,
    own_pairs: bool = True,
) -> dict[str, Any]:
    """A comparison inside a measurement, for texts and test sets that only the data folder can tell; its cells resume."""
    from selfguide.comparison.compare import compare

    found = compare(
        place.encoder,
        text,
        methods,
        seeds,
        tasks,
        pairs=[*(place.pairs if own_pairs else ()), *files],
        dev=place.dev,
        data=place.data,
        settings=settings,
        output=grid_folder(place.output, key),
        jobs=1,
        protocol=PROTOCOL,
        device=place.device,
        batch_size=place.batch_size,
    )
    if found.failed:  # what is finished is kept, and the next run makes the rest
        told = "; ".join(f"{record.label}, seed {record.seed}: {record.error}" for record in found.failed)
        raise SelfguideError(f"{len(found.failed)} of {len(found.records)} cells failed: {told}")
    return plain_scores(found.summary)


def plain_scores(summary: Summary) -> dict[str, Any]:
    """A comparison's scores as JSON holds them: by row, by column, by seed (``once`` where there is none)."""
    return {
        "titles": {column.key: column.title for column in summary.columns if column.key != AVERAGE},
        "rows": {
            row.label: {
                "scores": {
                    key: {
                        "once" if seed is None else str(seed): None if score != score else score
                        for seed, score in value.by_seed.items()
                    }
                    for key, value in row.values.items()
                    if key != AVERAGE
                },
                "steps": row.steps,
                "seconds": round(row.seconds, 2),
            }
            for row in summary.rows
        },
    }


def value_of(by_seed: Mapping[str, float | None]) -> Value | None:
    """A score over seeds, back from :func:`plain_scores`; None where a seed has none."""
    scores = {None if seed == "once" else int(seed): score for seed, score in by_seed.items()}
    known = {seed: score for seed, score in scores.items() if score is not None}
    return over_seeds(known) if known and len(known) == len(scores) else None


def difference(one: Value | None, other: Value | None) -> Value | None:
    """One score less another, paired by seed; what has no seed stands beside every seed of the other."""
    if one is None or other is None:
        return None

    def at(value: Value, seed: int | None) -> float | None:
        return value.by_seed.get(seed, value.by_seed.get(None))

    every = {**one.by_seed, **other.by_seed}
    seeds = [seed for seed in every if seed is not None or len(every) == 1]
    pairs = {seed: (at(one, seed), at(other, seed)) for seed in seeds}
    found = {seed: a - b for seed, (a, b) in pairs.items() if a is not None and b is not None}
    return over_seeds(found) if found else None


def fitting(methods: Sequence[str], settings: Sequence[str]) -> list[str]:
    """The settings that some of the methods know."""
    found = []
    for setting in settings:
        try:
            parse_specs(methods, [setting])
            found.append(setting)
        except UsageError:
            continue
    return found


def labels_of(methods: Sequence[str]) -> list[str]:
    """The rows' names of specs."""
    return [spec.label for spec in parse_specs(methods)]


def slug(name: str) -> str:
    """A name that can be a file's."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", Path(name).name).strip("-.") or "text"


# -- texts and test sets -------------------------------------------------------------------------------------------------


def _drawn(name: str, limit: int | None, place: Place, work: Path) -> Drawn:
    """So many sentences of a text, drawn as every study draws them."""
    texts = Texts(DatasetLocator(place.data))
    if name in HALVES:
        from selfguide.data.resources import demo_sentences

        sentences = _half(demo_sentences(), name, lambda sentence: len(sentence.split()))
        return texts.draw(_written(work / f"{name} demo sentences", sentences), limit)
    if name not in DOMAINS:
        return texts.draw(name, limit)
    domain = DOMAINS[name]
    if not domain.columns and len(domain.sources) == 1:
        source = domain.sources[0]
        return texts.draw(source if source.startswith("data:") else str(_in_data(source, name, place)), limit)
    files = [_in_data(source, name, place) for source in domain.sources]
    columns = [Sentences(files, TextOptions(column=column)) for column in domain.columns]
    return texts.draw(_written(work / f"{name} sentences", [one for column in columns for one in column]), limit)


def _pairs_file(name: str, place: Place, work: Path) -> Path:
    """A test set as a file of pairs, which the evaluation takes: with labels 0 and 1 it scores average precision."""
    if name in HALVES:
        rows = place.rows("demo").parts[0]
        pairs = list(zip(rows.grades or [], rows.first, rows.second or [], strict=True))
        half = _half(pairs, name, lambda pair: len(pair[1].split()) + len(pair[2].split()))
        return _written_pairs(work / f"{name}.tsv", half)
    if name not in PAIRS:
        return Path(name)
    path = _in_data(PAIRS[name], name, place)
    if name != "twitter-url":
        return path
    read = read_pairs(path)
    counted = zip(read.scores, read.first, read.second, strict=True)
    decided = [(float(count > _UNDECIDED), *pair) for count, *pair in counted if count != _UNDECIDED]
    return _written_pairs(work / f"{name}.tsv", decided)


def _half(items: Sequence[Any], name: str, length: Any) -> list[Any]:
    """The shorter or the longer half, in the order of the items."""
    ordered = sorted(range(len(items)), key=lambda place: (length(items[place]), place))
    middle = len(items) // 2
    return [items[place] for place in sorted(ordered[:middle] if name == HALVES[0] else ordered[middle:])]


def _in_data(source: str, name: str, place: Place) -> Path:
    folder = data_folder(place.data)
    if folder is None:
        raise UsageError(f"{name!r} is in a data folder: name one with --data or SELFGUIDE_DATA, or leave it out.")
    if not (folder / source).is_file():
        raise SelfguideError(f"The data folder has no {source}, which {name!r} needs; put it there, or leave it out.")
    return folder / source


def _written(path: Path, sentences: Sequence[str]) -> str:
    """A text file whose name is what the text will be called."""
    path.write_text("".join(sentence + "\n" for sentence in sentences), encoding="utf-8", newline="\n")
    return str(path)


def _written_pairs(path: Path, pairs: Sequence[Sequence[Any]]) -> Path:
    lines = ("\t".join([repr(float(score)), first, second]) + "\n" for score, first, second in pairs)
    path.write_text("".join(lines), encoding="utf-8", newline="\n")
    return path


# -- what it comes to ----------------------------------------------------------------------------------------------------

Rows = dict[tuple[str, str | None], dict[str, Value | None]]
"""By method and text (None: untuned), the score of each test set."""


def _tests(setup: Setup) -> list[str]:
    return [test for test in setup.values("tests") if test != NONE]


def _results(found: Found) -> list[dict[str, Any]]:
    """Every comparison, the untuned rows' grid first."""
    return [plain_scores(found.summary("untuned")), *(result for result in found.results.values() if result)]


def _tests_found(found: Found) -> dict[str, str]:
    """Test sets by key, with their titles; tasks, then pairs, then averages."""
    titles = {key: title for result in _results(found) for key, title in result["titles"].items()}
    averages = [key for key in titles if key.endswith(" avg")]
    return {key: titles[key] for key in [*(key for key in titles if key not in averages), *averages]}


def _rows_found(found: Found, texts: Sequence[str]) -> Rows:
    rows: Rows = {}
    sources: list[tuple[str | None, dict[str, Any] | None]] = [(None, plain_scores(found.summary("untuned")))]
    sources += [(None, found.results.get("untuned-pairs"))]
    sources += [(text, found.results[f"text-{slug(text)}"]) for text in texts]
    for text, result in sources:
        for label, row in result["rows"].items() if result else ():
            scores = {key: value_of(by_seed) for key, by_seed in row["scores"].items()}
            rows[label, text] = rows.get((label, text), {}) | scores
    return rows


def _marks(texts: Sequence[str], tests: Sequence[str]) -> dict[str, tuple[str, str]]:
    """A mark for each text that has a test set of its own here: text → (test set, mark)."""
    own = {text: text if text in HALVES else DOMAINS[text].own for text in texts if text in (*HALVES, *DOMAINS)}
    there = [(text, test) for text, test in own.items() if test in tests]
    return {text: (str(test), mark) for (text, test), mark in zip(there, _MARKS, strict=False)}


def _short(text: str) -> str:
    return text if text.startswith("data:") else Path(text).name


def _scores(rows: Rows, methods: Sequence[str], texts: Sequence[str], tests: Mapping[str, str]) -> Table:
    columns = [Column("method", "method"), Column("text", "text")]
    columns += [Column(key, title, better="high") for key, title in tests.items()]
    named = [(method, text) for method in methods for text in texts] + [(label, None) for label in UNTUNED]
    lines: list[dict[str, Entry]] = [
        {"method": method, "text": "none" if text is None else _short(text), **rows.get((method, text), {})}
        for method, text in named
    ]
    return Table("scores", "Scores by text and test set", tuple(columns), tuple(lines))


def _own_and_others(
    rows: Rows, methods: Sequence[str], marks: Mapping[str, tuple[str, str]], tests: Mapping[str, str]
) -> tuple[Table, ...]:
    """What the text of the test set's own sentences gives beyond the other texts; none where no test set has one."""
    lines: list[dict[str, Entry]] = []
    for method in methods:
        for text, (test, _) in marks.items():
            own = rows.get((method, text), {}).get(test)
            others = [scores.get(test) for (label, name), scores in rows.items() if label == method and name != text]
            lines.append({
                "method": method,
                "test": tests[test],
                "text": text,
                "own": own,
                "others": _mean(others),
                "difference": difference(own, _mean(others)),
            })  # fmt: skip
    columns = (
        Column("method", "method"),
        Column("test", "test set"),
        Column("text", "its own text"),
        Column("own", "tuned on it"),
        Column("others", "mean of other texts"),
        Column("difference", "difference", sign=True),
    )
    note = "Differences are paired by seed; ± is one deviation over seeds."
    return (
        (Table("own", "The test set's own text against the others", columns, tuple(lines), (note,)),) if lines else ()
    )


def _mean(values: Sequence[Value | None]) -> Value | None:
    known = [value for value in values if value is not None]
    seeds = [seed for seed in known[0].by_seed if all(seed in value.by_seed for value in known)] if known else []
    return over_seeds({seed: fmean(value.by_seed[seed] for value in known) for seed in seeds}) if seeds else None


def _matrix(
    rows: Rows,
    method: str,
    texts: Sequence[str],
    tests: Mapping[str, str],
    marks: Mapping[str, tuple[str, str]],
) -> Figure:
    of_test = dict(marks.values())
    of_text = {text: mark for text, (_, mark) in marks.items()}
    named = [(f"{_short(text)} {of_text.get(text, '')}".strip(), rows.get((method, text), {})) for text in texts]
    named += [(f"no text: {label}", rows.get((label, None), {})) for label in UNTUNED]
    marked = " Where the row and the column have the same number, the test set is made of the text's own sentences."
    return Matrix(
        f"matrix-{slug(method)}",
        f"{method}: text × test set",
        "The score on the test set of a column after tuning on the text of a row, with one deviation over seeds; the last "
        "rows are not tuned. Compare within a column." + marked * bool(marks),
        "tested on",
        "tuned on",
        tuple(f"{title} {of_test.get(key, '')}".strip() for key, title in tests.items()),
        tuple(name for name, _ in named),
        tuple(tuple(scores.get(key) for key in tests) for _, scores in named),
    )


def _notes(found: Found, texts: Sequence[str]) -> tuple[str, ...]:
    counts = [
        f"{_short(text)}: {result['sentences']:,}"
        for text in texts
        if (result := found.results[f"text-{slug(text)}"]) is not None
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
    tests = _tests(found.setup)
    if set(PAIRS) & set(tests):
        notes.append("mqp and twitter-url have labels 0 and 1: their score is the average precision of cosines × 100.")
    if "twitter-url" in tests:
        notes.append(
            "twitter-url: a pair is a paraphrase where 4 to 6 of 6 annotators say so; pairs with 3 are left out."
        )
    if found.setup.scale.dev:
        notes.append(
            "The same dev pairs choose the checkpoints whatever the text, which suits test sets of their kind."
        )
    return tuple(notes)
