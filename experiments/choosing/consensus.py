"""Scores of a set of encoders: what one is worth in the company of the others.

consensus        Spearman of an encoder's cosines and the mean of the ranks that all others give, on the pairs that
                 :mod:`agreement` mines. Encoders err in different ways, so what most of them call near is near.
                 It needs several encoders that are not copies of each other, and most of them must be sensible.
mean-of-ranks    the mean of an encoder's ranks by ``RANKED``: damage, halves and the panel of counted views, all of which
                 count alike. One of them is about words, one about what goes with what, and one about a common scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.choosing.vectors import Floats, or_nothing
from selfguide.correlation import ranks, spearman
from selfguide.errors import SelfguideError

RANKED = ("corruptions", "halves", "panel")


def consensus(cosines: Sequence[Floats]) -> list[float]:
    """Each encoder's agreement with all others, from their :func:`~experiments.choosing.agreement.pair_cosines`."""
    if len(cosines) < 3:
        raise SelfguideError(f"A consensus needs three encoders or more, and there are {len(cosines)}.")
    each = np.stack([ranks(one) for one in cosines])
    total = each.sum(axis=0)
    return [or_nothing(spearman(own, total - own)) for own in each]


def mean_of_ranks(scores: Mapping[str, Sequence[float]]) -> list[float]:
    """From every encoder's single scores: the mean rank by those in ``RANKED``, from 1 for the worst."""
    return [float(value) for value in np.mean([ranks(scores[name]) for name in RANKED], axis=0)]
