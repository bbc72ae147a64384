"""What is measured of a run's encoder before and after training, which the page of the run carries as JSON.

The names of the fields are the keys of that JSON, so that pages of earlier versions can be read.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BINS = 40
"""Bins of the histogram of cosines, from −1 to 1."""
_OPEN, _CLOSE = '<script type="application/json" id="evidence">', "</script>"
Neighbours = tuple[tuple[int, float], ...]
"""Index and cosine of the nearest sentences, nearest first."""


@dataclass(frozen=True)
class Geometry:
    """How the embeddings of some sentences are distributed."""

    dimensions: int
    mean_cosine: float
    """Over all pairs of different sentences; near 1 where all embeddings point one way (anisotropy)."""
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
    """Which encoder this is."""
    geometry: Geometry
    nearest: tuple[Neighbours, ...]
    """For each sentence."""


@dataclass(frozen=True)
class RunEvidence:
    """Measurements before and after training, on the same sentences."""

    measured: int
    """On how many sentences the geometry was measured."""
    sentences: tuple[str, ...]
    """Those whose neighbours are shown: the first of the measured ones, truncated where they are long."""
    before: Side
    after: Side

    @property
    def kept_neighbours(self) -> float:
        """The share of the nearest sentences before that are among the nearest after."""
        pairs = list(zip(self.before.nearest, self.after.nearest, strict=True))
        kept = sum(len({place for place, _ in one} & {place for place, _ in two}) for one, two in pairs)
        return kept / sum(len(one) for one, _ in pairs)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RunEvidence:
        """Read the evidence from its JSON form.

        Args:
            values: What the file holds.

        Returns:
            The evidence.
        """
        return cls(int(values["measured"]), tuple(values["sentences"]), _side(values["before"]), _side(values["after"]))


def read_evidence(page: Path) -> RunEvidence | None:
    """Read the evidence that the page of a run carries.

    Args:
        page: The page.

    Returns:
        The evidence; None where there is no page, or one without evidence.
    """
    try:
        content = page.read_text(encoding="utf-8")
        found = re.search(re.escape(_OPEN) + "(.*?)" + re.escape(_CLOSE), content, re.DOTALL)
        return RunEvidence.from_dict(json.loads(found.group(1))) if found else None
    except (OSError, ValueError, KeyError, TypeError):  # not a page of a run
        return None


def _side(values: dict[str, Any]) -> Side:
    geometry = Geometry(**values["geometry"] | {"histogram": tuple(values["geometry"]["histogram"])})
    nearest = tuple(tuple((int(place), float(cosine)) for place, cosine in row) for row in values["nearest"])
    return Side(values["words"], geometry, nearest)
