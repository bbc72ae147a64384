"""Score static encoders (``selfguide export --to static``) beside the encoders they are made of, and time both.

    SELFGUIDE_DATA=folder python -m experiments.static_encoders --encoders mini all-MiniLM-L6-v2=FOLDER --tune mini \\
        --beside potion-base-8M=FOLDER
    SELFGUIDE_DATA=folder python -m experiments.static_encoders --speed …

For the seven STS sets an encoder is made static on those sentences of STS-B train that occur in none of the seven test sets and
not in STS-B dev (STS-B train shares thousands with the sets of 2012 to 2016, so few are left), and on sentences of Wikipedia and
of Common Voice from the data folder's text/. A file of the data folder's domain/ is divided by
the first sentence of its pairs: the encoder is made static on the sentences of one half that the other half lacks, and scored on
the pairs of the other half. No sentence that is scored has a part in the fit (case and punctuation apart), and no grade is used.
Rows: the encoder itself (left out with ``--static-only``); ``tokens alone``, the first step of a static encoder, which is that of
model2vec; ``static``, what the command writes. ``--tune`` adds encoders that are first tuned on the same text (``--method``, no
dev pairs). Scores are Spearman × 100 of cosine and grade, text as released.

Dimensions, the a of the SIF weights and the fit are compared on STS-B dev (``choice``), from which the command's defaults were
chosen: no test set had a part in it. The file is written after every encoder; the same command goes on with those that it lacks.

``--speed`` times instead: sentences a second of ``SentenceTransformer.encode`` on STS-B's sentences, the better of batches of 32
and 1,024; the median of the rounds after the first.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

import selfguide
from experiments.origins import NONE
from experiments.provenance import RESULTS, command_parser, folder_hash, provenance, text_facts, write
from selfguide.correlation import spearman
from selfguide.data.pairs import Pairs, read_pairs
from selfguide.data.resources import mini_folder
from selfguide.engine.encode import cosine
from selfguide.exporting.static import DIMENSIONS, PENALTIES, SIF_A, Teacher
from selfguide.exporting.static_folder import static_encoder
from selfguide.models.encoders import load_encoder, quiet_libraries
from selfguide.progress import Reporter

GRID = [(128, 1e-3), (256, 1e-3)]
"""Dimensions and a; each with the fit and without."""
STS = "sts"
TEXT, FROM_EACH = ("wiki1m_for_simcse.head.txt", "commonvoice_en_sentences.txt"), 10_000
BATCHES = (32, 1024)


def main() -> None:
    """Measure what is asked for, and write the results file."""
    arguments = _arguments()
    texts = _texts(Path(arguments.data), arguments.limit)
    content: dict[str, Any] = {
        **provenance(
            None,
            text={
                "name": "STS: sentences of STS-B train, Wikipedia, Common Voice that no set has; domain: of one half of "
                "the pairs, that the other half, which is scored, lacks; no grades",
                "sentences": {name: len(text) for name, text in texts.items()},
                "digests": {name: text_facts(name, text)["digest"] for name, text in texts.items()},
            },
            seeds=NONE,
        ),
        "encoders": {name: {"weights": folder_hash(folder)} for name, folder in arguments.encoders},
        "defaults": {"dim": DIMENSIONS, "a": SIF_A, "penalties": PENALTIES},
        "protocol": "Spearman x 100 of cosine, 'all' setting, text as released",
        "method": arguments.method,
        "rehearsal": bool(arguments.limit),
        "rows": [],
        "choice": [],
        "speed": [],
    }
    _take_over(content, arguments.out)
    done = {row["encoder"] for row in [*content["rows"], *content["speed"]]}
    with quiet_libraries():
        for name, folder in arguments.encoders:
            for tune in (False, True):
                label = f"{name}, {arguments.method}" if tune else name
                if label in done or (tune and (name not in arguments.tune or arguments.speed)):
                    continue
                _measure(label, folder, tune, texts, arguments, content)
                _save(arguments.out, content)
        for name, folder in arguments.beside:
            content["encoders"][name] = {"weights": folder_hash(folder)}
            if name in done:
                continue
            encoder = SentenceTransformer(str(folder), device="cpu")
            if arguments.speed:
                _time(content, {name: encoder}, texts[STS], arguments.rounds)
            else:
                for task in texts:
                    _score(content, name, "encoder", task, encoder, arguments)
            _save(arguments.out, content)


def _save(path: Path, content: dict[str, Any]) -> None:
    write(path, {name: value for name, value in content.items() if value != []})


def _take_over(content: dict[str, Any], path: Path) -> None:
    """Take over what a command with the same texts and defaults measured before it was stopped."""
    if not path.exists():
        return
    earlier = json.loads(path.read_text(encoding="utf-8"))
    if any(earlier.get(name) != content[name] for name in ("text", "defaults", "protocol", "method", "rehearsal")):
        return
    for name in ("rows", "choice", "speed"):
        content[name] = earlier.get(name, [])


def _measure(
    label: str,
    folder: Path,
    tune: bool,
    texts: dict[str, list[str]],
    arguments: argparse.Namespace,
    content: dict[str, Any],
) -> None:
    """Score one encoder on every task, and time it."""
    if arguments.speed:
        model = load_encoder(str(folder), device="cpu")
        # The speed of a table does not depend on how well it was fitted.
        table, _ = Teacher.of(model, texts[STS][:500], texts[STS][500:600], Reporter(quiet=True)).table(DIMENSIONS)
        _time(content, {label: model, f"{label}, static": static_encoder(model, table)}, texts[STS], arguments.rounds)
        return
    tokens = None
    for task, text in texts.items():
        if tune:
            limits: dict[str, Any] = {"max_steps": 2} if arguments.limit else {}
            model = selfguide.train(str(folder), text, arguments.method, seed=1, quiet=True, **limits)
        else:
            model = load_encoder(str(folder), device="cpu")
        model = model.to("cpu").eval()
        started = time.monotonic()
        held = text[::20]
        teacher = Teacher.of(
            model, [one for row, one in enumerate(text) if row % 20], held, Reporter(quiet=True), tokens
        )
        tokens = None if tune else teacher.tokens
        table, penalty = teacher.table(DIMENSIONS)
        seconds = time.monotonic() - started
        static = static_encoder(model, table)
        alone = static_encoder(model, teacher.table(DIMENSIONS, penalties=())[0])
        extra = {"seconds to make": round(seconds, 1), "penalty": penalty, "sentences": len(text)}
        if not arguments.static_only:
            _score(content, label, "encoder", task, model, arguments)
        _score(content, label, "tokens alone", task, alone, arguments)
        _score(content, label, "static", task, static, arguments, extra)
        if task == STS:
            _choose(content, label, teacher, model, arguments)


def _choose(
    content: dict[str, Any], label: str, teacher: Teacher, model: SentenceTransformer, arguments: argparse.Namespace
) -> None:
    """Score settings on STS-B dev."""
    pairs = read_pairs(Path(arguments.data) / "sts" / "stsb" / "dev.tsv")
    for (dim, a), fit in product(GRID, (True, False)):
        if dim > teacher.tokens.shape[1]:
            continue
        static = static_encoder(model, teacher.table(dim, a, PENALTIES if fit else ())[0])
        one, other = (static.encode(list(side), batch_size=1024) for side in (pairs.first, pairs.second))
        score = 100 * spearman(cosine(np.asarray(one), np.asarray(other)), pairs.scores)
        content["choice"].append({"encoder": label, "dim": dim, "a": a, "fit": fit, "stsb dev": score})
        print(f"{label:24s} dim {dim} a {a:g} {'fit' if fit else 'tokens alone'}: {score:.2f}", flush=True)


def _score(
    content: dict[str, Any],
    label: str,
    kind: str,
    task: str,
    encoder: SentenceTransformer,
    arguments: argparse.Namespace,
    extra: dict[str, Any] | None = None,
) -> None:
    """Add a row: the seven sets and their average, or one file of pairs."""
    if task == STS:
        found = selfguide.evaluate(encoder, "sts", data=arguments.data, bootstrap=0, batch_size=64)
        scores = {item.task: item.value for item in found.scores}
        scores["average"] = statistics.fmean(scores.values())
    else:
        pairs = _scored_pairs(Path(arguments.data) / "domain" / f"{task}.tsv")
        one, other = (np.asarray(encoder.encode(list(side), batch_size=64)) for side in pairs[:2])
        scores = {"average": 100 * spearman(cosine(one, other), pairs[2])}
    content["rows"].append({"encoder": label, "kind": kind, "task": task, "values": scores, **(extra or {})})
    print(f"{label:24s} {kind:14s} {task:18s} {scores['average']:.2f}", flush=True)


def _time(content: dict[str, Any], encoders: dict[str, SentenceTransformer], text: list[str], rounds: int) -> None:
    """Time encoders in turn, each on as many sentences as take about a second."""
    for label, encoder in encoders.items():
        speeds = {}
        for batch in BATCHES:
            few = text[:512]
            started = time.monotonic()
            encoder.encode(few, batch_size=batch)
            rate = len(few) / (time.monotonic() - started)
            lines = (text * 40)[: max(512, int(2 * rate))]
            found = []
            for _ in range(rounds + 1):
                started = time.monotonic()
                encoder.encode(lines, batch_size=batch)
                found.append(len(lines) / (time.monotonic() - started))
            speeds[batch] = statistics.median(found[1:])
        content["speed"].append(
            {
                "encoder": label,
                "sentences a second": max(speeds.values()),
                "by batch": {str(batch): value for batch, value in speeds.items()},
                "threads": torch.get_num_threads(),
            }
        )
        print(f"{label}: {max(speeds.values()):,.0f} sentences a second", flush=True)


def _texts(data: Path, limit: int) -> dict[str, list[str]]:
    """Return the distinct sentences that encoders are fitted to, by task; none of them is scored."""
    train = read_pairs(data / "sts" / "stsb" / "train.tsv")
    scored = {_bare(one) for file in _sts_files(data) for one in _sides(read_pairs(file))}
    general = [line for name in TEXT for line in (data / "text" / name).read_text("utf-8").splitlines()[:FROM_EACH]]
    found = {STS: [one for one in [*_sides(train), *general] if _bare(one) not in scored]}
    for path in sorted((data / "domain").glob("*.tsv")):
        pairs = read_pairs(path)
        rows, others = _halves(pairs)
        other = {_bare(one) for one in _sides(pairs, others)}
        found[path.stem] = [one for one in _sides(pairs, rows) if _bare(one) not in other]
    return {
        task: list(dict.fromkeys(one for one in text if one.strip()))[: limit or None] for task, text in found.items()
    }


def _sts_files(data: Path) -> list[Path]:
    """Return the files of graded pairs that are scored: all of the seven sets but what is for training."""
    files = sorted((data / "sts").rglob("*.tsv"))
    return [path for path in files if path.stem != "train" and path.parent.name != "sts12_train"]


def _sides(pairs: Pairs, rows: Sequence[int] | None = None) -> list[str]:
    chosen = range(len(pairs.first)) if rows is None else rows
    return [side[row] for side in (pairs.first, pairs.second) for row in chosen]


def _bare(sentence: str) -> str:
    """Return a sentence without case, punctuation and spaces."""
    return re.sub(r"\W+", "", sentence.casefold())


def _halves(pairs: Pairs) -> tuple[list[int], list[int]]:
    """Return the rows of the pairs to fit to and of those to score; pairs with one first sentence stay together."""
    number = {sentence: place for place, sentence in enumerate(dict.fromkeys(pairs.first))}
    halves: tuple[list[int], list[int]] = ([], [])
    for row, sentence in enumerate(pairs.first):
        halves[number[sentence] % 2].append(row)
    return halves


def _scored_pairs(file: Path) -> tuple[list[str], list[str], list[float]]:
    """Return the pairs of a domain's file whose sentences are not those of :func:`_texts`."""
    pairs = read_pairs(file)
    _, rows = _halves(pairs)
    return [pairs.first[row] for row in rows], [pairs.second[row] for row in rows], [pairs.scores[row] for row in rows]


def _named(word: str) -> tuple[str, Path]:
    name, _, folder = word.partition("=")
    return name, Path(folder) if folder else mini_folder()


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("--encoders", nargs="+", type=_named, default=[_named("mini")], help="mini, or NAME=FOLDER")
    parser.add_argument("--beside", nargs="*", type=_named, default=[], help="static encoders of others: NAME=FOLDER")
    parser.add_argument("--tune", nargs="*", default=[], help="names of encoders to tune first as well")
    parser.add_argument("--method", default="fused", help="how they are tuned")
    parser.add_argument("--data", default=os.environ.get("SELFGUIDE_DATA"))
    parser.add_argument("--static-only", action="store_true", help="leave the encoders' own scores out")
    parser.add_argument("--speed", action="store_true", help="time them instead of scoring them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=int, default=0, help="rehearsal: sentences of each text")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    arguments.out = arguments.out or RESULTS / f"static-{'speed' if arguments.speed else 'encoders'}.json"
    if not arguments.data:
        parser.error("set SELFGUIDE_DATA (or --data) to a folder with sts/ and domain/")
    return arguments


if __name__ == "__main__":
    main()
