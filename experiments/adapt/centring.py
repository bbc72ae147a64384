"""Centring a sentence encoder on a text: what it gains on the text's own pairs, and what it loses elsewhere.

    SELFGUIDE_DATA=folder python -m experiments.adapt.centring --list development --encoder all-MiniLM-L6-v2=FOLDER
    SELFGUIDE_DATA=folder python -m experiments.adapt.centring --list report --encoder all-MiniLM-L6-v2=FOLDER --also sts \
        --seeds 1 2 3 4 5
    SELFGUIDE_DATA=folder python -m experiments.adapt.centring --texts forums --pairs 40 --sizes 20 --seeds 1 --instead template \
        --work /tmp/work --out /tmp/centring.json                                                      # rehearsal

Nothing is trained, so an encoder reads every sentence once, and a centred encoder is a function of those embeddings. That it is
the function that ``selfguide adapt`` saves is tested in tests/experiments. A cell is an encoder and a text, with all seeds,
shares, sizes and unhelpful texts; its file in ``--work`` is kept, so that the same command continues.
Everything may be chosen on the development list, nothing on the report list.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import selfguide
from experiments.adapt.cell import Remembering
from experiments.adapt.judges import Judge
from experiments.adapt.run import LISTS, named_encoder
from experiments.adapt.scores import Vectors
from experiments.adapt.summary import paired, spread
from experiments.adapt.unhelpful import KINDS, unhelpful_text
from experiments.provenance import (
    RESULTS,
    command_parser,
    device_name,
    folder_hash,
    provenance,
    text_facts,
    write,
    write_part,
)
from selfguide.calibration.centring import mean_cosine, one_sidedness
from selfguide.calibration.linear_maps import LinearMap, whitening_map
from selfguide.calibration.moments import Moments
from selfguide.calibration.spread import LEAST_COSINE, MOST_COMMON, general_sentences
from selfguide.files import read_json
from selfguide.methods.adapt import SAMPLE, AdaptOptions

PROTOCOL = (
    "own: Spearman x 100 of cosine and grade on the text's own pairs, or the task's main metric x 100; gain: over the encoder as "
    "it is; rule: the gain of what selfguide adapt keeps without dev pairs; elsewhere: change of the mean of the seven STS sets"
)
SHARES = (0.25, 0.5, 0.75, 1.0)
TASK_SHARES = (0.5, 1.0)
"""Shares for what is costly to score, for samples and for unhelpful texts."""
DEFAULT_SHARE = f"{AdaptOptions().centring:g}"
WHITENING = (0.1, 0.25)
"""Exponents of whitening, which is fitted on all sentences of the text; 0.5 would whiten, and needs more of them."""
ALLOWED = -0.5

Encode = Callable[[Sequence[str]], Vectors]


def main() -> None:
    """Run the cells that are missing, and write the results file."""
    arguments = _arguments()
    encoders = dict(named_encoder(item) for item in arguments.encoder)
    rows = []
    for name, folder in encoders.items():
        encode = Remembering(selfguide.load_encoder(folder).eval(), arguments.precision)
        cone = mean_cosine(_unit(encode(general_sentences())))
        paths = {text: arguments.work / f"{name}.{text}.json" for text in arguments.texts}
        missing = [text for text, path in paths.items() if not path.is_file()]
        if missing and not arguments.collect:
            for text in missing:
                found = cell(encode, Judge(text, Path(arguments.data), arguments.pairs, "none"), arguments)
                write_part(paths[text], {"encoder": name, "text": text, **found})
                print(name, text, {key: round(found[key], 2) for key in ("own", "common", "cosine")}, flush=True)
        found_rows = [{**read_json(path), "general": cone} for path in paths.values() if path.is_file()]
        rows += [{**row, "rule": gain_of_rule(row)} for row in found_rows]
    texts = {row["text"]: row["digest"] for row in rows}
    content = {
        **provenance(None, text={"name": "by cell", "digests": texts}, seeds=arguments.seeds),
        "encoders": {name: folder_hash(path) for name, path in encoders.items()},
        "list": arguments.list,
        "protocol": PROTOCOL,
        "bounds": [LEAST_COSINE, MOST_COMMON],
        "share": DEFAULT_SHARE,
        **{name: getattr(arguments, name) for name in ("also", "pairs", "precision", "sizes", "instead")},
        "missing": [
            f"{name}, {text}"
            for name in encoders
            for text in arguments.texts
            if not any((row["encoder"], row["text"]) == (name, text) for row in rows)
        ],
        "cells": rows,
        "summary": {name: summary([row for row in rows if row["encoder"] == name]) for name in encoders},
    }
    write(arguments.out, content)
    for name, found in content["summary"].items():
        print(name, {key: value for key, value in found.items() if key in ("rule", "held out")})


def cell(encode: Remembering, judge: Judge, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure one text.

    Args:
        encode: The encoder as it is.
        judge: The text, and what scores an encoder on it.
        arguments: Seeds, sizes, unhelpful texts, and whether the STS sets are scored.

    Returns:
        The score as it is, and gains by share, by exponent of whitening, by size and by unhelpful text.
    """
    unit: Encode = lambda sentences: _unit(encode(sentences))  # noqa: E731
    general = unit(general_sentences())
    data = Path(arguments.data)
    before = judge.scores(unit)["own"]
    elsewhere = seven_sts(unit, data) if arguments.also == "sts" else None

    def gains(sentences: Sequence[str], seed: int, every: bool = True) -> dict[str, Any]:
        drawn = drawn_sentences(sentences, seed)
        vectors = unit(drawn)
        mean, common = vectors.mean(axis=0, dtype=np.float64), one_sidedness(vectors, general)
        shares = SHARES if every and judge.pairs is not None else TASK_SHARES
        found: dict[str, Any] = {
            "common": common,
            "cosine": mean_cosine(vectors),
            "shares": {f"{share:g}": judge.scores(moved(unit, mean, share))["own"] - before for share in shares},
        }
        if elsewhere is not None and every and seed == arguments.seeds[0]:
            found["elsewhere"] = {
                f"{share:g}": seven_sts(moved(unit, mean, share), data) - elsewhere for share in TASK_SHARES
            }
        return found

    # A task takes minutes to score, and its mean hardly depends on the seed.
    seeds = arguments.seeds if judge.pairs is not None else arguments.seeds[:1]
    own = {str(seed): gains(judge.sentences, seed) for seed in seeds}
    first = next(iter(own.values()))
    moments = Moments.of(unit(judge.sentences)) if judge.pairs is not None else None
    return {
        "digest": text_facts(judge.name, judge.sentences)["digest"],
        "sentences": len(judge.sentences),
        "device": device_name(),
        "own": before,
        "sts": elsewhere,
        "common": first["common"],
        "cosine": first["cosine"],
        "seeds": own,
        "whitening": {
            f"{exponent:g}": judge.scores(mapped(unit, whitening_map(moments, 0, 0.0, exponent)))["own"] - before
            for exponent in WHITENING
            if moments is not None
        },
        "sizes": {
            str(size): {str(seed): gains(_some(judge.sentences, size, seed), seed, False) for seed in seeds}
            for size in arguments.sizes
            if size < len(judge.sentences)
        },
        "instead": {
            kind: gains(unhelpful_text(kind, judge.sentences, data, arguments.seeds[0]), arguments.seeds[0], False)
            for kind in arguments.instead
        },
    }


