"""Compare the pinned packages with the public database of known vulnerabilities.

    python -m experiments.audit_pins        # or: make audit

Runs pip-audit in an environment of its own, which is removed afterwards. It needs the network, and says so where there is none:
exit code 0 means that nothing is known, 1 that something is, 2 that pins could not be checked.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PINS = Path(__file__).parents[1] / "constraints.txt"
CLEAN, KNOWN, UNCHECKED = 0, 1, 2
_LIMIT_S = 600


def main() -> int:
    """Check the pins, and print what is known about them."""
    with tempfile.TemporaryDirectory(prefix="audit-") as folder:
        venv.create(folder, with_pip=True)
        program = str(Path(folder) / "bin" / "python")
        installed = _run([program, "-m", "pip", "install", "--quiet", "pip-audit"])
        if installed.returncode:
            return _unchecked("pip-audit could not be installed", installed.stderr)
        words = ["-m", "pip_audit", "-r", str(PINS), "--no-deps", "--disable-pip", "--format", "json"]
        checked = _run([program, *words])
    return report(checked.stdout, checked.stderr)


def report(found: str, errors: str) -> int:
    """Print the outcome of pip-audit.

    Args:
        found: Its output, JSON.
        errors: What it wrote on standard error.

    Returns:
        The exit code.
    """
    try:
        packages: list[dict[str, Any]] = json.loads(found)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return _unchecked("pip-audit gave no answer", errors)
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    known = [(package, flaw) for package in packages for flaw in package.get("vulns", ())]
    for package, flaw in known:
        fixed = ", ".join(flaw.get("fix_versions", [])) or "no version yet"
        print(f"{package['name']} {package['version']}: {flaw['id']}; fixed in {fixed}")
    if skipped:  # pip-audit counts these as harmless
        _unchecked(f"{len(skipped)} of {len(packages)} were not found in the database", ", ".join(skipped))
    print(f"Packages checked: {len(packages) - len(skipped)}; known vulnerabilities: {len(known)}.")
    return KNOWN if known else UNCHECKED if skipped else CLEAN


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 1, "", f"no answer within {_LIMIT_S} s")


def _unchecked(what: str, errors: str) -> int:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    reason = f" ({lines[-1][:300]})" if lines else ""
    print(f"The pins could not be checked: {what}{reason}. This check needs the network.", file=sys.stderr)
    return UNCHECKED


if __name__ == "__main__":
    sys.exit(main())
