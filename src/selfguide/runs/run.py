"""One run, from a configuration to the saved encoder. :func:`train` is the Python API, :func:`run` what the commands call."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfguide.data import Sentences, TextOptions, open_text
from selfguide.data.kept_inputs import refuse_to_replace
from selfguide.data.pairs import Pairs, read_pairs
from selfguide.engine.digest import model_digest
from selfguide.engine.similarity_scale import SAMPLED, SimilarityScale
from selfguide.errors import SelfguideError
from selfguide.files import file_digest
from selfguide.methods import registry
from selfguide.models.encoders import load_encoder, quiet_libraries, with_pooling
from selfguide.models.folders import is_stock
from selfguide.models.integrity import FILES, encoder_digests
from selfguide.models.starting_points import RAW, SENTENCE_ENCODER, own_settings, starting_point
from selfguide.progress import Reporter, is_main_process
from selfguide.report.evidence import RunEvidence
from selfguide.report.folders import write_report_or_warn
from selfguide.runs.evidence import MEASURED, collect_after, collect_before, neighbour_lines, sample
from selfguide.runs.folder import FINISHED, WorkFolder, located_config, work_folder
from selfguide.runs.prepared_text import check_text, prepare_text
from selfguide.runs.resolution import resolve
from selfguide.runs.similarity import scale_or_warn
from selfguide.system import timestamp
from selfguide.training.callbacks import DEV_METRIC
from selfguide.training.configuration import RUN_FILE, RunConfig, RunRecord
from selfguide.training.distributed import wait_for_everyone
from selfguide.training.settings import TrainingSettings
from selfguide.training.trainer import FitContext, TrainingOutcome
from selfguide.versions import versions

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
    from torch import nn

    from selfguide.methods.base import Method

IN_MEMORY = "(sentences given in Python)"
GIVEN_ENCODER = "(an encoder given in Python)"


def train(
    encoder: str | Path | SentenceTransformer,
    text: str | Path | Iterable[str] | Iterable[Path] | Sentences,
    method: str | type[Method] | Method | Callable[[Any], nn.Module] | None = None,
    *,
    output: str | Path | None = None,
    dev: str | Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    quiet: bool = False,
    report: bool | None = None,
    text_options: TextOptions | None = None,
    **options: Any,
) -> SentenceTransformer:
    """Make a sentence encoder from an encoder and unlabelled text.

    Args:
        encoder: ``"mini"``, a folder, a hub name, or a loaded ``SentenceTransformer``, of which a copy is tuned.
        text: A file, glob or ``hf:`` name; a list of paths; a list of sentences; or :class:`~selfguide.data.Sentences`.
        method: A name that ``selfguide methods`` lists, ``"package.module:Class"``, a :class:`~selfguide.methods.Method` class
            or instance, or a function that makes a sentence-transformers loss from a model; such a loss is trained on every
            sentence paired with itself. ``None`` chooses by the encoder: a sentence encoder is adapted (:func:`adapt`), a raw
            language model is tuned with SG-OPT.
        output: Folder for the encoder; ``None`` writes nothing.
        dev: File of graded pairs (score, sentence, sentence; tab-separated) that chooses the best checkpoint.
        overwrite: Replace what an earlier run left at ``output``.
        resume: Continue an interrupted run at ``output``.
        quiet: Show no notes and no progress bar.
        report: Write ``report.html`` into the folder; it shows up to 200 sentences of the text. ``None``: yes, or what the
            resumed run was begun with.
        text_options: How the text is read and cleaned.
        **options: Training settings (``epochs``, ``batch_size``, ``learning_rate``, ``seed`` …, see
            :class:`~selfguide.training.settings.TrainingSettings`) and the method's own (``temperature``, ``stay_close`` …).

    Returns:
        The sentence encoder, in evaluation mode.

    Raises:
        SelfguideError: The text, the encoder, an option or the output folder cannot be used; the message says why.

    Example::

        encoder = selfguide.train("mini", "notes.txt", output="notes-encoder", seed=3)
        encoder.encode(["How do I reset my password?"])
    """
    reference, given_options = registry.reference_of(method or "")
    setting_names = {item.name for item in fields(TrainingSettings)}
    sentences = open_text(text, text_options or TextOptions())
    config = RunConfig(
        text=_source_names(text),
        encoder=str(encoder) if isinstance(encoder, str | Path) else GIVEN_ENCODER,
        method=reference,
        options=given_options | {name: value for name, value in options.items() if name not in setting_names},
        training={name: value for name, value in options.items() if name in setting_names},
        text_options=asdict(text_options or TextOptions()),
        dev=str(dev) if dev is not None else None,
    )
    given = None if isinstance(encoder, str | Path) else encoder
    reporter = Reporter(quiet=quiet, main_process=is_main_process())
    tuned, _ = run(config, output, reporter, sentences, given, overwrite=overwrite, resume=resume, report=report)
    return tuned


def adapt(
    encoder: str | Path | SentenceTransformer,
    text: str | Path | Iterable[str] | Iterable[Path] | Sentences,
    *,
    output: str | Path | None = None,
    dev: str | Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    quiet: bool = False,
    report: bool | None = None,
    text_options: TextOptions | None = None,
    **options: Any,
) -> SentenceTransformer:
    """Adapt a sentence encoder to unlabelled text, and give it back unchanged where the text gives no reason to change it.

    The result has the modules, pooling, prompts, length and size of the encoder that it comes from, and at most a centring map
    behind them. Without dev pairs it is trained if it gives any two sentences a high cosine, and comes back as it was otherwise.
    Dev pairs choose between the encoder as it was, the trained one and their weight average, each of them centred or not.

    Args:
        encoder: A folder, a hub name, or a loaded ``SentenceTransformer``, of which a copy is tuned.
        text: As for :func:`train`; at least 20 different sentences.
        output: Folder for the encoder; ``None`` writes nothing.
        dev: File of graded pairs (score, sentence, sentence; tab-separated) that decide instead.
        overwrite: Replace what an earlier run left at ``output``.
        resume: Continue an interrupted run at ``output``.
        quiet: Show no notes and no progress bar.
        report: As for :func:`train`.
        text_options: How the text is read and cleaned.
        **options: Training settings and options of the method, as for :func:`train`; ``selfguide methods adapt`` lists them.

    Returns:
        The sentence encoder, in evaluation mode.

    Raises:
        SelfguideError: The encoder is a raw language model or static embeddings, the text is too small, or an option or the
            output folder cannot be used; the message says why.

    Example::

        encoder = selfguide.adapt("sentence-transformers/all-MiniLM-L6-v2", "notes.txt", output="notes-minilm")
        encoder.encode(["How do I reset my password?"])
    """
    return train(
        encoder,
        text,
        registry.default_method(SENTENCE_ENCODER),
        output=output,
        dev=dev,
        overwrite=overwrite,
        resume=resume,
        quiet=quiet,
        report=report,
        text_options=text_options,
        **options,
    )


def run(
    config: RunConfig,
    output: str | Path | None,
    reporter: Reporter,
    sentences: Sentences | None = None,
    encoder: SentenceTransformer | None = None,
    *,
    overwrite: bool = False,
    resume: bool = False,
    report: bool | None = None,
) -> tuple[SentenceTransformer, RunRecord]:
    """Run a configuration; see :func:`train`.

    Args:
        config: What to run; defaults are filled in.
        output: Folder for the encoder; ``None`` writes nothing.
        reporter: Shows notes, warnings and progress.
        sentences: The text, where the configuration only names it.
        encoder: The encoder, where the configuration only names it; a copy is tuned.
        overwrite: Replace what an earlier run left at ``output``.
        resume: Continue an interrupted run at ``output``.
        report: Write ``report.html``; ``None``: yes, or what the resumed run was begun with.

    Returns:
        The encoder, and the record that ``run.json`` keeps.
    """
    here = located_config(config, output) if resume and output is not None else config
    start = starting_point(encoder if encoder is not None else here.encoder)
    by_default = not config.method
    config, method = resolve(config, start)
    if output is not None and not resume:
        read: list[str | Path] = [*config.text, *([config.dev] if config.dev else [])]
        read += sentences.files() if sentences is not None else []
        refuse_to_replace(Path(output), read)
    with work_folder(config, output, overwrite, resume, report) as claimed, quiet_libraries():
        work = claimed.path
        if claimed.complete and claimed.final is not None:
            reporter.note("The run was complete; only renaming was left.")
            return load_encoder(claimed.final), RunRecord.from_file(claimed.final / RUN_FILE)
        started = time.monotonic()
        record = RunRecord(config)
        settings = TrainingSettings(**config.training)
        method.check()
        name = "the encoder" if config.encoder == GIVEN_ENCODER else config.encoder
        if by_default and start.kind != RAW:
            reporter.note(f"{start.describe(name)} The method is {method.name}, the default for such encoders.")
        method.check_start(start, name, reporter)
        dev_pairs = _dev_pairs(here.dev) if here.dev else None
        if not (work / "text.json").is_file() and sentences is None:
            sentences = _open_named_text(here)
        if encoder is None and config.encoder == GIVEN_ENCODER:
            raise SelfguideError("This run started from an encoder given in Python; name one with --encoder.")
        student = _own_copy(encoder) if encoder is not None else load_encoder(here.encoder, device=settings.device)
        if output is not None and is_main_process():
            dev_digest = file_digest(Path(here.dev)) if here.dev else None
            claimed.check_inputs(**{"start encoder": model_digest(student), "dev file": dev_digest})
        record.start = {"kind": start.kind, "reason": start.reason, "own": own_settings(student)}
        text, record.text = prepare_text(work, sentences, settings, reporter)
        record.seconds["text"] = time.monotonic() - started
        check_text(text, student, reporter)
        # The encoder is tuned in place, so the report's "before" has to be measured now.
        kept = output is not None and is_main_process()
        drawn = sample(text, SAMPLED, settings.seed) if kept else []
        as_given = start.kind != RAW
        measured = kept and claimed.report
        before = collect_before(student, drawn[:MEASURED], reporter, as_given=as_given) if measured else None
        evaluator = _evaluator(dev_pairs, settings) if dev_pairs else None
        if evaluator is not None:
            record.scores |= _scores_before(student, evaluator, as_given)
        context = FitContext(text, settings, work, reporter, evaluator, resume=resume)
        outcome = method.fit(student, context)
        if evaluator is not None and outcome.best_score is None:  # without tuning there were no dev checks
            outcome.best_score = float(evaluator(outcome.encoder)[f"dev_{DEV_METRIC}"])
        evidence = collect_after(before, outcome.encoder, reporter)
        scale = scale_or_warn(outcome.encoder, drawn, len(text), settings.seed, reporter) if kept else None
        _fill(record, outcome, reporter)
        record.seconds["total"] = time.monotonic() - started
        if output is not None:
            _finish(outcome.encoder, record, claimed, scale, (reporter, evidence) if claimed.report else None)
        for line in neighbour_lines(evidence) if evidence is not None else ():
            reporter.note(line)
        return outcome.encoder, record


def _source_names(text: object) -> tuple[str, ...]:
    if isinstance(text, str | Path):
        return (str(text),)
    if isinstance(text, list | tuple) and text and all(isinstance(item, Path) for item in text):
        return tuple(str(item) for item in text)
    return (IN_MEMORY,)


def _open_named_text(config: RunConfig) -> Sentences:
    if config.text == (IN_MEMORY,):
        raise SelfguideError("This run was trained on sentences given in Python; pass them to selfguide.train again.")
    return Sentences(config.text, TextOptions(**config.text_options))


def _dev_pairs(path: str) -> Pairs:
    pairs = read_pairs(Path(path))
    if len(set(pairs.scores)) < 2:
        raise SelfguideError(f"{path} gives every pair the same score, so it cannot choose a checkpoint.")
    return pairs


def _evaluator(pairs: Pairs, settings: TrainingSettings) -> EmbeddingSimilarityEvaluator:
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    return EmbeddingSimilarityEvaluator(
        pairs.first,
        pairs.second,
        pairs.scores,
        batch_size=max(64, settings.batch_size),
        main_similarity="cosine",
        name="dev",
        write_csv=False,
    )


def _scores_before(
    encoder: SentenceTransformer, evaluator: EmbeddingSimilarityEvaluator, as_given: bool
) -> dict[str, float]:
    """Score the encoder on the dev pairs before training: as it is, or a raw model's [CLS] and mean embeddings."""
    if as_given:
        return {"before": float(evaluator(encoder)[f"dev_{DEV_METRIC}"])}
    return {
        f"before ({pooling})": float(evaluator(with_pooling(encoder, pooling))[f"dev_{DEV_METRIC}"])
        for pooling in ("cls", "mean")
    }


