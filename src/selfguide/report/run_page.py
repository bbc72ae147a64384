"""The page of a training run: its scores, its curves, how the embeddings changed, and how to repeat it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from selfguide.engine.similarity_scale import SimilarityScale
from selfguide.methods import registry
from selfguide.report.evidence import BINS, RunEvidence
from selfguide.report.formatting import duration, number
from selfguide.report.page import render
from selfguide.report.plots import Histogram, Measured, Series, TrainingCurve
from selfguide.report.similarity import scale_curve, scale_table
from selfguide.report.table import Cell, Heading, Table

_EXAMPLES = 8


def run_page(run: dict[str, Any], evidence: RunEvidence | None = None, scale: SimilarityScale | None = None) -> str:
    """Make the page of a run.

    Args:
        run: What ``run.json`` holds.
        evidence: What was measured of the encoder before and after.
        scale: What a cosine means for the encoder on its text.

    Returns:
        The HTML file.
    """
    config, curves = run["config"], list(_curves(run))
    return render(
        "run",
        title=f"{config['method']} on {_name(config['encoder'])}",
        kicker="Report of a run",
        lead=_lead(config),
        facts=_facts(run, evidence),
        sections={
            "warnings": ("Warnings", run["warnings"]),
            "scores": ("Dev scores", True),
            "vectors": ("Embeddings", evidence),
            "similarity": ("What a cosine means", scale),
            "neighbours": ("Nearest sentences", evidence),
            "text": ("Text", True),
            "configuration": ("Configuration", True),
            "repeat": ("Reproduce", True),
        },
        run=run,
        dev=_name(config["dev"] or "the dev pairs"),
        scores=_scores(run["scores"]),
        curves=curves,
        final_loss=None if any(curve.key == "loss" for curve in curves) else run["final_loss"],
        text=_text(run),
        evidence=evidence,
        scale=scale,
        scale_curve=scale_curve(scale) if scale else None,
        scale_table=scale_table(scale) if scale else None,
        **(_evidence_parts(evidence) if evidence else {}),
    )


def _lead(config: Mapping[str, Any]) -> str:
    method = registry.describe(config["method"])
    reference = f" ({method.reference})" if method.reference else ""
    return f"{method.name}: {method.summary}{reference}. Start: {config['encoder']}."


def _facts(run: dict[str, Any], evidence: RunEvidence | None) -> dict[str, str]:
    scores = run["scores"]
    facts = {}
    if "after" in scores:
        before = scores.get("before", scores.get("before (mean)"))
        facts["dev score" if before is None else "dev score, before → after"] = (
            f"{number(100 * before, 1)} → " if before is not None else ""
        ) + number(100 * scores["after"], 1)
    if evidence:
        sides = evidence.before.geometry.mean_cosine, evidence.after.geometry.mean_cosine
        facts["mean cosine, before → after"] = " → ".join(number(side) for side in sides)
    facts["sentences"] = f"{run['text'].get('kept', 0):,}"
    if run["steps"]:
        facts["steps"] = f"{run['steps']:,}"
    return facts | {"time": duration(run["seconds"].get("total", 0.0)), "finished": run["finished"][:10]}


def _scores(scores: Mapping[str, float]) -> Table:
    rows = [[Cell(name), Cell(number(100 * value), value=100 * value)] for name, value in scores.items()]
    return Table(
        [Heading("encoder", numeric=False), Heading("dev", better="high")], rows, "Dev scores before and after"
    )


def _curves(run: dict[str, Any]) -> Iterator[TrainingCurve]:
    scores = run["scores"]
    dev = [(step, 100 * value) for step, value in run["dev_curve"]]
    if len(dev) > 1:
        values = [value for _, value in dev]
        kept = next((step for step, value in run["dev_curve"] if value == scores.get("after")), None)
        yield TrainingCurve(
            "dev-score",
            "Dev score over training",
            "The dev score during training; the large dot is the checkpoint that was kept.",
            "step",
            "dev score",
            (_series("dev score", dev),),
            {name: 100 * value for name, value in scores.items() if name != "after"},
            alt=f"{len(dev)} scores between {number(min(values))} and {number(max(values))}.",
            kept=kept,
        )
    loss = run.get("loss_curve") or []
    if len(loss) > 1:
        yield TrainingCurve(
            "loss",
            "Loss over training",
            "The training loss; each point is the mean since the one before.",
            "step",
            "loss",
            (_series("loss", loss),),
            alt=f"From {loss[0][1]:.4g} to {loss[-1][1]:.4g}.",
        )


def _series(name: str, points: list[Any]) -> Series:
    return Series(name, tuple((step, Measured(value)) for step, value in points))


def _text(run: dict[str, Any]) -> dict[str, Any]:
    text = run["text"]
    counts = {
        name: f"{value:,}" for name, value in text.items() if isinstance(value, int) and (value or name == "kept")
    }
    sources = ", ".join(_name(source) for source in run["config"]["text"])
    return {"sources": sources, **counts, "fingerprint of the kept sentences": text.get("fingerprint")}


# -- embeddings before and after -----------------------------------------------------------------------------------------


def _evidence_parts(evidence: RunEvidence) -> dict[str, Any]:
    return {
        "evidence_values": asdict(evidence),
        "pairs": evidence.measured * (evidence.measured - 1) // 2,
        "geometry": _geometry(evidence),
        "cosines": _cosines(evidence),
        "kept": evidence.kept_neighbours,
        "examples": _examples(evidence),
    }


def _geometry(evidence: RunEvidence) -> Table:
    before, after = evidence.before.geometry, evidence.after.geometry
    rank = f"Directions in use; at most {evidence.measured - 1} can show here."
    measures = (
        ("mean cosine", before.mean_cosine, after.mean_cosine, 3, "Near 1, all vectors point one way (anisotropy)."),
        (
            "uniformity",
            before.uniformity,
            after.uniformity,
            3,
            "log E exp(−2‖u−v‖²): the lower, the more evenly spread.",
        ),
        ("effective rank", before.effective_rank, after.effective_rank, 1, rank),
        ("dimensions", before.dimensions, after.dimensions, 0, "The embedding dimension."),
    )
    rows = [
        [Cell(name), Cell(number(one, places), value=one), Cell(number(two, places), value=two), Cell(meaning)]
        for name, one, two, places, meaning in measures
    ]
    headings = [
        Heading("measure", numeric=False),
        Heading("before"),
        Heading("after"),
        Heading("meaning", numeric=False),
    ]
    return Table(headings, rows, "Embeddings before and after", sortable=False)


def _cosines(evidence: RunEvidence) -> Histogram:
    before, after = evidence.before.geometry, evidence.after.geometry
    used = [place for place in range(BINS) if before.histogram[place] or after.histogram[place]]
    first, last = used[0], used[-1] + 1
    return Histogram(
        "cosines",
        "Cosines between sentences",
        "How many pairs have which cosine: after as a filled outline, before as a dashed one.",
        "cosine of two sentences",
        tuple(-1 + 2 * place / BINS for place in range(first, last + 1)),
        {"after": after.histogram[first:last], "before": before.histogram[first:last]},
        alt=f"Before, two sentences have a cosine of {number(before.mean_cosine)} on average, after {number(after.mean_cosine)}.",
    )


def _examples(evidence: RunEvidence) -> Table:
    def nearest(neighbours: tuple[tuple[int, float], ...]) -> list[Cell]:
        place, cosine = neighbours[0]
        return [Cell(evidence.sentences[place], sentence=True), Cell(number(cosine), value=cosine)]

    headings = [Heading("sentence", numeric=False), Heading("nearest before", numeric=False), Heading("cosine")]
    headings += [Heading("nearest after", numeric=False), Heading("cosine")]
    rows = [
        [Cell(sentence, sentence=True), *nearest(before), *nearest(after)]
        for sentence, before, after in zip(
            evidence.sentences[:_EXAMPLES], evidence.before.nearest, evidence.after.nearest, strict=False
        )
    ]
    return Table(headings, rows, f"The first {len(rows)} sentences in the order in which they were drawn")


def _name(source: str) -> str:
    """Return the name of a file, whose folders are of no interest to a reader; a hub name is left as it is."""
    return Path(source).name if Path(source).is_absolute() else source
