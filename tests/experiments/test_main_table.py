"""The scripts of the main table: what they would run, what they choose, and the parts of its page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.main_table import page, prepare, rates, rows
from selfguide.comparison import grammar
from selfguide.comparison.specs import parse_specs
from selfguide.methods import registry

SETS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
AVERAGES = {
    "bow": 66.0,
    "cls": 48.0,
    "mean": 54.0,
    "whitening": 58.0,
    "flow": 55.0,
    "simcse": 67.5,
    "sg-opt": 65.0,
    "consert": 60.0,
    "ct": 53.0,
    "mirror": 61.0,
}


def _row(label: str, average: float, seeded: bool, **more: Any) -> dict[str, Any]:
    by_seed = {"1": average - 0.5, "2": average + 0.5} if seeded else {"once": average}
    value = {"mean": average, "deviation": 0.71 if seeded else None, "by_seed": by_seed}
    training = {"learning_rate": 5e-5, "batch_size": 64, "epochs": 1.0}
    return {
        "label": label,
        "stages": [{"method": label, "training": training}],
        "values": dict.fromkeys((*SETS, page.AVERAGE), value),
        "dev": {"mean": 70.0},
        "steps": 242 if seeded and label != "bow" else 0,
        "seconds": 30.0,
        "errors": {},
        "warnings": [],
    } | more


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a comparison leaves, as far as the page reads it."""
    seeded = ("bow", "flow", "simcse", "sg-opt", "consert", "ct", "mirror")
    found = {label: _row(label, average, label in seeded) for label, average in AVERAGES.items()}
    found["clear"] = _row("clear", 0.0, True, values={}, dev=None, steps=0, errors={"1": "out of memory"})
    comparison = {
        "commands": ["selfguide compare data:stsb --methods bow,mean"],
        "date": "2026-11-16",
        "devices": ["cuda:0, threads: 1"],
        "versions": {"torch": "2.11.0", "transformers": "5.17.0", "sentence-transformers": "6.0.1"},
        "setting": {
            "encoder": "mini",
            "encoder_digest": "0123456789abcdef",
            "fingerprint": "text",
            "sentences": 15455,
            "dev": "STS-B dev",
            "dev_digest": "dev",
            "tasks": {},
            "protocol": {"similarity": "cosine", "aggregation": "all"},
        },
        "columns": [{"key": key, "title": key.upper()} for key in (*SETS, page.AVERAGE)],
        "rows": found,
    }
    (tmp_path / "comparison.json").write_text(json.dumps(comparison), encoding="utf-8")
    (tmp_path / "manifest.json").write_text(json.dumps({"nli": {"rows": 44237}}), encoding="utf-8")
    return tmp_path


class TestPage:
    def test_marks_rows_below_the_bag_of_words(self, folder: Path) -> None:
        text = page.scores_table(page.read_results([folder]))
        assert "| `mean`† | once |" in text
        assert "| `simcse` | 2 |" in text
        assert "`simcse`†" not in text
        assert "`bow`†" not in text
        assert "**67.50** ± 0.71" in text

    def test_bars_say_what_was_reached(self, folder: Path) -> None:
        found = {name: passed for name, (_, passed) in page.bars(page.read_results([folder])).items()}
        assert found == {
            "`whitening` at least `mean` + 3": True,
            "`flow` within 2 of `whitening`, or better": False,
            "`simcse` at least 67": True,
            "`consert` above `mean`": True,
            "`ct` above `mean`": False,
            "`mirror` above `mean`": True,
            "`bt` above `mean`": None,
        }

    def test_orders_are_compared_over_the_rows_that_both_have(self, folder: Path) -> None:
        text = page.published_section(page.read_results([folder]), page.read_published())
        # By hand: the ranks of our averages (2, 4, 5, 3 …) and of the published ones, eight rows.
        ours = ["cls", "ct", "mean", "flow", "whitening", "consert", "mirror", "sg-opt", "simcse"]
        theirs = ["cls", "mean", "whitening", "flow", "ct", "consert", "sg-opt", "mirror", "simcse"]
        squares = sum((ours.index(label) - theirs.index(label)) ** 2 for label in ours)
        rho = 1 - 6 * squares / (9 * (81 - 1))
        assert f"rows without labels (9): {rho:.2f}" in text
        assert "| `ct`† | 53.00 | 72.05 | 8 | 5 | −3 |" in text
        assert "`bow`" not in text

    def test_names_what_failed_and_what_was_not_run(self, folder: Path) -> None:
        results = page.read_results([folder])
        assert page.failures(results) == "- `clear`, seed 1: out of memory"
        assert "Not run: glove," in page.scores_table(results)
        assert "44,237 pairs" in page.described(results)

    def test_refuses_to_join_different_settings(self, folder: Path, tmp_path: Path) -> None:
        other = tmp_path / "other"
        other.mkdir()
        comparison = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
        comparison["setting"]["encoder_digest"] = "another"
        (other / "comparison.json").write_text(json.dumps(comparison), encoding="utf-8")
        with pytest.raises(SystemExit, match="different encoders"):
            page.read_results([folder, other])


