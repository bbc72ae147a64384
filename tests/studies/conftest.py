"""Studies at toy size: drawing their figures would take longer than making their numbers."""

from __future__ import annotations

import pytest

from selfguide.studies import files


@pytest.fixture
def drawn_figures() -> None:
    """Asked for by tests that look at the files in ``figures/``."""


@pytest.fixture(autouse=True)
def _undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "drawn_figures" not in request.fixturenames:
        monkeypatch.setattr(files, "write_figures", lambda results, folder: [])
