"""The command of the multilingual study: its texts and its results file, without training anything."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from experiments.multilingual import pretrained, run
from experiments.multilingual.texts import LONGEST, SHORTEST, write_texts
from experiments.origins import FIELDS, found


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Spanish and Arabic documents with sentences of several lengths."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    spanish = [f"La niña número {n} pintó una casa muy grande en el campo. ¡Sí! Vendió {n} cuadros." for n in range(60)]
    arabic = [f"رسمت الطفلة رقم {n} بيتا كبيرا جدا في الريف الجميل. نعم! باعت {n} لوحات." for n in range(60)]
    (folder / "spanish-0.txt").write_text("\n\n".join(spanish) + "\n", encoding="utf-8")
    (folder / "arabic-0.txt").write_text("\n\n".join(arabic) + "\n", encoding="utf-8")
    return folder


def test_every_text_has_as_many_sentences_and_one_has_a_third_of_each(corpus: Path, tmp_path: Path) -> None:
    english = [f"The girl number {n} painted a very large house." for n in range(30)]
    folder = tmp_path / "texts"
    folder.mkdir()
    facts = write_texts([corpus], english, ["spanish", "arabic"], folder, 1.0)
    lines = {name: (folder / f"{name}.txt").read_text(encoding="utf-8").splitlines() for name in facts}
    assert {name: len(text) for name, text in lines.items()} == {"english": 30, "spanish": 30, "arabic": 30, "all": 30}
    assert lines["english"] == english
    assert all(SHORTEST <= len(line) <= LONGEST for line in lines["spanish"] + lines["arabic"])
    assert all("ñ" in line for line in lines["spanish"])
    assert lines["all"] == english[:10] + lines["spanish"][:10] + lines["arabic"][:10]
    assert write_texts([corpus], english, ["spanish", "arabic"], folder, 1.0) == facts  # the same again
    (folder / "spanish.txt").unlink()
    with pytest.raises(SystemExit, match="can be drawn, and 300 are wanted"):
        write_texts([corpus], english * 10, ["spanish", "arabic"], folder, 1.0)


def _comparison(gain: float) -> dict[str, object]:
    def row(by_seed: dict[str, dict[str, float]]) -> dict[str, object]:
        values = {}
        for task in run.SEEN:
            runs = {seed: scores[task] for seed, scores in by_seed.items()}
            values[task] = {"mean": sum(runs.values()) / len(runs), "deviation": 0.5, "by_seed": runs}
        return {"words": "", "values": values, "dev": None, "steps": 1, "errors": {}, "warnings": []}

    base = {task: 50.0 + place for place, task in enumerate(run.SEEN)}
    tuned = {
        str(seed): {
            task: value + gain * (1 if place < 4 else -1) + 0.1 * seed
            for place, (task, value) in enumerate(base.items())
        }
        for seed in (1, 2, 3)
    }
    setting = {"dev": "STS-B dev"}
    rows = {"mean": row({"once": base}), "sg-opt": row(tuned)}
    return {"rows": rows, "date": "2026-11-19", "devices": ["cpu"], "versions": {"torch": "2"}, "setting": setting}


def test_the_results_file_has_differences_and_their_tests(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    arguments = argparse.Namespace(encoder=str(tmp_path), name="multi", seeds="1,2,3", rehearse=False)
    content = run.results({"english": _comparison(3.0)}, {"english": {"digest": "ab", "sentences": 3}}, arguments)
    assert found(json.loads(json.dumps(content))) == set(FIELDS)
    over = content["rows"]["english"]["sg-opt"]["over"]
    assert over["sts17-es-es"]["mean"] == pytest.approx(3.2)
    assert over["sts17-es-es"]["by_seed"] == pytest.approx({"1": 3.1, "2": 3.2, "3": 3.3})
    assert over["sts17-es-es"]["p"] < 0.01
    assert content["rows"]["english"]["mean"]["over"]["sts17-es-es"]["p"] is None
    assert content["seen sets above the untuned mean"]["english"] == {"mean": 0, "sg-opt": 4}


def test_pretraining_is_recorded_with_every_language(tmp_path: Path) -> None:
    start = {
        "kind": "start", "step": 0, "settings": {"seed": 1}, "shape": {"layers": 1}, "device": "cpu", "date": "2026-11-19",
        "torch": "2", "language_tokens": {"arabic": 10}, "language_shares": {"arabic": 1.0},
    }  # fmt: skip
    rows = [start, {"kind": "curve", "step": 5, "loss": 3.0}, {"kind": "held-out", "step": 5, "loss_128_arabic": 2.5}]
    rows += [start | {"step": 5}, {"kind": "end", "step": 9, "tokens": 99, "stopped": False}]
    (tmp_path / "results.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "parts.json").write_text("{}", encoding="utf-8")
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0, "b": 1}}}', encoding="utf-8")
    words = [str(tmp_path), "--tokenizer", str(tmp_path), "--data", str(tmp_path), "--out", str(tmp_path / "out.json")]
    assert pretrained.main(words) == 0
    content = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert found(content) == set(FIELDS)
    assert content["vocabulary"]["entries"] == 2
    assert content["calls"] == 2
    assert content["held-out"] == [{"step": 5, "loss_128_arabic": 2.5}]
