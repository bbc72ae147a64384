"""``selfguide.compare`` and ``selfguide compare``: specs, cells that are run once, failures, tables."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import selfguide
from selfguide.comparison import child, runner, worker
from selfguide.comparison.cells import Cell, CellFolder, CellRecord, SharedSetting
from selfguide.comparison.compare import Comparison, compare_from
from selfguide.comparison.progress import seconds_left
from selfguide.comparison.specs import parse_specs
from selfguide.comparison.summary import summarise
from selfguide.comparison.tables import as_csv, as_dict, as_latex, as_markdown, summary_table
from selfguide.errors import InterruptedRun, SelfguideError, UsageError
from selfguide.evaluation.embedder import EncoderInfo
from selfguide.evaluation.protocol import Protocol
from selfguide.evaluation.results import DataInfo, TaskScore
from selfguide.evaluation.tasks import GROUPS
from toys import Outcome, toy_sentences

Command = Callable[..., Outcome]
Compare = Callable[..., Comparison]
QUICK = ("max_steps=3", "batch_size=4")


@pytest.fixture
def compared(bert: Path, text_file: Path, dev_file: Path, tmp_path: Path) -> Compare:
    """A comparison on toy text, three steps a cell, kept in one folder."""

    def call(methods: str, **more: Any) -> Comparison:
        given: dict[str, Any] = {
            "seeds": 2,
            "tasks": "",
            "pairs": dev_file,
            "settings": QUICK,
            "protocol": Protocol(bootstrap=0),
            "output": tmp_path / "out",
            "report": False,
            "jobs": 1,
        }
        return selfguide.compare(bert, text_file, methods, **given | more)

    return call


# -- specs -------------------------------------------------------------------------------------------------------------


def test_specs_say_method_options_label_and_chain() -> None:
    words = "mean,slow=simcse:learning_rate=1e-6:dropout=0.05,sg-opt+whitening:k=8,simcse:weight-decay=1e-3+whitening"
    mean, slow, guided, chain = parse_specs(words)
    assert (mean.label, [stage.method for stage in mean.stages]) == ("mean", ["mean"])
    assert (slow.label, slow.words) == ("slow", "simcse:learning_rate=1e-6:dropout=0.05")
    assert (slow.stages[0].training["learning_rate"], slow.stages[0].options["dropout"]) == (1e-6, 0.05)
    assert [stage.method for stage in guided.stages] == ["sg-opt", "whitening"]
    assert (guided.stages[1].options["pooling"], guided.stages[1].options["k"]) == ("keep", 8)
    assert chain.label == "simcse:weight-decay=1e-3+whitening"
    assert chain.stages[0].training["weight_decay"] == 1e-3
    assert all("seed" not in stage.training for spec in (mean, slow, guided, chain) for stage in spec.stages)


def test_a_name_with_a_plus_is_one_method_and_a_value_with_one_is_one_value(tmp_path: Path) -> None:
    from selfguide.comparison import grammar

    assert grammar.chain("sg-opt+bt") == ["sg-opt+bt"]
    assert grammar.chain("sg-opt+bt:x=1+whitening") == ["sg-opt+bt:x=1", "whitening"]
    assert grammar.chain("simcse:learning_rate=5e+0+whitening") == ["simcse:learning_rate=5e+0", "whitening"]
    assert grammar.listed("sg:layers=1,2:epochs=2, mean ,a=bow") == ["sg:layers=1,2:epochs=2", "mean", "a=bow"]
    assert grammar.named_stage("glove:path=c:/words.txt") == ("glove", {"path": "c:/words.txt"})


def test_settings_reach_those_they_name_and_a_spec_has_the_last_word() -> None:
    changes = ["epochs=2", "simcse.learning_rate=1e-4", "slow.warmup=0.5", "whitening.k=4"]
    plain, slow, chain = parse_specs("simcse,slow=simcse:learning_rate=1e-6,sg-opt+whitening", changes)
    assert [spec.stages[0].training["epochs"] for spec in (plain, slow, chain)] == [2.0, 2.0, 2.0]
    assert [spec.stages[0].training["learning_rate"] for spec in (plain, slow)] == [1e-4, 1e-6]
    assert [spec.stages[0].training["warmup"] for spec in (plain, slow)] == [0.0, 0.5]
    assert chain.stages[1].options["k"] == 4


@pytest.mark.parametrize(
    ("methods", "changes", "words"),
    [
        ("simce", (), "Did you mean 'simcse'?"),
        ("", (), "No method is named"),
        ("simcse:colour=1", (), "simcse knows no setting or option 'colour'"),
        ("simcse:epochs=x", (), "simcse:epochs takes a number, not 'x'"),
        ("simcse:max_steps=1.5", (), "takes a whole number"),
        ("simcse:epochs=0", (), "epochs must be above 0"),
        ("simcse:fast", (), "written :name=value"),
        ("simcse:seed=4", (), "--seeds"),
        ("simcse,simcse", (), "Two rows would both be called 'simcse'"),
        ("mean=simcse", (), "the name of another method"),
        ("=simcse", (), "write label=method"),
        ("whitening+simcse", (), "no effect"),
        ("simcse+whitning", (), "Did you mean 'whitening'?"),
        ("cls:pooling=mean", (), "cls knows no setting or option 'pooling'"),
        ("mean", ("simcse.epochs=1",), "no 'simcse' among the methods"),
        ("simcse", ("simcse.colour=1",), "simcse knows no setting or option 'colour'"),
        ("mean,simcse", ("colour=1",), "none of the methods knows a setting or option 'colour'"),
        ("simcse", ("simcse.epochs",), "method.name=value"),
    ],
)
def test_what_no_method_knows_is_refused(methods: str, changes: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("?", r"\?")):
        parse_specs(methods, changes)


def test_methods_that_draw_nothing_at_random_have_one_cell() -> None:
    from selfguide.methods.registry import builtin_methods

    once = {entry.name for entry in builtin_methods() if not entry.seeded}
    assert {"cls", "mean", "max", "last2", "first-last", "wk", "whitening", "sif", "glove"} <= once
    assert not once & {"bow", "flow", "simcse", "sg-opt", "sbert-nli"}
    assert [spec.seeded for spec in parse_specs("mean,simcse+whitening")] == [False, True]


# -- running -----------------------------------------------------------------------------------------------------------


def test_two_methods_two_seeds_are_what_train_and_evaluate_give(
    compared: Compare, bert: Path, text_file: Path, dev_file: Path, tmp_path: Path
) -> None:
    found = compared("mean,simcse", dev=dev_file)
    assert [(record.label, record.seed) for record in found.records] == [("mean", None), ("simcse", 1), ("simcse", 2)]
    for record in found.records[1:]:
        settings = {"seed": record.seed, "max_steps": 3, "batch_size": 4, "quiet": True}
        tuned = selfguide.train(bert, text_file, "simcse", dev=dev_file, **settings)
        alone = selfguide.evaluate(tuned, "", pairs=dev_file, bootstrap=0)
        assert record.scores[0].value == pytest.approx(alone.scores[0].value, abs=1e-6)
        assert record.dev_score == pytest.approx(record.scores[0].value)
        assert record.steps == 3
    by_seed = found.summary["simcse"].values["dev"].by_seed
    assert list(by_seed) == [1, 2]
    assert sorted(path.name for path in (tmp_path / "out" / "cells").iterdir()) == [
        "mean.once.json",
        "simcse.seed1.json",
        "simcse.seed2.json",
    ]
    kept = json.loads((tmp_path / "out" / "cells" / "simcse.seed2.json").read_text(encoding="utf-8"))
    assert kept["stages"][0]["training"]["max_steps"] == 3
    assert (kept["setting"]["text"], kept["setting"]["sentences"]) == (["notes.txt"], 120)
    assert len(kept["setting"]["fingerprint"]) == 64
    assert {"train", "evaluate"} == set(kept["seconds"])
    assert not (tmp_path / "out" / "encoders").exists()


def test_finished_cells_are_not_run_again(compared: Compare, ran: list[str], put: Callable[..., Path]) -> None:
    first = compared("mean,bow")
    assert ran == ["mean", "bow, seed 1", "bow, seed 2"]
    ran.clear()
    assert compared("mean,bow").records == first.records
    assert ran == []
    compared("mean,bow", seeds=3)
    assert ran == ["bow, seed 3"]
    ran.clear()
    compared("mean,bow:size=8", settings=(*QUICK, "epochs=2"))  # nothing is trained: other epochs change nothing
    assert ran == ["bow:size=8, seed 1", "bow:size=8, seed 2"]
    ran.clear()
    more = put("more.tsv", "".join(f"{n % 5}\t{a}\tthe old man\n" for n, a in enumerate(toy_sentences(20))))
    compared("mean", pairs=[more])
    assert ran == ["mean"]
    ran.clear()
    compared("mean", pairs=[more], again=True)
    assert ran == ["mean"]


def test_what_is_run_again_is_said_with_the_reason(
    compared: Compare, bert: Path, text_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    compared("bow", seeds=1)
    text_file.write_text("\n".join(toy_sentences(90)), encoding="utf-8")
    compared("bow", seeds=1, quiet=False)
    err = capfd.readouterr().err
    assert "1 of the cells in the folder will be run again: other text." in err
    assert "1 cell to run (0 finished)" in err
    assert "[1 of 1] bow, seed 1: dev " in err


def test_an_interrupted_comparison_goes_on_with_what_is_missing(
    compared: Compare, monkeypatch: pytest.MonkeyPatch, ran: list[str]
) -> None:
    def interrupt(job: worker.CellJob) -> CellRecord:
        if job.cell.seed == 2:
            raise KeyboardInterrupt
        return worker.run_cell(job)

    with monkeypatch.context() as patch:
        patch.setattr(runner, "run_cell", interrupt)
        with pytest.raises(InterruptedRun, match=r"1 of 2 cells kept in .*out; the same command continues"):
            compared("bow")
    compared("bow")
    assert ran == ["bow, seed 2"]


def test_a_chain_fits_the_second_method_on_the_result_of_the_first(
    compared: Compare, bert: Path, text_file: Path, dev_file: Path
) -> None:
    record = compared("simcse+whitening", seeds=[5]).records[0]
    tuned = selfguide.train(bert, text_file, "simcse", seed=5, max_steps=3, batch_size=4, quiet=True)
    white = selfguide.train(tuned, text_file, "whitening", pooling="keep", batch_size=4, quiet=True)
    expected = selfguide.evaluate(white, "", pairs=dev_file, bootstrap=0).scores[0].value
    assert record.scores[0].value == pytest.approx(expected, abs=1e-3)
    assert (record.seed, record.steps) == (5, 3)
    assert record.warnings  # few sentences for a covariance: quiet, but not lost


def test_the_page_is_written_unless_it_is_not_wanted(compared: Compare, tmp_path: Path) -> None:
    page = tmp_path / "out" / "report.html"
    compared("mean,cls", report=True)
    assert "2 methods on bert" in page.read_text(encoding="utf-8")
    page.unlink()
    compared("mean,cls", report=False)
    assert not page.exists()


def test_an_encoder_given_in_python_and_kept_encoders(
    compared: Compare, bert: Path, text_file: Path, dev_file: Path, tmp_path: Path
) -> None:
    given = selfguide.load_encoder(bert)
    more = {"tasks": "", "pairs": dev_file, "protocol": Protocol(bootstrap=0), "jobs": 1}
    sentences = text_file.read_text(encoding="utf-8").splitlines()
    alone = selfguide.compare(given, sentences, "max", **more, output=tmp_path / "out", keep=True)
    kept = selfguide.load(tmp_path / "out" / "encoders" / "max.once")
    assert selfguide.evaluate(kept, "", pairs=dev_file, bootstrap=0).scores[0].value == pytest.approx(
        alone.records[0].scores[0].value, abs=1e-6
    )
    by_name = selfguide.compare(bert, text_file, "max", **more)
    assert by_name.records[0].scores[0].value == pytest.approx(alone.records[0].scores[0].value, abs=1e-6)
    assert by_name.records[0].setting.difference(alone.records[0].setting) is None
    with pytest.raises(UsageError, match="name the folder of the comparison"):
        selfguide.compare(bert, text_file, "max", keep=True)


def test_the_command_with_two_processes_and_a_failing_cell(
    command: Command, bert: Path, text_file: Path, dev_file: Path, tmp_path: Path, compared: Compare
) -> None:
    """WK pooling needs more layers than the tiny encoder has from layer 4 on, which only the encoder can tell."""
    out = tmp_path / "side by side"
    words = ["compare", text_file, "--encoder", bert, "--pairs", dev_file, "--bootstrap", "0", "--output", out]
    words += ["--methods", "simcse,wk", "--seeds", "2", "--set", "max_steps=3", "--set", "batch_size=4"]
    outcome = command(*words, "--jobs", "2")
    assert outcome.code == 1, outcome.err
    assert "wk failed: WK pooling compares layers" in outcome.err
    rows = [line.split() for line in outcome.out.splitlines()]
    assert rows[2] == ["wk", "0", "(1", "failed)", "failed"]
    alone = compared("simcse").records
    records = CellFolder(out).read_all()
    assert [record.error is None for record in records] == [True, True, False]
    for one, other in zip(alone, records, strict=False):
        assert one.scores[0].value == pytest.approx(other.scores[0].value, abs=1e-3)
    assert records[0].command is not None
    assert records[0].command.startswith("selfguide compare")
    assert "side by side" not in records[0].command
    before = {path.name: path.stat().st_mtime_ns for path in (out / "cells").iterdir()}
    mended = command(*words, "--set", "wk.layer_start=0", "--jobs", "1")
    assert mended.code == 0, mended.err
    assert "1 of the cells in the folder will be run again: failed before." in mended.err
    after = {path.name: path.stat().st_mtime_ns for path in (out / "cells").iterdir()}
    assert [name for name in after if after[name] != before[name]] == ["wk.once.json"]


def test_a_killed_process_is_a_failed_cell(tmp_path: Path) -> None:
    job = worker.CellJob(Cell(parse_specs("bow")[0], 1, 0), SETTING, tmp_path, tmp_path / "out", "mini")
    (tmp_path / "log").write_text("", encoding="utf-8")
    process = subprocess.Popen([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], stdin=subprocess.PIPE)
    process.wait()
    record = runner._record(runner._Worker(process, tmp_path / "log", job))
    assert record.error == "its process was ended by signal 9: is there too little memory?"
    assert CellFolder(tmp_path / "out").find(job.cell) == record


def test_stopping_ends_the_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processes: list[subprocess.Popen[bytes]] = []

    def sleeping(job: worker.CellJob, threads: int) -> runner._Worker:
        script = "import time; time.sleep(60)" if processes else "pass"
        processes.append(subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE))
        (tmp_path / "log").write_text("", encoding="utf-8")
        return runner._Worker(processes[-1], tmp_path / "log", job)

    monkeypatch.setattr(runner, "_started", sleeping)
    spec = parse_specs("bow")[0]
    jobs = [worker.CellJob(Cell(spec, seed, 0), SETTING, tmp_path, tmp_path / "out", "mini") for seed in (1, 2, 3)]
    running = runner.run_jobs(jobs, 2)
    assert next(running).error == "its process ended with code 0"
    running.close()
    assert [process.returncode for process in processes] == [0, -signal.SIGTERM]


def test_a_process_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "job")  # nobody writes to it, so that the process would wait for ever
    process = subprocess.Popen([sys.executable, "-m", "selfguide.comparison.child"], stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(f"{tmp_path / 'job'}\n".encode())
    process.stdin.flush()
    time.sleep(0.2)
    assert process.poll() is None
    process.stdin.close()
    assert process.wait(30) == 130


class _Ending(NamedTuple):
    """A job that ends in one way, and is its own record."""

    work: Path
    stem: str
    way: Exception | str | None

    def run(self) -> None:
        if isinstance(self.way, Exception):
            raise self.way
        if self.way == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        (self.work / self.stem).write_text(f"{self.way} in {os.getpid()}", encoding="utf-8")

    def remove_record(self) -> None:
        (self.work / self.stem).unlink(missing_ok=True)

    def find_record(self) -> str | None:
        return (self.work / self.stem).read_text(encoding="utf-8") if (self.work / self.stem).exists() else None

    def record_failure(self, reason: str) -> str:
        return f"{self.stem}: {reason}"


@pytest.fixture
def tests_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the processes, which unpickle jobs that are defined here."""
    root = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{root}{os.pathsep}{root / 'tests' / 'support'}", prepend=os.pathsep)


