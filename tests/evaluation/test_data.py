"""Finding the rows of tasks: every source, every refusal, and the traps."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from selfguide.errors import SelfguideError
from selfguide.evaluation import hub
from selfguide.evaluation.data import data_folder, digest_of, find_data, own_pairs
from selfguide.evaluation.layouts import RawRow, relative_path
from selfguide.evaluation.rows import Rows, TaskData
from selfguide.evaluation.tasks import TASKS
from selfguide.evaluation.tasks import task_named as task

SENTEVAL_TASKS = (
    *("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "stsb-dev", "sickr"),
    *("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc"),
)
TREC = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No data folder and no hub, unless a test brings its own."""

    def unreachable(*_: object, **__: object) -> object:
        raise ConnectionError("no network in tests\nand a second line")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=unreachable))


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[Any, ...]]]:
    """A hub with these datasets by (name, config, split); returns what is asked of it."""
    asked: list[tuple[Any, ...]] = []

    def put(datasets: dict[tuple[str, str | None, str], list[dict[str, Any]]]) -> list[tuple[Any, ...]]:
        def load(name: str, config: str | None, *, split: str, revision: str | None = None) -> list[dict[str, Any]]:
            asked.append((name, config, split, revision))
            if revision or (name, config, split) not in datasets:
                raise FileNotFoundError(f"Dataset {name} does not exist on the hub.")
            return datasets[name, config, split]

        monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))
        return asked

    return put


