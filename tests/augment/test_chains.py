"""Augmentations joined by name."""

from __future__ import annotations

import pytest

from selfguide.augment.chains import chain
from selfguide.errors import UsageError


def test_rewritings_are_chained_by_name() -> None:
    steps = {"none": lambda tokens: tokens, "double": lambda tokens: tokens * 2}
    assert chain("double+double", steps)([7]) == [7] * 4
    with pytest.raises(UsageError, match=r"no augmentation 'triple'.*none, double"):
        chain("triple", steps)
