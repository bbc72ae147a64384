"""Short texts in Arabic, Spanish, Chinese and a mixture, through every command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tongues import save_polyglot, sentences
from toys import Outcome

TONGUES = ("ar", "es", "zh", "mixed")
QUICK = ("--max-steps", "2", "--batch-size", "8", "--learning-rate", "1e-3")
Command = Callable[..., Outcome]


@pytest.fixture(scope="module")
def polyglot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random BERT that knows the words of these texts."""
    return save_polyglot(tmp_path_factory.mktemp("encoders") / "polyglot")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text and graded pairs in each language."""
    folder = tmp_path_factory.mktemp("texts")
    for code in TONGUES:
        lines = sentences(code)
        (folder / f"{code}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        rows = [f"{row % 6}\t{lines[row]}\t{lines[(row * 7 + 3) % len(lines)]}\n" for row in range(40)]
        (folder / f"{code}.tsv").write_text("".join(rows), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def trained(polyglot: Path, files: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An encoder of each language."""
    import selfguide

    made = {}
    for code in TONGUES:
        made[code] = tmp_path_factory.mktemp("made") / code
        given: dict[str, Any] = {"max_steps": 2, "batch_size": 8, "learning_rate": 1e-3}
        given |= {"frequencies": "text"} if code == "ar" else {"head_size": 16}
        method = "fused" if code == "ar" else "sg-opt"
        selfguide.train(str(polyglot), files / f"{code}.txt", method, output=made[code], quiet=True, **given)
    return made


def read(outcome: Outcome) -> str:
    """Return what a command that went well printed."""
    assert outcome.code == 0, outcome.err
    assert "Traceback" not in outcome.err
    return outcome.out + outcome.err


