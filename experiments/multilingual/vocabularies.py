"""How tokenizers split texts in several languages, and what the check of a text says of them.

python -m experiments.multilingual.vocabularies --data DATA --tokenizers mini all-MiniLM-L6-v2=FOLDER multi=FOLDER
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from experiments.origins import NONE
from experiments.provenance import RESULTS, command_parser, provenance, write
from selfguide.data.resources import MINI, mini_folder
from selfguide.engine.vocabulary_fit import MOST_PIECES, MOST_UNKNOWN, foreign_text, vocabulary_fit

# By name: a file of graded pairs, of which the first sentences are read. No score is involved.
TEXTS = {
    "English": "multilingual/sts17-en-en.tsv",
    "English, medical questions": "domain/mqp.tsv",
    "English, tweets": "domain/twitter-url-test.tsv",
    "Spanish": "multilingual/stsb-mt-es-dev.tsv",
    "German": "multilingual/stsb-mt-de-dev.tsv",
    "Arabic": "multilingual/sts17-ar-ar.tsv",
    "Korean": "multilingual/korsts-dev.tsv",
}
SENTENCES = 500


def main(words: list[str] | None = None) -> int:
    """Write the file, and return the exit code.

    Args:
        words: The command's words; by default those of this process.
    """
    parser = command_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tokenizers", nargs="+", required=True, help="mini, and NAME=FOLDER")
    parser.add_argument("--out", type=Path, default=RESULTS / "multilingual" / "vocabularies.json")
    arguments = parser.parse_args(words)
    texts = {name: _sentences(arguments.data / file) for name, file in TEXTS.items()}
    digests = {name: hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16] for name, lines in texts.items()}
    rows, digest = {}, {}
    for named in arguments.tokenizers:
        name, _, folder = named.partition("=")
        place = mini_folder() if name == MINI else Path(folder)
        rows[name] = {text: _row(AutoTokenizer.from_pretrained(str(place)), lines) for text, lines in texts.items()}
        digest[name] = hashlib.sha256((place / "tokenizer.json").read_bytes()).hexdigest()[:16]
    write(
        arguments.out,
        {
            **provenance(None, text={"name": "first sentences of each file", "digests": digests}, seeds=NONE),
            "encoders": {name: {"name": name, "tokenizer": each} for name, each in digest.items()},
            "encoder": NONE,
            "limits": {"tokens per byte, English = 1": MOST_PIECES, "unknown": MOST_UNKNOWN},
            "rows": rows,
        },
    )
    return 0


def _row(tokenizer: Any, sentences: list[str]) -> dict[str, Any]:
    fit = vocabulary_fit(tokenizer, sentences)
    assert fit is not None
    return {
        "tokens per byte": fit.pieces,
        "unknown": 100 * fit.unknown,
        "said": "foreign" if foreign_text(tokenizer, sentences) else "known",
    }


def _sentences(path: Path) -> list[str]:
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    return [row[1] for row in rows[1:] if len(row) > 2][:SENTENCES]


if __name__ == "__main__":
    raise SystemExit(main())
