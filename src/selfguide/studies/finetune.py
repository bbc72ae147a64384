"""Fine-tuning: does tuning without labels help or hurt once there are graded pairs to learn from?

Three encoders start: the untuned one, and those that SG-OPT and SimCSE have made of it; all use the [CLS] vector. Each is
fine-tuned on graded pairs with a stock loss of sentence-transformers, on few pairs and then on more, and scored; with 0 pairs
it is scored as it is. ``CosineSimilarityLoss`` brings the cosine of a pair to its grade between 0 and 1 (Reimers and
Gurevych); ``CoSENTLoss`` asks for the right order of the cosines alone.

The pairs are drawn at random by the seed, a smaller draw being a subset of a larger one, and every start with that seed gets
the same ones in the same order, so that differences are paired. No checkpoint is chosen in the fine-tuning: with few graded
pairs one would not hold more of them out. Fine-tuning on few pairs depends much on the seed, so look at the deviation first.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import CoSENTLoss, CosineSimilarityLoss
from transformers import PrinterCallback

from selfguide.comparison.specs import Spec, parse_specs
from selfguide.comparison.summary import AVERAGE
from selfguide.comparison.texts import DatasetLocator, dev_rows
from selfguide.errors import SelfguideError, UsageError
from selfguide.evaluation.embedder import embedder
from selfguide.evaluation.evaluate import score_all
from selfguide.evaluation.tasks import Part, Task
from selfguide.files import private_folder
from selfguide.options import Above, OneOf, check
from selfguide.progress import Reporter
from selfguide.report.plots import Lines
from selfguide.studies.base import FULL, SMALL, Findings, Grid, Measurement, Plan, Setup, Study
from selfguide.studies.context import PROTOCOL, GradedPairs, MeasurementContext
from selfguide.studies.domains import slug
from selfguide.studies.outcome import Column, Outcome, Table, TableRow, known_series, score_columns
from selfguide.studies.specs import Result
from selfguide.studies.values import Value, difference, nan_to_none, value_from_json

GRID = "starts"
ALL = "all"
LOSSES = {"cosine": CosineSimilarityLoss, "cosent": CoSENTLoss}
STSB_TRAIN = Task("stsb-train", "STS-B train", "graded-pairs", (Part("train", 5749),), "sts/stsb/{part}.tsv")
_CAPTION = (
    "The score over the number of graded pairs (not to scale), a line for each start; 0 is before fine-tuning, and bars are ± "
    "one deviation over seeds."
)
_SHARED_SENTENCES = (
    "STS-B train shares thousands of sentences with STS12 to STS16 (and 257 with STS-B test), so scores there are of sentences "
    "partly seen, in every row alike."
)
Scores = dict[tuple[str, str], dict[str, Value | None]]
"""By start and number of pairs (``"0"``: before), the score of each column."""


class FineTune(Study):
    """Starts × numbers of graded pairs."""

    name = "finetune"
    title = "Fine-tuning afterwards"
    question = "Does tuning without labels help or hurt a later supervised fine-tuning?"
    small = replace(
        SMALL,
        dev=None,  # the dev pairs are what is fine-tuned on, so they may choose nothing before
        values={
            "methods": ("cls", "sg-opt", "simcse"),
            "pairs": ("20", "80", ALL),
            "pairs_from": ("demo-dev",),
            "loss": ("cosine",),
            "finetune_epochs": (2,),
            "finetune_batch_size": (16,),
            "finetune_learning_rate": (5e-5,),
        },
    )
    full = replace(
        FULL,
        values={
            **small.values,
            "pairs": ("50", "200", "1000", ALL),
            "pairs_from": (STSB_TRAIN.name,),
            "finetune_epochs": (4,),
            "finetune_learning_rate": (2e-5,),
        },
    )

    def plan(self, setup: Setup) -> Plan:
        """See :meth:`Study.plan`."""
        check("loss", setup.value("loss"), OneOf(*LOSSES))
        training = {"pairs_from": setup.value("pairs_from"), "loss": setup.value("loss")}
        for name in ("epochs", "batch_size", "learning_rate"):
            training[name] = setup.value(f"finetune_{name}")
            check(f"finetune_{name}", training[name], Above(0))
        measurements = [
            Measurement(
                _key(start, size, seed),
                f"{__name__}:finetuned",
                {"start": start.label, "seeded": start.seeded, "size": size, "seed": seed, **training},
                after=(GRID,),
            )
            for start in _starts(setup)
            for size in _sizes(setup)
            for seed in setup.scale.seeds
        ]
        grid = Grid(GRID, tuple(setup.values("methods")), "what fine-tuning starts from", keep=True)
        return Plan((grid,), tuple(measurements))

    def outcome(self, findings: Findings) -> Outcome:
        """See :meth:`Study.outcome`."""
        summary, setup = findings.summary(GRID), findings.setup
        main, scores = summary.main, _scores(findings)
        base, *others = (spec.label for spec in _starts(setup))
        counts = [result["pairs"] for spec in _starts(setup) for result in _results(findings, spec, ALL).values()]
        titles = {size: size for size in ("0", *_sizes(setup))}
        if ALL in titles and counts:
            titles[ALL] = f"{ALL} {counts[0]:,}"
        of = {key: row.get(main.key) for key, row in scores.items()}
        gains = {label: {size: difference(of[label, size], of[base, size]) for size in titles} for label in others}
        rows: list[TableRow] = [{"start": start, "pairs": titles[size], **row} for (start, size), row in scores.items()]
        columns = [Column("start", "start"), Column("pairs", "graded pairs"), *score_columns(summary)]
        differences: list[TableRow] = [
            {"pairs": title, **{label: gains[label][size] for label in others}} for size, title in titles.items()
        ]
        less = [columns[1], *(Column(label, f"{label} less {base}", sign=True) for label in others)]
        note = f"Differences of {main.title}, paired by seed; ± is one deviation over seeds."
        tables = [
            Table("scores", "Scores after fine-tuning", columns, rows),
            Table("differences", f"Gain of tuning beforehand over {base}", less, differences, [note]),
        ]
        lines = {start: [(name, of[start, size]) for size, name in titles.items()] for start in (base, *others)}
        series, title = known_series(lines), f"{main.title} after fine-tuning on graded pairs"
        figure = Lines("finetune", title, _CAPTION, "graded pairs", main.title, series)
        notes = []
        for label, by_size in gains.items():
            known = ", ".join(f"{gain.mean:+.2f} with {titles[size]}" for size, gain in by_size.items() if gain)
            notes.append(f"{label} less {base}, by graded pairs: {known.replace('-', '−') or 'no results'}.")
        notes.append(
            f"Fine-tuning: {setup.value('loss')} loss, {setup.value('finetune_epochs')} epochs, batch "
            f"{setup.value('finetune_batch_size')}, learning rate {setup.value('finetune_learning_rate'):g}, the last step's "
            f"encoder; pairs from {Path(setup.value('pairs_from')).name}."
        )
        notes += [_SHARED_SENTENCES] * (setup.value("pairs_from") == STSB_TRAIN.name)
        return Outcome(tables, [figure], notes)


def _starts(setup: Setup) -> tuple[Spec, ...]:
    return parse_specs(setup.values("methods"))


def _sizes(setup: Setup) -> list[str]:
    for size in setup.values("pairs"):
        if size != ALL and not (size.isdecimal() and int(size) >= 2):
            raise UsageError(f"--set pairs= takes numbers of at least 2 and the word {ALL}, not {size!r}.")
    return list(dict.fromkeys(setup.values("pairs")))


def _key(start: Spec, size: str, seed: int) -> str:
    return f"{slug(start.label)}-{size}-seed{seed}"


def _results(findings: Findings, start: Spec, size: str) -> dict[int, Result]:
    """Return the measurements that did not fail, by seed."""
    found = {seed: findings.results.get(_key(start, size, seed)) for seed in findings.setup.scale.seeds}
    return {seed: result for seed, result in found.items() if result is not None}


def _scores(findings: Findings) -> Scores:
    summary, scores = findings.summary(GRID), Scores()
    for start in _starts(findings.setup):
        scores[start.label, "0"] = dict(summary[start.label].values)
        for size in _sizes(findings.setup):
            results = {str(seed): result["scores"] for seed, result in _results(findings, start, size).items()}
            scores[start.label, size] = {
                column.key: value_from_json({seed: found[column.key] for seed, found in results.items()})
                for column in summary.columns
            }
    return scores


# -- measuring -----------------------------------------------------------------------------------------------------------


class _Trainer(SentenceTransformerTrainer):
    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Add none: the encoder is scored and dropped, and the stock card asks the hub about the base model."""