class TestPublished:
    def test_averages_are_those_of_the_scores(self) -> None:
        published = page.read_published()
        labels = {rows.label_of(spec) for spec in rows.ROWS}
        assert set(published["rows"]) <= labels
        for label, row in published["rows"].items():
            assert row["read"] in published["read in"]
            if "scores" in row:
                assert sum(row["scores"]) / 7 == pytest.approx(row["average"], abs=0.06), label


class TestRows:
    def test_rows_name_methods_that_exist(self) -> None:
        used = {grammar.named_stage(part)[0] for spec in rows.ROWS for part in grammar.chain(grammar.labelled(spec)[1])}
        assert used <= {entry.name for entry in registry.builtin_methods()}

    def test_rows_and_settings_are_accepted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in (rows.VECTORS, rows.PAIRS, rows.NLI):
            (tmp_path / name).write_text("entailment\ta\tb\n", encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        settings = rows.read_settings(rows.SETTINGS_FILE)
        specs = parse_specs(",".join(rows.ROWS), settings)
        assert [spec.label for spec in specs] == [rows.label_of(spec) for spec in rows.ROWS]
        assert parse_specs(",".join(rates.grid_specs()))
        only = ("mean", "simcse")
        parse_specs(",".join(only), rows.settings_for(only, settings))


class TestRates:
    def test_the_best_on_dev_is_taken_and_followed(self) -> None:
        comparison = {
            "rows": {
                "consert@1": {"dev": {"mean": 60.0}},
                "consert@3": {"dev": {"mean": 65.0}},
                "clear@1": {"dev": {"mean": 50.0}},
                "clear@2": {"dev": None},
            }
        }
        found = rates.chosen(comparison)
        assert found["best"] == {"consert": ["learning_rate=1e-4", "epochs=2"], "clear": ["learning_rate=3e-5"]}
        former = ["clear.mlm_weight=0.1", "clear.learning_rate=1e-4", "infersent.epochs=3"]
        lines = rates.settings_lines(found["best"], former)
        assert "clear.learning_rate=3e-5" in lines
        assert not any(line.startswith("clear.mlm_weight") for line in lines)
        assert "infersent.epochs=3" in lines
        assert "consert-sup-unsup.learning_rate=1e-4" in lines


class TestPrepare:
    def test_pairs_are_joined_once_each(self, tmp_path: Path) -> None:
        for name in prepare.NLI_FILES:
            (tmp_path / name).write_text("", encoding="utf-8")
        first, second = prepare.NLI_FILES[0], prepare.NLI_FILES[-1]
        (tmp_path / first).write_text("entailment\tIt rains.\tIt is wet.\n", encoding="utf-8")
        (tmp_path / second).write_text(
            "neutral\tit rains .\tIt is wet .\nneutral\tIt rains.\tIt snows.\textra\n", encoding="utf-8"
        )
        facts = prepare.gather_nli(tmp_path, tmp_path / "nli.tsv")
        assert facts["rows"] == 2
        assert (tmp_path / "nli.tsv").read_text(encoding="utf-8").splitlines() == [
            "entailment\tIt rains.\tIt is wet.",
            "neutral\tIt rains.\tIt snows.",
        ]


def test_of_commands_given_again_with_more_rows_the_page_shows_the_last() -> None:
    few, same, all_rows, others = (
        f"selfguide compare data:stsb --methods {words} --seeds 8{more}"
        for words, more in (("a,b", ""), ("a,b,c", " --keep"), ("a,b,c", ""), ("d", ""))
    )
    assert page.fullest([few, others, same, all_rows]) == [others, all_rows]