def write(path: Path, data: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def pair_lines(count: int, low: float = 0.0) -> list[str]:
    return [f"{low + number % 5 * 0.8:.1f}\tsentence {number}\tphrase {number}" for number in range(count)]


def rows_of(name: str, count: int = 12) -> dict[str, list[list[str]]]:
    """Made-up rows of a task as our layout has them, by part."""
    wanted = task(name)
    if wanted.kind == "graded-pairs":
        lines = [line.split("\t") for line in pair_lines(count, wanted.low)]
        return {part.name: [[grade, f"{part.name} {a}", b] for grade, a, b in lines] for part in wanted.parts}
    labels = [TREC[number % 6] if name == "trec" else str(int(number < count // 2)) for number in range(count)]
    texts = [[f"text {n} .", f"other {n} ."][: 2 if name == "mrpc" else 1] for n in range(count)]
    return {part.name: [[label, *text] for label, text in zip(labels, texts, strict=True)] for part in wanted.parts}


def write_own(folder: Path, name: str, rows: dict[str, list[list[str]]], text: Any = "raw", end: str = "\n") -> None:
    for part, table in rows.items():
        write(folder / relative_path(task(name), part, text), "".join("\t".join(row) + end for row in table))


def write_senteval(root: Path, name: str, rows: dict[str, list[list[str]]]) -> None:
    """The same rows as SentEval's download leaves them."""
    for part, table in rows.items():
        if name in ("sts12", "sts13", "sts14", "sts15", "sts16"):
            folder = root / f"STS/{name.upper()}-en-test"
            ungraded = "\n" if name in ("sts15", "sts16") else ""
            sentences = "".join(f"{a}\t{b}\n" for _, a, b in table)
            write(folder / f"STS.input.{part}.txt", ("nobody\tgraded this\n" if ungraded else "") + sentences)
            write(folder / f"STS.gs.{part}.txt", ungraded + "".join(f"{grade}\n" for grade, _, _ in table))
        elif name in ("stsb", "stsb-dev"):
            split = "test" if name == "stsb" else "dev"
            lines = [f"main-news\theadlines\t2016\t{n}\t{g}\t{a}\t{b}\n" for n, (g, a, b) in enumerate(table)]
            write(root / f"STS/STSBenchmark/sts-{split}.csv", "".join(lines))
        elif name == "sickr":
            head = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
            lines = [f"{n}\t{a}\t{b}\t{g}\tNEUTRAL\n" for n, (g, a, b) in enumerate(table)]
            write(root / "SICK/SICK_test_annotated.txt", head + "".join(lines))
        elif name == "mrpc":
            lines = [f"{label}\t1\t2\t{a}\t{b}\r\n" for label, a, b in table]
            write(
                root / f"MRPC/msr_paraphrase_{part}.txt",
                "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n" + "".join(lines),
            )
        elif name == "sst2":
            write(root / f"SST/binary/sentiment-{part}", "".join(f"{text}\t{label}\n" for label, text in table))
        elif name == "trec":
            file = "train_5500.label" if part == "train" else "TREC_10.label"
            write(root / "TREC" / file, "".join(f"{label}:kind {text}\n" for label, text in table).encode("latin-1"))
        else:
            one, zero = {
                "mr": ("MR/rt-polarity.pos", "MR/rt-polarity.neg"),
                "cr": ("CR/custrev.pos", "CR/custrev.neg"),
                "subj": ("SUBJ/subj.objective", "SUBJ/subj.subjective"),
                "mpqa": ("MPQA/mpqa.pos", "MPQA/mpqa.neg"),
            }[name]
            for label, file in (("1", one), ("0", zero)):
                write(root / file, "".join(f"{text}\n" for value, text in table if value == label).encode("latin-1"))


def refusal(name: str, folder: Path | None, **options: Any) -> str:
    with pytest.raises(SelfguideError) as caught:
        find_data(task(name), folder=folder, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


# -- the package -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "part", "count"), [("demo", "test", 440), ("demo-dev", "dev", 220)])
def test_the_demo_is_in_the_package(name: str, part: str, count: int, tmp_path: Path) -> None:
    data = find_data(task(name), folder=tmp_path, download=False)
    assert (data.source, [len(rows) for rows in data.parts], data.notes) == ("package", [count], ())
    assert data.part(part).grades


def test_neither_torch_nor_datasets_is_imported() -> None:
    code = (
        "import sys; from selfguide.evaluation.data import find_data; from selfguide.evaluation.tasks import task_named; "
        "find_data(task_named('demo'), folder=None); print([name for name in ('torch', 'datasets') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- a folder in our layout --------------------------------------------------------------------------------------------


def test_a_complete_task(tmp_path: Path) -> None:
    write(tmp_path / "sts/stsb/test.tsv", "\n".join(pair_lines(1379)) + "\n")
    data = find_data(task("stsb"), folder=tmp_path)
    assert (data.source, data.text, data.notes, len(data.parts)) == ("folder", "raw", (), 1)
    rows = data.part("test")
    assert (len(rows), rows.first[1], rows.second and rows.second[1], rows.grades and rows.grades[1]) == (
        *(1379, "sentence 1", "phrase 1"),
        0.8,
    )
    assert rows.labels is None


def test_a_gzipped_file(tmp_path: Path) -> None:
    write(tmp_path / "sts/stsb/test.tsv.gz", gzip.compress("\n".join(pair_lines(1379)).encode()))
    assert len(find_data(task("stsb"), folder=tmp_path).parts[0]) == 1379


def test_subsets_keep_the_order_of_the_task(tmp_path: Path) -> None:
    for part in reversed(task("sts13").parts):
        write(tmp_path / f"sts/sts13/{part.name}.tsv", "\n".join(pair_lines(part.rows or 0)))
    data = find_data(task("sts13"), folder=tmp_path)
    assert [(rows.part, len(rows)) for rows in data.parts] == [("FNWN", 189), ("OnWN", 561), ("headlines", 750)]


def test_a_truncated_file(tmp_path: Path) -> None:
    path = write(tmp_path / "sts/stsb/test.tsv", "\n".join(pair_lines(1200)))
    message = refusal("stsb", tmp_path)
    assert f"{path} has 1,200 rows where STS-B has 1,379: it is cut short" in message
    assert "--allow-partial" in message
    data = find_data(task("stsb"), folder=tmp_path, allow_partial=True)
    assert data.notes == ("Partial: 1,200 of the 1,379 rows of STS-B, not to be compared with published numbers.",)


def test_a_missing_subset(tmp_path: Path) -> None:
    write(tmp_path / "sts/sts13/FNWN.tsv", "\n".join(pair_lines(189)))
    write(tmp_path / "sts/sts13/headlines.tsv", "\n".join(pair_lines(750)))
    message = refusal("sts13", tmp_path)
    assert "STS13 is there without its part OnWN: put it at sts/sts13/OnWN.tsv" in message
    data = find_data(task("sts13"), folder=tmp_path, allow_partial=True)
    assert [rows.part for rows in data.parts] == ["FNWN", "headlines"]
    assert "the subset OnWN of STS13 is missing" in data.notes[0]


def test_a_missing_split_is_never_allowed(tmp_path: Path) -> None:
    write_own(tmp_path, "trec", {"test": rows_of("trec")["test"]})
    assert "cannot be scored without: put it at transfer/TREC/train.tsv" in refusal(
        "trec", tmp_path, allow_partial=True
    )


def test_too_many_rows_are_never_allowed(tmp_path: Path) -> None:
    write(tmp_path / "sts/sickr/test.tsv", "\n".join(pair_lines(9927, 1.0)))
    for allow in (False, True):
        message = refusal("sickr", tmp_path, allow_partial=allow)
        assert "has 9,927 rows where SICK-R has 4,927" in message
        assert "all its splits together are not those of the papers" in message
    write(tmp_path / "sts/stsb/test.tsv", "\n".join(pair_lines(1380)))
    assert "another set of rows" in refusal("stsb", tmp_path, allow_partial=True)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("5.5\ta\tb", "line 3 has the grade 5.5, where STS-B has 0 to 5"),
        ("-1\ta\tb", "line 3 has the grade -1"),
        ("nan\ta\tb", "line 3 has 'nan' as its score"),
        ("1\ta", "line 3 has 2 tab-separated columns"),
        ("1\ta\tb\tc", "line 3 has 4 tab-separated columns"),
        ("1\t \tb", "line 3 has an empty first sentence"),
        (b"1\tcaf\xe9\tb", "line 3: byte 0xe9 is not valid UTF-8"),
        ("", "line 3 is blank"),
    ],
)
def test_faulty_graded_lines(tmp_path: Path, line: str | bytes, words: str) -> None:
    lines = [text.encode() for text in pair_lines(1379)]
    lines[2] = line.encode() if isinstance(line, str) else line
    path = write(tmp_path / "sts/stsb/test.tsv", b"\n".join(lines))
    message = refusal("stsb", tmp_path, allow_partial=True)
    assert f"{path}, {words}" in message


def test_the_range_is_the_task_s_own(tmp_path: Path) -> None:
    write(tmp_path / "sts/sickr/test.tsv", "\n".join(["0.5\ta\tb", *pair_lines(10, 1.0)]))
    assert "line 1 has the grade 0.5, where SICK-R has 1 to 5" in refusal("sickr", tmp_path)


@pytest.mark.parametrize(
    ("name", "line", "words"),
    [
        ("mr", "2\ttext", "line 3 has the label '2', where MR has 0, 1"),
        ("mr", "pos\ttext", "line 3 has the label 'pos'"),
        ("mr", "1\ta\tb", "line 3 has 3 columns (tab-separated): every line must be label<TAB>text"),
        ("mr", "1", "line 3 has 1 column (tab-separated)"),
        ("mr", "", "line 3 is blank"),
        ("mr", b"1\tcaf\xe9", "line 3: byte 0xe9 is not valid UTF-8"),
        ("mrpc", "1\ta", "line 3 has 2 columns (tab-separated): every line must be label<TAB>sentence<TAB>sentence"),
        ("trec", "WHAT\tquestion ?", "line 3 has the label 'WHAT', where TREC has ABBR, DESC, ENTY, HUM, LOC, NUM"),
    ],
)
def test_faulty_labelled_lines(tmp_path: Path, name: str, line: str | bytes, words: str) -> None:
    rows = rows_of(name)
    write_own(tmp_path, name, rows)
    part = next(iter(rows))
    lines = ["\t".join(row).encode() for row in rows[part]]
    lines[2] = line.encode() if isinstance(line, str) else line
    path = write(tmp_path / relative_path(task(name), part, "raw"), b"\n".join(lines))
    assert f"{path}, {words}" in refusal(name, tmp_path, allow_partial=True)


def test_one_class_only(tmp_path: Path) -> None:
    path = write(tmp_path / "transfer/MR/all.tsv", "1\ta\n1\tb\n")
    assert refusal("mr", tmp_path, allow_partial=True).startswith(f"{path} has rows of one class only")


def test_empty_texts_of_transfer_sets_are_kept(tmp_path: Path) -> None:
    write(tmp_path / "transfer/CR/all.tsv", "".join(f"{n % 2}\t{'' if n in (7, 9) else 'fine'}\n" for n in range(3775)))
    data = find_data(task("cr"), folder=tmp_path)
    assert len(data.parts[0]) == 3775
    assert data.parts[0].first[7] == ""
    assert data.notes == ("2 texts are empty; they are kept, as SentEval counts them.",)


def test_the_two_forms_of_text_have_folders_of_their_own(tmp_path: Path) -> None:
    write(tmp_path / "sts_senteval/stsb/test.tsv", "\n".join(f"1\tfolder  {n}\tb" for n in range(1379)))
    data = find_data(task("stsb"), folder=tmp_path, text="senteval")
    assert (data.text, data.parts[0].first[5]) == ("senteval", "folder 5")
    message = refusal("stsb", tmp_path)
    assert "holds STS-B as SentEval tokenises it, not as released: pass --text senteval" in message
    assert "sts/stsb/test.tsv" in message
    write_own(tmp_path, "mr", rows_of("mr"))
    assert "pass --text raw" in refusal("mr", tmp_path, text="senteval")


@pytest.mark.parametrize("name", ["sst2", "korsts", "sts17-en-en"])
def test_tasks_with_one_form_of_text(tmp_path: Path, name: str) -> None:
    write_own(tmp_path, name, rows_of(name))
    raw = find_data(task(name), folder=tmp_path, allow_partial=True)
    senteval = find_data(task(name), folder=tmp_path, allow_partial=True, text="senteval")
    assert raw.digest == senteval.digest
    assert any("one form of text only" in note for note in senteval.notes)
    assert not any("one form of text only" in note for note in raw.notes)


# -- a folder in SentEval's layout -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SENTEVAL_TASKS)
def test_both_layouts_give_the_same_rows(tmp_path: Path, name: str) -> None:
    rows = rows_of(name)
    write_own(tmp_path / "ours", name, rows, "senteval")
    write_senteval(tmp_path / "theirs", name, rows)
    ours, theirs = (
        find_data(task(name), folder=tmp_path / folder, text="senteval", allow_partial=True)
        for folder in ("ours", "theirs")
    )
    assert (theirs.source, theirs.parts, theirs.digest, theirs.notes) == ("folder", ours.parts, ours.digest, ours.notes)


@pytest.mark.parametrize("root", ["", "downstream", "data/downstream", "SentEval/data/downstream"])
def test_any_folder_above_the_download_will_do(tmp_path: Path, root: str) -> None:
    write_senteval(tmp_path / root, "stsb", rows_of("stsb", 1379))
    data = find_data(task("stsb"), folder=tmp_path, text="senteval")
    assert (len(data.parts[0]), data.notes) == (1379, ())


def test_raw_text_is_not_to_be_had_from_senteval(tmp_path: Path) -> None:
    write_senteval(tmp_path, "stsb", rows_of("stsb", 1379))
    message = refusal("stsb", tmp_path)
    assert "holds STS-B as SentEval tokenises it" in message
    assert "--text senteval" in message
    write_senteval(tmp_path, "sst2", rows_of("sst2"))
    assert find_data(task("sst2"), folder=tmp_path, allow_partial=True).text == "raw"  # one form only


def test_empty_lines_of_the_class_files_are_texts(tmp_path: Path) -> None:
    write(tmp_path / "CR/custrev.pos", "good\n\ngreat\n")
    write(tmp_path / "CR/custrev.neg", b"bad\n\xe9t\xe9\n")
    rows = find_data(task("cr"), folder=tmp_path, text="senteval", allow_partial=True).parts[0]
    assert rows.first == ["good", "", "great", "bad", "été"]
    assert rows.labels == ["1", "1", "1", "0", "0"]


@pytest.mark.parametrize(
    ("name", "file", "data", "words"),
    [
        ("sts12", "STS/STS12-en-test/STS.gs.MSRpar.txt", "1\n", "has 12 lines and STS.gs.MSRpar.txt beside it 1"),
        ("sts12", "STS/STS12-en-test/STS.input.MSRpar.txt", "a b\n" * 12, "line 1 has 1 column ("),
        (
            "sts12",
            "STS/STS12-en-test/STS.gs.MSRpar.txt",
            "1\n" * 11 + "6\n",
            "STS.gs.MSRpar.txt, line 12 has the grade 6",
        ),
        ("sts12", "STS/STS12-en-test/STS.gs.MSRpar.txt", "1\n" * 11 + "x\n", "line 12 has the grade 'x', which is no"),
        ("stsb", "STS/STSBenchmark/sts-test.csv", "a\tb\tc\td\t1\tx\n", "line 1 has 6 columns"),
        ("stsb", "STS/STSBenchmark/sts-test.csv", b"a\tb\tc\td\t1\t\xe9\ty\n", "line 1: byte 0xe9 is not valid UTF-8"),
        ("stsb", "STS/STSBenchmark/sts-test.csv", "a\tb\tc\td\t1\tx\t \n", "line 1 has an empty sentence"),
        ("sickr", "SICK/SICK_test_annotated.txt", "head\n1\ta\tb\t9\tNEUTRAL\n", "line 2 has the grade 9"),
        ("trec", "TREC/train_5500.label", "NUM what ?\n", "line 1 has no colon"),
        ("trec", "TREC/train_5500.label", "SIZE:x what ?\n", "line 1 has the label 'SIZE'"),
        ("mrpc", "MRPC/msr_paraphrase_train.txt", "head\n7\t1\t2\ta\tb\n", "line 2 has the label '7'"),
        ("sst2", "SST/binary/sentiment-dev", "only text\n", "line 1 has 1 column ("),
    ],
)
def test_faulty_senteval_files(tmp_path: Path, name: str, file: str, data: str | bytes, words: str) -> None:
    write_senteval(tmp_path, name, rows_of(name))
    write(tmp_path / file, data)
    message = refusal(name, tmp_path, text="senteval", allow_partial=True)
    assert words in message
    assert str(tmp_path) in message


def test_half_a_senteval_part(tmp_path: Path) -> None:
    write(tmp_path / "MR/rt-polarity.pos", "good\n")
    assert "rt-polarity.neg is missing" in refusal("mr", tmp_path, text="senteval")


# -- the hub -----------------------------------------------------------------------------------------------------------


def hub_pairs(count: int, scale: float = 1.0, low: float = 0.0) -> list[dict[str, Any]]:
    rows = [line.split("\t") for line in pair_lines(count, low)]
    return [{"sentence1": a + " ", "sentence2": b, "score": float(grade) * scale} for grade, a, b in rows]


def test_a_hub_copy(serve: Callable[..., list[Any]], tmp_path: Path) -> None:
    asked = serve({("mteb/stsbenchmark-sts", None, "test"): hub_pairs(1379)})
    data = find_data(task("stsb"), folder=tmp_path)
    write(tmp_path / "sts/stsb/test.tsv", "\n".join(pair_lines(1379)))
    assert (data.source, data.text, data.notes) == ("hf:mteb/stsbenchmark-sts", "raw", ())
    assert data.digest == find_data(task("stsb"), folder=tmp_path).digest
    assert asked == [("mteb/stsbenchmark-sts", None, "test", None)]


def test_grades_from_0_to_1_are_rescaled_without_breaking_ties(serve: Callable[..., list[Any]]) -> None:
    serve({("sentence-transformers/stsb", None, "validation"): hub_pairs(1500, 0.2)})
    data = find_data(task("stsb-dev"), folder=None)
    assert data.source == "hf:sentence-transformers/stsb"
    assert set(data.parts[0].grades or []) == {0.0, 0.8, 1.6, 2.4, 3.2}


def test_a_copy_without_subsets(serve: Callable[..., list[Any]]) -> None:
    serve({("mteb/sts13-sts", None, "test"): hub_pairs(1500)})
    data = find_data(task("sts13"), folder=None)
    assert [(rows.part, len(rows)) for rows in data.parts] == [("all", 1500)]
    assert data.text == "senteval"
    assert "only the 'all' aggregation exists" in data.notes[0]
    assert "as SentEval tokenises it only: scored so, though raw was asked for" in data.notes[1]
    serve({("mteb/sts13-sts", None, "test"): hub_pairs(1499)})
    assert "has 1,499 rows where STS13 has 1,500" in refusal("sts13", None)


def test_hub_configurations(serve: Callable[..., list[Any]]) -> None:
    german = [{**row, "similarity_score": row["score"]} for row in hub_pairs(1379)]
    serve(
        {
            ("mteb/sts17-crosslingual-sts", "en-tr", "test"): hub_pairs(250),
            ("PhilipMay/stsb_multi_mt", "de", "test"): german,
        }
    )
    assert len(find_data(task("sts17-tr-en"), folder=None).parts[0]) == 250
    assert len(find_data(task("stsb-de"), folder=None).parts[0]) == 1379


def test_an_incomplete_copy(serve: Callable[..., list[Any]]) -> None:
    serve({("mteb/KorSTS", None, "test"): hub_pairs(1376)})
    assert "hf:mteb/KorSTS has 1,376 rows where KorSTS has 1,379" in refusal("korsts", None)
    data = find_data(task("korsts"), folder=None, allow_partial=True)
    assert data.notes[0].startswith("Partial: 1,376 of the 1,379 rows")


def test_labelled_copies(serve: Callable[..., list[Any]]) -> None:
    reviews = [{"text": f"film {n}", "label": n % 2} for n in range(10662)]
    glue = [{"sentence1": f"a {n}", "sentence2": "b", "label": n % 2, "idx": n} for n in range(4076)]
    movies = "cornell-movie-review-data/rotten_tomatoes"
    serve(
        {
            (movies, None, "train"): reviews[:8530],
            (movies, None, "validation"): reviews[8530:9596],
            (movies, None, "test"): reviews[9596:],
            ("nyu-mll/glue", "mrpc", "train"): [row for row in glue if row["idx"] % 10],
            ("nyu-mll/glue", "mrpc", "validation"): [row for row in glue if not row["idx"] % 10],
            ("nyu-mll/glue", "mrpc", "test"): glue[:1725],
        }
    )
    mr = find_data(task("mr"), folder=None)
    assert (len(mr.parts[0]), mr.parts[0].labels and mr.parts[0].labels[:2]) == (10662, ["0", "1"])
    assert "another order" in mr.notes[0]
    mrpc = find_data(task("mrpc"), folder=None, text="senteval")
    assert mrpc.notes == ()
    assert mrpc.part("train").first == [f"a {n}" for n in range(4076)]
    glue[3]["label"] = -1
    assert "row 4 has the label '-1'" in refusal("mrpc", None)


class TestSickTrap:
    def test_all_splits_joined_are_refused(self, serve: Callable[..., list[Any]]) -> None:
        asked = serve({("mteb/sickr-sts", None, "test"): hub_pairs(9927, low=1.0)})
        for allow in (False, True):
            message = refusal("sickr", None, allow_partial=allow)
            assert "holds 9,927 rows, train and trial among them, and the 4,927 test rows" in message
            assert "sts/sickr/test.tsv" in message
        assert asked[1][3] is not None  # the state before the splits were joined was tried as well

    @pytest.mark.parametrize("start", [0, 500, 4500, 5000])
    def test_the_test_rows_are_taken_where_they_are_known(
        self, serve: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch, start: int
    ) -> None:
        rows = hub_pairs(9927, low=1.0)
        test = [RawRow("", row["score"], row["sentence1"].upper(), row["sentence2"]) for row in rows]
        monkeypatch.setattr(hub, "_SICK_TEST_MARK", hub._mark(test[start : start + 4927]))
        serve({("mteb/sickr-sts", None, "test"): rows})
        data = find_data(task("sickr"), folder=None)
        assert (len(data.parts[0]), data.parts[0].first[0]) == (4927, f"sentence {start}")

    def test_the_test_split_itself(self, serve: Callable[..., list[Any]]) -> None:
        serve({("mteb/sickr-sts", None, "test"): hub_pairs(4927, low=1.0)})
        assert len(find_data(task("sickr"), folder=None).parts[0]) == 4927


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"a": 1}], "has no column 'sentence1' any more, only a"),
        (hub_pairs(1379, scale=2.0), "row 5 has the grade 6.4"),
        ([{"sentence1": "a", "sentence2": None, "score": 1.0}] * 1379, "row 1 has an empty sentence"),
        ([{"sentence1": "a", "sentence2": "b", "score": None}] * 1379, "row 1 has the grade None"),
        ([], "has no rows"),
    ],
)
def test_faulty_copies(serve: Callable[..., list[Any]], rows: list[dict[str, Any]], words: str) -> None:
    serve({("mteb/stsbenchmark-sts", None, "test"): rows})
    assert words in refusal("stsb", None)


