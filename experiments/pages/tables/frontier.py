"""Tables about what was tried to adapt an encoder, as gains on the development and the report list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from experiments.adapt.texts import REPORT
from experiments.pages.sources import lookup
from experiments.pages.tables.adapt import TITLES
from experiments.pages.tables.adapted import (
    ADAPT,
    AS_IS,
    TRAINED,
    WELL_SPREAD,
    Gains,
    before,
    centred,
    encoders,
    ends,
    gains,
    pairs,
    plain,
    signed,
    tasks,
    whitened,
)
from experiments.pages.tables.markdown import table
from selfguide.calibration.spread import LEAST_COSINE, MOST_COMMON

TASK_TITLES = {
    "banking77": "banking77, accuracy",
    "stackoverflow": "Stack Overflow titles, V-measure",
    "cranfield": "Cranfield, nDCG@10",
    "cisi": "CISI, nDCG@10",
    "scifact": "SciFact, nDCG@10",
}
RULE = "whole, margin 2, overlap 0.8"


def frontier() -> str:
    """Everything that was tried on an encoder that spreads its embeddings well: gains on both lists."""
    rows = [
        ["trained as `--tune always` does, every text in full", *_fates("cone-dev", "trained-report", TRAINED, "1")],
        ["the same, half-way", *_fates("cone-dev", "trained-report", TRAINED, "0.5")],
    ]
    few = "contrast:learning_rate=2e-5"
    for share, title in (("1", "trained on at most 500 pairs of a text, rate 2e-5"), ("0.5", "the same, half-way")):
        rows.append(
            [
                title,
                *_fate(gains("adapt-dev", few, share)),
                *_later(gains("adapt-report", f"{few}:max_steps=16", share)),
            ]
        )
    stay, fast = "contrast:learning_rate=5e-5:stay=1", "contrast:learning_rate=3e-4"
    rows.append(
        ["at most 500 pairs, rate 5e-5, the original's similarities beside it (λ = 1)", *_fates("adapt-dev", "", stay)]
    )
    rows.append(["at most 500 pairs, rate 3e-4", *_fates("adapt-dev", "", fast)])
    judges = [lookup(f"{name}:choices") for name in ("adapt-dev", "adapt-report")]
    count = len(judges[0]["rules"])
    for title, key in (
        (f"of these, chosen by the best of {count} label-free rules", RULE),
        ("of these, chosen by the rule selected on the other texts", ""),
    ):
        rows.append([title, *(cell for judge in judges for cell in _judged(judge, key)), *_fate({})])
    for exponent in ("0.1", "0.25"):
        both = [whitened(name, WELL_SPREAD, exponent) for name in ("centring-dev", "centring-report")]
        rows.append([f"whitened, exponent {exponent}", *_fate(both[0]), *_later(both[1])])
    for share in ("0.25", "0.5", "0.75", "1"):
        both = [centred(name, WELL_SPREAD, share) for name in ("centring-dev", "centring-report")]
        rows.append([f"centred, {share} of the mean", *_fate(both[0]), *_later(both[1])])
    ends = "texts | mean | worst"
    return table(f"what | {ends} | pairs of the report list: {ends} | tasks of the report list: {ends}", rows)


def real() -> str:
    """Retrieval, classification and clustering: as it is, and after training."""
    rows = []
    for name, word in (("trained-report", TRAINED), ("cone-tasks", ADAPT)):
        for encoder in encoders(name):
            start, found = before(name, encoder), tasks(gains(name, word, "1", encoder))
            if found:
                shown = [plain(start[text]) if text in found else "" for text in TASK_TITLES]
                rows.append([encoder, "as it is", *shown, "", ""])
                made = "`selfguide adapt`" if word == ADAPT else "trained"
                rows.append(["", made, *(signed(found.get(text)) for text in TASK_TITLES), *ends(found)])
    return table(f"encoder | | {' | '.join(TASK_TITLES.values())} | mean | worst", rows)


def spreads() -> str:
    """How encoders spread the embeddings of the report list's pairs, and what follows without labels."""
    found: dict[str, list[tuple[float, float, float]]] = {}
    for cell in (*lookup("centring-report:cells"), *lookup("centring-mpnet:cells")):
        if cell["text"] in REPORT:
            found.setdefault(cell["encoder"], []).append((cell["cosine"], cell["general"], cell["common"]))
    for cell in lookup("second-cone:cells"):
        if cell["word"] == AS_IS:
            found.setdefault(cell["encoder"], []).append((*cell["cosines"], cell["common"]))
    rows = []
    for encoder, measured in found.items():
        text, general, common = (sorted(column) for column in zip(*measured, strict=True))
        trained = sum(min(one, other) >= LEAST_COSINE and share <= MOST_COMMON for one, other, share in measured)
        ranges = [" to ".join(dict.fromkeys((plain(column[0]), plain(column[-1])))) for column in (text, common)]
        kept = f"trains it on {trained}, then judges" if trained else "leaves it as it is on all"
        rows.append([encoder, str(len(measured)), plain(general[0]), *ranges, kept])
    return table(
        "encoder | texts | mean cosine, general English | mean cosine, text | common to all | `selfguide adapt`", rows
    )


def peers() -> str:
    """Peers beside adaptation on an encoder with a cone: the trials on the development list."""
    encoder = "sre"
    start = before("peers-dev", encoder)
    texts = [text for text in TITLES if text in start]
    rows = [["as it is", *(plain(start[text]) for text in texts), "", ""]]
    words = dict.fromkeys(cell["word"] for cell in lookup("peers-dev:cells") if cell["word"] != "as-is")
    for word in words:
        found = gains("peers-dev", word, "1", encoder)
        complete = found if len(found) == len(texts) else {}
        rows.append([f"`{word}`", *(signed(found.get(text)) for text in texts), *ends(complete)])
    return table(f"recipe | {' | '.join(TITLES[text] for text in texts)} | mean | worst", rows)


def _fates(development: str, report: str, word: str, share: str = "1") -> list[str]:
    return [*_fate(gains(development, word, share)), *_later(gains(report, word, share) if report else {})]


def _later(found: Gains) -> list[str]:
    """Return the fate on the report list's pairs, and on its tasks."""
    return [*_fate(pairs(found)), *_fate(tasks(found))]


def _fate(found: Gains) -> list[str]:
    return [str(len(found)) if found else "", *ends(found)]


def _judged(judge: Mapping[str, Any], rule: str) -> list[str]:
    row = judge["rules"][rule] if rule else judge["held out"]
    return [f"{judge['cells']} cells", signed(row["mean"]), signed(row["worst"])]


TABLES: dict[str, Callable[[], str]] = {
    "adapt-frontier": frontier,
    "adapt-tasks": real,
    "adapt-spreads": spreads,
    "adapt-peers": peers,
}
