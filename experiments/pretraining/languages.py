"""Which language a text is in, and how often each language is drawn.

A file or part belongs to the language that its name begins with: ``spanish-0.txt.xz`` is in *spanish*. Languages are drawn
with a temperature T: a language with n tokens gets a share of the tokens proportional to n^(1/T), so that T = 1 keeps
their proportions and a higher one makes them more alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

_NAME = re.compile(r"(?P<language>[^\W\d_]+)-\d+\.txt(\.xz)?")


def language_of(path: Path) -> str:
    """Return the language that a file of text is in, by its name.

    Args:
        path: The file.

    Raises:
        ValueError: The name does not say.
    """
    found = _NAME.fullmatch(path.name)
    if found is None:
        raise ValueError(f"{path.name} does not say its language: a name like spanish-0.txt.xz is needed.")
    return found["language"]


def shares(sizes: Mapping[str, int], temperature: float) -> dict[str, float]:
    """Return the share of each language.

    Args:
        sizes: The amount of text of each language.
        temperature: 1 for the proportions of the text; higher ones make the shares more alike.

    Returns:
        Shares that add up to 1.

    Raises:
        ValueError: The temperature is below 1, or a language has no text.
    """
    if temperature < 1 or not all(size > 0 for size in sizes.values()):
        raise ValueError("A temperature of at least 1 is needed, and some text in every language.")
    weights = {name: size ** (1 / temperature) for name, size in sizes.items()}
    return {name: weight / sum(weights.values()) for name, weight in weights.items()}


class Mixture(NamedTuple):
    """The languages of a corpus whose parts lie end to end, one language after the other."""

    names: tuple[str, ...]
    tokens: Tensor  # (L + 1,) where each language's tokens begin, then their number
    shares: Tensor  # (L,) share of the tokens of a step


def mixture_of(sizes: Mapping[str, int], temperature: float, device: torch.device) -> Mixture:
    """Return the mixture of languages that follow one another in the given order.

    Args:
        sizes: The number of tokens of each language.
        temperature: See :func:`shares`.
        device: The corpus's device.
    """
    wanted = shares(sizes, temperature)
    starts = torch.tensor([0, *sizes.values()]).cumsum(0)
    return Mixture(tuple(sizes), starts.to(device), torch.tensor([wanted[name] for name in sizes], device=device))


class Drawer:
    """Draws positions of a sorted list, language by language and uniformly within each."""

    def __init__(self, bounds: Tensor, weights: Tensor) -> None:
        """Fix the ranges.

        Args:
            bounds: Where each language begins in the list, then the list's length, (L + 1,).
            weights: How often each language is drawn, (L,); those without any position are never drawn.
        """
        self._first, self._count = bounds[:-1], bounds.diff()
        self._weights = torch.where(self._count > 0, weights, 0.0)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw positions with replacement.

        Args:
            count: How many.
            generator: Source of random numbers.
        """
        language = torch.multinomial(self._weights, count, replacement=True, generator=generator)
        chance = torch.rand(count, device=language.device, generator=generator, dtype=torch.float64)
        inside = (chance * self._count[language]).long()
        return self._first[language] + torch.minimum(inside, self._count[language] - 1)
