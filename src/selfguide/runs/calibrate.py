"""Fitting the calibration of a finished folder again, on more text, without training.

A folder of the methods fused and whitening ends in a linear map that was fitted on text. The folder of fused keeps
that text's statistics (``calibration.safetensors``, :mod:`selfguide.calibration.parted_statistics`), so that new text
is merged with the old exactly; one of whitening keeps none until it is calibrated for the first time, with the new
text alone. Everything but the map stays.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfguide.calibration.frequencies import Vocabulary
from selfguide.calibration.parted_statistics import STATISTICS_FILE, Statistics, TextStatistics, measure, warn_if_few
from selfguide.calibration.statistics import whitening_map
from selfguide.data import Sentences, TextOptions, open_text
from selfguide.errors import SelfguideError, UsageError
from selfguide.methods import registry
from selfguide.progress import Reporter
from selfguide.training.configuration import RUN_FILE

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from selfguide.calibration.statistics import LinearMap
    from selfguide.methods.base import Method

CAN_BE_CALIBRATED = ("fused", "whitening")


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
    """Fit the statistics of a folder of the methods fused or whitening on more text, without training.

    Args:
        folder: what ``selfguide train --method fused`` (or whitening) has made.
        text: as for :func:`selfguide.train`.
        output: the folder to make; ``None``, with ``overwrite``, replaces the old one.
        fresh: forget the text the folder was fitted on instead of adding to it.

    Returns the folder that was made. The encoder's weights and token weights stay as they are; only the map at its end, the
    last module, is fitted again. With the same token weights, fitting on A and adding B is fitting on A and B at once.
    """
    from selfguide.files import replace_folder
    from selfguide.models.encoders import load_encoder

    source, reporter = Path(folder), reporter or Reporter(quiet=True)
    target = _target(source, output, overwrite)
    record = _record(source)
    method = registry.make(record["config"]["method"], record["config"].get("options"))
    encoder = load_encoder(source, device=device).eval()
    if len(encoder) < 2 or not hasattr(encoder[-1], "in_features"):
        raise SelfguideError(f"The encoder in {source} does not end in a calibration; the folder is damaged.")
    width = int(encoder[-1].in_features)
    widths = (width // 2, width // 2) if method.entry.name == "fused" else (width,)
    before = None if fresh else _kept(source, widths)
    sentences = open_text(text, text_options or TextOptions())
    added = _measured(method, encoder, sentences, widths, batch_size, reporter)
    count = added.sentences.count
    if count == 0 or count + (before.sentences.count if before else 0) < 2:
        raise SelfguideError(f"There is too little to calibrate on: {sentences.summary.describe()}.")
    statistics = before.merge(added) if before else added
    by_sentences, prior = getattr(method.options, "by_sentences", True), _prior(method, encoder)
    warn_if_few(statistics, method.options.shrinkage, reporter, by_sentences, eked_out=prior is not None)
    mapping = _mapping(method, statistics, prior, record.get("chosen", {}).get("weight"))
    record.setdefault("calibrations", []).append(
        {
            "text": sentences.summary.as_dict() | {"fingerprint": sentences.summary.fingerprint},
            "fresh": fresh,
            "sentences": statistics.sentences.count,
            "warnings": list(reporter.warnings),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        }
    )
    finished = target.with_name(target.name + ".calibrating")
    shutil.rmtree(finished, ignore_errors=True)
    try:
        shutil.copytree(source, finished)
        _rewrite(finished, len(encoder) - 1, mapping, statistics, record)
        replace_folder(finished, target)
    finally:
        shutil.rmtree(finished, ignore_errors=True)
    return target


def _target(source: Path, output: str | Path | None, overwrite: bool) -> Path:
    """Where the result goes, refused before anything is computed if it would destroy something."""
    target = source if output is None else Path(output)
    if not target.name:
        raise UsageError(f"--output {target} is no folder to be made; name one.")
    if target.exists() and not overwrite:
        way_out = "name a new folder with --output" if output is None else "choose another --output"
        raise UsageError(f"{target} exists already; {way_out}, or say --overwrite to replace it.")
    if target.exists() and not (target / RUN_FILE).is_file():
        raise UsageError(f"{target} was not made by selfguide (it holds no {RUN_FILE}), so it is not replaced.")
    return target


def _record(source: Path) -> dict[str, Any]:
    """The folder's run.json, if it is of a method whose calibration can be fitted again."""
    can = " and ".join(CAN_BE_CALIBRATED)
    try:
        record = json.loads((source / RUN_FILE).read_text(encoding="utf-8"))
        method = record["config"]["method"]
    except FileNotFoundError:
        raise SelfguideError(
            f"{source} holds no {RUN_FILE}: only folders that selfguide made ({can}) can be calibrated."
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SelfguideError(f"{source / RUN_FILE} cannot be read as a run's record: {error}.") from None
    if method not in CAN_BE_CALIBRATED:
        raise UsageError(f"{source} was made by the method {method}; only folders of {can} can be calibrated.")
    return dict(record)


def _measured(
    method: Method,
    encoder: SentenceTransformer,
    text: Sentences,
    widths: tuple[int, ...],
    batch_size: int,
    reporter: Reporter,
) -> TextStatistics:
    """What the new text adds. Its vectors come from all modules but the last; a fused folder reads its tokens besides."""
    from selfguide.calibration.token_statistics import measure_tokens

    views = _without_last(encoder)
    if getattr(method.options, "whiten", "") != "tokens":
        return TextStatistics(measure(views, _batched(text), widths, batch_size, reporter))
    found = TextStatistics(Statistics.empty(widths), Statistics.empty(widths[1:]))
    vocabulary = Vocabulary.of_encoder(encoder)
    for batch in _batched(text):  # the text may be a stream: it is read once
        tokens, _ = measure_tokens(
            encoder, method.options.view_layer, [batch], batch_size, reporter, vocabulary, len(batch)
        )
        vectors = measure(views, [batch], widths, batch_size, reporter, total=len(batch))
        found = found.merge(TextStatistics(vectors, tokens))
    return found


def _kept(source: Path, widths: tuple[int, ...]) -> TextStatistics:
    """The statistics of the text that the folder was fitted on."""
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


def _without_last(encoder: SentenceTransformer) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(modules=list(encoder)[:-1], device=str(encoder.device)).eval()


def _prior(method: Method, encoder: SentenceTransformer) -> Statistics | None:
    """What a small text is eked out with. It follows from the encoder, so that it is not kept in the folder."""
    from selfguide.calibration.general_tokens import general_tokens

    if getattr(method.options, "whiten", "") != "tokens":
        return None
    found: Statistics | None = method.options.prior(
        general_tokens(encoder, Vocabulary.of_encoder(encoder), method.options.view_layer)
    )
    return found


def _mapping(method: Method, statistics: TextStatistics, prior: Statistics | None, weight: float | None) -> LinearMap:
    """The map, by the options that the folder was made with; ``weight``: what dev pairs chose then."""
    from selfguide.calibration.fused_modules import refuse_unknown_script

    options: Any = method.options
    if method.entry.name == "fused":
        refuse_unknown_script(statistics.sentences, options.weight)
        mapping: LinearMap = options.mapping(statistics, prior, weight)
        return mapping
    of_text = statistics.sentences
    return whitening_map(of_text.moments, options.k, of_text.shrinkage(0, options.shrinkage), options.exponent)


def _rewrite(
    finished: Path, position: int, mapping: LinearMap, statistics: TextStatistics, record: dict[str, Any]
) -> None:
    """Put the new map, its statistics and a note of them into a copy of the folder."""
    module = finished / f"{position}_Dense"
    if not module.is_dir():
        raise SelfguideError(
            f"There is no {module.name} in the folder, which its calibration should be; it is damaged."
        )
    mapping.dense().save(str(module))
    statistics.save(finished / STATISTICS_FILE)
    for written in (*module.iterdir(), finished / STATISTICS_FILE):
        shutil.copymode(finished / RUN_FILE, written)  # weights are written for their owner alone
    (finished / RUN_FILE).write_text(json.dumps(record, indent=2), encoding="utf-8")
    card = finished / "README.md"
    if card.is_file():
        latest = record["calibrations"][-1]
        origin = "alone" if latest["fresh"] else "together with what it was fitted on before"
        note = f"Fitted again on {latest['text']['kept']:,} sentences, {origin}: {statistics.sentences.count:,} in all."
        card.write_text(f"{card.read_text(encoding='utf-8')}\n## Calibration\n\n{note}\n", encoding="utf-8")


def _batched(sentences: Iterable[str], size: int = 4096) -> Iterator[list[str]]:
    batch: list[str] = []
    for sentence in sentences:
        batch.append(sentence)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
