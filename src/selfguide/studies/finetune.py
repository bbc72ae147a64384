"""Fine-tuning: does tuning without labels help or hurt once there are graded pairs to learn from?

Three encoders start: the untuned one, and those that SG-OPT and SimCSE have made of it; all take the [CLS] vector. Each is
then fine-tuned on graded pairs with a stock loss of sentence-transformers, few pairs first and then more, and scored after
it; with 0 pairs it is scored as it is. ``CosineSimilarityLoss`` brings the cosine of a pair to its grade between 0 and 1
(Reimers and Gurevych); ``CoSENTLoss`` asks for the right order of the cosines alone.

The pairs are drawn at random by the seed, the smaller draws being parts of the larger ones, and every start with that seed
gets the same ones in the same order, so that differences are paired. There are no checkpoints to choose from in the
fine-tuning: with few graded pairs one would not keep more of them back.

Fine-tuning on few pairs depends much on the seed, so look at the deviation first.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from selfguide.comparison.specs import Spec, parse_specs
from selfguide.comparison.summary import AVERAGE, Summary, Value
from selfguide.comparison.texts import DatasetLocator, dev_rows
from selfguide.errors import SelfguideError, UsageError
from selfguide.evaluation.tasks import Part, Task
from selfguide.studies.base import FULL, SMALL, Found, Grid, Measurement, Plan, Setup, Study
from selfguide.studies.domains import difference, slug, value_of
from selfguide.studies.measuring import PROTOCOL, Place
from selfguide.studies.outcome import Column, Entry, Lines, Outcome, Series, Table, score_columns

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

GRID = "starts"
ALL = "all"
LOSSES = ("cosine", "cosent")
STSB_TRAIN = Task("stsb-train", "STS-B train", "graded-pairs", (Part("train", 5749),), "sts/stsb/{part}.tsv")


class FineTune(Study):
    """Starts × numbers of graded pairs."""

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
        shared = {
            "pairs_from": _one(setup, "pairs_from"),
            "loss": _one(setup, "loss"),
            "epochs": _one(setup, "finetune_epochs"),
            "batch_size": _one(setup, "finetune_batch_size"),
            "learning_rate": _one(setup, "finetune_learning_rate"),
        }
        if shared["loss"] not in LOSSES:
            raise UsageError(
                f"There is no loss {shared['loss']!r} for graded pairs; choose one of {', '.join(LOSSES)}."
            )
        if min(shared["epochs"], shared["batch_size"], shared["learning_rate"]) <= 0:
            raise UsageError("Epochs, batch size and learning rate of the fine-tuning must be above 0.")
        measurements = [
            Measurement(
                _key(start, size, seed),
                f"{__name__}:finetuned",
                {"start": start.label, "seeded": start.seeded, "size": size, "seed": seed, **shared},
                after=(GRID,),
            )
            for start in _starts(setup)
            for size in _sizes(setup)
            for seed in setup.scale.seeds
        ]
        grid = Grid(GRID, tuple(setup.values("methods")), "what fine-tuning starts from", keep=True)
        return Plan((grid,), tuple(measurements))

    def outcome(self, found: Found) -> Outcome:
        summary = found.summary(GRID)
        points = _points(found, summary)
        return Outcome(
            (_scores(found, points, summary), _differences(found, points, summary)),
            (_lines(found, points, summary),),
            _notes(found, points, summary),
        )


def _starts(setup: Setup) -> tuple[Spec, ...]:
    return parse_specs(setup.values("methods"))


def _sizes(setup: Setup) -> list[str]:
    for size in setup.values("pairs"):
        if size != ALL and not (size.isdecimal() and int(size) >= 2):
            raise UsageError(f"--set pairs= takes numbers of at least 2 and the word {ALL}, not {size!r}.")
    return list(dict.fromkeys(setup.values("pairs")))


def _one(setup: Setup, name: str) -> Any:
    values = setup.values(name)
    if len(values) != 1:
        raise UsageError(f"--set {name}= takes one value here, not {len(values)}.")
    return values[0]


def _key(start: Spec, size: str, seed: int) -> str:
    return f"{slug(start.label)}-{size}-seed{seed}"


# -- what is measured ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pairs:
    """Graded pairs with grades from 0 to 1."""

    first: list[str]
    second: list[str]
    grades: list[float]

    def drawn(self, size: str, seed: int) -> _Pairs:
        """So many of them; for one seed, the smaller draws are parts of the larger ones."""
        count = len(self.first) if size == ALL else int(size)
        if count > len(self.first):
            raise SelfguideError(f"There are {len(self.first):,} graded pairs, and {count:,} are asked for.")
        order = random.Random(seed).sample(range(len(self.first)), len(self.first))[:count]
        return _Pairs(
            [self.first[place] for place in order],
            [self.second[place] for place in order],
            [self.grades[place] for place in order],
        )


def finetuned(
    place: Place,
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
    """Fine-tune one of the grid's encoders on some graded pairs and score it."""
    from selfguide.evaluation.embedder import embedder
    from selfguide.evaluation.evaluate import score_all
    from selfguide.progress import Reporter

    pairs = _read(place, pairs_from).drawn(size, seed)
    encoder = place.kept(GRID, start, seed if seeded else None)
    steps = _fit(encoder, pairs, loss, epochs, batch_size, learning_rate, seed, place.device)
    quiet = Reporter(quiet=True)
    vectors = embedder(encoder, batch_size=place.batch_size, name=start, reporter=quiet)
    found = score_all(vectors, place.task_rows(), PROTOCOL, quiet)
    scores = {score.task: score.value for score in found.scores}
    scores |= {AVERAGE: fmean(scores.values())} | {f"{group} avg": value for group, value in found.averages().items()}
    return {
        "pairs": len(pairs.first),
        "steps": steps,
        "scores": {name: None if value != value else value for name, value in scores.items()},
    }


