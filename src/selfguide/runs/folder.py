"""The folder of a run: ``<output>.partial`` while it runs, ``<output>`` once it is complete.

The work folder holds the configuration, the cleaned text and the checkpoints. The finished encoder is renamed into place; an
interrupted run stays until it is resumed or overwritten. Nothing incomplete ever has the final name.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from selfguide.errors import InterruptedRun, SelfguideError, UsageError
from selfguide.progress import is_main_process
from selfguide.training.configuration import RUN_FILE, RunConfig
from selfguide.training.distributed import wait_for_everyone
from selfguide.training.settings import TrainingSettings
from selfguide.training.trainer import COMPLETE_FILE


@contextlib.contextmanager
def work_folder(config: RunConfig, output: str | Path | None, overwrite: bool, resume: bool) -> Iterator[Path]:
    """Claim the work folder of a run, and turn an interruption or a full disk into a sentence that says how to go on.

    Args:
        config: The complete configuration, which the folder keeps.
        output: The folder to make; ``None`` works in a temporary one.
        overwrite: Replace what an earlier run left.
        resume: Continue the interrupted run, if its configuration is this one.

    Yields:
        The work folder.

    Raises:
        UsageError: The folder exists and is not to be replaced, or the interrupted run was another one.
        InterruptedRun: The run was stopped; the message says how to resume it.
    """
    if output is None:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise UsageError("With several processes an output folder is needed (output=), because they share it.")
        with tempfile.TemporaryDirectory(prefix="selfguide-") as folder:
            yield Path(folder)
        return
    final, work = Path(output), partial_folder(output)
    if is_main_process():
        _claim(final, work, config, overwrite, resume)
    wait_for_everyone(TrainingSettings(**config.training))
    try:
        yield work
    except InterruptedRun as error:
        raise InterruptedRun(f"{error} Go on with: selfguide train --output {final} --resume") from None
    except KeyboardInterrupt:
        raise InterruptedRun(
            f"Interrupted. What was finished is in {work}; go on with: selfguide train --output {final} --resume"
        ) from None
    except Exception as error:
        # A run that failed before its first checkpoint left nothing to resume. (Methods of several stages keep the
        # checkpoints of earlier ones in folders below.)
        resumable = any(work.rglob(COMPLETE_FILE))
        if is_main_process() and not resumable:
            shutil.rmtree(work, ignore_errors=True)
        if isinstance(error, OSError | SafetensorError):  # safetensors has its own error for a full disk
            way_out = f"go on with: selfguide train --output {final} --resume" if resumable else "run it again."
            reason = " ".join(str(error).split()).rstrip(".")
            raise SelfguideError(
                f"The run could not be written to {work}: {reason}. Make room, then {way_out}"
            ) from error
        raise


def partial_folder(output: str | Path) -> Path:
    """Return the work folder that belongs to an output folder."""
    final = Path(output)
    if not final.name:
        raise UsageError(f"--output {final} is not a folder that can be made; name one, such as {final / 'tuned'}.")
    return final.with_name(final.name + ".partial")


def stored_config(output: str | Path) -> RunConfig:
    """Return the configuration of an interrupted run.

    Args:
        output: The folder that the run was to make.

    Returns:
        Its configuration.

    Raises:
        UsageError: There is no interrupted run.
    """
    path = partial_folder(output) / RUN_FILE
    if not path.is_file():
        state = "it is finished" if (Path(output) / RUN_FILE).is_file() else "there is no interrupted run there"
        raise UsageError(f"Nothing to resume at {output}: {state}. Leave --resume out to start one.")
    return RunConfig.from_file(path)


def _claim(final: Path, work: Path, config: RunConfig, overwrite: bool, resume: bool) -> None:
    """Make the work folder, or say why it cannot be made."""
    if final.exists() and not overwrite:
        raise UsageError(f"{final} exists already; choose another --output, or say --overwrite to replace it.")
    if final.exists() and not (final / RUN_FILE).is_file() and not _is_empty_folder(final):
        raise UsageError(
            f"{final} was not made by selfguide (it holds no {RUN_FILE}), so --overwrite does not touch it; "
            "choose another --output."
        )
    if resume:
        stored = stored_config(final)
        changed = _first_difference(asdict(stored), asdict(config))
        if changed is not None:
            raise UsageError(
                f"This is not the run that was interrupted: there, {changed[0]} was {changed[1]!r}. "
                f"Resume with `selfguide train --output {final} --resume` alone, or start over with --overwrite."
            )
        return
    if work.exists():
        if not overwrite:
            raise UsageError(f"An interrupted run is in {work}: --resume goes on with it, --overwrite starts over.")
        shutil.rmtree(work)
    try:
        work.mkdir(parents=True)
        (work / RUN_FILE).write_text(json.dumps({"config": asdict(config)}, indent=2), encoding="utf-8")
    except OSError as error:
        raise SelfguideError(f"The output folder {final} cannot be made: {error.strerror or error}.") from None


def _first_difference(stored: dict[str, Any], wanted: dict[str, Any]) -> tuple[str, Any] | None:
    for name, value in stored.items():
        if isinstance(value, dict) and isinstance(wanted.get(name), dict):
            inner = _first_difference(value, wanted[name])
            if inner is not None:
                return inner
        elif value != wanted.get(name):
            return name, value
    return None


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())