def finetuned(
    context: MeasurementContext,
    start: str,
    seeded: bool,
    size: str,
    seed: int,
    pairs_from: str,
    loss: str,
    epochs: int,
    batch_size: int,
    learning_rate: float,
) -> dict[str, Any]:
    """Fine-tune one of the grid's encoders on some graded pairs, with stock sentence-transformers, and score it.

    Args:
        context: What the study runs on.
        start: The row whose encoder is fine-tuned.
        seeded: Whether that row has seeds.
        size: How many pairs, or ``all``.
        seed: Of the draw and of the training.
        pairs_from: The graded pairs.
        loss: Name of the loss.
        epochs: Passes over the pairs.
        batch_size: Pairs a step.
        learning_rate: The highest.

    Returns:
        Pairs, steps and scores, as the study's record keeps them.
    """
    pairs = draw_pairs(read_graded(context, pairs_from), size, seed)
    encoder = context.kept_encoder(GRID, start, seed if seeded else None)
    rows = Dataset.from_dict({"sentence1": pairs.first, "sentence2": pairs.second, "score": pairs.grades})
    with private_folder("selfguide-finetune-") as work:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=work,
            num_train_epochs=epochs,
            per_device_train_batch_size=batch_size,
            learning_rate=learning_rate,
            warmup_steps=0.1,  # below 1 it is a share of the steps
            seed=seed,
            use_cpu=context.device == "cpu",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=encoder.device.type == "cuda",
        )
        trainer = _Trainer(model=encoder, args=arguments, train_dataset=rows, loss=LOSSES[loss](encoder))
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    scores = _score(encoder, start, context)
    return {"pairs": len(pairs.first), "steps": int(trainer.state.global_step), "scores": scores}


