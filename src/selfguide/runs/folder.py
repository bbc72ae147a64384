"""The folder of a run: ``<output>.partial`` while it runs, ``<output>`` once it is complete.

The work folder holds the configuration, the cleaned text and the checkpoints, for its owner alone. The finished encoder is
renamed into place; an interrupted run stays until it is resumed or overwritten. Nothing incomplete ever has the final name, and
one process at a time owns both names (:mod:`selfguide.locks`).
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from selfguide.data.resources import MINI
from selfguide.errors import InterruptedRun, SelfguideError, UsageError, one_line
from selfguide.files import (
    damage_of,
    folder_digests,
    json_digest,
    private_folder,
    read_json,
    replace_folder,
    restore_folder,
    system_error,
    write_text,
)
from selfguide.locks import beside, held
from selfguide.progress import is_main_process
from selfguide.training.checkpoints import COMPLETE_FILE, complete_checkpoints
from selfguide.training.configuration import RUN_FILE, RunConfig
from selfguide.training.distributed import wait_for_everyone
from selfguide.training.settings import TrainingSettings

FINISHED = "finished"
"""The complete encoder, in the work folder until it is renamed."""
_FINISHED_FILE = "finished.json"
"""Digests of its files, written when it is complete: from then on, only renaming is left."""
_INPUTS_FILE = "inputs.json"
_BEGUN_IN = "begun_in"
"""The working folder of the run, which relative names in its configuration are about."""


@dataclass(frozen=True)
class WorkFolder:
    """A run's work folder, and the choices beside its configuration, which a resumed run keeps."""

    path: Path
    final: Path | None
    overwrite: bool = False
    report: bool = True
    complete: bool = False
    """Whether a resumed run turned out to be finished: a kill came when only renaming was left."""

    def check_inputs(self, **digests: str | None) -> None:
        """Keep the digests of what the run reads besides its text; a resumed run must find the same.

        Args:
            **digests: The digests by name.

        Raises:
            SelfguideError: Something has changed since the run was begun.
        """
        path = self.path / _INPUTS_FILE
        if not path.is_file():
            write_text(path, json.dumps(digests))
            return
        before = _readable(path)
        for name, digest in digests.items():
            if before.get(name) != digest:
                raise SelfguideError(
                    f"The {name} has changed since the interrupted run in {self.path} was begun. Put the former one "
                    "back, or start over with --overwrite."
                )

    def finish(self) -> None:
        """Give the finished encoder its final name, and remove the work folder."""
        assert self.final is not None
        write_text(self.path / _FINISHED_FILE, json.dumps(folder_digests(self.path / FINISHED)))
        replace_folder(self.path / FINISHED, self.final)
        _remove(self.path)


@contextlib.contextmanager
def work_folder(
    config: RunConfig, output: str | Path | None, overwrite: bool, resume: bool, report: bool | None = None
) -> Iterator[WorkFolder]:
    """Claim the work folder of a run, and turn an interruption or a full disk into a message that says how to resume.

    Args:
        config: The complete configuration, which the folder keeps.
        output: The folder to make; ``None`` works in a temporary one.
        overwrite: Replace what an earlier run left.
        resume: Continue the interrupted run, if its configuration is this one.
        report: Whether the run writes a report; ``None``: as the interrupted run was to, else yes.

    Yields:
        The work folder.

    Raises:
        UsageError: The folder exists and is not to be replaced, or the interrupted run was another one.
        FolderInUse: Another process is writing the folder.
        InterruptedRun: The run was stopped; the message says how to resume it.
    """
    if output is None:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise UsageError("With several processes an output folder is needed (output=), because they share it.")
        with private_folder("selfguide-") as folder:
            yield WorkFolder(folder, None, report=report is not False)
        return
    final, work = Path(output), partial_folder(output)
    with contextlib.ExitStack() as stack:
        if is_main_process():
            _refuse_before_anything_is_made(final, work, overwrite, resume)
            stack.enter_context(_owned(final))
            claimed = _claim(final, work, config, overwrite, resume, report)
            wait_for_everyone(TrainingSettings(**config.training))
        else:
            wait_for_everyone(TrainingSettings(**config.training))
            claimed = WorkFolder(work, final, report=report is not False, complete=not work.exists())
        with _interruptions_in_words(final, work, resume):
            yield claimed


