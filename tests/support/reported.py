"""What the tests of the report share: a made-up comparison and run, and a reader of pages."""

from __future__ import annotations

import json
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from selfguide.comparison.cells import Cell, CellRecord, SharedSetting
from selfguide.comparison.specs import parse_specs
from selfguide.comparison.summary import summarise
from selfguide.comparison.tables import write_tables
from selfguide.evaluation.embedder import EncoderInfo
from selfguide.evaluation.results import DataInfo, TaskScore
from selfguide.evaluation.tasks import GROUPS
from selfguide.report.evidence import Geometry, RunEvidence, Side
from selfguide.training.configuration import RunConfig, RunRecord
from toys import toy_sentences

NASTY = "</script><script>alert('x')</script><img src=x onerror=alert(1)> & \"quoted\" \u2028 שלום"
COMMAND = "selfguide compare notes.txt --methods bow,mean,sg-opt"


def score(task: str, value: float, encoder: str = "mini") -> TaskScore:
    return TaskScore(
        task, task.upper(), "spearman cosine all", value, (value - 2, value + 2), {}, (), EncoderInfo(encoder, "12ab", 32),
        DataInfo("file", "34cd", 1000, "raw"), {"similarity": "cosine"}, {"selfguide": "0.1.0"}, "2026-01-02", 0.5,
    )  # fmt: skip


def comparison(folder: Path, failing: bool = True) -> dict[str, Any]:
    """Five rows of the seven STS tasks, made up, written by what writes real ones."""
    names = GROUPS["sts"]
    protocol = {"similarity": "cosine", "text": "raw"}
    setting = SharedSetting(
        "mini", "aa", ("notes <i>.txt",), "ff" * 8, 120, "demo dev", "bb", dict.fromkeys(names, "cc"), protocol
    )
    specs = parse_specs("bow,cls,mean,simcse,sg-opt", (), device="auto")
    records = []
    for order, spec in enumerate(specs):
        for seed in (1, 2, 3) if spec.seeded else (None,):
            cell = Cell(spec, seed, order)
            if failing and spec.label == "simcse" and seed == 2:
                records.append(
                    CellRecord.of(cell, setting, error=f"It broke: {NASTY}", command=COMMAND, finished="2026-01-02")
                )
                continue
            base = {"bow": 40.0, "cls": 30.0, "mean": 50.0, "simcse": 55.0, "sg-opt": 60.0}[spec.label]
            scores = tuple(score(name, base + 1.37 * place + 0.31 * (seed or 0)) for place, name in enumerate(names))
            records.append(
                CellRecord.of(
                    cell, setting, scores=scores, dev_score=base + 1, steps=7, seconds={"train": 12.5}, command=COMMAND,
                    finished="2026-01-02", versions={"selfguide": "0.1.0"}, device="cpu", threads=1,
                )
            )  # fmt: skip
    write_tables(summarise(records, "mean"), records, folder)
    return json.loads((folder / "comparison.json").read_text(encoding="utf-8"))


def evidence(count: int = 12) -> RunEvidence:
    sentences = (NASTY, *toy_sentences(count - 1))
    histogram = tuple(3 if place > 20 else 0 for place in range(40))

    def side(words: str, shift: int) -> Side:
        nearest = tuple(
            tuple(((row + shift + step) % count, round(0.9 - 0.1 * step, 4)) for step in range(5))
            for row in range(count)
        )
        return Side(words, Geometry(32, 0.5 / shift, 20.5, -1.25, histogram), nearest)

    return RunEvidence(count, sentences, side("the start", 1), side("the end", 2))


def finished_run(folder: Path, **changes: Any) -> Path:
    record = RunRecord(
        RunConfig(("notes.txt",), "mini", "sg-opt", {"temperature": 0.01}, {"seed": 1}, {}, "dev.tsv"),
        text={"files": ["notes.txt"], "read": 120, "kept": 119, "duplicates": 1, "fingerprint": "abc"},
        scores={"before (cls)": 0.41, "before (mean)": 0.52, "after": 0.613456},
        dev_curve=[(50, 0.55), (100, 0.613456), (150, 0.6)],
        checkpoint="step 100, best on the dev pairs",
        steps=150,
        final_loss=1.25,
        seconds={"total": 61.0},
        warnings=["half of the lines have fewer than three tokens <b>"],
        versions={"selfguide": "0.1.0"},
        finished="2026-01-02T10:00:00+0000",
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps({**asdict(record), "stock": True, **changes}), encoding="utf-8")
    return folder


class Page(HTMLParser):
    """Elements with their attributes, and the cells of the tables."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[tuple[str, dict[str, str | None]]]]] = {}
        self.words = ""
        self._caption = self._cell = None
        self._rows: list[list[tuple[str, dict[str, str | None]]]] = []
        self._silent = False
        self.feed(self.source)

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.elements.append((tag, dict(attributes)))
        self._silent = self._silent or tag in ("script", "style")
        if tag == "table":
            self._rows = []
        elif tag == "caption":
            self._caption = ""
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._cell = ("", dict(attributes))

    def handle_endtag(self, tag: str) -> None:
        self._silent = self._silent and tag not in ("script", "style")
        if tag == "caption":
            self.tables[self._caption] = self._rows
            self._caption = None
        elif tag in ("td", "th"):
            self._rows[-1].append((self._cell[0].strip(), self._cell[1]))
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._silent:
            return
        self.words += data
        if self._caption is not None:
            self._caption += data
        if self._cell is not None:
            self._cell = (self._cell[0] + data, self._cell[1])

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]
