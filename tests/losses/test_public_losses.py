"""Every public loss in anyone's training script: the stock trainer and arguments, a saved model, the documented example."""

from __future__ import annotations

import inspect
import json
import math
import re
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from torch import Tensor

import selfguide.losses
from selfguide.losses.base import HeadedLoss, own_parameters
from selfguide.losses.info_max import with_convolutions
from selfguide.models.encoders import load_encoder
from toys import toy_sentences
from translations import turned

SENTENCES = [*toy_sentences(11), "my sister paints a small dog and watches some music in the long red train"]
TEXT = {"sentence": SENTENCES}
TRANSLATED = {**TEXT, "translation": [f"{turned(sentence)} a" for sentence in SENTENCES]}
LABELLED = {"premise": SENTENCES, "hypothesis": SENTENCES[::-1], "label": [0, 1, 2] * 4}


class Case(NamedTuple):
    """How a loss is made, what it trains on, and which children it trains besides the model."""

    loss: str
    columns: dict[str, list[Any]]
    own: set[str]
    pooling: str
    settings: dict[str, Any]


def _case(loss: str, *own: str, columns: dict[str, list[Any]] = TEXT, pooling: str = "mean", **settings: Any) -> Case:
    return Case(loss, columns, set(own), pooling, settings)


CASES = {
    "self-guided": _case("SelfGuidedLoss", "head", pooling="cls", head_size=16),
    "self-guided-translation": _case(
        "SelfGuidedTranslationLoss", "head", columns=TRANSLATED, pooling="cls", head_size=16
    ),
    "dropout-contrast": _case("DropoutContrastLoss", "head", dropout=0.1),
    "guided-contrast": _case("GuidedContrastLoss", dropout=0.1),
    "consert": _case("ConSERTLoss"),
    "mirror": _case("MirrorLoss", dropout=0.1),
    "clear": _case("ClearLoss", "head", "mlm"),
    "contrastive-tension": _case("ContrastiveTensionLoss", "first", negatives=2),
    "contrastive-tension-in-batch": _case("ContrastiveTensionInBatchLoss", "first", "log_scale"),
    "info-max": _case("InfoMaxLoss"),
    "denoising": _case("DenoisingLoss", "decoder", pooling="cls"),
    "back-translation": _case("BackTranslationLoss", "head", columns=TRANSLATED),
    "back-translation-moco": _case(
        "BackTranslationLoss", "head", columns=TRANSLATED, objective="moco", queue_size=1, momentum=0.0
    ),
    "nli": _case("NLISoftmaxLoss", "classifier", columns=LABELLED),
    "joint": _case("JointLoss", "classifier", columns=LABELLED),
    "joint-adversarial": _case("JointLoss", "classifier", columns=LABELLED, second="adversarial"),
}
each_loss = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def _make(case: Case, path: Path) -> tuple[SentenceTransformer, HeadedLoss]:
    model = load_encoder(path, pooling=case.pooling, max_length=32)
    if case.loss == "InfoMaxLoss":
        model = with_convolutions(model)
    torch.manual_seed(0)
    return model, getattr(selfguide.losses, case.loss)(model, **case.settings)


def test_every_public_loss_is_among_the_cases() -> None:
    assert {case.loss for case in CASES.values()} == set(selfguide.losses.__all__)


@each_loss
def test_a_loss_trains_in_the_stock_trainer_and_the_saved_model_loads(case: Case, bert: Path, tmp_path: Path) -> None:
    model, loss = _make(case, bert)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    own = {name: parameter.detach().clone() for name, parameter in own_parameters(loss).items()}
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path / "work"),
        max_steps=3,
        per_device_train_batch_size=4,
        learning_rate=1e-3,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
    )
    trainer = SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=Dataset.from_dict(case.columns), loss=loss
    )
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 3
    assert all(math.isfinite(value) for value in losses)
    assert any(not torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    moved = {name for name, parameter in own_parameters(loss).items() if not torch.equal(parameter, own[name])}
    assert {name.partition(".")[0] for name in moved} == case.own

    model.save_pretrained(str(tmp_path / "saved"))
    stock = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    torch.testing.assert_close(
        stock.encode(SENTENCES, convert_to_tensor=True), model.encode(SENTENCES, convert_to_tensor=True)
    )
    settings = loss.get_config_dict()
    assert settings
    assert json.loads(json.dumps(settings)) == settings
    card = (tmp_path / "saved" / "README.md").read_text(encoding="utf-8")
    assert case.loss in card
    assert "@" in loss.citation
    assert loss.citation in card


@each_loss
def test_gradients_of_the_losss_own_weights_do_not_add_up_over_steps(case: Case, bert: Path) -> None:
    """A trainer may clear the model's gradients only."""
    model, loss = _make(case, bert)
    loss.train()
    assert {name.partition(".")[0] for name in own_parameters(loss)} == case.own
    rows = {name: values[:4] for name, values in case.columns.items()}
    labels = torch.tensor(rows.pop("label")) if "label" in rows else None

    def gradients() -> list[Tensor]:
        torch.manual_seed(5)
        if hasattr(loss, "queue"):
            loss.queue.added.zero_()
        loss([model.preprocess(texts) for texts in rows.values()], labels).backward()
        return [parameter.grad.clone() for parameter in own_parameters(loss).values() if parameter.grad is not None]

    once = gradients()
    model.zero_grad()
    torch.testing.assert_close(gradients(), once)


@pytest.mark.parametrize("name", selfguide.losses.__all__)
def test_the_docstring_has_its_sections_and_its_example_runs(
    name: str, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = inspect.getdoc(getattr(selfguide.losses, name)) or ""
    sections = re.findall(r"^([A-Z]\w+):$", text, re.M)
    assert sections == ["Formula", "Args", "Raises", "Inputs", "Relations", "Example", "Reference"]
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    scope: dict[str, Any] = {}
    exec(textwrap.dedent(code).replace('"mini"', repr(str(bert))), scope)
    model, loss = scope["model"], scope["loss"]
    assert type(loss).__name__ == name
    before = load_encoder(bert).state_dict()
    after = model.state_dict()
    assert any(not torch.equal(after[key], before[key]) for key in before if key in after)