@contextlib.contextmanager
def _owned(final: Path) -> Iterator[None]:
    try:
        lock = contextlib.ExitStack()
        lock.enter_context(held(beside(final), final))
    except OSError as error:
        raise SelfguideError(f"The output folder {final} cannot be made: {error.strerror or error}.") from None
    with lock:
        yield


@contextlib.contextmanager
def _interruptions_in_words(final: Path, work: Path, resume: bool) -> Iterator[None]:
    resuming = _resuming(final)
    try:
        yield
    except InterruptedRun as error:
        raise InterruptedRun(f"{error} Go on with: {resuming}") from None
    except KeyboardInterrupt:
        raise InterruptedRun(f"Interrupted. What was finished is in {work}; go on with: {resuming}") from None
    except Exception as error:
        # A run that failed before its first checkpoint left nothing to resume. (Methods of several stages keep the
        # checkpoints of earlier ones in folders below.)
        resumable = resume or any(work.rglob(COMPLETE_FILE))
        if is_main_process() and not resumable:
            shutil.rmtree(work, ignore_errors=True)
        if isinstance(error, SafetensorError) or system_error(error) is not None:
            raise SelfguideError(_unwritable(work, error, resumable, resuming)) from error
        raise


def _resuming(final: Path) -> str:
    """Return the command that resumes a run, such that it can be copied from a message."""
    return f"selfguide train --output {shlex.quote(str(final))} --resume"


def _unwritable(work: Path, error: Exception, resumable: bool, resuming: str) -> str:
    reason = one_line(error).rstrip(".")
    if not resumable:
        return f"The run could not be written to {work}: {reason}. Make room, then run it again."
    steps = [folder.name.rpartition("-")[2] for folder in complete_checkpoints(work)]
    kept = f" The checkpoint of step {steps[0]} is kept." if steps else ""
    return f"The run could not be written to {work}: {reason}.{kept} Make room, then go on with: {resuming}"


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
        raise UsageError(f"Nothing to resume at {output}: {_state(Path(output))}. Leave --resume out to start one.")
    try:
        config = RunConfig.from_file(path)
    except SelfguideError as error:
        raise SelfguideError(f"{error} The interrupted run cannot go on; start it over with --overwrite.") from None
    content = read_json(path)
    if content.get("digest") not in (None, _digest(content)):
        raise SelfguideError(f"{path} has changed since the run was begun; start it over with --overwrite.")
    return config


def located_config(config: RunConfig, output: str | Path) -> RunConfig:
    """Return the configuration of an interrupted run with names that are right in another working folder, too.

    Args:
        config: The configuration, with names as the user gave them where the run was begun.
        output: The folder that the run is to make.

    Returns:
        The configuration for reading; the names to compare and to record are those of ``config``.
    """
    try:
        begun_in = read_json(partial_folder(output) / RUN_FILE).get(_BEGUN_IN)
    except (OSError, ValueError, AttributeError):
        begun_in = None
    if not isinstance(begun_in, str) or Path(begun_in) == Path.cwd():
        return config

    def there(name: str) -> str:
        path = Path(begun_in, Path(name).expanduser())
        return str(path) if name not in (MINI, "-") and (path.exists() or glob.has_magic(name)) else name

    return replace(
        config,
        encoder=there(config.encoder),
        dev=there(config.dev) if config.dev else config.dev,
        text=tuple(there(name) for name in config.text),
    )


def _state(output: Path) -> str:
    """Explain why there is nothing to resume."""
    if partial_folder(output).is_dir():
        return "the run was stopped before its configuration was written"
    if not (output / RUN_FILE).is_file():
        return "there is no interrupted run there"
    try:
        finished = str(read_json(output / RUN_FILE).get("finished") or "")
    except (OSError, ValueError, AttributeError):
        finished = ""
    # With the time, a former run's folder is not taken for that of a run which was to replace it.
    return f"it is finished, since {finished[:16].replace('T', ' ')}" if finished else "it is finished"