def ruled(row: Mapping[str, Any], found: Mapping[str, Any]) -> float:
    """Return what ``selfguide adapt`` gains by what was measured on a text: 0 where it gives the encoder back as it was."""
    cone = min(row["general"], found["cosine"]) >= LEAST_COSINE
    return float(found["shares"][DEFAULT_SHARE]) if cone and found["common"] <= MOST_COMMON else 0.0


def gain_of_rule(row: Mapping[str, Any]) -> float:
    """Return the mean gain of ``selfguide adapt`` over the seeds of a cell."""
    return statistics.fmean(ruled(row, found) for found in row["seeds"].values())


def moved(unit: Encode, mean: Vectors, share: float) -> Encode:
    """Return the encoder that is centred by a share of a mean, as :func:`selfguide.calibration.centring.centred` saves it."""
    return lambda sentences: _unit(unit(sentences) - (share * mean).astype(np.float32))


def mapped(unit: Encode, linear: LinearMap) -> Encode:
    """Return the encoder with a linear map on top."""
    return lambda sentences: _unit((unit(sentences) @ linear.weight.T + linear.bias).astype(np.float32))


def seven_sts(encode: Encode, data: Path) -> float:
    """Return the mean of the seven STS sets."""
    scores = selfguide.evaluate(encode, "sts", data=data, bootstrap=0, download=False).scores
    return statistics.fmean(score.value for score in scores)


