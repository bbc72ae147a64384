"""The page of a run: what was done, what the dev pairs say, what became of the vectors, and how to do it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from selfguide.errors import UsageError
from selfguide.methods import registry
from selfguide.report.charts import curve, histogram
from selfguide.report.evidence import BINS, RunEvidence, embedded
from selfguide.report.markup import (
    Cell,
    Heading,
    bullets,
    code,
    duration,
    escape,
    facts,
    figure,
    folded,
    number,
    paragraph,
    settings_table,
    table,
)
from selfguide.report.page import Section, page

_EXAMPLES = 8


def run_page(run: dict[str, Any], evidence: RunEvidence | None = None) -> str:
    """``run`` is what ``run.json`` holds."""
    config = run["config"]
    sections = [
        Section("warnings", "Warnings", bullets(run["warnings"])),
        Section("scores", "Dev scores", _scores(run)),
        Section("vectors", "What became of the vectors", _geometry(evidence) if evidence else ""),
        Section("neighbours", "Nearest sentences", _neighbours(evidence) if evidence else ""),
        Section("text", "Text", _text(run)),
        Section("configuration", "Configuration", _configuration(run)),
        Section("repeat", "Do it again", _repeat(run)),
    ]
    return page(
        title=f"{config['method']} on {_name(config['encoder'])}",
        kicker="Report of a run",
        lead=_lead(run),
        head=facts(_headline(run, evidence)),
        sections=sections,
        data=embedded(evidence) if evidence else "",
    )


def _lead(run: dict[str, Any]) -> str:
    config = run["config"]
    try:
        method = registry.describe(config["method"])
    except UsageError:  # of another version
        told = f"The method {config['method']}"
    else:
        told = f"{method.name}: {method.summary}" + (f" ({method.reference})" if method.reference else "")
    return f"{told}. Start: {config['encoder']}."


def _headline(run: dict[str, Any], evidence: RunEvidence | None) -> dict[str, str]:
    scores = run["scores"]
    shown = {}
    if "after" in scores:
        before = scores.get("before (mean)")
        shown["dev score" if before is None else "dev score, before → after"] = (
            f"{number(100 * before, 1)} → " if before is not None else ""
        ) + number(100 * scores["after"], 1)
    if evidence:
        sides = evidence.before.geometry.mean_cosine, evidence.after.geometry.mean_cosine
        shown["mean cosine, before → after"] = " → ".join(number(side) for side in sides)
    shown["sentences"] = f"{run['text'].get('kept', 0):,}"
    if run["steps"]:
        shown["steps"] = f"{run['steps']:,}"
    return shown | {"time": duration(run["seconds"].get("total", 0.0)), "finished": run["finished"][:10]}


def _scores(run: dict[str, Any]) -> str:
    scores, points = run["scores"], run["dev_curve"]
    parts = []
    if scores:
        parts.append(
            paragraph(
                f"Spearman × 100 of cosine and grade on {_name(run['config']['dev'] or 'the dev pairs')}. They also chose the "
                "checkpoint where something was tuned, so “after” is a little flattered."
            )
        )
        best = max(scores.values())
        rows = [
            [Cell(name), Cell(number(100 * value), value=100 * value, best=value == best)]
            for name, value in scores.items()
        ]
        parts.append(table("Dev scores before and after", [Heading("encoder", False), Heading("dev")], rows))
    else:
        parts.append(paragraph("None: the run had no graded pairs. --dev PAIRS gives it some."))
    if len(points) > 1:
        after = scores.get("after")
        chosen = next((step for step, value in points if value == after), None)
        references = {name: 100 * value for name, value in scores.items() if name != "after"}
        drawing = curve(
            "Dev score over training",
            f"{len(points)} scores between {number(100 * min(v for _, v in points))} and "
            f"{number(100 * max(v for _, v in points))}.",
            [(step, 100 * value) for step, value in points],
            "step",
            references,
            chosen,
        )
        parts.append(figure(drawing, "The dev score during training; the large dot is the checkpoint that was kept."))
    return "".join(parts) + _loss(run)


def _loss(run: dict[str, Any]) -> str:
    points = run.get("loss_curve") or []
    if len(points) > 1:
        drawing = curve("Loss over training", f"From {points[0][1]:.4g} to {points[-1][1]:.4g}.", points, "step")
        return figure(drawing, "The training loss, each point the mean since the one before.")
    if run["final_loss"] is not None:
        return paragraph(f"The training loss ended at {run['final_loss']:.4g}.")
    return ""


def _geometry(evidence: RunEvidence) -> str:
    before, after = evidence.before.geometry, evidence.after.geometry
    measures = (
        ("mean cosine", before.mean_cosine, after.mean_cosine, 3, "Near 1, all vectors point one way (anisotropy)."),
        (
            "uniformity",
            before.uniformity,
            after.uniformity,
            3,
            "log E exp(−2‖u−v‖²): the lower, the more evenly spread.",
        ),
        (
            "effective rank",
            before.effective_rank,
            after.effective_rank,
            1,
            f"Directions in use; at most {evidence.measured - 1} can show here.",
        ),
        ("dimensions", before.dimensions, after.dimensions, 0, "Numbers in a vector."),
    )
    rows = [
        [Cell(name), Cell(number(one, places), value=one), Cell(number(two, places), value=two), Cell(what)]
        for name, one, two, places, what in measures
    ]
    headings = [Heading("measure", False), Heading("before"), Heading("after"), Heading("what it tells", False)]
    drawing = histogram(
        "Cosines between sentences",
        f"Before, two sentences have a cosine of {number(before.mean_cosine)} on average, after {number(after.mean_cosine)}.",
        [-1 + 2 * place / BINS for place in range(BINS + 1)],
        before.histogram,
        after.histogram,
    )
    pairs = evidence.measured * (evidence.measured - 1) // 2
    return (
        paragraph(
            f"Measured on {evidence.measured} sentences drawn from the text ({pairs:,} pairs). Before: "
            f"{evidence.before.words}. After: {evidence.after.words}."
        )
        + table("Vectors before and after", headings, rows, sortable=False)
        + figure(drawing, "How many pairs have which cosine: before as a dashed outline, after filled.")
        + paragraph(
            "Evenly spread is not the same as good: only graded pairs can say whether neighbours are better.", "aside"
        )
    )


def _neighbours(evidence: RunEvidence) -> str:
    shown = f"{len(evidence.sentences)} sentences of the text"
    kept = _kept_share(evidence)
    told = paragraph(
        f"Each of {shown} with its nearest among the others. Of the nearest before, {kept:.0%} are still among the nearest "
        "after. This page carries these sentences: mind that before you pass it on."
    )
    explorer = (
        '<div class="explorer" id="explorer" hidden>'
        '<p><label for="search">Search</label> <input id="search" type="search" autocomplete="off"> '
        '<span id="found" role="status"></span></p>'
        '<p><label for="pick">Sentence</label> <select id="pick" size="7" lang="" dir="auto"></select></p>'
        '<div id="answer" aria-live="polite"><blockquote id="picked" lang="" dir="auto"></blockquote>'
        '<div class="sides"><div><h3>Nearest before</h3><ol id="nearest-before"></ol></div>'
        '<div><h3>Nearest after</h3><ol id="nearest-after"></ol></div></div></div></div>'
        "<noscript><p>With JavaScript, any of the sentences can be looked up here.</p></noscript>"
    )
    return told + explorer + _examples(evidence)


def _kept_share(evidence: RunEvidence) -> float:
    pairs = list(zip(evidence.before.nearest, evidence.after.nearest, strict=True))
    kept = sum(len({place for place, _ in one} & {place for place, _ in two}) for one, two in pairs)
    return kept / sum(len(one) for one, _ in pairs)


def _examples(evidence: RunEvidence) -> str:
    def found(neighbours: tuple[tuple[int, float], ...]) -> list[Cell]:
        place, cosine = neighbours[0]
        return [Cell(evidence.sentences[place], sentence=True), Cell(number(cosine), value=cosine)]

    headings = [Heading("sentence", False), Heading("nearest before", False), Heading("cosine")]
    headings += [Heading("nearest after", False), Heading("cosine")]
    rows = [
        [Cell(sentence, sentence=True), *found(before), *found(after)]
        for sentence, before, after in zip(
            evidence.sentences[:_EXAMPLES], evidence.before.nearest, evidence.after.nearest, strict=False
        )
    ]
    return table(f"The first {len(rows)} sentences as they were drawn, not chosen", headings, rows)


def _text(run: dict[str, Any]) -> str:
    text = run["text"]
    counts = {
        name: f"{value:,}" for name, value in text.items() if isinstance(value, int) and (value or name == "kept")
    }
    sources = ", ".join(_name(source) for source in run["config"]["text"])
    values = {"sources": sources, **counts, "fingerprint of the kept sentences": text.get("fingerprint")}
    return settings_table("The text that was read", values)


def _configuration(run: dict[str, Any]) -> str:
    config = run["config"]
    return (
        paragraph(f"Checkpoint: {run['checkpoint']}.")
        + settings_table(f"Options of {config['method']}", config["options"] or {"options": "none to set"})
        + folded("Training settings", settings_table("Training settings", config["training"]))
        + folded("How the text was read", settings_table("Text options", config["text_options"]))
        + folded("The whole configuration", code(json.dumps(config, indent=2, ensure_ascii=False)))
    )


def _repeat(run: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    told = f"<p>In the encoder’s folder, <code>{escape('run.json')}</code> holds all of it:</p>"
    return told + code("selfguide train --config run.json --output NEW") + paragraph(f"Versions: {versions}.")


def _name(source: str) -> str:
    """A file without its folders, which are the machine's own business; a hub name or a word as it is."""
    return Path(source).name if Path(source).is_absolute() else source