@pytest.mark.parametrize("code", TONGUES)
def test_train_similarity_encode_and_eval(
    command: Command, polyglot: Path, files: Path, trained: dict[str, Path], tmp_path: Path, code: str
) -> None:
    text, pairs, folder = files / f"{code}.txt", files / f"{code}.tsv", trained[code]
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    assert record["text"]["kept"] == len(sentences(code))
    assert not [warning for warning in record["warnings"] if "language" in warning or "English" in warning]
    scored = command("similarity", "--pairs", pairs, "--encoder", folder)
    first = sentences(code)[0]
    assert scored.out.splitlines()[0].split("\t")[1] == first
    assert "Spearman of cosine and score over 40 pairs" in read(scored)
    assert float(command("similarity", first, first, "--encoder", folder).out.split()[0]) == pytest.approx(1, abs=1e-4)
    encoded = command("encode", text, "--encoder", folder, "--output", tmp_path / "made.jsonl")
    assert "hardly knows" not in read(encoded)
    rows = [json.loads(line) for line in (tmp_path / "made.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == len(sentences(code))
    shown = read(command("eval", folder, "--pairs", pairs, "--output", tmp_path / "scores", "--bootstrap", "0"))
    assert code in shown


@pytest.mark.parametrize("code", ["ar", "zh"])
def test_compare_report_and_map(
    command: Command, polyglot: Path, files: Path, trained: dict[str, Path], tmp_path: Path, code: str
) -> None:
    text, output, first = files / f"{code}.txt", tmp_path / "compared", sentences(code)[0]
    rows = "mean,whitening,عربي=cls,平均=mean"
    words = ("--methods", rows, "--encoder", polyglot, "--pairs", files / f"{code}.tsv", "--bootstrap", "0")
    shown = read(command("compare", text, *words, "--output", output, "--jobs", "1"))
    assert "عربي" in shown
    page = (output / "report.html").read_text(encoding="utf-8")
    assert "平均" in page
    read(command("report", trained[code], "--output", tmp_path / "run.html"))
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert 'dir="auto"' in page
    assert first in page
    pytest.importorskip("umap")
    read(command("map", text, "--encoder", trained[code], "--output", tmp_path / "map.html"))
    assert first in (tmp_path / "map.html").read_text(encoding="utf-8")
    assert first in (tmp_path / "map.csv").read_text(encoding="utf-8")


def test_adapt_calibrate_and_export(command: Command, files: Path, trained: dict[str, Path], tmp_path: Path) -> None:
    adapted = command("adapt", files / "zh.txt", "--encoder", trained["zh"], "--output", tmp_path / "adapted", *QUICK)
    assert "hardly knows" not in read(adapted)
    assert (tmp_path / "adapted" / "modules.json").is_file()
    read(command("calibrate", trained["ar"], files / "ar.txt", "--output", tmp_path / "again"))
    to_static = ("--to", "static", "--text", files / "ar.txt", "--output", tmp_path / "static")
    read(command("export", trained["ar"], *to_static))
    before, after = sentences("ar")[2], sentences("ar")[2].replace("ُ", "")
    vectors = _encoded(command, tmp_path / "static", [before, after], tmp_path)
    assert np.isfinite(vectors).all()


def _encoded(command: Command, encoder: Path, lines: list[str], folder: Path) -> np.ndarray:
    (folder / "lines.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    read(command("encode", folder / "lines.txt", "--encoder", encoder, "--output", folder / "lines.npy", "--overwrite"))
    found: np.ndarray = np.load(folder / "lines.npy")
    return found


@pytest.mark.parametrize("code", ["ar", "zh", "es"])
def test_commands_say_that_an_english_encoder_does_not_know_the_text(
    command: Command, files: Path, tmp_path: Path, code: str
) -> None:
    said = "the encoder's tokenizer hardly knows the language of this text"
    text = files / f"{code}.txt"
    assert said in command("encode", text, "--encoder", "mini", "--output", tmp_path / "a.npy").err
    assert said in command("similarity", "--pairs", files / f"{code}.tsv", "--encoder", "mini").err
    scored = command(
        "eval", "mini", "--pairs", files / f"{code}.tsv", "--bootstrap", "0", "--output", tmp_path / "scores"
    ).err
    assert f"the tokenizer of mini hardly knows the language of {code};" in scored
    row = ("--methods", "mean", "--encoder", "mini", "--pairs", files / f"{code}.tsv", "--bootstrap", "0")
    compared = command("compare", text, *row, "--output", tmp_path / "compared", "--no-report", "--jobs", "1").err
    assert said in compared
    assert compared.count(f"the tokenizer of mini hardly knows the language of {code};") == 1
    bow = command("train", text, "--encoder", "mini", "--output", tmp_path / "bow", "--method", "mean")
    assert said in read(bow)
    assert said in json.dumps(json.loads((tmp_path / "bow" / "run.json").read_text())["warnings"])


def test_methods_that_rewrite_text_say_where_they_cannot_work(
    command: Command, polyglot: Path, files: Path, tmp_path: Path
) -> None:
    text = ("train", files / "zh.txt", "--encoder", polyglot, "--output")
    mirror = command(*text, tmp_path / "mirror", "--method", "mirror", *QUICK)
    assert "mirror masks nothing in 100 % of these sentences, which have fewer than 30 characters" in read(mirror)
    longer = tmp_path / "long.txt"
    longer.write_text(
        "\n".join(one + two for one in sentences("zh", 9) for two in sentences("zh", 9)), encoding="utf-8"
    )
    fine = command("train", longer, "--encoder", polyglot, "--output", tmp_path / "fine", "--method", "mirror", *QUICK)
    assert "mirror masks nothing" not in read(fine)
    read(command(*text, tmp_path / "clear", "--method", "clear", *QUICK))
    read(command(*text, tmp_path / "tsdae", "--method", "tsdae", *QUICK))
    (tmp_path / "vectors.txt").write_text("the 0.1 0.2\nof 0.3 0.1\n", encoding="utf-8")
    glove = command(*text, tmp_path / "glove", "--method", "glove", "--vectors", tmp_path / "vectors.txt")
    assert glove.code == 1
    assert "has a vector for none of this text's words; name a file of vectors for its language." in glove.err
    assert "no spaces between words" in glove.err
    table = command(*text, tmp_path / "fused", "--method", "fused", *QUICK)
    assert "not in the table of English frequencies; if the text is not English, use --frequencies text" in read(table)


def test_german_and_spanish_are_not_taken_for_english(
    command: Command, polyglot: Path, files: Path, tmp_path: Path
) -> None:
    made = command("train", files / "es.txt", "--encoder", polyglot, "--output", tmp_path / "sif", "--method", "sif")
    assert "not in the table of English frequencies" in read(made)