def drawn_sentences(sentences: Sequence[str], seed: int) -> list[str]:
    """Draw the sentences that ``selfguide adapt`` computes the mean of."""
    return random.Random(seed).sample(list(sentences), min(SAMPLE, len(sentences)))


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Summarise an encoder's cells.

    Args:
        rows: Cells of one encoder.

    Returns:
        Mean and worst gain by share and by exponent of whitening, of the rule, of small samples and of unhelpful texts; and what
        a share gains that was selected without the text it is applied to.
    """
    if not rows:
        return {}
    pairs = [row for row in rows if row["whitening"]]
    tasks = [row for row in rows if not row["whitening"]]
    by_share = {share: [_mean(row, share) for row in pairs] for share in map("{:g}".format, SHARES)}
    found: dict[str, Any] = {
        "rule": _fate([row["rule"] for row in pairs]),
        "shares": {share: _fate(values) for share, values in by_share.items()},
        "whitening": {f"{e:g}": _fate([row["whitening"][f"{e:g}"] for row in pairs]) for e in WHITENING},
        "held out": _held_out(by_share),
        "sizes": {
            size: _fate([ruled(row, cell) for row in rows for cell in row["sizes"].get(size, {}).values()])
            for size in dict.fromkeys(size for row in rows for size in row["sizes"])
        },
        "instead": {
            kind: {
                "rule": _fate([ruled(row, row["instead"][kind]) for row in rows]),
                "common": _fate([row["instead"][kind]["common"] for row in rows]),
                "without the rule": _fate([row["instead"][kind]["shares"][DEFAULT_SHARE] for row in rows]),
            }
            for kind in dict.fromkeys(kind for row in rows for kind in row["instead"])
        },
        "common": [min(row["common"] for row in rows), max(row["common"] for row in rows)],
        "cosine": [min(row["cosine"] for row in rows), max(row["cosine"] for row in rows)],
        "general": rows[0]["general"],
    }
    if tasks:
        found["tasks"] = _fate([row["rule"] for row in tasks])
    changes = [
        seed["elsewhere"][DEFAULT_SHARE] if row["rule"] else 0.0
        for row in rows
        for seed in row["seeds"].values()
        if "elsewhere" in seed
    ]
    if changes:
        found["elsewhere"] = _fate(changes)
    return found


def _held_out(by_share: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Select a share on all texts but one, the largest mean gain of those that lose no more than allowed, and apply it there."""
    count = len(next(iter(by_share.values())))
    taken, selected = [], []
    for left_out in range(count):
        others = {
            share: [value for place, value in enumerate(values) if place != left_out]
            for share, values in by_share.items()
        }
        safe = {
            share: statistics.fmean(values) for share, values in others.items() if values and min(values) >= ALLOWED
        }
        best = max(safe, key=lambda share: safe[share], default=None)
        selected.append(best or "none")
        taken.append(0.0 if best is None else by_share[best][left_out])
    return _fate(taken) | {"selected": selected}


def _mean(row: Mapping[str, Any], share: str) -> float:
    return statistics.fmean(seed["shares"][share] for seed in row["seeds"].values())


def _fate(values: Iterable[float]) -> dict[str, Any]:
    values = list(values)
    if not values:
        return {"mean": 0.0, "worst": 0.0, "below": 0, "cells": 0}
    return {
        **{key: value for key, value in spread(values).items() if key != "values"},
        "worst": min(values),
        "best": max(values),
        "below": sum(value < ALLOWED for value in values),
        "cells": len(values),
        "p": paired(values),
    }


def _some(sentences: Sequence[str], size: int, seed: int) -> list[str]:
    return random.Random(seed).sample(list(sentences), size)


def _unit(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float32)


def _arguments() -> argparse.Namespace:
    parser = command_parser(__doc__)
    parser.add_argument("--encoder", nargs="+", default=["mini"], metavar="NAME=FOLDER")
    parser.add_argument("--list", default="development", choices=list(LISTS))
    parser.add_argument("--texts", nargs="+", metavar="TEXT", help="some texts of the list")
    parser.add_argument("--also", default="none", choices=("none", "sts"), help="what is scored elsewhere")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--pairs", type=int, default=0, help="graded pairs of a text at most; 0: all")
    parser.add_argument("--sizes", type=int, nargs="*", default=[], help="small samples of each text as well")
    parser.add_argument("--instead", nargs="*", default=[], choices=KINDS, help="unhelpful texts as well")
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    parser.add_argument("--collect", action="store_true", help="only collect the files in --work")
    parser.add_argument("--data", default=os.environ.get("SELFGUIDE_DATA"), help="folder with domain/, nli/, sts/ …")
    parser.add_argument("--work", type=Path, default=Path(".device-centring"), help="folder for one file a cell; kept")
    parser.add_argument("--out", type=Path, help="default: adapt-centring-LIST.json among the results")
    arguments = parser.parse_args()
    if not arguments.data or not (Path(arguments.data) / "domain").is_dir():
        parser.error("set SELFGUIDE_DATA (or --data) to a folder with domain/, nli/, sts/ and transfer/")
    arguments.texts = arguments.texts or list(LISTS[arguments.list])
    if unknown := set(arguments.texts) - set(LISTS[arguments.list]):
        parser.error(f"{', '.join(sorted(unknown))} is not on the {arguments.list} list")
    arguments.out = arguments.out or RESULTS / f"adapt-centring-{arguments.list}.json"
    return arguments


if __name__ == "__main__":
    main()
