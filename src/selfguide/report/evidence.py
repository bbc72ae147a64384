"""What is measured of a run's encoder before and after: plain values, which the page carries as JSON and gives back."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

BINS = 40
"""Of the histogram of cosines, from −1 to 1."""
_OPEN, _CLOSE = '<script type="application/json" id="evidence">', "</script>"
Neighbours = tuple[tuple[int, float], ...]
"""The nearest sentences, nearest first: their number, and the cosine."""


@dataclass(frozen=True)
class Geometry:
    """How the vectors of some sentences lie."""

    dimensions: int
    mean_cosine: float
    """Over all pairs of different sentences; near 1 where all vectors point one way (anisotropy)."""
    effective_rank: float
    """exp of the entropy of the singular values of the centred unit vectors."""
    uniformity: float
    """log E exp(−2‖u−v‖²) over pairs of unit vectors; lower is more even."""
    histogram: tuple[int, ...]
    """Pairs by cosine, in :data:`BINS` equal bins from −1 to 1."""


@dataclass(frozen=True)
class Side:
    """One encoder, before or after."""

    words: str
    """Whose vectors these are."""
    geometry: Geometry
    nearest: tuple[Neighbours, ...]
    """For each sentence."""


@dataclass(frozen=True)
class RunEvidence:
    """Before and after on the same sentences."""

    measured: int
    """On how many sentences the geometry was measured."""
    sentences: tuple[str, ...]
    """Those whose neighbours are told: the first of the measured ones, long ones cut."""
    before: Side
    after: Side

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RunEvidence:
        """Back from ``asdict`` and JSON."""
        return cls(int(values["measured"]), tuple(values["sentences"]), _side(values["before"]), _side(values["after"]))


def embedded(evidence: RunEvidence) -> str:
    """As an element of the page. A sentence may contain anything, so no `<` is left that could end the element."""
    compact = json.dumps(asdict(evidence), ensure_ascii=False, separators=(",", ":"))
    return _OPEN + compact.replace("<", "\\u003c").replace("\u2028", "\\u2028") + _CLOSE


def evidence_of(page: Path) -> RunEvidence | None:
    """What a former page carries; None where there is no page, or one without evidence."""
    try:
        content = page.read_text(encoding="utf-8")
        found = re.search(re.escape(_OPEN) + "(.*?)" + re.escape(_CLOSE), content, re.DOTALL)
        return RunEvidence.from_dict(json.loads(found.group(1))) if found else None
    except (OSError, ValueError, KeyError, TypeError):  # not a page of ours: the report does without
        return None


def _side(values: dict[str, Any]) -> Side:
    geometry = Geometry(**values["geometry"] | {"histogram": tuple(values["geometry"]["histogram"])})
    nearest = tuple(tuple((int(place), float(cosine)) for place, cosine in row) for row in values["nearest"])
    return Side(values["words"], geometry, nearest)
