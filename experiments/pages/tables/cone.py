"""Tables about adapting an encoder whose embeddings fill a cone."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from experiments.pages.sources import lookup
from experiments.pages.tables.adapt import TITLES
from experiments.pages.tables.adapted import (
    ADAPT,
    AS_IS,
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
    whitened,
)
from experiments.pages.tables.markdown import table

LARGER = f"{TRAINED}:learning_rate=1e-4"
_SHARES = (("0.5", "half-way"), ("1", "trained"))


def rates() -> str:
    """The development list, small doses: half-way and trained at every rate."""
    rows = []
    for encoder in encoders("cone-rates"):
        start = before("cone-rates", encoder)
        rows.append([encoder, "", "as it is", *(plain(start.get(text)) for text in TITLES), "", "", ""])
        for word in sorted({cell["word"] for cell in lookup("cone-rates:cells")} - {AS_IS}, key=_rate):
            for share, title in _SHARES:
                if gains("cone-rates", word, share, encoder):
                    rows.append(
                        ["", word.partition("learning_rate=")[2], title, *_gained("cone-rates", word, share, encoder)]
                    )
    return table(f"encoder | rate | weights | {' | '.join(TITLES.values())} | mean | worst | STS-B dev, mean", rows)


def _rate(word: str) -> float:
    return float(word.partition("learning_rate=")[2])


def development() -> str:
    """The development list, every text in full: as it is, half-way and trained, for every encoder."""
    rows = []
    for encoder in encoders("cone-dev"):
        start = before("cone-dev", encoder)
        rows.append([encoder, "", "as it is", *(plain(start.get(text)) for text in TITLES), "", "", ""])
        for name, word, rate in (("cone-dev", TRAINED, "1e-5"), ("cone-full", LARGER, "1e-4")):
            for share, title in _SHARES:
                if encoder in encoders(name) and gains(name, word, share, encoder):
                    rows.append(["", rate, title, *_gained(name, word, share, encoder)])
    return table(f"encoder | rate | weights | {' | '.join(TITLES.values())} | mean | worst | STS-B dev, mean", rows)


def _gained(name: str, word: str, share: str, encoder: str) -> list[str]:
    found = gains(name, word, share, encoder)
    away = statistics.fmean(gains(name, word, share, encoder, "elsewhere").values())
    return [*(signed(found.get(text)) for text in TITLES), *ends(found), signed(away)]


def report() -> str:
    """The report list: what ``selfguide adapt`` gains, beside centring."""
    encoder = "sre"
    start, found = before("cone-report", encoder), pairs(gains("cone-report", ADAPT, "1", encoder))
    maps = [centred("centring-report", encoder), whitened("centring-report", encoder, "0.25")]
    rows = []
    for text, gain in found.items():
        runs = [cell for cell in cells("cone-report", encoder, ADAPT) if cell["text"] == text]
        scores = [cell["shares"]["1"]["own"] for cell in runs]
        varied = plain(statistics.stdev(scores)) if len(scores) > 1 else ""
        trained = f"{sum(not cell['unchanged'] for cell in runs)} of {len(runs)}"
        shown = [plain(start[text]), *(signed(one.get(text)) for one in maps), signed(gain), varied]
        rows.append([text, f"{runs[0]['sentences']:,}", *shown, trained])
    for place, title in enumerate(("mean gain", "worst")):
        known = [ends({text: one[text] for text in found if text in one})[place] for one in maps]
        rows.append([title, "", "", *known, ends(found)[place], "", ""])
    head = "text | sentences | as it is | centred | whitened | `selfguide adapt` | deviation | seeds that trained"
    return table(head, rows)


def second() -> str:
    """The report list: what ``selfguide adapt`` gains on another encoder with a cone."""
    (encoder,) = encoders("second-cone")
    start, found = before("second-cone", encoder), gains("second-cone", ADAPT, "1", encoder)
    kept = {
        cell["text"]: "unchanged" if cell["unchanged"] else "trained" for cell in cells("second-cone", encoder, ADAPT)
    }
    rows = [[text, plain(start[text]), signed(gain), kept[text]] for text, gain in found.items()]
    rows += [[title, "", ends(found)[place], ""] for place, title in enumerate(("mean gain", "worst"))]
    return table(f"text | {encoder}, as it is | `selfguide adapt` | what it did", rows)


def elsewhere() -> str:
    """What adapting to one text changes on the seven STS sets and the transfer tasks."""
    rows = []
    for encoder in encoders("elsewhere"):
        for text in gains("elsewhere", ADAPT, "1", encoder):
            shown = [encoder, text]
            for score in ("elsewhere", "transfer"):
                start = before("elsewhere", encoder, score)
                shown += [plain(start[text]), signed(gains("elsewhere", ADAPT, "1", encoder, score)[text])]
            rows.append(shown)
    return table("encoder | adapted to | seven STS sets, as it is | gain | transfer tasks, as it is | gain", rows)


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
    "cone-rates": rates,
    "cone-development": development,
    "cone-report": report,
    "cone-second": second,
    "cone-elsewhere": elsewhere,
    "cone-unhelpful": unhelpful,
    "cone-readme": readme,
}
