"""Tables about adapting an encoder whose embeddings fill a cone."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from experiments.pages.sources import lookup
from experiments.pages.tables.adapt import TITLES
from experiments.pages.tables.adapted import (
    ADAPT,
    TRAINED,
    before,
    cells,
    centred,
    encoders,
    ends,
    gains,
    pairs,
    plain,
    signed,
)
from experiments.pages.tables.markdown import table


def development() -> str:
    """The development list: as it is, half-way and trained, for every encoder."""
    rows = []
    for encoder in encoders("cone-dev"):
        if not gains("cone-dev", TRAINED, "1", encoder):
            continue
        start = before("cone-dev", encoder)
        rows.append([encoder, "as it is", *(plain(start.get(text)) for text in TITLES), "", "", ""])
        for share, title in (("0.5", "half-way"), ("1", "trained")):
            found = gains("cone-dev", TRAINED, share, encoder)
            away = statistics.fmean(gains("cone-dev", TRAINED, share, encoder, "elsewhere").values())
            rows.append(["", title, *(signed(found.get(text)) for text in TITLES), *ends(found), signed(away)])
    return table(f"encoder | weights | {' | '.join(TITLES.values())} | mean | worst | STS-B dev, mean", rows)


def report() -> str:
    """The report list: what ``selfguide adapt`` gains, beside centring."""
    encoder = "sre"
    start, found = before("cone-report", encoder), pairs(gains("cone-report", ADAPT, "1", encoder))
    half = centred("centring-report", encoder)
    runs = {text: [cell for cell in cells("cone-report", encoder, ADAPT) if cell["text"] == text] for text in found}
    rows = []
    for text, gain in found.items():
        kept = {"unchanged" if cell["unchanged"] else "trained" for cell in runs[text]}
        sentences, seeds = f"{runs[text][0]['sentences']:,}", str(len(runs[text]))
        shown = [plain(start[text]), signed(half.get(text)), signed(gain)]
        rows.append([text, sentences, *shown, seeds, " or ".join(sorted(kept))])
    known = {text: half[text] for text in found if text in half}
    for place, title in enumerate(("mean gain", "worst")):
        rows.append([title, "", "", ends(known)[place], ends(found)[place], "", ""])
    return table("text | sentences | as it is | centred | `selfguide adapt` | seeds | what it did", rows)


def second() -> str:
    """The report list: what ``selfguide adapt`` gains on another encoder with a cone."""
    (encoder,) = encoders("second-cone")
    start, found = before("second-cone", encoder), gains("second-cone", ADAPT, "1", encoder)
    rows = [["as it is", *(plain(start[text]) for text in found), "", ""]]
    rows.append(["`selfguide adapt`", *(signed(gain) for gain in found.values()), *ends(found)])
    return table(f"{encoder} | {' | '.join(found)} | mean | worst", rows)


def readme() -> str:
    """What adapting without labels gives on the report list: an encoder with a cone, and others."""
    found = pairs(gains("cone-report", ADAPT, "1", "sre"))
    start = before("cone-report", "sre")
    mean = statistics.fmean(start[text] for text in found)
    after = plain(mean + statistics.fmean(found.values()))
    rows = [["`sre`", "all high: a cone", plain(mean), f"{after}, trained", *ends(found)]]
    for name in ("centring-report", "centring-mpnet"):
        for encoder in dict.fromkeys(cell["encoder"] for cell in lookup(f"{name}:cells")):
            known = {cell["text"]: cell["own"] for cell in lookup(f"{name}:cells") if cell["encoder"] == encoder}
            if encoder != "sre" and found.keys() <= known.keys():
                kept = plain(statistics.fmean(known[text] for text in found))
                rows.append([f"`{encoder}`", "spread well", kept, f"{kept}, unchanged", "", ""])
    head = f"encoder | its cosines | as it is, mean of {len(found)} texts | after `selfguide adapt` | mean gain"
    return table(f"{head} | worst of them", rows)


def unhelpful() -> str:
    """What small and unhelpful texts do to an encoder with a cone."""
    rows = []
    found = lookup("cone-small:cells")
    starts = {(row["encoder"], row["text"]): row["shares"]["0"] for row in found if row["word"] == "as-is"}
    for row in found:
        if row["word"] == ADAPT:
            start, end = starts[row["encoder"], row["text"]], row["shares"]["1"]
            kind = row["instead"] or (f"{row['size']} sentences of it" if row["size"] else "the text itself")
            changes = [signed(end[name] - start[name]) for name in ("own", "elsewhere")]
            kept = "unchanged" if row["unchanged"] else "trained"
            rows.append([TITLES[row["text"]], kind, plain(row["common"]), *changes, kept])
    return table("judged on | adapted to | common to all | gain | STS-B dev | what it did", rows)


TABLES: dict[str, Callable[[], str]] = {
    "cone-development": development,
    "cone-report": report,
    "cone-second": second,
    "cone-unhelpful": unhelpful,
    "cone-readme": readme,
}
