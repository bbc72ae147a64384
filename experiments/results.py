"""Where results files live and what each of them says about itself."""

from __future__ import annotations

import hashlib
import json
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample deviation; one value has none."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def folder_hash(folder: Path, pattern: str = "*.safetensors") -> str:
    """A short hash of a folder's weights."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob(pattern)):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def provenance(command: str) -> dict[str, Any]:
    """Command, date, machine and versions."""
    import sentence_transformers
    import torch
    import transformers

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads"
    return {
        "command": command,
        "date": time.strftime("%Y-%m-%d"),
        "device": device,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "sentence_transformers": sentence_transformers.__version__,
    }


def write(path: Path, content: dict[str, Any]) -> None:
    """Write a results file under a temporary name, then rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".tmp")
    fresh.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    fresh.replace(path)
    print(f"written: {path.name}", file=sys.stderr)


def peak_megabytes() -> float:
    """The most memory this program has held.

    Not ``ru_maxrss``: a process that was started by a larger one inherits the larger one's peak, and all sizes look alike.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("this system does not say how much memory a process has held (no VmHWM in /proc/self/status)")