# -- nothing found -----------------------------------------------------------------------------------------------------


def test_nothing_found(tmp_path: Path) -> None:
    message = refusal("sts12", tmp_path, text="senteval")
    assert message.startswith("There is no data for STS12 (sts12).")
    for words in (
        f"The data folder {tmp_path} does not have it",
        "hf:mteb/sts12-sts cannot be loaded (no network in tests)",
        "sts_senteval/sts12/MSRpar.tsv and sts_senteval/sts12/MSRvid.tsv",
        "score<TAB>sentence<TAB>sentence",
        "SELFGUIDE_DATA",
        "SentEval's download script",
    ):
        assert words in message
    message = refusal("cr", None)
    assert "No complete copy of it is known on the Hugging Face hub" in message
    assert "transfer/CR/all.tsv (label<TAB>text a line)" in message


def test_an_unreachable_hub_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def unreachable(_: object, name: str, timeout: float) -> None:
        raise ConnectionError(f"no route to {name} within {timeout:g} s")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", unreachable)
    message = refusal("sts12", None)
    assert "hf:mteb/sts12-sts cannot be reached (no route to mteb/sts12-sts within 10 s;" in message
    assert "HF_HUB_OFFLINE=1" in message


def test_no_download(serve: Callable[..., list[Any]]) -> None:
    asked = serve({("mteb/stsbenchmark-sts", None, "test"): hub_pairs(1379)})
    assert "The Hugging Face hub was not asked" in refusal("stsb", None, download=False)
    assert asked == []


