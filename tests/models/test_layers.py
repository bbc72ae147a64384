from __future__ import annotations

import pytest
import torch

from selfguide.errors import UsageError
from selfguide.models.layers import parse_layers, pool


def _naive(states: torch.Tensor, mask: torch.Tensor, pooling: str) -> torch.Tensor:
    rows = []
    for state, real in zip(states, mask, strict=True):
        tokens = [vector for vector, keep in zip(state, real, strict=True) if keep]
        if pooling == "cls":
            rows.append(tokens[0])
        elif pooling == "mean":
            rows.append(sum(tokens) / len(tokens))
        else:
            rows.append(torch.stack(tokens).max(dim=0).values)
    return torch.stack(rows)


@pytest.mark.parametrize("pooling", ["max", "mean", "cls"])
@pytest.mark.parametrize("left", [False, True])
def test_pooling_sees_real_tokens_only(pooling: str, left: bool) -> None:
    states = torch.randn(4, 6, 5) - 3.0  # all-negative maxima would be beaten by zeros of padding
    lengths = [6, 1, 3, 4]
    mask = torch.zeros(4, 6, dtype=torch.long)
    for row, length in enumerate(lengths):
        mask[row, 6 - length if left else 0 : 6 if left else length] = 1
    torch.testing.assert_close(pool(states, mask, pooling), _naive(states, mask, pooling))


def test_unknown_pooling_is_refused() -> None:
    with pytest.raises(UsageError, match=r"view pooling must be one of max, mean, cls, got 'median'"):
        pool(torch.zeros(1, 1, 1), torch.ones(1, 1), "median")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("all", (0, 1, 2, 3, 4)),
        ("last", (4,)),
        ("1-3", (1, 2, 3)),
        ("0,2,4", (0, 2, 4)),
        ("0,2-3", (0, 2, 3)),
        ("-1", (4,)),
        ([0, -1], (0, 4)),
        (2, (2,)),
    ],
)
def test_layers_are_understood(given: str | int | list[int], expected: tuple[int, ...]) -> None:
    assert parse_layers(given, 4) == expected


@pytest.mark.parametrize("given", ["5", "0-9", "-7", "2,2", "some", "", [], "1-"])
def test_wrong_layers_are_refused(given: str) -> None:
    with pytest.raises(UsageError, match="layer"):
        parse_layers(given, 4)
