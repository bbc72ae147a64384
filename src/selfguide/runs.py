"""A run: from a configuration to a finished folder.

While a run is under way it lives in ``<output>.partial``: the configuration, the cleaned text (memory-mapped, so that its
size does not matter), checkpoints. When it is done the finished folder is renamed into place; a run that was interrupted
stays where it is until it is resumed or started over. Nothing half-written ever carries the final name.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfguide import __version__
from selfguide.encoders import load_encoder, quiet_libraries, with_pooling
from selfguide.errors import InterruptedRun, SelfguideError, UsageError
from selfguide.methods import registry
from selfguide.reporting import Reporter, is_main_process
from selfguide.settings import TrainingSettings
from selfguide.text import Sentences, TextOptions, open_text
from selfguide.text.pairs import Pairs, read_pairs
from selfguide.training import DEV_METRIC, FitContext, TrainingOutcome, runs_on_cpu

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

IN_MEMORY = "(sentences given in Python)"
RUN_FILE = "run.json"
# Below this many sentences one epoch is a handful of steps: training goes through, but hardly moves anything.
FEW_SENTENCES = 200


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides what a run does; ``run.json`` carries it and ``--config`` reads it."""

    text: tuple[str, ...]
    encoder: str = "mini"
    method: str = "sg-opt"
    options: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    text_options: dict[str, Any] = field(default_factory=dict)
    dev: str | None = None

    def resolved(self) -> RunConfig:
        """With every default written out, so that a run can be repeated after a default has changed."""
        method = registry.make(self.method, self.options)
        training = method.defaults.override(self.training)
        return replace(
            self,
            options=method.describe_options(),
            training=asdict(training),
            text_options=asdict(TextOptions(**self.text_options)),
        )

    @classmethod
    def from_file(cls, path: str | Path) -> RunConfig:
        """Read ``run.json`` (or a file with the same keys under ``config``)."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise SelfguideError(f"There is no configuration file {path}.") from None
        except (OSError, ValueError) as error:
            raise SelfguideError(f"{path} is not a configuration that can be read: {error}.") from None
        values = content.get("config", content) if isinstance(content, dict) else None
        known = {item.name for item in fields(cls)}
        if not isinstance(values, dict) or not set(values) <= known or "text" not in values:
            raise SelfguideError(f"{path} is not a run's configuration; it should hold what a run.json holds.")
        return cls(**{**values, "text": tuple(values["text"])})


@dataclass
class RunRecord:
    """What a run did, as ``run.json`` tells it."""

    config: RunConfig
    text: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    dev_curve: list[tuple[int, float]] = field(default_factory=list)
    checkpoint: str = ""
    steps: int = 0
    final_loss: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    sentences_per_second: float = 0.0
    warnings: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    finished: str = ""


def train(
    encoder: str | Path | SentenceTransformer,
    text: str | Path | Iterable[str] | Iterable[Path] | Sentences,
    method: str = "sg-opt",
    *,
    output: str | Path | None = None,
    dev: str | Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    quiet: bool = False,
    text_options: TextOptions | None = None,
    **options: Any,
) -> SentenceTransformer:
    """Tune an encoder on unlabelled text and return it.

    Args:
        encoder: ``"mini"``, a folder, a hub name, or a loaded SentenceTransformer (a copy is tuned, yours stays as it is).
        text: a file, glob or ``hf:`` name; a list of paths; a list of sentences; or :class:`~selfguide.text.Sentences`.
        method: a name from :func:`selfguide.methods.registry` (``selfguide methods`` lists them).
        output: folder for the finished encoder; ``None`` writes nothing.
        dev: graded pairs (score, sentence, sentence; tab-separated) that choose the best checkpoint.
        overwrite, resume: what to do with what a former run left at ``output``.
        quiet: no notes and no progress bar.
        text_options: how the text is read and cleaned.
        **options: training settings (``epochs``, ``batch_size``, ``learning_rate``, ``seed`` …, see
            :class:`~selfguide.settings.TrainingSettings`) and the method's own (``temperature``, ``stay_close`` …).

    Example::

        encoder = selfguide.train("mini", "notes.txt", output="notes-encoder", seed=3)
        encoder.encode(["How do I reset my password?"])
    """
    setting_names = {item.name for item in fields(TrainingSettings)}
    sentences = open_text(text, text_options or TextOptions())
    config = RunConfig(
        text=_source_names(text),
        encoder=str(encoder) if isinstance(encoder, str | Path) else "(an encoder given in Python)",
        method=method,
        options={name: value for name, value in options.items() if name not in setting_names},
        training={name: value for name, value in options.items() if name in setting_names},
        text_options=asdict(text_options or TextOptions()),
        dev=str(dev) if dev is not None else None,
    )
    given = None if isinstance(encoder, str | Path) else encoder
    reporter = Reporter(quiet=quiet, main_process=is_main_process())
    tuned, _ = run(config, output, reporter, sentences, given, overwrite=overwrite, resume=resume)
    return tuned


def run(
    config: RunConfig,
    output: str | Path | None,
    reporter: Reporter,
    sentences: Sentences | None = None,
    encoder: SentenceTransformer | None = None,
    *,
    overwrite: bool = False,
    resume: bool = False,
) -> tuple[SentenceTransformer, RunRecord]:
    """Do a run; see :func:`train`. ``sentences`` and ``encoder`` stand in for what the configuration only names."""
    config = config.resolved()
    with _work_folder(config, output, overwrite, resume, reporter) as work, quiet_libraries():
        started = time.monotonic()
        record = RunRecord(config)
        settings = TrainingSettings(**config.training)
        dev_pairs = read_pairs(Path(config.dev)) if config.dev else None
        if not (work / "text.json").is_file() and sentences is None:
            sentences = _open_named_text(config)
        student = _own_copy(encoder) if encoder is not None else load_encoder(config.encoder, device=_device(settings))
        text, record.text = _prepare_text(work, sentences, settings, reporter)
        record.seconds["text"] = time.monotonic() - started
        _check_text(text, student, settings, reporter)
        evaluator = _evaluator(dev_pairs, settings) if dev_pairs else None
        if evaluator is not None:
            record.scores |= _scores_before(student, evaluator)
        context = FitContext(text, settings, work, reporter, evaluator, resume=resume)
        outcome = registry.make(config.method, config.options).fit(student, context)
        _fill(record, outcome, reporter, evaluator is not None)
        record.seconds["total"] = time.monotonic() - started
        if output is not None:
            _finish(outcome.encoder, record, work, Path(output), overwrite, reporter)
        return outcome.encoder, record


@contextlib.contextmanager
def _work_folder(
    config: RunConfig, output: str | Path | None, overwrite: bool, resume: bool, reporter: Reporter
) -> Iterator[Path]:
    if output is None:
        with tempfile.TemporaryDirectory(prefix="selfguide-") as folder:
            yield Path(folder)
        return
    final, work = Path(output), partial_folder(output)
    if is_main_process():
        _claim(final, work, config, overwrite, resume)
    _wait_for_everyone(TrainingSettings(**config.training))
    try:
        yield work
    except InterruptedRun as error:
        raise InterruptedRun(f"{error} Go on with: selfguide train --output {final} --resume") from None
    except KeyboardInterrupt:
        raise InterruptedRun(
            f"Interrupted. What was finished is in {work}; go on with: selfguide train --output {final} --resume"
        ) from None
    except SelfguideError:
        # A run that failed before its first checkpoint left nothing worth resuming.
        if is_main_process() and not any(work.glob("checkpoint-*")):
            shutil.rmtree(work, ignore_errors=True)
        raise


def partial_folder(output: str | Path) -> Path:
    """Where a run lives until it is finished."""
    final = Path(output)
    return final.with_name(final.name + ".partial")


def stored_config(output: str | Path) -> RunConfig:
    """The configuration of an interrupted run."""
    path = partial_folder(output) / RUN_FILE
    if not path.is_file():
        state = "it is finished" if (Path(output) / RUN_FILE).is_file() else "there is no interrupted run there"
        raise UsageError(f"Nothing to resume at {output}: {state}. Leave --resume out to start one.")
    return RunConfig.from_file(path)


def _claim(final: Path, work: Path, config: RunConfig, overwrite: bool, resume: bool) -> None:
    """Make the work folder, or refuse in words."""
    if final.exists() and not overwrite:
        raise UsageError(f"{final} exists already; choose another --output, or say --overwrite to replace it.")
    if resume:
        stored = stored_config(final)
        for name in (item.name for item in fields(RunConfig)):
            if getattr(stored, name) != getattr(config, name):
                raise UsageError(
                    f"This is not the run that was interrupted: its {name} was {getattr(stored, name)!r}. "
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


def _prepare_text(
    work: Path, sentences: Sentences | None, settings: TrainingSettings, reporter: Reporter
) -> tuple[Dataset, dict[str, Any]]:
    """The cleaned text as a memory-mapped dataset, and its summary; a resumed run finds both in its folder."""
    from datasets import Dataset

    arrow, summary_file = work / "text.arrow", work / "text.json"
    if is_main_process() and not summary_file.is_file():
        assert sentences is not None
        _write_arrow(arrow, sentences, reporter)
        summary = {**sentences.summary.as_dict(), "fingerprint": sentences.summary.fingerprint}
        if sentences.summary.kept < 2:
            raise SelfguideError(
                f"There is too little to train on: {sentences.summary.describe()}. "
                "Contrastive training needs at least two different sentences, and pays from a few hundred on."
            )
        reporter.note(sentences.summary.describe())
        fresh = summary_file.with_suffix(".tmp")
        fresh.write_text(json.dumps(summary, indent=2), encoding="utf-8")
        fresh.replace(summary_file)
    _wait_for_everyone(settings)
    return Dataset.from_file(str(arrow)), json.loads(summary_file.read_text(encoding="utf-8"))


def _write_arrow(path: Path, sentences: Iterable[str], reporter: Reporter, chunk: int = 10_000) -> None:
    import pyarrow as pa

    schema = pa.schema([("sentence", pa.string())])
    with (
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_stream(sink, schema) as writer,
        reporter.bar("reading", None, "sentences") as advance,
    ):
        batch: list[str] = []
        for sentence in sentences:
            batch.append(sentence)
            if len(batch) == chunk:
                writer.write_batch(pa.record_batch([batch], schema=schema))
                advance(len(batch), "")
                batch = []
        if batch:
            writer.write_batch(pa.record_batch([batch], schema=schema))


def _check_text(text: Dataset, encoder: SentenceTransformer, settings: TrainingSettings, reporter: Reporter) -> None:
    """Warn where training is likely to be pointless."""
    count = len(text)
    if count < FEW_SENTENCES:
        reporter.warn(
            f"only {count} sentences: that is {max(1, round(settings.epochs * count / settings.batch_size))} steps, too few "
            "to change much. Add text, or more --epochs."
        )
    step = max(1, count // 500)
    sample = [text[index]["sentence"] for index in range(0, count, step)]
    unknown = encoder.tokenizer.unk_token_id
    special = set(encoder.tokenizer.all_special_ids) - {unknown}
    tokens = [[token for token in ids if token not in special] for ids in encoder.tokenizer(sample)["input_ids"]]
    lengths = sorted(len(ids) for ids in tokens)
    if lengths[len(lengths) // 2] < 3:
        reporter.warn("half of the lines have fewer than three tokens: these look like words or labels, not sentences.")
    flat = [token for ids in tokens for token in ids]
    if flat and unknown is not None and flat.count(unknown) > 0.5 * len(flat):
        reporter.warn(
            "the encoder's tokenizer does not know most of this text's words; choose an encoder of its language."
        )
    if count >= 50 and len(set(flat)) < 20:
        reporter.warn(
            f"the text uses only {len(set(flat))} different tokens: its sentences are too alike to tell apart."
        )


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


def _scores_before(encoder: SentenceTransformer, evaluator: EmbeddingSimilarityEvaluator) -> dict[str, float]:
    """Dev scores of the untuned encoder's [CLS] and mean."""
    return {
        f"before ({pooling})": float(evaluator(with_pooling(encoder, pooling))[f"dev_{DEV_METRIC}"])
        for pooling in ("cls", "mean")
    }


