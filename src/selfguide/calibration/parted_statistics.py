"""Statistics of vectors made of parts, and the map that whitens the parts and joins them.

A vector x is made of parts x_1 … x_m (the method fused has two, whitening one). Of a text the statistics keep the count, the
mean, the scatter Σ (x − μ)(x − μ)ᵀ and, for each part with d = x_p − μ_p, the sums Σ ‖d‖² d and Σ ‖d‖⁴. The last of them gives
the shrinkage of Ledoit and Wolf (2004) without the vectors; the one before it is what moving the centre needs. All are in
double precision and merge exactly, so that text can be read in chunks, and more text can be added later:

    v = R [√w_1 · c_1 W_1 (x_1 − μ_1) ; … ; √w_m · c_m W_m (x_m − μ_m)]

W_p whitens part p, c_p makes its mean squared length on the text 1, w_p is its share, and R keeps the leading directions of
the joined vector's covariance (or all of it). It is one linear map, saved as the last module of the folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load_file, save_file

from selfguide.calibration.statistics import SENTENCES_A_DIMENSION, SMALLEST_SHARE, LinearMap, Moments, whitening_map
from selfguide.errors import SelfguideError, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

    from selfguide.progress import Reporter

STATISTICS_FILE = "calibration.safetensors"


@dataclass
class Statistics:
    """What is kept of a text's vectors, each made of parts of the given widths."""

    widths: tuple[int, ...]
    moments: Moments
    cubes: NDArray[np.float64]
    """Σ ‖d‖² d of every part, side by side."""
    fourths: NDArray[np.float64]
    """Σ ‖d‖⁴ of every part."""

    @classmethod
    def empty(cls, widths: Sequence[int]) -> Statistics:
        """Nothing seen yet."""
        return cls(tuple(widths), Moments.empty(sum(widths)), np.zeros(sum(widths)), np.zeros(len(widths)))

    @classmethod
    def of(cls, vectors: NDArray[np.floating], widths: Sequence[int]) -> Statistics:
        """The statistics of an array (count, width)."""
        found = cls.empty(widths)
        found.moments = Moments.of(vectors)
        deviations = np.asarray(vectors, dtype=np.float64) - found.moments.mean
        for part, place in enumerate(found.places):
            squares = (deviations[:, place] ** 2).sum(axis=1)
            found.cubes[place] = squares @ deviations[:, place]
            found.fourths[part] = squares @ squares
        return found

    @property
    def places(self) -> list[slice]:
        """Where in the vector each part is."""
        ends = np.cumsum(self.widths).tolist()
        return [slice(end - width, end) for end, width in zip(ends, self.widths, strict=True)]

    @property
    def count(self) -> int:
        return self.moments.count

    def part(self, number: int) -> Moments:
        """Count, mean and scatter of one part."""
        place = self.places[number]
        return Moments(self.count, self.moments.mean[place], self.moments.scatter[place, place])

    def merge(self, other: Statistics) -> Statistics:
        """The statistics of both texts together."""
        moments = self.moments.merge(other.moments)
        ours, theirs = self._about(moments.mean), other._about(moments.mean)
        return Statistics(self.widths, moments, ours[0] + theirs[0], ours[1] + theirs[1])

    def _about(self, centre: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Σ ‖d‖² d and Σ ‖d‖⁴ for deviations from another centre: those from the mean, expanded (Σ d is 0 there)."""
        cubes, fourths = self.cubes.copy(), self.fourths.copy()
        for part, place in enumerate(self.places):
            step = centre[place] - self.moments.mean[place]
            scatter = self.moments.scatter[place, place]
            length, trace, along = step @ step, np.trace(scatter), scatter @ step
            fourths[part] += (
                4 * step @ along - 4 * step @ cubes[place] + 2 * length * trace + self.count * length * length
            )
            cubes[place] -= step * trace + 2 * along + self.count * length * step
        return cubes, fourths

    def shrinkage(self, number: int, wanted: str = "auto") -> float:
        """How much of a sphere to mix into a part's covariance; ``auto``: none if there are sentences enough."""
        if wanted != "auto":
            return float(wanted)
        if self.count >= SENTENCES_A_DIMENSION * self.widths[number]:
            return 0.0
        covariance = self.part(number).covariance
        squares = float((covariance**2).sum())
        noise = (self.fourths[number] / max(1, self.count) - squares) / max(1, self.count)
        distance = squares - np.trace(covariance) ** 2 / self.widths[number]
        estimate = min(1.0, noise / distance) if distance > 0 else 1.0
        # Of two sentences the estimate is 0: without a least share, one direction alone would be left of the vector.
        return float(max(estimate, 1 / max(1, self.count)))

    def numbers(self) -> dict[str, NDArray[Any]]:
        """As arrays by name."""
        named = {"count": np.array([self.count]), "widths": np.array(self.widths), "mean": self.moments.mean}
        return named | {"scatter": self.moments.scatter, "cubes": self.cubes, "fourths": self.fourths}

    @classmethod
    def from_numbers(cls, numbers: dict[str, NDArray[Any]]) -> Statistics:
        """Back from :meth:`numbers`."""
        moments = Moments(int(numbers["count"][0]), numbers["mean"], numbers["scatter"])
        return cls(tuple(numbers["widths"].tolist()), moments, numbers["cubes"], numbers["fourths"])


_OF_TOKENS = "tokens."


@dataclass
class TextStatistics:
    """What a calibration is fitted by: the statistics of a text's sentence vectors and, where it needs them, of its tokens'."""

    sentences: Statistics
    tokens: Statistics | None = None

    def merge(self, other: TextStatistics) -> TextStatistics:
        """Of both texts together."""
        both = None if self.tokens is None or other.tokens is None else self.tokens.merge(other.tokens)
        return TextStatistics(self.sentences.merge(other.sentences), both)

    def save(self, path: Path) -> None:
        """Write to a file of numbers alone."""
        tokens = {} if self.tokens is None else self.tokens.numbers()
        save_file(self.sentences.numbers() | {f"{_OF_TOKENS}{name}": value for name, value in tokens.items()}, path)

    @classmethod
    def load(cls, path: Path) -> TextStatistics:
        """Read what :meth:`save` wrote."""
        try:
            numbers = load_file(path)
            tokens = {
                name.removeprefix(_OF_TOKENS): value for name, value in numbers.items() if name.startswith(_OF_TOKENS)
            }
            return cls(Statistics.from_numbers(numbers), Statistics.from_numbers(tokens) if tokens else None)
        except Exception as error:
            raise SelfguideError(f"The statistics in {path} cannot be read ({error}); say --fresh.") from None


def measure(
    encoder: SentenceTransformer,
    batches: Iterable[list[str]],
    widths: Sequence[int],
    batch_size: int,
    reporter: Reporter,
    total: int | None = None,
) -> Statistics:
    """The statistics of an encoder's vectors on text that comes in batches."""
    statistics = Statistics.empty(widths)
    with reporter.bar("encoding", total, "sentences") as advance:
        for sentences in batches:
            vectors = encoder.encode(sentences, batch_size=batch_size, show_progress_bar=False)
            statistics = statistics.merge(Statistics.of(np.asarray(vectors), widths))
            advance(len(sentences), "")
    if not np.isfinite(statistics.moments.scatter).all():
        raise SelfguideError(
            "The encoder gave vectors that are not finite, so they have no covariance; choose another."
        )
    return statistics


def warn_if_few(
    statistics: TextStatistics,
    shrinkage: str,
    reporter: Reporter,
    by_sentences: bool = True,
    eked_out: bool = False,
) -> None:
    """Say so where a covariance is a poor estimate.

    ``by_sentences``: whether that of the sentence vectors is used at all; ``eked_out``: whether that of the tokens is merged
    with general English's.
    """
    sentences, tokens = statistics.sentences, statistics.tokens
    later = "`selfguide calibrate` adds text later, without training."
    if by_sentences and sentences.count < (enough := SENTENCES_A_DIMENSION * max(sentences.widths)):
        remedy = _remedy([sentences.shrinkage(part, shrinkage) for part in range(len(sentences.widths))])
        reporter.warn(
            f"{sentences.count:,} sentences are few for vectors of {max(sentences.widths)} numbers; their covariances {remedy}. "
            f"From {enough:,} sentences on they are good estimates: {later}"
        )
    elif tokens is not None and tokens.count < (enough := SENTENCES_A_DIMENSION * tokens.widths[0]):
        if eked_out:
            remedy = "are eked out with those of general English"
        else:
            remedy = _remedy([tokens.shrinkage(0, shrinkage)]) if tokens.count else "are unknown"
        reporter.warn(
            f"{sentences.count:,} sentences are few for vectors of {tokens.widths[0]} numbers: the covariances of their "
            f"{tokens.count:,} tokens {remedy}. From {enough:,} tokens on they are good estimates: {later}"
        )


def _remedy(shares: list[float]) -> str:
    amounts = " and ".join(f"{share:.2f}" for share in shares)
    return f"are drawn towards a sphere (shrinkage {amounts})" if any(shares) else "are taken as they are"


def joined_map(
    statistics: Statistics,
    shares: Sequence[float],
    keep: int = 0,
    shrinkage: str = "auto",
    exponents: Sequence[float] | None = None,
    spreads: Sequence[LinearMap | None] | None = None,
) -> LinearMap:
    """The map of the module's head; a part whose share is 0 is left out, ``keep`` 0 keeps all directions.

    ``exponents`` say how far each part is whitened: 0.5 (for all, if not given) whitens it, 0 takes off the mean alone.
    ``spreads``: maps that stand in for the whitening of a part; about the part's own mean.
    """
    weights, biases = [], []
    for number, (share, place) in enumerate(zip(shares, statistics.places, strict=True)):
        if share == 0:
            continue
        moments = statistics.part(number)
        exponent = exponents[number] if exponents is not None else 0.5
        spread = spreads[number] if spreads is not None else None
        if spread is not None:
            white = LinearMap(spread.weight, -spread.weight @ moments.mean)
            if not np.trace(moments.covariance) > SMALLEST_SHARE * (moments.mean @ moments.mean):
                raise SelfguideError("All sentences of this text have the same vector; there is nothing to whiten.")
        else:
            white = whitening_map(moments, shrinkage=statistics.shrinkage(number, shrinkage), exponent=exponent)
        squared_length = np.trace(white.weight @ moments.covariance @ white.weight.T)
        scale = np.sqrt(share / squared_length)
        weight = np.zeros((len(white.weight), sum(statistics.widths)))
        weight[:, place] = scale * white.weight
        weights.append(weight)
        biases.append(scale * white.bias)
    joined = LinearMap(np.concatenate(weights), np.concatenate(biases))
    if not keep:
        return joined
    size = len(joined.weight)
    if keep > size:
        raise UsageError(f"dim = {keep} is more than the {size} numbers of the joined vector.")
    scatter = joined.weight @ statistics.moments.scatter @ joined.weight.T
    leading = whitening_map(Moments(statistics.count, np.zeros(size), scatter), keep, exponent=0.0).weight
    return LinearMap(leading @ joined.weight, leading @ joined.bias)