def read_graded(context: MeasurementContext, name: str) -> GradedPairs:
    """Read graded pairs, their grades scaled to [0, 1].

    Args:
        context: Names the data folder.
        name: ``stsb-train``, a task, or a file.

    Returns:
        The pairs.

    Raises:
        SelfguideError: It has no grades.
    """
    locator = DatasetLocator(context.data)
    rows = locator.rows(STSB_TRAIN) if name == STSB_TRAIN.name else dev_rows(name, locator)
    if rows is None or rows.task.kind != "graded-pairs":
        raise SelfguideError(
            f"{name} has no grades to learn from; name a file of graded pairs or a task such as stsb-dev."
        )
    pairs = GradedPairs.of(rows)
    low, width = rows.task.low, rows.task.high - rows.task.low
    return replace(pairs, grades=[(grade - low) / width for grade in pairs.grades])


def draw_pairs(pairs: GradedPairs, size: str, seed: int) -> GradedPairs:
    """Draw pairs at random; for one seed, a smaller draw is a subset of a larger one.

    Args:
        pairs: To draw from.
        size: How many, or ``all``.
        seed: Of the draw.

    Returns:
        The pairs drawn.

    Raises:
        SelfguideError: There are fewer pairs.
    """
    count = len(pairs.first) if size == ALL else int(size)
    if count > len(pairs.first):
        raise SelfguideError(f"There are {len(pairs.first):,} graded pairs, and {count:,} are asked for.")
    return pairs.subset(random.Random(seed).sample(range(len(pairs.first)), len(pairs.first))[:count])


def _score(encoder: SentenceTransformer, name: str, context: MeasurementContext) -> dict[str, float | None]:
    quiet = Reporter(quiet=True)
    vectors = embedder(encoder, batch_size=context.batch_size, name=name, reporter=quiet)
    found = score_all(vectors, context.task_rows(), PROTOCOL, quiet)
    scores = {score.task: score.value for score in found.scores}
    scores |= {AVERAGE: fmean(scores.values())} | {f"{group} avg": value for group, value in found.averages().items()}
    return {task: nan_to_none(value) for task, value in scores.items()}
