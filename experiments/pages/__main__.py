"""Write the figures of all pages from the results files, or check that they are as written.

python -m experiments.pages            write
python -m experiments.pages --check    change nothing; fail if a page differs or states a figure without a source
"""

from __future__ import annotations

import difflib
import sys

from experiments.pages.render import PAGES, Stale, rendered
from experiments.pages.sources import ROOT, Unknown
from experiments.pages.strict import unsourced
from experiments.provenance import command_parser
from selfguide.files import write_text


def main(words: list[str] | None = None) -> int:
    """Write or check the pages, and return the exit code."""
    parser = command_parser(__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail on any difference")
    check = parser.parse_args(words).check
    complaints: list[str] = []
    for page in PAGES:
        path = ROOT / page
        text = path.read_text(encoding="utf-8")
        try:
            new = rendered(text)
        except (Unknown, Stale) as error:
            complaints.append(f"{page}: {error}")
            continue
        if new != text and check:
            complaints.append(
                f"{page} differs from the results (`python -m experiments.pages` writes it):\n{_diff(text, new)}"
            )
        elif new != text:
            write_text(path, new)
            print(f"written: {page}")
        complaints += [f"{page}:{line}: {words}" for line, words in unsourced(page, new)]
    if complaints:
        print("\n".join(complaints), file=sys.stderr)
    print(f"{len(PAGES)} pages, {len(complaints)} complaints.")
    return 1 if complaints else 0


def _diff(old: str, new: str) -> str:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)
    return "\n".join(list(lines)[2:14])


if __name__ == "__main__":
    sys.exit(main())