def _read(place: Place, name: str) -> _Pairs:
    locator = DatasetLocator(place.data)
    rows = locator.rows(STSB_TRAIN) if name == STSB_TRAIN.name else dev_rows(name, locator)
    if rows is None or rows.task.kind != "graded-pairs":
        raise SelfguideError(
            f"{name} has no grades to learn from; name a file of graded pairs or a task such as stsb-dev."
        )
    low, width = rows.task.low, rows.task.high - rows.task.low
    return _Pairs(
        [sentence for part in rows.parts for sentence in part.first],
        [sentence for part in rows.parts for sentence in part.second or []],
        [(grade - low) / width for part in rows.parts for grade in part.grades or []],
    )


def _fit(
    encoder: SentenceTransformer,
    pairs: _Pairs,
    loss: str,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
    device: str,
) -> int:
    """Stock sentence-transformers from end to end: what a user would do with the encoder. Returns the steps."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.losses import CoSENTLoss, CosineSimilarityLoss
    from transformers import PrinterCallback

    class Trainer(SentenceTransformerTrainer):
        def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
            """Nothing: the encoder is scored and dropped, and the stock card asks the hub about the base model."""

    rows = Dataset.from_dict({"sentence1": pairs.first, "sentence2": pairs.second, "score": pairs.grades})
    with TemporaryDirectory(prefix="selfguide-finetune-") as work:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=work,
            num_train_epochs=epochs,
            per_device_train_batch_size=batch_size,
            learning_rate=learning_rate,
            warmup_steps=0.1,  # below 1 it is a share of the steps
            seed=seed,
            use_cpu=device == "cpu",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=encoder.device.type == "cuda",
        )
        made = (CosineSimilarityLoss if loss == "cosine" else CoSENTLoss)(encoder)
        trainer = Trainer(model=encoder, args=arguments, train_dataset=rows, loss=made)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        return int(trainer.state.global_step)


# -- what it comes to ----------------------------------------------------------------------------------------------------

Points = dict[tuple[str, str], dict[str, Value | None]]
"""By start and number of pairs (``"0"``: before), the score of each column."""


def _points(found: Found, summary: Summary) -> Points:
    points: Points = {(row.label, "0"): dict(row.values) for row in summary.rows}
    for start in _starts(found.setup):
        for size in _sizes(found.setup):
            results = {seed: found.results[_key(start, size, seed)] for seed in found.setup.scale.seeds}
            scores = {str(seed): result["scores"] for seed, result in results.items() if result is not None}
            points[start.label, size] = {
                column.key: value_of({seed: found_[column.key] for seed, found_ in scores.items()})
                for column in summary.columns
            }
    return points


def _shown(found: Found) -> dict[str, str]:
    """The numbers of pairs as they are called; ``all`` with how many that is, once it is known."""
    sizes = _sizes(found.setup)
    counts = [
        result["pairs"]
        for start in _starts(found.setup)
        for seed in found.setup.scale.seeds
        if ALL in sizes and (result := found.results[_key(start, ALL, seed)]) is not None
    ]
    every = f"{ALL} {counts[0]:,}" if counts else ALL
    return {size: every if size == ALL else size for size in ("0", *sizes)}


def _scores(found: Found, points: Points, summary: Summary) -> Table:
    rows: list[dict[str, Entry]] = [
        {"start": start.label, "pairs": name, **points[start.label, size]}
        for start in _starts(found.setup)
        for size, name in _shown(found).items()
    ]
    columns = (Column("start", "start"), Column("pairs", "graded pairs"), *score_columns(summary))
    return Table("scores", "Scores after fine-tuning", columns, tuple(rows))


def _differences(found: Found, points: Points, summary: Summary) -> Table:
    """Every start less the first one, which is the untuned encoder."""
    base, *others = (start.label for start in _starts(found.setup))
    rows: list[dict[str, Entry]] = [
        {"pairs": name, **{label: _less(points, label, base, size, summary.main.key) for label in others}}
        for size, name in _shown(found).items()
    ]
    columns = (Column("pairs", "graded pairs"), *(Column(label, f"{label} less {base}", sign=True) for label in others))
    note = f"Differences of {summary.main.title}, paired by seed; ± is one deviation over seeds."
    return Table("differences", f"What tuning before gives beyond {base}", columns, tuple(rows), (note,))


def _less(points: Points, label: str, base: str, size: str, key: str) -> Value | None:
    return difference(points[label, size].get(key), points[base, size].get(key))


def _lines(found: Found, points: Points, summary: Summary) -> Lines:
    names = _shown(found)
    series = []
    for start in _starts(found.setup):
        known = {name: points[start.label, size].get(summary.main.key) for size, name in names.items()}
        series.append(Series(start.label, tuple((name, value) for name, value in known.items() if value is not None)))
    return Lines(
        "finetune",
        f"{summary.main.title} after fine-tuning on graded pairs",
        "The score over the number of graded pairs (not to scale), a line for each start; 0 is before fine-tuning, and bars "
        "are ± one deviation over seeds.",
        "graded pairs",
        summary.main.title,
        tuple(series),
    )


def _notes(found: Found, points: Points, summary: Summary) -> tuple[str, ...]:
    setup = found.setup
    base, *others = (start.label for start in _starts(setup))
    notes = []
    for label in others:
        told = [
            f"{gain.mean:+.2f} with {name}".replace("-", "−")
            for size, name in _shown(found).items()
            if (gain := _less(points, label, base, size, summary.main.key)) is not None
        ]
        notes.append(f"{label} less {base}, by graded pairs: {', '.join(told) or 'nothing to tell'}.")
    notes.append(
        f"Fine-tuning: {_one(setup, 'loss')} loss, {_one(setup, 'finetune_epochs')} epochs, batch "
        f"{_one(setup, 'finetune_batch_size')}, learning rate {_one(setup, 'finetune_learning_rate'):g}, the last step's "
        f"encoder; pairs from {Path(_one(setup, 'pairs_from')).name}."
    )
    if _one(setup, "pairs_from") == STSB_TRAIN.name:
        notes.append(
            "STS-B train shares thousands of sentences with STS12 to STS16 (and 257 with STS-B test), so scores there are "
            "of sentences partly seen, in every row alike."
        )
    return tuple(notes)