@pytest.mark.usefixtures("tests_can_be_imported")
@pytest.mark.parametrize(("fresh", "count"), [(False, 1), (True, 3)])
def test_a_process_does_one_job_after_another_unless_each_wants_a_fresh_one(
    fresh: bool, count: int, tmp_path: Path
) -> None:
    jobs = [_Ending(tmp_path, f"job {number}.x", "done") for number in range(3)]
    for job in jobs:
        (tmp_path / job.stem).write_text("of a former run", encoding="utf-8")
    records = list(runner.run_in_processes(jobs, 1, fresh=fresh))
    assert all(record.startswith("done in ") for record in records)
    assert len(set(records)) == count


@pytest.mark.usefixtures("tests_can_be_imported")
def test_a_job_that_leaves_nothing_costs_no_other(tmp_path: Path) -> None:
    ways = (SelfguideError("The disk is full."), "killed", "done", SelfguideError("The disk is full again."))
    jobs = [_Ending(tmp_path, f"job {number}", way) for number, way in enumerate(ways)]
    full, killed, done, again = runner.run_in_processes(jobs, 1)
    assert full == "job 0: The disk is full."
    assert killed == "job 1: its process was ended by signal 9: is there too little memory?"
    assert done.startswith("done in ")
    assert again == "job 3: The disk is full again."