def _fill(record: RunRecord, outcome: TrainingOutcome, reporter: Reporter, graded: bool) -> None:
    record.steps = outcome.steps
    record.final_loss = outcome.final_loss
    record.seconds["training"] = outcome.seconds
    record.sentences_per_second = outcome.sentences_per_second
    record.dev_curve = outcome.dev_scores
    if graded and outcome.best_score is not None:
        record.scores["after"] = outcome.best_score
        early = ", stopped early" if outcome.stopped_early else ""
        record.checkpoint = f"step {outcome.best_step}, best on the dev pairs{early}"
    else:
        record.checkpoint = "the last one: there were no dev pairs to choose by"
    record.warnings = list(reporter.warnings)
    record.versions = _versions()
    record.finished = time.strftime("%Y-%m-%dT%H:%M:%S%z")


def _finish(
    encoder: SentenceTransformer, record: RunRecord, work: Path, final: Path, overwrite: bool, reporter: Reporter
) -> None:
    """Write the folder under a temporary name, then put it in place."""
    from selfguide.cards import model_card

    if is_main_process():
        finished = work / "finished"
        shutil.rmtree(finished, ignore_errors=True)
        try:
            encoder.save(str(finished), create_model_card=False, safe_serialization=True)
            (finished / "README.md").write_text(model_card(record, encoder), encoding="utf-8")
            (finished / RUN_FILE).write_text(json.dumps(asdict(record), indent=2), encoding="utf-8")
        except SelfguideError:
            raise
        except Exception as error:  # safetensors reports a full disk with its own exception class
            shutil.rmtree(finished, ignore_errors=True)
            raise SelfguideError(
                f"The finished encoder could not be written to {finished}: {error}. Make room, then go on with: "
                f"selfguide train --output {final} --resume"
            ) from error
        if final.exists() and overwrite:
            shutil.rmtree(final)
        finished.rename(final)
        shutil.rmtree(work, ignore_errors=True)
    _wait_for_everyone(TrainingSettings(**record.config.training))


def _own_copy(encoder: SentenceTransformer) -> SentenceTransformer:
    import copy

    return copy.deepcopy(encoder)


def _device(settings: TrainingSettings) -> str | None:
    return None if settings.device == "auto" else settings.device


def _wait_for_everyone(settings: TrainingSettings) -> None:
    """Under torchrun or accelerate, wait for the other processes; alone, do nothing."""
    import os

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from accelerate import PartialState

        PartialState(cpu=runs_on_cpu(settings)).wait_for_everyone()


def _versions() -> dict[str, str]:
    import platform
    from importlib.metadata import version

    names = ("torch", "transformers", "sentence-transformers", "tokenizers", "numpy")
    ours = {"selfguide": __version__, "python": platform.python_version()}
    return ours | {name: version(name) for name in names}