def _fill(record: RunRecord, outcome: TrainingOutcome, reporter: Reporter) -> None:
    record.steps = outcome.steps
    record.final_loss = outcome.final_loss
    record.seconds["training"] = outcome.seconds
    record.sentences_per_second = outcome.sentences_per_second
    record.dev_curve = outcome.dev_scores
    record.loss_curve = outcome.losses
    if outcome.best_score is not None:
        record.scores["after"] = outcome.best_score
    if outcome.best_step is not None:
        early = ", stopped early" if outcome.stopped_early else ""
        record.checkpoint = f"step {outcome.best_step}, best on the dev pairs{early}"
    elif not outcome.steps or registry.info(record.config.method).family != "tuning":
        record.checkpoint = "none: nothing was tuned"
    else:
        record.checkpoint = "the last one: there were no dev pairs to choose by"
    record.chosen = outcome.chosen
    record.optimiser, record.length = outcome.optimiser, outcome.length
    if outcome.choice is not None:
        record.choice = outcome.choice.as_dict()
        record.checkpoint = outcome.choice.sentence
    record.checkpoint += "".join(f"; {name} {value:g} by the dev pairs" for name, value in outcome.chosen.items())
    record.warnings = list(reporter.warnings)
    record.versions = versions()
    record.finished = timestamp()