def test_a_stopped_job_is_not_done(tmp_path: Path) -> None:
    (tmp_path / "one.job").write_bytes(pickle.dumps(_Ending(tmp_path, "one", InterruptedRun("Stopped."))))
    with pytest.raises(InterruptedRun):
        child.run_job(tmp_path / "one.job")
    assert not (tmp_path / "one.done").exists()


def test_processes_never_outnumber_cores_or_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "cores", lambda: 8)
    assert runner.process_count(None, "cpu", 100) == 4
    assert runner.process_count(16, "cpu", 100) == 8
    assert runner.process_count(4, "cpu", 3) == 3
    monkeypatch.setattr(runner, "cores", lambda: 2)
    assert runner.process_count(None, "cpu", 100) == 1
    with pytest.raises(UsageError, match="at least 1"):
        runner.process_count(0, "cpu", 1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "4"),
        ({"OMP_NUM_THREADS": "1"}, "1"),
        ({"MKL_NUM_THREADS": "3", "RAYON_NUM_THREADS": "2"}, "2"),
        ({"OMP_NUM_THREADS": "16"}, "4"),
        ({"OMP_NUM_THREADS": "0", "MKL_NUM_THREADS": "many", "RAYON_NUM_THREADS": ""}, "4"),
    ],
)
def test_every_library_has_the_fewest_threads_that_are_allotted_or_given(
    given: dict[str, str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    for name, number in given.items():
        monkeypatch.setenv(name, number)
    started: list[dict[str, str]] = []
    monkeypatch.setattr(runner._Worker, "give", lambda worker, job: None)
    monkeypatch.setattr(subprocess, "Popen", lambda words, *, env, **more: started.append(env))
    runner._started(worker.CellJob(Cell(parse_specs("bow")[0], 1, 0), SETTING, tmp_path, tmp_path / "out", "mini"), 4)
    (environment,) = started
    assert [environment[name] for name in names] == [expected] * 3
    assert environment["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "There is no text to train on"),
        (("notes.txt", "--methods", "nothing"), "There is no method 'nothing'"),
        (("notes.txt", "--seeds", "many"), "--seeds takes a number of seeds"),
        (("notes.txt", "--seeds", "0"), "Seeds are a number of at least 1"),
        (("notes.txt", "--baseline", "cls"), "There is no row 'cls'"),
        (("notes.txt", "--dev", "mr"), "The dev pairs need grades"),
        (("notes.txt", "--tasks", "stsc"), "There is no task 'stsc'"),
        (("data:mr",), "MR is not one of these"),
        (("missing.txt",), "missing.txt does not exist"),
        (("--from", "nowhere"), "There are no cells in nowhere"),
        (("notes.txt", "--from", "nowhere"), "leave notes.txt out"),
    ],
)
def test_refusals_come_before_anything_runs(
    command: Command, text_file: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(text_file.parent)
    outcome = command("compare", *words)
    assert outcome.code in (1, 2)
    assert told in outcome.err
    assert not Path("comparison").exists()


# -- text of tasks -----------------------------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with a few rows of each part of STS-B, and of nothing else."""
    folder = tmp_path / "data"
    sentences = toy_sentences(60)
    for number, part in enumerate(("train", "dev", "test")):
        own = sentences[20 * number : 20 * number + 20]
        path = folder / "sts" / "stsb" / f"{part}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"{row % 6}\t{own[row]}\t{own[row + 10]}" for row in range(10)]
        path.write_text("\n".join([*lines, lines[0]]) + "\n", encoding="utf-8")
    return folder


def test_the_sentences_of_sts_b_without_grades(data: Path, bert: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"data": data, "allow_partial": True, "jobs": 1, "protocol": Protocol(bootstrap=0)}
    found = selfguide.compare(bert, "data:stsb", "mean,bow", 1, "stsb", dev="stsb-dev", **options)
    setting = found.records[0].setting
    assert (setting.text, setting.sentences, setting.dev) == (("data:stsb",), 60, "STS-B dev")
    assert all(record.dev_score is not None for record in found.records)
    with pytest.raises(SelfguideError, match=r"train.tsv has 11 rows where STS-B .* has 5,749"):
        selfguide.compare(bert, "data:stsb", "mean", tasks="demo", data=data, download=False)
    (data / "sts" / "stsb" / "train.tsv").unlink()
    with pytest.raises(SelfguideError, match=r"without its part train: put it at sts/stsb/train.tsv"):
        selfguide.compare(bert, "data:stsb", "mean", tasks="demo", data=data)


def test_text_of_a_task_beside_files(text_file: Path, data: Path) -> None:
    from selfguide.comparison.texts import DatasetLocator, text_of_sources
    from selfguide.data import TextOptions

    text = text_of_sources(["data:demo", str(text_file)], DatasetLocator(), TextOptions())
    sentences = list(text.sentences)
    assert text.names == ("data:demo", "notes.txt")
    assert toy_sentences(120) == sentences[-120:]
    rows = text_of_sources(["data:stsb-dev"], DatasetLocator(data, allow_partial=True), TextOptions())
    assert list(rows.sentences)[:2] == [toy_sentences(60)[20], toy_sentences(60)[30]]


# -- summary and tables ------------------------------------------------------------------------------------------------

SETTING = SharedSetting("tiny", "e" * 16, ("notes.txt",), "f" * 64, 120, None, None, {"x": "d"}, asdict(Protocol()))
INFO = EncoderInfo("tiny", "e" * 16, 32)


def cell(label: str, seed: int | None, scores: dict[str, float], order: int = 0, **more: Any) -> CellRecord:
    """A cell's record with made-up scores."""
    spec = parse_specs(label if "=" in label else label.split("_")[0])[0]
    made = tuple(
        TaskScore(
            name, name.upper(), "spearman", value, None, {}, (), INFO, DataInfo("file", "d", 9, "raw"), {}, {}, "", 0.0
        )
        for name, value in scores.items()
    )
    setting = replace(SETTING, tasks=dict.fromkeys(scores or ["x"], "d"))
    facts: dict[str, Any] = {
        "scores": made,
        "finished": "2026-01-01T00:00:00",
        "command": "selfguide compare notes.txt",
    }
    record = CellRecord.of(Cell(spec, seed, order), more.pop("setting", setting), **facts | more)
    return replace(record, label=label)


def sts(values: np.ndarray) -> dict[str, float]:
    return dict(zip(GROUPS["sts"], values.tolist(), strict=True))


@pytest.fixture
def records() -> list[CellRecord]:
    draw = np.random.default_rng(4)
    mean, floor, low = draw.uniform(50, 52, 7), draw.uniform(45, 47, 7), draw.uniform(30, 32, 7)
    guided, simple = draw.uniform(60, 70, (3, 7)), draw.uniform(55, 65, (3, 7))
    found = [cell("mean", None, sts(mean), 0), cell("cls", None, sts(low), 1)]
    found += [cell("bow", seed, sts(floor + seed), 2) for seed in (1, 2, 3)]
    found += [cell("sg-opt", seed, sts(guided[seed - 1]), 3, dev_score=70.0 + seed) for seed in (1, 2, 3)]
    found += [cell("simcse", seed, sts(simple[seed - 1]), 4) for seed in (1, 2)]
    return [*found, cell("simcse", 3, {}, 4, error="too hot", setting=found[0].setting)]


def test_means_deviations_and_tests_are_numpy_s_and_scipy_s(records: list[CellRecord]) -> None:
    from scipy.stats import ttest_1samp, ttest_rel

    summary = summarise(records)
    done = [record for record in records if record.scores]
    scores = {
        label: np.array([[score.value for score in record.scores] for record in done if record.label == label])
        for label in ("mean", "bow", "sg-opt", "simcse")
    }
    for label, values in scores.items():
        for number, task in enumerate(GROUPS["sts"]):
            value = summary[label].values[task]
            assert value.mean == pytest.approx(values[:, number].mean())
            if len(values) > 1:
                assert value.deviation == pytest.approx(values[:, number].std(ddof=1))
        average = summary[label].values["sts avg"]
        assert average.mean == pytest.approx(values.mean(axis=1).mean())
    average = summary["sg-opt"].values["sts avg"]
    assert average.deviation == pytest.approx(scores["sg-opt"].mean(axis=1).std(ddof=1))
    assert (summary.main.key, summary.baseline, summary.best, summary.floor) == ("sts avg", "mean", "sg-opt", "bow")
    # A method without a seed has the same score with each: a one-sample test.
    against = summary["sg-opt"].versus_baseline
    per_seed = scores["sg-opt"].mean(axis=1)
    assert against is not None
    assert against.p_value == pytest.approx(ttest_1samp(per_seed, scores["mean"].mean()).pvalue)
    worse = summary["bow"].versus_best
    assert worse is not None
    assert worse.difference == pytest.approx((scores["bow"].mean(axis=1) - per_seed).mean())
    assert worse.p_value == pytest.approx(ttest_rel(scores["bow"].mean(axis=1), per_seed).pvalue)
    few = summary["simcse"].versus_best
    assert few is not None
    assert few.p_value is None  # two seeds are too few
    assert summary["cls"].versus_baseline is not None
    assert summary["cls"].versus_baseline.p_value is None
    assert summary["mean"].versus_baseline is None
    assert [row.label for row in summary.rows if row.below_floor] == ["cls"]
    assert (summary["simcse"].runs, summary["simcse"].errors) == (2, {3: "too hot"})
    assert summarise(records, "bow").baseline == "bow"
    with pytest.raises(UsageError, match="There is no row 'max'"):
        summarise(records, "max")


def test_without_a_group_the_average_is_over_all_tasks_and_nan_stays_none() -> None:
    summary = summarise([cell("mean", None, {"a": 10.0, "b": math.nan}), cell("cls", None, {"a": 30.0, "b": 40.0})])
    assert [column.key for column in summary.columns] == ["a", "b", "average"]
    assert summary["cls"].values["average"].mean == 35.0
    assert summary.best == "cls"
    assert [cell.text for cell in summary_table(summary).rows[0]][2:5] == ["10.00", "none", "none"]
    json.dumps(as_dict(summary, [cell("mean", None, {"a": 1.0})]), allow_nan=False)
    alone = summarise([cell("mean", None, {"a": 10.0})])
    titles = [heading.title for heading in summary_table(alone).headings]
    assert (alone.main.key, titles) == ("a", ["method", "seeds", "A"])


def test_tables_hold_the_numbers_the_marks_and_the_failures(records: list[CellRecord]) -> None:
    summary = summarise(records)
    best = summary["sg-opt"].values["sts avg"]
    markdown = as_markdown(summary)
    lines = markdown.splitlines()
    assert lines[0].startswith("| method | seeds | STS12 |")
    assert lines[0].endswith("| sts avg | dev | vs mean | vs sg-opt |")
    assert len({line.count("|") for line in lines[:7]}) == 1
    assert f"**{best.mean:.2f}** ± {best.deviation:.2f}" in lines[5]
    assert lines[3].startswith("| cls† | once |")
    assert lines[6].startswith("| simcse | 2 (1 failed) |")
    assert "† below the bag of words (bow) in sts avg." in markdown
    assert "simcse, seed 3 failed: too hot" in markdown
    assert "(p = 0.0" in lines[5] or "(p < 0.001)" in lines[5]
    rows = list(csv.DictReader(io.StringIO(as_csv(summary))))
    assert float(rows[3]["sts avg sd"]) == pytest.approx(best.deviation, abs=1e-4)
    assert (rows[1]["below bow"], rows[4]["failed"]) == ("yes", "1")
    whole = as_dict(summary, records)
    assert whole["commands"] == ["selfguide compare notes.txt"]
    assert whole["rows"]["sg-opt"]["values"]["sts12"]["by_seed"].keys() == {"1", "2", "3"}
    assert whole["setting"]["fingerprint"] == "f" * 64
    json.dumps(whole, allow_nan=False)


def test_latex_is_escaped_and_balanced() -> None:
    names = ("simcse:learning_rate=5e-5", "a_b&50%{x}~^$#\\=simcse")
    found = [replace(cell("simcse", seed, {"a": 50.0 + seed}), label=name) for name in names for seed in (1, 2)]
    latex = as_latex(summarise(found))
    assert r"simcse:learning\_rate=5e-5 & 2 & \textbf{51.50} {\scriptsize $\pm$ 0.71}" in latex
    assert r"a\_b\&50\%\{x\}\textasciitilde{}\textasciicircum{}\$\#\textbackslash{}=simcse &" in latex
    for word in (r"\begin{tabular}{lrrr}", r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}"):
        assert latex.count(word) == 1
    assert r"needs \usepackage{booktabs}" in latex


def test_tables_come_from_the_cells_alone(records: list[CellRecord], command: Command, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for record in records:
        spec = parse_specs(record.label)[0]
        CellFolder(out).write(Cell(spec, record.seed, record.order), record)
    stale = cell("max", None, {"a": 1.0}, 9, finished="2025-01-01T00:00:00")
    CellFolder(out).write(Cell(parse_specs("max")[0], None, 9), stale)
    found, others = compare_from(out)
    assert found.records == tuple(records)
    assert others == [stale]
    outcome = command("compare", "--from", out, "--baseline", "cls")
    assert outcome.code == 0, outcome.err
    assert "other" in outcome.err
    assert "max" in outcome.err
    assert [line.split()[0] for line in outcome.out.splitlines()] == [
        "method",
        "mean",
        "cls†",
        "bow",
        "sg-opt",
        "simcse",
    ]
    assert (out / "comparison.md").read_text(encoding="utf-8") == as_markdown(summarise(records, "cls"))
    for suffix in ("csv", "tex", "json"):
        assert (out / f"comparison.{suffix}").stat().st_size > 100
    (out / "cells" / "bow.seed1.json").write_text("{}", encoding="utf-8")
    with pytest.raises(SelfguideError, match="delete it to run the cell again"):
        compare_from(out)


def test_the_time_left_is_told_by_finished_cells() -> None:
    spec = parse_specs("simcse:max_steps=10,mean,sg-opt:max_steps=40")
    cells = [Cell(spec[0], 2, 0), Cell(spec[2], 1, 2)]
    known = cell("mean", None, {"a": 1.0}, seconds={"train": 1.0, "evaluate": 2.0})
    assert seconds_left(cells, [], 100, 1) is None
    assert seconds_left(cells, [known], 100, 1) is None  # says nothing of a step
    trained = replace(known, label=spec[0].label, steps=10, seconds={"train": 5.0, "evaluate": 2.0})
    assert seconds_left(cells, [known, trained], 100, 1) == pytest.approx(7.0 + 40 * 0.5 + 2.0)
    assert seconds_left(cells, [known, trained], 100, 2) == pytest.approx(22.0)  # no less than the longest
    assert [each.steps(100) for each in cells] == [10, 40]
    assert Cell(parse_specs("simcse:batch_size=32:epochs=2")[0], 1, 0).steps(100) == 7


def test_a_chain_goes_on_from_the_kept_encoder_of_its_first_stage(
    bert: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"seeds": [3], "tasks": "demo-dev", "settings": ["max_steps=3", "batch_size=4"]}
    given["settings"].append("simcse.learning_rate=0.001")
    apart = selfguide.compare(bert, text_file, "simcse+whitening", **given)
    out = tmp_path / "out"
    first = selfguide.compare(bert, text_file, "simcse", **given, output=out, keep=True)
    from selfguide.methods.simcse import SimCSE

    monkeypatch.setattr(SimCSE, "fit", lambda *_: pytest.fail("the first stage was trained again"))
    chain = selfguide.compare(bert, text_file, "simcse,simcse+whitening", **given, output=out, keep=True)
    record, alone = chain.records[1], apart.records[0]
    assert (record.begun_by, alone.begun_by, first.records[0].begun_by) == ("simcse", None, None)
    assert record.steps == alone.steps == 3
    assert record.scores[0].value == pytest.approx(alone.scores[0].value, abs=1e-6)
    # Another seed has nothing to go on from.
    monkeypatch.undo()
    other = selfguide.compare(bert, text_file, "simcse+whitening", **given | {"seeds": [4]}, output=out, keep=True)
    assert other.records[0].begun_by is None
