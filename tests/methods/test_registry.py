"""Methods from outside: classes, instances, functions that make a loss, paths and plug-ins; and the index of our own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

import selfguide
from resuming import assert_resumes_exactly
from selfguide.errors import UsageError
from selfguide.losses.self_guided import SelfGuidedLoss
from selfguide.methods import Method, TuningMethod, from_loss, registry
from selfguide.methods.simcse import SimCSE
from selfguide.models.encoders import with_pooling
from selfguide.options import Above, CheckedOptions
from selfguide.training.settings import TrainingSettings
from selfguide.training.trainer import FitContext, TrainingOutcome
from toys import Outcome, toy_sentences

QUICK: dict[str, Any] = {"quiet": True, "device": "cpu", "max_steps": 2, "batch_size": 4, "report": False}


@dataclass(frozen=True)
class ScaledOptions(CheckedOptions):
    scale: Annotated[float, Above(0)] = 20.0
    """Inverse temperature."""


class ScaledContrast(TuningMethod):
    """A contrast of every sentence with itself.

    More than one line.
    """

    Options = ScaledOptions
    options: ScaledOptions
    defaults = TrainingSettings(batch_size=4)

    def dataset(self, text: Any) -> Any:
        return text.add_column("positive", text["sentence"][:])

    def loss(self, student: SentenceTransformer) -> Any:
        return MultipleNegativesRankingLoss(student, scale=self.options.scale)


class FirstToken(Method):
    name = "first-token"
    family = "pooling"
    summary = "the first token"

    def fit(self, encoder: SentenceTransformer, context: FitContext) -> TrainingOutcome:
        return TrainingOutcome(with_pooling(encoder, "cls"))


def ranking_loss(model: SentenceTransformer) -> MultipleNegativesRankingLoss:
    return MultipleNegativesRankingLoss(model, scale=30.0)


@pytest.mark.parametrize("info", registry.builtin_methods(), ids=lambda info: info.name)
def test_the_index_read_from_the_source_is_what_the_class_says(info: registry.MethodInfo) -> None:
    cls = registry.method_class(info.name)
    assert registry._info(cls, info.name) == info
    assert cls.name == info.name
    assert info.summary
    assert info.reference
    assert info.seeded == (info.family == "tuning") or info.name in ("bow", "flow")


def test_listing_imports_no_method_and_no_torch() -> None:
    code = (
        "import sys; from selfguide.methods import registry; assert len(registry.builtin_methods()) > 30\n"
        "assert 'torch' not in sys.modules and 'selfguide.methods.simcse' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_metadata_that_a_class_leaves_out() -> None:
    assert ScaledContrast.name == "scaled-contrast"
    assert ScaledContrast.summary == "A contrast of every sentence with itself"
    assert (ScaledContrast.family, ScaledContrast.seeded, ScaledContrast.trains) == ("tuning", True, True)


def test_a_class_an_instance_and_a_path_train_alike(bert: Path, tmp_path: Path) -> None:
    found = []
    for number, method in enumerate((ScaledContrast, ScaledContrast(scale=20.0), f"{__name__}:ScaledContrast")):
        output = tmp_path / str(number)
        encoder = selfguide.train(bert, toy_sentences(40), method, output=output, **QUICK)
        found.append(encoder.encode(toy_sentences(3)))
        record = json.loads((output / "run.json").read_text(encoding="utf-8"))
        assert record["config"]["method"] == f"{__name__}:ScaledContrast"
        assert record["config"]["options"] == {"scale": 20.0}
        assert "scaled-contrast" in (output / "README.md").read_text(encoding="utf-8")
        again = SentenceTransformer(str(output), device="cpu").encode(toy_sentences(3))
        np.testing.assert_allclose(again, found[-1], atol=1e-6)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    other = selfguide.train(bert, toy_sentences(40), ScaledContrast(scale=1.0), **QUICK).encode(toy_sentences(3))
    assert not np.array_equal(other, found[0])


def test_an_instance_of_our_own_keeps_its_name_and_options(bert: Path, tmp_path: Path) -> None:
    selfguide.train(bert, toy_sentences(40), SimCSE(temperature=0.2), output=tmp_path / "out", **QUICK)
    config = json.loads((tmp_path / "out" / "run.json").read_text(encoding="utf-8"))["config"]
    assert config["method"] == "simcse"
    assert config["options"]["temperature"] == 0.2
    # What is passed to train beside the instance counts more.
    selfguide.train(bert, toy_sentences(40), SimCSE(temperature=0.2), temperature=0.3, output=tmp_path / "two", **QUICK)
    assert json.loads((tmp_path / "two" / "run.json").read_text())["config"]["options"]["temperature"] == 0.3


def test_a_method_that_trains_nothing(bert: Path) -> None:
    encoder = selfguide.train(bert, toy_sentences(40), FirstToken, quiet=True, device="cpu")
    plain = selfguide.load_encoder(bert, pooling="cls", device="cpu")
    np.testing.assert_allclose(encoder.encode(["the old man"]), plain.encode(["the old man"]), atol=1e-6)


def test_a_function_that_makes_a_loss_sees_each_sentence_beside_itself(bert: Path) -> None:
    seen: list[list[Any]] = []

    class Watching(MultipleNegativesRankingLoss):
        def forward(self, sentence_features: Any, labels: Any) -> Any:
            features = list(sentence_features)
            seen.append([item["input_ids"].clone() for item in features])
            return super().forward(features, labels)

    before = selfguide.load_encoder(bert, device="cpu").encode(toy_sentences(2))
    tuned = selfguide.train(bert, toy_sentences(40), lambda model: Watching(model), **QUICK)
    assert len(seen) == 2
    for first, second in seen:
        assert first.shape[0] == 4
        assert first.equal(second)
    assert not np.allclose(before, tuned.encode(toy_sentences(2)))


@pytest.mark.parametrize(
    "method",
    [ranking_loss, MultipleNegativesRankingLoss, SelfGuidedLoss, from_loss(ranking_loss, "named")],
    ids=["function", "loss class", "loss of ours", "from_loss"],
)
def test_whatever_makes_a_loss_is_a_method(bert: Path, method: Any) -> None:
    vectors = selfguide.train(bert, toy_sentences(40), method, **QUICK).encode(toy_sentences(3))
    assert np.isfinite(vectors).all()


@pytest.mark.parametrize("name", [entry.name for entry in registry.builtin_methods()])
def test_the_defaults_read_from_the_source_are_the_classes(name: str) -> None:
    assert TrainingSettings(**registry.info(name).training) == registry.method_class(name).defaults


def test_a_misspelt_option_is_recognised_in_python_too(bert: Path) -> None:
    for given, meant in (("learning_ratee", "learning_rate"), ("temprature", "temperature"), ("epoch", "epochs")):
        with pytest.raises(UsageError, match=rf"has no option '{given}';.* Did you mean '{meant}'\?"):
            selfguide.train(bert, toy_sentences(40), "simcse", **{given: 1})
    with pytest.raises(UsageError, match="Did you mean 'simcse'"):
        selfguide.train(bert, toy_sentences(40), "simces")


def test_what_is_no_method_is_refused(bert: Path) -> None:
    for wrong in (7, 2.5):
        with pytest.raises(UsageError, match="a function that makes a loss"):
            selfguide.train(bert, toy_sentences(40), wrong, **QUICK)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="must make a sentence-transformers loss of a model, but gave str"):
        selfguide.train(bert, toy_sentences(40), lambda model: "nothing", **QUICK)  # type: ignore[arg-type,return-value]
    with pytest.raises(UsageError, match=r"no_such_module:Class cannot be imported: No module named"):
        selfguide.train(bert, toy_sentences(40), "no_such_module:Class", **QUICK)
    with pytest.raises(UsageError, match="cannot be imported"):
        selfguide.train(bert, toy_sentences(40), "selfguide.errors:Missing", **QUICK)
    with pytest.raises(UsageError, match="neither a Method class nor a function"):
        selfguide.train(bert, toy_sentences(40), "selfguide:__version__", **QUICK)
    with pytest.raises(UsageError, match="has no option 'margin'; it takes scale"):
        ScaledContrast(margin=1)
    with pytest.raises(UsageError, match="scale must be above 0"):
        ScaledContrast(scale=0.0)


def test_compare_takes_words_classes_instances_and_functions(bert: Path, text_file: Path, dev_file: Path) -> None:
    rows = {"mean": "mean", "own": ScaledContrast, "soft": ScaledContrast(scale=1.0), "loss": lambda m: ranking_loss(m)}
    found = selfguide.compare(
        bert, text_file, rows, seeds=2, pairs=dev_file, tasks=(), settings=["max_steps=1", "batch_size=4"], jobs=2
    )
    assert not found.failed
    count = {label: sum(record.label == label for record in found.records) for label in rows}
    assert count == {"mean": 1, "own": 2, "soft": 2, "loss": 2}
    listed = selfguide.compare(bert, text_file, [FirstToken, "mean"], seeds=1, pairs=dev_file, tasks=())
    assert [record.label for record in listed.records] == ["first-token", "mean"]


def test_a_method_from_outside_resumes_to_the_same_weights(bert: Path, tmp_path: Path) -> None:
    assert_resumes_exactly(f"{__name__}:ScaledContrast", MultipleNegativesRankingLoss, bert, tmp_path)


def test_a_path_in_a_row_of_words(bert: Path, text_file: Path, dev_file: Path, tmp_path: Path) -> None:
    words = f"mean,own={__name__}:ScaledContrast:scale=30:max_steps=1:batch_size=4+whitening"
    found = selfguide.compare(bert, text_file, words, seeds=1, pairs=dev_file, tasks=(), output=tmp_path / "cells")
    assert [record.label for record in found.records] == ["mean", "own"]
    assert not found.failed
    assert found.records[1].stages[0]["method"] == f"{__name__}:ScaledContrast"
    assert found.records[1].stages[0]["options"] == {"scale": 30.0}


PLUGIN = """
    from dataclasses import dataclass
    from selfguide.methods import TuningMethod
    from selfguide.options import CheckedOptions
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss


    @dataclass(frozen=True)
    class Options(CheckedOptions):
        scale: float = 20.0


    class Outside(TuningMethod):
        '''A method of another package.'''

        Options = Options

        def dataset(self, text):
            return text.add_column("positive", text["sentence"][:])

        def loss(self, student):
            return MultipleNegativesRankingLoss(student, scale=self.options.scale)
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of installed packages: one whose plug-in works, one whose plug-in cannot be imported."""
    folder = tmp_path / "site"
    for name, code, points in (
        ("outside_plugin", PLUGIN, "outside = outside_plugin:Outside"),
        ("broken_plugin", "import no_such_library", "broken = broken_plugin:Broken"),
    ):
        facts = folder / f"{name}-1.0.dist-info"
        facts.mkdir(parents=True)
        (folder / f"{name}.py").write_text(textwrap.dedent(code), encoding="utf-8")
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
        (facts / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{points}\n", encoding="utf-8")
    return folder


def _selfguide(site: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "selfguide", *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_plug_in_is_listed_trains_compares_and_resumes(
    site: Path,
    bert: Path,
    text_file: Path,
    dev_file: Path,
    tmp_path: Path,
    command: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = _selfguide(site, "methods")
    assert listed.returncode == 0
    assert "A method of another package" in listed.stdout
    assert "simcse" in listed.stdout
    assert listed.stderr.splitlines() == [
        "selfguide: The method 'broken' of the package broken_plugin cannot be imported (broken_plugin:Broken): "
        "No module named 'no_such_library'. Update or uninstall broken_plugin."
    ]
    # From here in this process, and for the processes of the comparison.
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
    with monkeypatch.context() as patch:
        patch.syspath_prepend(site)
        _trains_and_compares(command, bert, text_file, dev_file, tmp_path)
    # Without the plug-in the folder is still shown, and what cannot be done is said in a sentence.
    assert command("report", tmp_path / "out").code == 0
    assert "There is no method 'outside'" in command("train", text_file, "-m", "outside").err


@pytest.mark.slow
def test_a_package_that_pip_installed_trains_compares_and_resumes(
    bert: Path, text_file: Path, dev_file: Path, tmp_path: Path
) -> None:
    """A distribution built by setuptools in an environment of its own, which sees the libraries of this one."""
    source, environment = tmp_path / "package", tmp_path / "environment"
    source.mkdir()
    (source / "outside_plugin.py").write_text(textwrap.dedent(PLUGIN), encoding="utf-8")
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "outside-plugin"\nversion = "1.0"\n'
        f'[project.entry-points."{registry.GROUP}"]\noutside = "outside_plugin:Outside"\n'
        '[tool.setuptools]\npy-modules = ["outside_plugin"]\n',
        encoding="utf-8",
    )
    venv.create(environment, with_pip=False)
    (installed,) = environment.glob("lib/python*/site-packages")
    libraries = [folder for folder in sys.path if folder.endswith("site-packages")]
    # As lines of a .pth file the libraries of this environment are seen, editable installations among them.
    (installed / "libraries.pth").write_text("".join(f"import site; site.addsitedir({f!r})\n" for f in libraries))
    python = str(environment / "bin" / "python")

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [python, "-m", *map(str, words)], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done

    run("pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--prefix", environment, source)
    assert (installed / "outside_plugin.py").is_file()
    assert "A method of another package" in run("selfguide", "methods").stdout
    common = ["--encoder", bert, "--device", "cpu", "--batch-size", "4", "--max-steps", "60", "--no-report", "--quiet"]
    train = ["selfguide", "train", text_file, "-m", "outside", "--scale", "30", *common]
    run(*train, "--output", "whole")
    out, words = tmp_path / "stopped", [*train, "--checkpoint-minutes", "0", "--output", "stopped"]
    process = subprocess.Popen([python, "-m", *map(str, words)], cwd=tmp_path, stderr=subprocess.DEVNULL)
    while not list(out.with_name("stopped.partial").glob("checkpoint-*/complete.json")):
        assert process.poll() is None
        time.sleep(0.005)
    process.kill()
    process.wait()
    assert not out.exists()
    run("selfguide", "train", "--output", "stopped", "--resume", "--quiet")
    one, other = (load_file(folder / "model.safetensors") for folder in (tmp_path / "whole", out))
    assert all(torch.equal(one[name], other[name]) for name in one)
    compare = ["selfguide", "compare", text_file, "--encoder", bert, "--methods", "mean,outside", "--pairs", dev_file]
    compare += ["--seeds", "1", "--set", "max_steps=1", "--jobs", "2", "--no-report", "--output", "cells"]
    run(*compare)
    assert "finished already" in run(*compare).stderr


def _trains_and_compares(
    command: Callable[..., Outcome], bert: Path, text_file: Path, dev_file: Path, tmp_path: Path
) -> None:
    common = ("--encoder", bert, "--device", "cpu", "--max-steps", "2", "--batch-size", "4", "--no-report")
    trained = command("train", text_file, "-m", "outside", "--scale", "30", "--output", tmp_path / "out", *common)
    assert trained.code == 0, trained.err
    config = json.loads((tmp_path / "out" / "run.json").read_text(encoding="utf-8"))["config"]
    assert (config["method"], config["options"]) == ("outside", {"scale": 30.0})
    words = ["compare", text_file, "--encoder", bert, "--methods", "mean,outside:scale=30", "--pairs", dev_file]
    words += ["--seeds", "1", "--set", "max_steps=1", "--output", tmp_path / "cells", "--jobs", "2"]
    first = command(*words)
    assert first.code == 0, first.err
    assert "finished already" in command(*words).err
    refused = command("train", text_file, "-m", "broken", "--output", tmp_path / "no")
    assert refused.code == 2
    assert refused.err.count("\n") == 1
