"""The campaigns of kills, faults, damage and nonsense: their own parts, and a short version of them all."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.robustness import shim
from experiments.robustness.__main__ import CAMPAIGNS
from experiments.robustness.commands import COMMANDS
from experiments.robustness.ledger import Case, Ledger, counted, defect, skipped, sound
from experiments.robustness.summary import summary
from experiments.robustness.worlds import READ, Reference, Unsound, _common, check, contents_of
from selfguide.cli.main import app

ROOT = Path(__file__).parents[2]
needs_a_compiler = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="the shim needs Linux and a C compiler"
)

INDEXES = """
import sys
from pathlib import Path

import selfguide
from experiments.robustness.forks import in_a_child
from experiments.robustness.worlds import rows_of_index
from toys import toy_sentences

# LanceDB starts threads, and a process with threads cannot be forked: every index is made and read in a child.
folder, encoder, sentences = Path(sys.argv[1]), sys.argv[2], toy_sentences(40)
for name, rows in (("one", sentences), ("same", sentences), ("fewer", sentences[:-1])):
    in_a_child(lambda: str(selfguide.build_index(rows, encoder, output=folder / name)).encode())
    print(rows_of_index(folder / name))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_an_index_is_compared_by_its_rows(bert: Path, tmp_path: Path) -> None:
    pytest.importorskip("lancedb")
    places = [str(ROOT), str(ROOT / "src"), str(ROOT / "tests" / "support")]
    done = subprocess.run(
        [sys.executable, "-c", INDEXES, str(tmp_path), str(bert)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(places)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    one, same, fewer = done.stdout.splitlines()
    assert READ.match(one), one
    assert one == same
    assert READ.match(fewer), fewer
    assert one != fewer


@needs_a_compiler
def test_the_shim_kills_before_a_renaming_and_fails_writes(tmp_path: Path) -> None:
    library, here = tmp_path / "shim.so", tmp_path / "here"
    here.mkdir()
    source = Path(shim.__file__).with_name("shim.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)

    def run(program: str, plan: shim.Interference) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"LD_PRELOAD": str(library)} | shim.variable(here, plan)
        return subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, cwd=here
        )

    program = "import os\nfor n in 'ab':\n    with open(n + '.tmp', 'w') as f: f.write(n)\n    os.rename(n + '.tmp', n)"
    assert run(program, shim.Interference(shim.RENAME, 2, -9)).returncode == -9
    assert sorted(path.name for path in here.iterdir()) == ["a", "b.tmp"]
    full = run(program, shim.Interference(shim.WRITE, 2, errno.ENOSPC, True))
    assert "No space left on device" in full.stderr
    elsewhere = run(
        f"with open({str(tmp_path / 'other')!r}, 'w') as f: f.write('x')", shim.Interference(shim.WRITE, 1, errno.EIO)
    )
    assert elsewhere.returncode == 0


def test_a_ledger_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    tried: list[str] = []

    def case(name: str, facts: dict[str, object]) -> Case:
        return Case(name, {"command": name[0]}, lambda: (tried.append(name), facts)[1])

    ledger = Ledger(tmp_path / "kills.jsonl")
    cases = [case("a1", sound(code=0)), case("a2", defect("it broke", code=70)), case("b1", skipped("too late"))]
    assert [entry["outcome"] for entry in ledger.go_through(cases[:1])] == ["sound"]
    with ledger.file.open("a") as file:
        file.write('{"case": "a2", "outco')  # killed while it was written
    ledger.file.write_text(ledger.file.read_text() + "\n")
    assert len(list(ledger.go_through(cases))) == 2
    assert tried == ["a1", "a2", "b1"]
    assert list(ledger.go_through(cases)) == []
    assert [entry["case"] for entry in ledger.go_through(cases, defects_again=True)] == ["a2"]
    outcomes = ledger.outcomes().values()
    assert counted(outcomes, "command") == {"a": {"cases": 2, "defects": 1}}
    assert summary([entry for entry in outcomes if entry["outcome"] != "skipped"], ("command",))["unforeseen"] == 1


def test_a_result_is_compared_with_what_two_runs_share(tmp_path: Path) -> None:
    def world(name: str, steps: int, seconds: float, date: str) -> Path:
        folder = tmp_path / name
        (folder / "tmp").mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"steps": steps, "seconds": seconds, "finished": date}))
        (folder / "weights").write_bytes(b"abc")
        return folder

    one, other = world("one", 3, 1.0, "2026-11-19T04:00"), world("other", 3, 1.0, "2026-11-20T05:01")
    reference = Reference(_common(contents_of(one), contents_of(other)), 1.0, 1, 1)
    check(world("slower", 3, 9.0, "2027-01-01T00:00"), reference)
    with pytest.raises(Unsound, match=r"run\.json: /steps is '4', not '3'"):
        check(world("longer", 4, 1.0, "2026-11-19T04:00"), reference)
    (one / "weights").write_bytes(b"abd")
    with pytest.raises(Unsound, match="other bytes: weights"):
        check(one, reference)
    (other / ".weights.1-2.tmp").touch()
    with pytest.raises(Unsound, match="left over"):
        check(other, reference)


def test_every_command_that_writes_is_killed() -> None:
    """A new command has to be added to the campaign, or to those that leave nothing behind."""
    tried = {command.line.split()[0] for command in COMMANDS.values()}
    nothing_behind = {"similarity", "methods", "serve", "search", "demo"}  # the demonstration is made of runs
    assert tried | nothing_behind == {info.name or info.callback.__name__ for info in app.registered_commands}


def test_the_guide_says_of_every_command_what_to_type_next() -> None:
    guide = (ROOT / "docs/guides/interruptions.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in guide.partition("## After a kill")[2].splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)", row[1])}
    assert named == {command.words[0] for command in COMMANDS.values()}
    resumed = {name for row in rows for name in re.findall(r"`(\w+)", row[1]) if "--resume" in row[3]}
    assert resumed == {command.words[0] for command in COMMANDS.values() if "--resume" in command.words_again}


def test_durations_in_tables_are_left_out(tmp_path: Path) -> None:
    def read(seconds: str, score: str) -> object:
        table = f"| method | seconds | score |\n|---|---|---|\n| cls | {seconds} | {score} |\n"
        (tmp_path / "table.md").write_text(f"# Table\n\n{table}\nThe end.\n")
        (tmp_path / "table.csv").write_text(f"method,seconds,score\ncls,{seconds},{score}\n")
        return contents_of(tmp_path)

    assert read("0.2", "70.2") == read("0.3", "70.2")
    assert read("0.2", "70.2") != read("0.2", "70.3")


def test_rates_that_two_runs_share_by_accident_are_left_out(tmp_path: Path) -> None:
    def read(rate: str) -> object:
        (tmp_path / "README.md").write_text(f"| | |\n|---|---|\n| training time | 0 s ({rate} sentences/s) |\n")
        return contents_of(tmp_path)

    assert read("430") == read("452")
    assert read("430") == read("1,430")


@pytest.mark.slow
@needs_a_compiler
def test_a_short_campaign_finds_nothing(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "experiments.robustness"]
    where = ["--work", str(tmp_path / "work")]
    done = subprocess.run([*words, *CAMPAIGNS, "--short", *where], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    out = tmp_path / "robustness.json"
    subprocess.run([*words, "collect", *where, "--out", str(out)], cwd=ROOT, check=True, capture_output=True)
    found = json.loads(out.read_text())
    assert found["unforeseen"] == 0
    assert all(found["campaigns"][name]["cases"] > (1 if name == "together" else 5) for name in CAMPAIGNS)