# -- the data folder ---------------------------------------------------------------------------------------------------


def test_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SELFGUIDE_DATA", raising=False)
    assert data_folder(None) is None
    assert data_folder(str(tmp_path)) == tmp_path
    monkeypatch.setenv("SELFGUIDE_DATA", str(tmp_path))
    assert data_folder(None) == tmp_path
    other = tmp_path / "other"
    other.mkdir()
    assert data_folder(other) == other
    with pytest.raises(SelfguideError, match="given as the data folder, does not exist"):
        data_folder(tmp_path / "nowhere")
    monkeypatch.setenv("SELFGUIDE_DATA", str(write(tmp_path / "file", "x")))
    with pytest.raises(SelfguideError, match="environment variable SELFGUIDE_DATA names, is not a folder"):
        data_folder(None)
    monkeypatch.setenv("SELFGUIDE_DATA", "")
    assert data_folder(None) is None


# -- a user's own pairs ------------------------------------------------------------------------------------------------


def test_own_pairs(tmp_path: Path) -> None:
    data = own_pairs(write(tmp_path / "my pairs.v2.tsv", "0.5\ta\tb\n-3\tc\td\n7\te\tf\n"))
    wanted = data.task
    assert (wanted.name, wanted.title, wanted.kind, wanted.low, wanted.high) == (
        *("my pairs.v2", "my pairs.v2", "graded-pairs"),
        *(-3.0, 7.0),
    )
    assert (wanted.rows, data.source, len(data.parts[0]), len(data.digest)) == (None, "file", 3, 16)