def _digest(content: dict[str, Any]) -> str:
    """Return a hash of the configuration and choices that a work folder keeps."""
    decisive = {name: content.get(name) for name in ("config", "choices")}
    return json_digest(decisive)


def _refuse_before_anything_is_made(final: Path, work: Path, overwrite: bool, resume: bool) -> None:
    """Check what needs no lock, so that a refused run makes neither a folder nor a lock."""
    if resume:
        stored_config(final)
        return
    if final.exists() and not overwrite:
        raise UsageError(f"{final} exists already; choose another --output, or use --overwrite to replace it.")
    if final.exists() and not (final / RUN_FILE).is_file() and not _is_empty_folder(final):
        raise UsageError(
            f"{final} was not made by selfguide (it holds no {RUN_FILE}), so --overwrite does not touch it; "
            "choose another --output."
        )


def _claim(
    final: Path, work: Path, config: RunConfig, overwrite: bool, resume: bool, report: bool | None
) -> WorkFolder:
    """Make the work folder, or say why it cannot be made; the caller owns both names."""
    _clean_up(final, work)
    if resume:
        stored = stored_config(final)
        changed = _first_difference(asdict(stored), asdict(config))
        if changed is not None:
            raise UsageError(
                f"This is not the run that was interrupted: there, {changed[0]} was {changed[1]!r}. "
                f"Resume with `{_resuming(final)}` alone, or start over with --overwrite."
            )
        choices = _readable(work / RUN_FILE).get("choices", {})
        overwrite = overwrite or bool(choices.get("overwrite"))
        report = bool(choices.get("report", True)) if report is None else report
        if _finished_already(final, work):
            return WorkFolder(work, final, overwrite, report, complete=True)
        _refuse_before_anything_is_made(final, work, overwrite, resume=False)
        return WorkFolder(work, final, overwrite, report)
    _refuse_before_anything_is_made(final, work, overwrite, resume)
    if work.exists():
        if not overwrite:
            raise UsageError(f"An interrupted run is in {work}: --resume continues it, --overwrite starts over.")
        _remove(work)
    report = report is not False
    try:
        work.mkdir(parents=True, mode=0o700)
        kept = json.loads(json.dumps({"config": asdict(config), "choices": {"overwrite": overwrite, "report": report}}))
        write_text(work / RUN_FILE, json.dumps(kept | {"digest": _digest(kept), _BEGUN_IN: os.getcwd()}, indent=2))
    except OSError as error:
        raise SelfguideError(f"The output folder {final} cannot be made: {error.strerror or error}.") from None
    return WorkFolder(work, final, overwrite, report)


def _clean_up(final: Path, work: Path) -> None:
    """Repair what a killed process left: a replacement half done, folders on their way out."""
    restore_folder(final)
    for left in (_trash(work), final.with_name(final.name + ".calibrating")):
        shutil.rmtree(left, ignore_errors=True)
    if work.is_dir() and not (work / RUN_FILE).exists() and all(path.name.startswith(".") for path in work.iterdir()):
        shutil.rmtree(work, ignore_errors=True)  # killed before its configuration was written


def _finished_already(final: Path, work: Path) -> bool:
    """Finish a run that was killed when only renaming was left; return whether there was one."""
    marker = work / _FINISHED_FILE
    if not marker.is_file():
        return False
    digests = _readable(marker)
    if digests and damage_of(final, digests) is not None:
        if damage_of(work / FINISHED, digests) is not None:
            marker.unlink()  # the checkpoint is still there
            return False
        replace_folder(work / FINISHED, final)
    _remove(work)
    return bool(digests)


def _readable(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path)
    except (OSError, ValueError) as error:
        raise SelfguideError(f"{path} is damaged ({error}); start the run over with --overwrite.") from None
    if not isinstance(content, dict):
        raise SelfguideError(f"{path} is damaged; start the run over with --overwrite.")
    return content


def _trash(work: Path) -> Path:
    return work.with_name(f".{work.name}.removed")


def _remove(work: Path) -> None:
    """Remove a work folder: its name goes in one step, so that no part of it can be taken for a run."""
    trash = _trash(work)
    shutil.rmtree(trash, ignore_errors=True)
    work.rename(trash)
    shutil.rmtree(trash, ignore_errors=True)


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
