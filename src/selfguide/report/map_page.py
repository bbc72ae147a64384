"""The page of a map of sentences (:mod:`selfguide.mapping`): a canvas, a search box, a switch between two encoders, groups."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from selfguide.progress import counted
from selfguide.report.page import render_page
from selfguide.words import abridged

if TYPE_CHECKING:
    from numpy.typing import NDArray

_STEPS = 65_535  # places are carried as 16-bit numbers, far finer than a pixel
_SHOWN_NEIGHBOURS = 8
COLOURS = 12
_LONGEST = 400  # characters of a sentence that the page carries


@dataclass(frozen=True)
class MapSide:
    """One encoder's map of the sentences."""

    encoder: str
    places: NDArray[np.float32]
    """(count, 2), in [0, 1]."""
    neighbours: NDArray[np.int64]
    """Rows of the nearest other sentences (count, k), the nearest first."""
    cosines: NDArray[np.float32]
    """Their cosines (count, k)."""


@dataclass(frozen=True)
class MapCluster:
    """A group of sentences."""

    words: tuple[str, ...]
    size: int
    example: int
    """Row of a typical sentence."""


def map_page(
    title: str,
    sentences: Sequence[str],
    sides: Sequence[MapSide],
    labels: NDArray[np.int64],
    clusters: Sequence[MapCluster],
    read: int,
) -> str:
    """Make the page.

    Args:
        title: Its title.
        sentences: The sentences.
        sides: The encoders, the one to show first last.
        labels: The group of each sentence, −1 for none.
        clusters: The groups, by number.
        read: Sentences of the text that these are all or a sample of.

    Returns:
        The HTML file.
    """
    colours = group_colours(sides[-1].places, labels, len(clusters))
    values = {
        "sentences": [abridged(sentence, _LONGEST) for sentence in sentences],
        "labels": _packed(labels, np.int16),
        "clusters": [
            {"words": list(one.words), "size": one.size, "example": one.example, "colour": colour}
            for one, colour in zip(clusters, colours, strict=True)
        ],
        "sides": [_side(side) for side in sides],
    }
    count = counted(len(sentences), "sentence")
    return render_page(
        "map",
        style="map.css",
        script="map.js",
        title=title,
        count=count if read == len(sentences) else f"{count}, drawn at random from {read:,}",
        encoders=[side.encoder for side in sides],
        clusters=clusters,
        colours=colours,
        examples=[abridged(sentences[cluster.example], _LONGEST) for cluster in clusters],
        apart=int((labels < 0).sum()),
        values=values,
    )


def group_colours(places: NDArray[np.float32], labels: NDArray[np.int64], groups: int) -> list[int]:
    """Choose a colour for each group such that groups of one colour are far apart.

    Args:
        places: Of the sentences (count, 2).
        labels: The group of each.
        groups: How many groups there are.

    Returns:
        A number below :data:`COLOURS` for each group: for the first groups one each, then the one whose nearest group is the
        farthest away.
    """
    middles = np.array([np.median(places[labels == group], axis=0) for group in range(groups)]).reshape(groups, 2)
    chosen: list[int] = []
    for group in range(groups):
        if group < COLOURS:
            chosen.append(group)
            continue
        away = np.linalg.norm(middles[:group] - middles[group], axis=1)
        nearest = [away[np.array(chosen) == colour].min() for colour in range(COLOURS)]
        chosen.append(int(np.argmax(nearest)))
    return chosen


def _side(side: MapSide) -> dict[str, Any]:
    shown = min(_SHOWN_NEIGHBOURS, side.neighbours.shape[1])
    places = np.round(side.places * _STEPS).clip(0, _STEPS)
    return {
        "encoder": side.encoder,
        "x": _packed(places[:, 0], np.uint16),
        "y": _packed(places[:, 1], np.uint16),
        "near": _packed(side.neighbours[:, :shown], np.uint32),
        "cosines": _packed(np.round(side.cosines[:, :shown] * 100), np.int8),
        "shown": shown,
    }


def _packed(values: NDArray[Any], kind: Any) -> str:
    """Return an array as the little-endian bytes that a browser's typed arrays read, in base64."""
    return base64.b64encode(values.astype(np.dtype(kind).newbyteorder("<")).tobytes()).decode("ascii")
