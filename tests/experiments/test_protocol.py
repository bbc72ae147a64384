"""The protocol: search spaces that methods accept, equal trials and budgets, the choice, and a rehearsal of the whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.protocol import collect, run
from experiments.protocol.blocks import BLOCKS, MAIN, PUBLISHED, Block, Searched
from experiments.protocol.space import TRIALS, Budget, Trial, draw
from selfguide.comparison.specs import parse_specs
from selfguide.methods import registry
from toys import toy_sentences

TUNING = [info.name for info in registry.builtin_methods() if info.family == "tuning"]
SEARCHED = sorted({searched.method for block in BLOCKS.values() for searched in block.searched})
GIVEN = {"nli": "nli.tsv", "vectors": "vectors.txt", "pairs": "pairs.tsv"}


@pytest.mark.parametrize("name", sorted({*TUNING, *SEARCHED}))
def test_every_tuning_method_declares_a_space_of_values_that_it_accepts(name: str) -> None:
    cls = registry.method_class(name)
    if cls.family == "tuning":
        assert {"learning_rate", "batch_size"} <= set(cls.search)
        assert max(cls.search["learning_rate"]) >= 2e-4
    for option, values in cls.search.items():
        assert option not in cls.refused_settings()
        for value in values:
            if hasattr(cls.defaults, option):
                cls.defaults.override({option: value})
            else:
                assert getattr(cls(**{option: value}).options, option) == value


@pytest.mark.parametrize("name", SEARCHED)
def test_every_method_has_the_same_number_of_different_trials_the_published_one_first(name: str) -> None:
    drawn = draw(name)
    assert len(drawn) == TRIALS == 12
    assert drawn[0].changes == {}
    assert len({str(sorted(trial.changes.items())) for trial in drawn}) == TRIALS
    assert drawn == draw(name)
    assert draw(name, seed=2)[1:] != drawn[1:]


@pytest.mark.parametrize("block", list(BLOCKS.values()), ids=list(BLOCKS))
def test_trials_are_accepted_by_a_comparison_and_see_the_same(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("nli.tsv", "back-translations.tsv", "vectors.txt"):
        Path(name).write_text("a\n", encoding="utf-8")
    trials = [trial.words(item.source, block.budget) for item in block.searched for trial in item.trials(TRIALS)]
    for spec in parse_specs(",".join(trials)):
        (stage,) = spec.stages
        if "max_steps" in registry.method_class(stage.method).refused_settings():
            continue
        seen = stage.training["max_steps"] * stage.training["batch_size"]
        assert block.budget.sentences <= seen < block.budget.sentences + stage.training["batch_size"]
        if "patience" not in registry.method_class(stage.method).refused_settings():
            assert stage.training["patience"] == block.budget.patience
            between = stage.training["dev_every"] * stage.training["batch_size"]
            assert between == pytest.approx(block.budget.between, abs=stage.training["batch_size"] / 2)
    published = parse_specs([*(item.as_published() for item in block.searched), *block.single])
    for spec in published:
        if spec.label.endswith(f"-{PUBLISHED}"):
            defaults = registry.method_class(spec.stages[0].method).defaults
            assert spec.stages[0].training["epochs"] == defaults.epochs
            assert spec.stages[0].training["patience"] == defaults.patience


def _row(dev: float | None, errors: dict[str, str] | None = None) -> dict[str, Any]:
    value = {"mean": dev, "deviation": 0.1, "by_seed": {"11": dev, "12": dev}}
    return {
        "words": "",
        "values": {} if errors else {"stsb-dev": value},
        "dev": None if errors else value,
        "steps": 3,
        "seconds": 1.0,
        "errors": errors or {},
        "warnings": [],
    }


def test_the_best_mean_over_the_seeds_wins_and_what_failed_does_not() -> None:
    trials = {"simcse": draw("simcse", 4)}
    rows = {
        "simcse@1": _row(70.0),
        "simcse@2": _row(None, {"11": "no memory"}),
        "simcse@3": _row(71.0),
        "simcse@4": _row(71.0),
    }
    assert collect.choose(trials, {"rows": rows})["simcse"].number == 3
    assert collect.choose(trials, {"rows": {}}) == {}
    assert collect.unfinished(["simcse@1", "simcse@2", "simcse@9"], {"rows": rows}) == ["simcse@9"]


def test_a_row_says_what_kind_it_is() -> None:
    block = Block("b", (Searched("simcse"),), ("mean", "other=cls"))
    kinds = [collect.kind_of(label, block) for label in ("simcse-published", "simcse-tuned", "mean", "other")]
    assert kinds == ["published", "tuned", "single", "single"]
    tuned = Searched("simcse").as_tuned(Trial("simcse", 2, {"batch_size": 32}), Budget())
    assert tuned.startswith("simcse-tuned=simcse:batch_size=32:max_steps=966:dev_every=25:patience=10")
    assert Searched("fused", published={"weight": 0.5}).as_published() == "fused-published=fused:weight=0.5"
    assert {searched.method for searched in MAIN.searched} >= {"sg-opt", "simcse", "fused", "flow", "whitening"}


def test_seeds_that_a_trial_has_seen_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(["--trial-seeds", "1,2"])
    assert "the seeds of the rows must be new" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="has no row nothing"):
        run.main(["--rows", "nothing"])


@pytest.mark.slow
def test_a_rehearsal_runs_trials_and_rows_and_writes_where_all_comes_from(bert: Path, tmp_path: Path) -> None:
    sentences, folder = toy_sentences(120), tmp_path / "inputs" / "sts" / "stsb"
    folder.mkdir(parents=True)
    for part, start in (("train", 0), ("dev", 40), ("test", 80)):
        lines = [f"{i % 5}\t{sentences[start + i]}\t{sentences[start + 39 - i]}" for i in range(40)]
        (folder / f"{part}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = ["--rehearse", "--rows", "simcse,whitening,mean", "--encoder", str(bert), "--name", "toy", "--jobs", "1"]
    words += ["--inputs", str(tmp_path / "inputs"), "--output", str(tmp_path / "out"), "--no-mps"]
    assert run.main(words) == 0
    found = json.loads((tmp_path / "out" / "rehearsal.json").read_text(encoding="utf-8"))
    assert {label: row["kind"] for label, row in found["rows"].items()} == {
        "simcse-published": "published",
        "simcse-tuned": "tuned",
        "whitening-published": "published",
        "whitening-tuned": "tuned",
        "mean": "single",
    }
    assert [len(trials) for trials in found["trials"].values()] == [2, 2]
    assert all(sum(trial["won"] for trial in trials) == 1 for trials in found["trials"].values())
    assert all(row["values"] and not row["errors"] for row in found["rows"].values())
    assert {"command", "date", "device", "versions", "seeds", "encoder", "text", "dev", "budget", "rules"} <= set(found)
    cells = _finished(tmp_path / "out")
    assert run.main(words) == 0  # nothing is run again
    assert cells == _finished(tmp_path / "out")


def _finished(folder: Path) -> dict[str, str]:
    """When each cell was finished, by its file."""
    return {str(path): json.loads(path.read_text("utf-8"))["finished"] for path in folder.rglob("cells/*.json")}
