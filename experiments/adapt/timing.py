"""How long ``selfguide adapt`` takes on a text, from the shell to the finished folder.

    SELFGUIDE_DATA=folder python -m experiments.adapt.timing --encoder all-MiniLM-L6-v2=FOLDER
    python -m experiments.adapt.timing --encoder FOLDER --text FILE --sentences 40 --out /tmp/timing.json        # rehearsal

The command runs as a process of its own, with the report and everything else at its defaults: as it is, and with
``--tune always``, which trains, in fp32 and in bf16.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from experiments.adapt.run import named_encoder
from experiments.provenance import RESULTS, command_parser, folder_hash, provenance, text_facts, write
from selfguide.files import private_folder, read_json

TEXT = "text/wikisplit_sentences.txt"
WAYS: dict[str, tuple[str, ...]] = {
    "default": (),
    "trained": ("--tune", "always"),
    "trained in bf16": ("--tune", "always", "--precision", "bf16"),
}


def main() -> None:
    """Run the command in each way, and write the results file."""
    parser = command_parser(__doc__)
    parser.add_argument("--encoder", required=True, metavar="NAME=FOLDER")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--sentences", type=int, default=5000)
    parser.add_argument("--text", type=Path, help=f"default: {TEXT} of the data folder")
    parser.add_argument("--data", default=os.environ.get("SELFGUIDE_DATA"))
    parser.add_argument("--out", type=Path, default=RESULTS / "adapt-timing.json")
    arguments = parser.parse_args()
    if arguments.text is None and not arguments.data:
        parser.error("set SELFGUIDE_DATA (or --data), or name a --text")
    text = arguments.text or Path(arguments.data) / TEXT
    name, folder = named_encoder(arguments.encoder)
    sentences = list(dict.fromkeys(text.read_text(encoding="utf-8").splitlines()))[: arguments.sentences]
    found: dict[str, Any] = read_json(arguments.out)["ways"] if arguments.out.is_file() else {}
    with private_folder("selfguide-timing-") as work:
        file = work / "text.txt"
        file.write_text("\n".join(sentences), encoding="utf-8")
        for way in arguments.ways:
            found[way] = timed(folder, file, work / way.replace(" ", "-"), WAYS[way])
            print(way, found[way], flush=True)
            content = {
                **provenance(None, text=text_facts(text.name, sentences), seeds=[1]),
                "encoders": {name: folder_hash(folder)},
                "sentences": len(sentences),
                "words": sum(len(sentence.split()) for sentence in sentences) / len(sentences),
                "ways": found,
            }
            write(arguments.out, content)


def timed(encoder: Path, text: Path, output: Path, words: tuple[str, ...]) -> dict[str, Any]:
    """Run the command.

    Args:
        encoder: The encoder's folder.
        text: The text.
        output: The folder to write.
        words: More of the command line.

    Returns:
        Seconds from start to end of the process, what the run recorded of them, and what it chose.
    """
    command = [sys.executable, "-m", "selfguide", "adapt", str(text), "-e", str(encoder), "-o", str(output), *words]
    begun = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - begun
    record = read_json(output / "run.json")
    return {
        "seconds": round(seconds, 1),
        "training": round(record["seconds"].get("training", 0.0), 1),
        "steps": record["steps"],
        "choice": record["choice"]["sentence"],
    }


if __name__ == "__main__":
    main()