def test_own_binary_pairs(tmp_path: Path) -> None:
    path = write(tmp_path / "same.tsv.gz", gzip.compress(b"1\ta\tb\n0.0\tc\td\n"))
    data = own_pairs(str(path))
    assert (data.task.kind, data.task.name, data.parts[0].grades) == ("binary-pairs", "same", [1.0, 0.0])


def test_own_pairs_of_one_grade(tmp_path: Path) -> None:
    path = write(tmp_path / "flat.tsv", "3\ta\tb\n3\tc\td\n")
    with pytest.raises(SelfguideError, match=r"flat\.tsv has the grade 3 on every line"):
        own_pairs(path)
    with pytest.raises(SelfguideError, match="holds only one pair"):
        own_pairs(write(path, "3\ta\tb\n"))


# -- the digest --------------------------------------------------------------------------------------------------------


def test_the_digest_is_that_of_the_rows(tmp_path: Path) -> None:
    def data(folder: str, **options: Any) -> TaskData:
        return find_data(task("mr"), folder=tmp_path / folder, allow_partial=True, **options)

    rows = rows_of("mr")
    write_own(tmp_path / "unix", "mr", rows)
    write_own(tmp_path / "windows", "mr", rows, end="\r\n")
    assert data("unix").digest == data("windows").digest
    assert len(data("unix").digest) == 16
    one = own_pairs(write(tmp_path / "one.tsv", "1\ta\tb\n2.50\tc\td\n")).digest
    assert one == own_pairs(write(tmp_path / "two.tsv", "\ufeff1.0\ta\tb\r\n2.5\tc\td\r\n\r\n")).digest


