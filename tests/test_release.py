"""The package, its changelog and its citation name one version, and the counts in the changelog are right."""

from __future__ import annotations

import re
from pathlib import Path

import selfguide
from selfguide.methods import registry

ROOT = Path(__file__).parents[1]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_changelog_and_citation_are_of_the_packages_version() -> None:
    newest = re.search(r"^## (\S+)", CHANGELOG, re.MULTILINE)
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert cited is not None
    assert newest[1] == cited[1] == selfguide.__version__


def test_the_changelog_counts_the_methods() -> None:
    assert f"**{len(registry.builtin_methods())} methods behind one interface.**" in CHANGELOG
