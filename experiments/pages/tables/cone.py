"""Tables about adapting an encoder whose embeddings fill a cone, and about one whose do not."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.pages.figures import Form, written
from experiments.pages.sources import lookup
from experiments.pages.tables.adapt import TITLES
from experiments.pages.tables.markdown import table

TRAINED, ADAPT = "adapt:tune=always:choose=false", "adapt"
WELL_SPREAD = "all-MiniLM-L6-v2"
Cells = Mapping[tuple[str, str, str], Mapping[str, Any]]


def development() -> str:
    """The development list: as it is, half-way and trained, for every encoder."""
    cells = _cells("cone-dev")
    rows = []
    for encoder in dict.fromkeys(key[0] for key in cells):
        texts = [text for text in TITLES if (encoder, text, TRAINED) in cells]
        before = {text: cells[encoder, text, "as-is"]["shares"]["0"] for text in texts}
        rows.append([encoder, "as it is", *_by_text({text: _plain(before[text]["own"]) for text in texts}), "", "", ""])
        for share, title in (("0.5", "half-way"), ("1", "trained")):
            after = {text: cells[encoder, text, TRAINED]["shares"][share] for text in texts}
            gains = {text: after[text]["own"] - before[text]["own"] for text in texts}
            away = statistics.fmean(after[text]["elsewhere"] - before[text]["elsewhere"] for text in texts)
            shown = _by_text({text: _signed(gain) for text, gain in gains.items()})
            rows.append(["", title, *shown, *_ends(list(gains.values())), _signed(away)])
    return table(f"encoder | weights | {' | '.join(TITLES.values())} | mean | worst | STS-B dev, mean", rows)


def report() -> str:
    """The report list: what ``selfguide adapt`` gains, beside centring."""
    cells = _cells("cone-report")
    centred = {
        (cell["encoder"], cell["text"]): statistics.fmean(seed["shares"]["0.5"] for seed in cell["seeds"].values())
        for cell in lookup("centring-report:cells")
    }
    rows, gains, halves = [], [], []
    for encoder, text, word in cells:
        if word != ADAPT:
            continue
        before = cells[encoder, text, "as-is"]["shares"]["0"]["own"]
        cell = cells[encoder, text, word]
        gains.append(cell["shares"]["1"]["own"] - before)
        half = centred.get((encoder, text))
        halves += [half] if half is not None else []
        kept = "unchanged" if cell["unchanged"] else "trained"
        sentences = f"{cell['sentences']:,}"
        rows.append([text, sentences, _plain(before), "" if half is None else _signed(half), _signed(gains[-1]), kept])
    for title, end in (("mean gain", statistics.fmean), ("worst", min)):
        rows.append([title, "", "", _signed(end(halves)), _signed(end(gains)), ""])
    return table("text | sentences | as it is | centred | `selfguide adapt` | what it did", rows)


def readme() -> str:
    """What adapting without labels gives on the report list: an encoder with a cone, and one without."""
    cells = _cells("cone-report")
    texts = [text for _, text, word in cells if word == ADAPT]
    rows = []
    for encoder in dict.fromkeys(key[0] for key in cells):
        before, after = (
            [cells[encoder, text, word]["shares"][share]["own"] for text in texts]
            for word, share in (("as-is", "0"), (ADAPT, "1"))
        )
        gains = [end - start for start, end in zip(before, after, strict=True)]
        means = [_plain(statistics.fmean(values)) for values in (before, after)]
        rows.append([f"`{encoder}`", *means, *_ends(gains)])
    others = {cell["text"]: cell["own"] for cell in lookup("centring-report:cells") if cell["encoder"] == WELL_SPREAD}
    mean = _plain(statistics.fmean(others[text] for text in texts))
    rows.append([f"`{WELL_SPREAD}`", mean, f"{mean}, unchanged", "", ""])
    return table(
        f"encoder | as it is, mean of {len(texts)} texts | after `selfguide adapt` | mean gain | worst of them", rows
    )


def unhelpful() -> str:
    """What small and unhelpful texts do to an encoder with a cone."""
    rows = []
    found = lookup("cone-small:cells")
    before = {(row["encoder"], row["text"]): row["shares"]["0"] for row in found if row["word"] == "as-is"}
    for row in found:
        if row["word"] == ADAPT:
            start, end = before[row["encoder"], row["text"]], row["shares"]["1"]
            kind = row["instead"] or (f"{row['size']} sentences of it" if row["size"] else "the text itself")
            changes = [_signed(end[name] - start[name]) for name in ("own", "elsewhere")]
            kept = "unchanged" if row["unchanged"] else "trained"
            rows.append([TITLES[row["text"]], kind, _plain(row["common"]), *changes, kept])
    return table("judged on | adapted to | common to all | gain | STS-B dev | what it did", rows)


def _cells(name: str) -> Cells:
    """Return the cells that were trained on the whole of their own text."""
    return {
        (cell["encoder"], cell["text"], cell["word"]): cell
        for cell in lookup(f"{name}:cells")
        if not cell["instead"] and not cell["size"]
    }


def _by_text(values: Mapping[str, str]) -> list[str]:
    return [values.get(text, "") for text in TITLES]


def _ends(gains: Sequence[float]) -> list[str]:
    return [_signed(statistics.fmean(gains)), _signed(min(gains))]


def _plain(value: float) -> str:
    return written(value, Form(2))


def _signed(value: float) -> str:
    return written(value, Form(2, sign=True))


TABLES: dict[str, Callable[[], str]] = {
    "cone-development": development,
    "cone-report": report,
    "cone-unhelpful": unhelpful,
    "cone-readme": readme,
}