def _finish(
    encoder: SentenceTransformer,
    record: RunRecord,
    work: WorkFolder,
    scale: SimilarityScale | None,
    report: tuple[Reporter, RunEvidence | None] | None,
) -> None:
    """Write the folder under a temporary name, then rename it."""
    from selfguide.runs.card import model_card

    if is_main_process():
        finished = work.path / FINISHED
        shutil.rmtree(finished, ignore_errors=True)
        encoder.save(str(finished), create_model_card=False, safe_serialization=True)
        (finished / "README.md").write_text(model_card(record, encoder, scale), encoding="utf-8")
        if scale is not None:
            scale.write(finished)
        # A folder that is not stock is loaded by selfguide.load, not by sentence-transformers alone.
        facts = {**asdict(record), "stock": is_stock(encoder), FILES: encoder_digests(finished)}
        (finished / RUN_FILE).write_text(json.dumps(facts, indent=2), encoding="utf-8")
        if report is not None:
            write_report_or_warn(finished, *report)
        _keep_curves(work.path, finished)
        _use_default_permissions(finished)
        work.finish()
    wait_for_everyone(TrainingSettings(**record.config.training))


def _keep_curves(work: Path, finished: Path) -> None:
    """Move what a tracker (tensorboard) wrote below the work folder, which is removed."""
    if (work / "runs").is_dir():
        (work / "runs").rename(finished / "runs")


def _use_default_permissions(folder: Path) -> None:
    """Give every file the permissions of a new file; safetensors writes weights for their owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(0o666 & ~mask)


def _own_copy(encoder: SentenceTransformer) -> SentenceTransformer:
    import copy

    return copy.deepcopy(encoder)
