"""Fit the calibration of a saved encoder again, on more text and without training.

The encoder of a :class:`~selfguide.methods.base.CalibratedMethod` ends in a linear map fitted on text. Where its folder keeps
that text's statistics (``calibration.safetensors``), new text is merged with the old exactly; otherwise the map is fitted on
the new text alone. Everything but the map stays as it is.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfguide.calibration.text_statistics import STATISTICS_FILE, TextStatistics
from selfguide.data import Sentences, TextOptions, open_text
from selfguide.data.kept_inputs import refuse_to_replace
from selfguide.engine.similarity_scale import SCALE_FILE
from selfguide.engine.vocabulary_fit import foreign_text
from selfguide.errors import SelfguideError, UsageError
from selfguide.files import read_json, replace_folder, system_errors, write_text
from selfguide.locks import beside, held
from selfguide.methods import registry
from selfguide.methods.base import CalibratedMethod
from selfguide.models.encoders import load_encoder
from selfguide.models.integrity import FILES, encoder_digests, restore_interrupted
from selfguide.progress import Reporter
from selfguide.runs.card import with_scale_section
from selfguide.runs.similarity import Reservoir, scale_or_warn
from selfguide.system import timestamp
from selfguide.training.configuration import RUN_FILE

if TYPE_CHECKING:
    from selfguide.calibration.linear_maps import LinearMap


def calibrate(
    folder: str | Path,
    text: str | Path | Iterable[str] | Iterable[Path] | Sentences,
    output: str | Path | None = None,
    *,
    fresh: bool = False,
    overwrite: bool = False,
    batch_size: int = 64,
    device: str | None = None,
    text_options: TextOptions | None = None,
    reporter: Reporter | None = None,
) -> Path:
    """Fit an encoder's calibration on more text, without training.

    The encoder's weights and token weights stay as they are; only its last module, the map, is fitted again. With the same
    token weights, fitting on A and adding B equals fitting on A and B at once.

    Args:
        folder: A run folder of a method whose map can be fitted again; ``selfguide methods`` lists them.
        text: As for :func:`selfguide.train`.
        output: The folder to make; ``None``, with ``overwrite``, replaces the old one.
        fresh: Forget the text that the map was fitted on instead of adding to it.
        overwrite: Replace ``output``, or the folder itself.
        batch_size: Sentences per forward pass.
        device: Where to run the encoder.
        text_options: How the text is read and cleaned.
        reporter: Shows progress and warnings.

    Returns:
        The folder that was made.

    Raises:
        SelfguideError: The folder, the text or the output cannot be used.

    Example::

        selfguide.calibrate("notes-fused", "more-notes.txt", "notes-fused-2")
    """
    source, reporter = Path(folder), reporter or Reporter(quiet=True)
    restore_interrupted(source)
    target = _target(source, output, overwrite)
    with held(beside(target), target):
        _target(source, output, overwrite)  # another process may have made it meanwhile
        shutil.rmtree(_unfinished(target), ignore_errors=True)  # of a killed process
        return _calibrated(source, target, text, fresh, batch_size, device, text_options, reporter)


def _calibrated(
    source: Path,
    target: Path,
    text: str | Path | Iterable[str] | Iterable[Path] | Sentences,
    fresh: bool,
    batch_size: int,
    device: str | None,
    text_options: TextOptions | None,
    reporter: Reporter,
) -> Path:
    record = _record(source)
    method = _method(source, record)
    encoder = load_encoder(source, device=device).eval()
    if len(encoder) < 2 or not hasattr(encoder[-1], "in_features"):
        raise SelfguideError(f"The encoder in {source} does not end in a calibration; the folder is damaged.")
    before = None if fresh else _kept(source, method.part_widths(int(encoder[-1].in_features)))
    sentences = open_text(text, text_options or TextOptions())
    refuse_to_replace(target, sentences.files())
    passing = Reservoir(sentences)
    added = method.text_statistics(encoder, _batched(passing), batch_size, reporter)
    count = added.sentences.count
    if count == 0 or count + (before.sentences.count if before else 0) < 2:
        raise SelfguideError(f"There is too little to calibrate on: {sentences.summary.describe()}.")
    if target == source and not fresh and (when := _added_before(record, sentences.summary.fingerprint)):
        # As after a kill that came when all was done: adding the text again would count it twice.
        reporter.note(f"This text was added to {source} {when} already; nothing was done.")
        return target
    if foreign := foreign_text(encoder.tokenizer, passing.drawn):
        reporter.warn(foreign)
    statistics = before.merge(added) if before else added
    mapping = method.refit(encoder, statistics, reporter, record.get("chosen", {}))
    record.setdefault("calibrations", []).append(
        {
            "text": sentences.summary.as_dict() | {"fingerprint": sentences.summary.fingerprint},
            "fresh": fresh,
            "sentences": statistics.sentences.count,
            "warnings": list(reporter.warnings),
            "finished": timestamp(),
        }
    )
    finished = _unfinished(target)
    try:
        with system_errors():
            shutil.copytree(source, finished)
            _rewrite(finished, len(encoder) - 1, mapping, statistics, record)
            _measure_again(finished, passing, device, reporter)
            replace_folder(finished, target)
    except OSError as error:
        raise SelfguideError(f"{target} cannot be written: {error.strerror or error}; nothing has changed.") from None
    finally:
        shutil.rmtree(finished, ignore_errors=True)
    return target


def _added_before(record: dict[str, Any], fingerprint: str | None) -> str | None:
    """Return when a text with this fingerprint was the last to be added to a folder, in words, or ``None``."""
    latest = (record.get("calibrations") or [{}])[-1]
    same = fingerprint is not None and latest.get("text", {}).get("fingerprint") == fingerprint
    return f"on {latest.get('finished', '')[:16]}" if same else None


def _unfinished(target: Path) -> Path:
    return target.with_name(target.name + ".calibrating")


def _target(source: Path, output: str | Path | None, overwrite: bool) -> Path:
    """Return the folder to write, refused before anything is computed if that would destroy something."""
    target = source if output is None else Path(output)
    if not target.name:
        raise UsageError(f"--output {target} is not a folder that can be made; name one.")
    if target.exists() and not overwrite:
        way_out = "name a new folder with --output" if output is None else "choose another --output"
        raise UsageError(f"{target} exists already; {way_out}, or use --overwrite to replace it.")
    if target.exists() and not (target / RUN_FILE).is_file():
        raise UsageError(f"{target} was not made by selfguide (it holds no {RUN_FILE}), so it is not replaced.")
    return target


def _record(source: Path) -> dict[str, Any]:
    """Read the folder's run.json."""
    try:
        record = read_json(source / RUN_FILE)
        record["config"]["method"]
    except FileNotFoundError:
        raise SelfguideError(
            f"{source} holds no {RUN_FILE}: only folders that selfguide made can be calibrated."
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SelfguideError(f"{source / RUN_FILE} cannot be read as a run's record: {error}.") from None
    return dict(record)


def _method(source: Path, record: dict[str, Any]) -> CalibratedMethod:
    """Make the method that the folder was made with, if its calibration can be fitted again."""
    name = record["config"]["method"]
    method = registry.make(name, record["config"].get("options"))
    if not isinstance(method, CalibratedMethod):
        can = " and ".join(info.name for info in registry.builtin_methods() if info.refits)
        raise UsageError(f"{source} was made by the method {name}; only folders of {can} can be calibrated.")
    return method


def _kept(source: Path, widths: tuple[int, ...]) -> TextStatistics:
    """Load the statistics of the text that the folder was fitted on."""
    path = source / STATISTICS_FILE
    if not path.is_file():
        raise UsageError(
            f"{source} keeps no statistics of the text it was fitted on, so nothing can be added to them; --fresh fits it on "
            "the new text alone."
        )
    statistics = TextStatistics.load(path)
    if statistics.sentences.widths != widths:
        raise SelfguideError(f"{path} belongs to another encoder; --fresh fits the folder on the new text alone.")
    return statistics


def _rewrite(
    finished: Path, position: int, mapping: LinearMap, statistics: TextStatistics, record: dict[str, Any]
) -> None:
    """Write the new map, its statistics and a note into a copy of the folder."""
    module = finished / f"{position}_Dense"
    if not module.is_dir():
        raise SelfguideError(
            f"There is no {module.name} in the folder, which its calibration should be; it is damaged."
        )
    mapping.dense().save(str(module))
    statistics.save(finished / STATISTICS_FILE)
    for written in (*module.iterdir(), finished / STATISTICS_FILE):
        shutil.copymode(finished / RUN_FILE, written)  # safetensors writes weights for their owner alone
    record[FILES] = encoder_digests(finished)
    (finished / RUN_FILE).write_text(json.dumps(record, indent=2), encoding="utf-8")
    card = finished / "README.md"
    if card.is_file():
        latest = record["calibrations"][-1]
        origin = "alone" if latest["fresh"] else "together with what it was fitted on before"
        note = f"Fitted again on {latest['text']['kept']:,} sentences, {origin}: {statistics.sentences.count:,} in all."
        card.write_text(f"{card.read_text(encoding='utf-8')}\n## Calibration\n\n{note}\n", encoding="utf-8")


def _measure_again(finished: Path, text: Reservoir, device: str | None, reporter: Reporter) -> None:
    """Measure what a cosine means for the encoder as it is now, on the text that was added."""
    (finished / SCALE_FILE).unlink(missing_ok=True)
    scale = scale_or_warn(load_encoder(finished, device=device), text.drawn, text.seen, text.seed, reporter)
    if scale is not None:
        scale.write(finished)
        shutil.copymode(finished / RUN_FILE, finished / SCALE_FILE)
    card = finished / "README.md"
    if card.is_file():
        write_text(card, with_scale_section(card.read_text(encoding="utf-8"), scale))
        shutil.copymode(finished / RUN_FILE, card)


def _batched(sentences: Iterable[str], size: int = 4096) -> Iterator[list[str]]:
    batch: list[str] = []
    for sentence in sentences:
        batch.append(sentence)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