def test_the_digest_changes_with_anything() -> None:
    base = Rows("all", ["a", "b"], ["c", "d"], grades=[1.0, 2.0])
    others = [
        Rows("test", ["a", "b"], ["c", "d"], grades=[1.0, 2.0]),
        Rows("all", ["b", "a"], ["c", "d"], grades=[1.0, 2.0]),
        Rows("all", ["a", "b"], ["c", "e"], grades=[1.0, 2.0]),
        Rows("all", ["a", "b"], ["c", "d"], grades=[1.0, 2.1]),
        Rows("all", ["a", "b"], ["c", "d"], labels=["1.0", "2.0"]),
        Rows("all", ["a", "b"], None, grades=[1.0, 2.0]),
        Rows("all", ["a"], ["c"], grades=[1.0]),
    ]
    assert len({digest_of([rows]) for rows in (base, *others)}) == 8
    assert digest_of([base, base]) != digest_of([base])


# -- a real data folder ------------------------------------------------------------------------------------------------


@pytest.fixture
def real_folder() -> Path:
    if not os.environ.get("SELFGUIDE_DATA"):
        pytest.skip("SELFGUIDE_DATA names no data folder")
    folder = data_folder(None)
    assert folder is not None
    return folder


@pytest.mark.parametrize("text", ["raw", "senteval"])
@pytest.mark.parametrize("name", [wanted.name for wanted in TASKS if wanted.name != "sts14-es"])
def test_every_task_of_a_real_folder(real_folder: Path, name: str, text: Any) -> None:
    data = find_data(task(name), folder=real_folder, text=text, download=False)
    assert [(rows.part, len(rows)) for rows in data.parts] == [(part.name, part.rows) for part in task(name).parts]
    empty = {"cr": 4, "mpqa": 3}.get(name)
    assert any(note.startswith(f"{empty} texts are empty") for note in data.notes) == (empty is not None)


@pytest.mark.parametrize("name", SENTEVAL_TASKS)
def test_a_real_folder_in_both_layouts(real_folder: Path, tmp_path: Path, name: str) -> None:
    ours = find_data(task(name), folder=real_folder, text="senteval")
    rows = {
        part.part: [
            [str(cell) for cell in row]
            for row in zip(*filter(None, (part.grades or part.labels, part.first, part.second)), strict=True)
        ]
        for part in ours.parts
    }
    write_senteval(tmp_path, name, rows)
    theirs = find_data(task(name), folder=tmp_path, text="senteval")
    assert theirs.digest == ours.digest


def test_the_mark_of_sick_s_test_rows(real_folder: Path) -> None:
    for text in ("raw", "senteval"):
        rows = find_data(task("sickr"), folder=real_folder, text=text).parts[0]  # type: ignore[arg-type]
        table = zip(rows.grades or [], rows.first, rows.second or [], strict=True)
        assert hub._mark([RawRow("", *row) for row in table]) == hub._SICK_TEST_MARK
