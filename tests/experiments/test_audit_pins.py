"""The check of the pins says what is known, and says so where it cannot know."""

from __future__ import annotations

import json

import pytest

from experiments.audit_pins import CLEAN, KNOWN, UNCHECKED, report


def test_the_three_outcomes(capsys: pytest.CaptureFixture[str]) -> None:
    sound = {"name": "numpy", "version": "2.4.6", "vulns": []}
    flawed = {"name": "old", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}
    assert report(json.dumps({"dependencies": [sound]}), "") == CLEAN
    assert capsys.readouterr().out == "Packages checked: 1; known vulnerabilities: 0.\n"
    assert report(json.dumps({"dependencies": [sound, flawed]}), "Found 1") == KNOWN
    assert "old 1.0: PYSEC-1; fixed in 1.1" in capsys.readouterr().out
    assert report("", "Traceback\nConnectionError: no route to host\n") == UNCHECKED
    skipped = {"name": "torch", "skip_reason": "not found"}
    assert report(json.dumps({"dependencies": [skipped]}), "") == UNCHECKED
    found = capsys.readouterr()
    assert "no route to host). This check needs the network." in found.err
    assert found.out == "Packages checked: 0; known vulnerabilities: 0.\n"
    assert "1 of 1 were not found in the database (torch)" in found.err
