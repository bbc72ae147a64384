"""Where results files live, and what each of them records about its origin."""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.origins import FIELDS, found
from selfguide.data.resources import mini_folder
from selfguide.files import write_text

RESULTS = Path(__file__).parent / "results"
# Options whose values are paths of this machine; a reader of the results file cannot use them.
_LOCAL_OPTIONS = ("--data", "--out", "--work")


def command_parser(doc: str | None) -> argparse.ArgumentParser:
    """Return an argument parser that is described by the first line of a module's docstring."""
    return argparse.ArgumentParser(description=(doc or "").split("\n")[0])


def typed_command() -> str:
    """Return the command of this process as a reader could type it.

    Returns:
        The command without options that name local folders; any other existing path is replaced by ``FOLDER``.
    """
    main = sys.modules["__main__"].__spec__
    words = list(sys.argv[1:])
    for option in _LOCAL_OPTIONS:
        if option in words:
            position = words.index(option)
            del words[position : position + 2]
    shown = []
    for word in words:
        name, equals, value = word.rpartition("=")
        shown.append(f"{name}{equals}FOLDER" if "/" in value or Path(value).is_dir() else word)
    return " ".join(["python -m", main.name if main else "experiments", *shown])


def folder_hash(folder: Path, pattern: str = "*.safetensors") -> str:
    """Return a short hash of a folder's weights."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob(pattern)):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def device_name() -> str:
    """Return the GPU's name, or the number of CPU threads."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads"


def text_facts(name: str, sentences: Iterable[str]) -> dict[str, Any]:
    """Return what a results file records about a text.

    Args:
        name: What to call it.
        sentences: Its sentences, in their order.

    Returns:
        The name, the number of sentences and a digest of them.
    """
    digest, count = hashlib.sha256(), 0
    for sentence in sentences:
        digest.update(sentence.encode() + b"\n")
        count += 1
    return {"name": name, "sentences": count, "digest": digest.hexdigest()[:16]}


def provenance(
    encoder: str | None = "mini",
    folder: Path | None = None,
    *,
    text: Mapping[str, Any] | str | None = None,
    seeds: Sequence[int] | Mapping[str, Any] | str | None = None,
) -> dict[str, Any]:
    """Return what a results file records about its origin.

    Args:
        encoder: The name of the encoder; None if there are several, which the caller adds as ``encoders``.
        folder: Its folder; by default that of the embedded encoder.
        text: Facts about the text (:func:`text_facts`), or :data:`~experiments.origins.NONE` where there is none; left out
            if the caller adds them.
        seeds: The seeds, or :data:`~experiments.origins.NONE` where nothing is drawn; left out if the caller adds them.

    Returns:
        Command, date, machine, versions, seeds, the text with a digest, and the encoder with a hash of its weights.
    """
    import sentence_transformers
    import torch
    import transformers

    recorded: dict[str, Any] = {
        "command": typed_command(),
        "date": time.strftime("%Y-%m-%d"),
        "device": device_name(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "sentence_transformers": sentence_transformers.__version__,
    }
    if seeds is not None:
        recorded["seeds"] = seeds if isinstance(seeds, str | Mapping) else list(seeds)
    if text is not None:
        recorded["text"] = text
    if encoder is None:
        return recorded
    return recorded | {"encoder": {"name": encoder, "weights": folder_hash(folder or mini_folder())}}


def write(path: Path, content: dict[str, Any]) -> None:
    """Write a results file atomically, and print its name.

    Args:
        path: The file to write; its folder is made.
        content: What the file will hold, as JSON. If it does not say where it comes from, the file is written all the same
            and a warning says what is lacking; the tests do not accept such a file.
    """
    write_part(path, content)
    if lacking := [name for name in FIELDS if name not in found(content)]:
        print(
            f"warning: {path.name} does not record {', '.join(lacking)}, so the tests will refuse it "
            "(experiments/origins.py says what is needed).",
            file=sys.stderr,
        )


def write_part(path: Path, content: dict[str, Any]) -> None:
    """Write the result of one job, which a results file will be made from; see :func:`write`.

    Args:
        path: The file to write; its folder is made.
        content: What the file will hold, as JSON.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(content, indent=1) + "\n")
    print(f"written: {path.name}", file=sys.stderr)


def peak_megabytes() -> float:
    """Return this process's peak memory in MB.

    ``ru_maxrss`` will not do: a process inherits the peak of the process that started it, so all sizes would look alike.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("This system does not report a process's peak memory (no VmHWM in /proc/self/status).")
