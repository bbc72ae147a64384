"""Ideas to push fused further, each a small function of arrays. What they are worth is for ``fused_ablation`` to say.

All are label-free: they see the text's sentences alone. Those that change a part return a :class:`~experiments.fused_parts.Part`,
which is joined like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import LinearOperator, cg

from experiments.fused_parts import Encoded, Floats, Part, Vectors
from selfguide.calibration.statistics import LinearMap, Moments, whitening_map

WIDTH = 384
"""Numbers of a bigram's random vector."""


def learnt_token_weights(
    found: Encoded, rows: NDArray[np.int64], target: Vectors, weights: Floats, ridge: float = 1.0
) -> Floats:
    """Token weights such that the weighted view predicts the whitened tuned part y as well as it can.

    A map A from view to y is fitted first (ridge regression, the weights as they are). Then, with A fixed, the prediction
    Σ_t w_t n_st A e_t / n_s is linear in the weights w, and w is fitted by least squares with a penalty that draws it towards
    the weights by frequency. e_t is the mean layer-0 vector of token t in the text. Weights below 0 become 0.
    """
    view = found.view(weights)[rows].astype(np.float64)
    centred, aim = view - view.mean(axis=0), target.astype(np.float64) - target.mean(axis=0)
    mapping = _ridge(centred, aim, 0.1)
    bags, tokens = _bags(found, rows)
    images = _mean_vectors(found, tokens) @ mapping
    images -= images.mean(axis=0)
    start = weights[tokens]
    scale = ridge * float((images**2).sum() * bags.power(2).sum() / max(1, len(tokens)) ** 2 + 1e-12)

    def predicted(values: Floats) -> Floats:
        return np.asarray(bags @ (values[:, None] * images))

    def pulled(residuals: Floats) -> Floats:
        return np.asarray((images * (bags.T @ residuals)).sum(axis=1))

    normal = LinearOperator(
        (len(tokens), len(tokens)), matvec=lambda w: pulled(predicted(w)) + scale * w, dtype=np.float64
    )
    change, _ = cg(normal, pulled(aim - predicted(start)), maxiter=60)
    learnt = weights.copy()
    learnt[tokens] = np.maximum(0.0, start + change) * (start > 0)
    return learnt


def bigram_part(
    pieces: Sequence[Sequence[int]], text: NDArray[np.int64], scored: NDArray[np.int64], a: float = 1e-4
) -> Part:
    """A third part that knows which words stand side by side: random vectors of bigrams, weighted by frequency.

    A bigram's vector is drawn by a generator that its two numbers seed, so that no table is kept. p(b) is counted in the text.
    """
    counts: Counter[tuple[int, int]] = Counter()
    for row in text.tolist():
        counts.update(_bigrams(pieces[row]))
    total = max(1, sum(counts.values()))
    vectors = np.zeros((len(pieces), WIDTH), dtype=np.float32)
    for row in np.union1d(text, scored).tolist():
        for bigram in _bigrams(pieces[row]):
            vectors[row] += a / (a + counts[bigram] / total) * _vector(bigram)
    return Part(vectors[text], vectors[scored])


@cache
def _vector(bigram: tuple[int, int]) -> Vectors:
    """Of a bigram: signs at random, of length 1."""
    signs = np.random.default_rng([*bigram, 7]).choice([-1.0, 1.0], WIDTH)
    return np.asarray(signs.astype(np.float32) / np.sqrt(WIDTH))


def residual_part(tuned: Part, view: Part, ridge: float = 0.1) -> Part:
    """What of the tuned part the view does not predict: x_1 − B x_2, B by ridge regression on the text."""
    centre, other = tuned.text.mean(axis=0), view.text.mean(axis=0)
    mapping = _ridge((view.text - other).astype(np.float64), (tuned.text - centre).astype(np.float64), ridge)

    def rest(first: Vectors, second: Vectors) -> Vectors:
        return np.asarray(first - centre - (second - other) @ mapping, dtype=np.float32)

    return Part(rest(tuned.text, view.text), rest(tuned.scored, view.scored))


def low_rank(part: Part, rank: int) -> Part:
    """Whiten the leading directions; all others share one variance, their mean. A small variance is then not blown up."""
    moments = part.moments()
    values, directions = np.linalg.eigh(moments.covariance)
    values, directions = values[::-1].copy(), directions[:, ::-1]
    values[rank:] = values[rank:].mean()
    weight = (directions / np.sqrt(np.maximum(values, 1e-12 * values[0]))).T
    return part.mapped(LinearMap(weight, -weight @ moments.mean)).scaled()


def robust(part: Part, rounds: int = 10) -> Part:
    """Whiten by Tyler's scatter: every deviation counts by its direction alone, so that outliers do not rule it."""
    centre = np.median(part.text, axis=0).astype(np.float64)
    deviations = part.text - centre
    width = deviations.shape[1]
    scatter = np.eye(width)
    for _ in range(rounds):
        distances = np.einsum("ij,ij->i", deviations @ np.linalg.pinv(scatter, hermitian=True), deviations)
        weighted = deviations / np.maximum(distances, 1e-9)[:, None]
        scatter = weighted.T @ deviations
        scatter = 0.98 * scatter * width / np.trace(scatter) + 0.02 * np.eye(width)  # keeps it regular
    return part.mapped(whitening_map(Moments(len(deviations), centre, scatter * len(deviations)))).scaled()


def jointly_whitened(tuned: Part, view: Part, shrinkage: float = 0.05) -> Part:
    """Both parts whitened as one vector: what they have in common counts once."""
    both = beside(tuned, view)
    return both.mapped(whitening_map(both.moments(), shrinkage=shrinkage)).scaled()


def beside(first: Part, second: Part) -> Part:
    """Two parts as one, with equal shares."""
    one, two = first.scaled(), second.scaled()
    return Part(np.concatenate([one.text, two.text], 1), np.concatenate([one.scored, two.scored], 1))


def _ridge(first: Floats, second: Floats, share: float) -> Floats:
    """The map B of least squares from ``first`` to ``second``, with a penalty of a share of the mean variance."""
    scatter = first.T @ first
    penalty = share * np.trace(scatter) / len(scatter)
    return np.linalg.solve(scatter + penalty * np.eye(len(scatter)), first.T @ second)


def _bags(found: Encoded, rows: NDArray[np.int64]) -> tuple[csr_matrix, NDArray[np.int64]]:
    """Shares of the text's tokens in each of its sentences, and which tokens they are."""
    ends = np.append(found.starts[1:], len(found.ids))
    ids = [found.ids[found.starts[row] : ends[row]] for row in rows.tolist()]
    tokens, columns = np.unique(np.concatenate(ids), return_inverse=True)
    lengths = np.array([len(each) for each in ids])
    sentence = np.repeat(np.arange(len(ids)), lengths)
    shares = np.repeat(1.0 / lengths, lengths)
    return csr_matrix((shares, (sentence, columns.reshape(-1))), shape=(len(ids), len(tokens))), tokens


def _mean_vectors(found: Encoded, tokens: NDArray[np.int64]) -> Floats:
    """The mean layer-0 vector of each of the tokens, over all its places."""
    places = np.flatnonzero(np.isin(found.ids, tokens))
    columns = np.searchsorted(tokens, found.ids[places])
    select = csr_matrix((np.ones(len(places)), (columns, places)), shape=(len(tokens), len(found.ids)))
    sums, counts = select @ found.tokens.astype(np.float64), np.asarray(select.sum(axis=1))
    return np.asarray(sums / counts)


def _bigrams(pieces: Sequence[int]) -> list[tuple[int, int]]:
    return list(pairwise(pieces))
