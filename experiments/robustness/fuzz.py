"""The fuzz campaign: text, tables, pairs and records of random bytes and odd structures; options with odd values.

A command has to end with code 0, 1 or 2 and without a traceback; what it writes with code 0 has as many rows as it said.
"""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import random
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from experiments.robustness import material
from experiments.robustness.commands import Command
from experiments.robustness.forks import forked
from experiments.robustness.ledger import Case, defect, sound
from experiments.robustness.worlds import Worlds

INPUTS, OPTIONS = 720, 480
_COMMAND = Command("fuzz", "", ("bert", "notes.txt", "pairs.tsv", "tuned", "fused"), "")

_PIECES = [
    *(
        b"\x00",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\r",
        b"\r\n",
        b"\n",
        b"\t",
        b",",
        b";",
        b"|",
        b'"',
        b"'",
        b"\\",
        b"\x1b[31m",
    ),
    *("\u2028".encode(), "\u202e".encode(), "\U0001f600".encode(), "e\u0301".encode(), "\u200b".encode()),
    *("\u5b57".encode() * 50, b"\xed\xa0\x80", b"\xc3", b"NaN", b"inf", b"-1", b"5", b"1e999", b"=1+1", b"<script>"),
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b"null",
        b"a " * 3000,
        b"the river follows a boat",
        b"a pilot paints nine apples",
        b"",
        b" ",
    ),
    *(b"# ", b"score\tsentence1\tsentence2\n", b"text\n", b"0,1,2\n", b'{"text": "a b"}\n', b'{"text": 5}\n'),
    *(b'{"text": ["a"]}\n', b"\x1f\x8b", b"PK\x03\x04", b"PAR1"),
]
_VALUES = [
    *(
        "",
        " ",
        "0",
        "-1",
        "1",
        "2",
        "5000000000",
        "18446744073709551616",
        "1e400",
        "-1e400",
        "nan",
        "inf",
        "-inf",
        "0.0",
    ),
    *("1e-300", "0.5", "1e6", "true", "None", "auto", "cpu", "cuda:9", "abc", "../..", "/", ".", "a/b/c", "\u00e9"),
    *("\U0001f600", "a b", "a=b", "--", "-", "@", "%s", "{}", "[1]", "0x10", "1_000", "\u0663", "9" * 400, "x" * 5000),
    *(
        "notes.txt",
        "bert",
        "tuned",
        "fused",
        "pairs.tsv",
        "missing.txt",
        "hf:",
        "hf:a/b",
        "mini",
        "cls",
        "mean",
        "fp16",
    ),
    *("bf16", "int8", "max,mean", "1,2", ",", "sts", "stsb", "demo", "latin1", "utf-16", "tab", "none", "en"),
]

_BASES: dict[str, str] = {
    "train": "train notes.txt --encoder bert --head-size 8 --batch-size 8 --max-steps 1 --no-report --output out",
    "encode": "encode notes.txt --encoder bert --limit 20 --output out.npy",
    "eval": "eval bert --pairs pairs.tsv --bootstrap 5 --output out",
    "calibrate": "calibrate fused notes.txt --output out",
    "compare": "compare notes.txt --encoder bert --methods mean --pairs pairs.tsv --jobs 1 --output out",
    "similarity": "similarity one two --encoder bert",
    "export": "export bert --to static --text notes.txt --output out",
    "probe": "probe bert --pairs pairs.tsv --json out.json",
    "study": "study temperature --encoder bert --text notes.txt --limit 20 --pairs pairs.tsv --seeds 1 --jobs 1 "
    "--set max_steps=1 --set head_size=8 --set batch_size=8 --set temperatures=0.1 --set methods=sg-opt --output out",
    "map": "map notes.txt --encoder bert --limit 19 --output out.html",
}


def cases(worlds: Worlds, short: bool) -> Iterator[Case]:
    """Return the cases of the campaign; see :func:`experiments.robustness.kills.cases`."""
    for number in range(30 if short else INPUTS):
        yield _input(worlds, number)
    for number in range(20 if short else OPTIONS):
        yield _option(worlds, number)


# -- inputs ------------------------------------------------------------------------------------------------------------


def _input(worlds: Worlds, number: int) -> Case:
    draw = random.Random(f"input {number}")
    kind = list(_INPUTS)[number % len(_INPUTS)]
    maker, lines = _INPUTS[kind]
    name, content = maker(draw)
    line = draw.choice(lines).format(name=shlex.quote(name))

    def trial() -> dict[str, Any]:
        world = worlds.fresh(_COMMAND, f"fuzz input {number}")
        target = world / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        return _judged(worlds, world, shlex.split(line), content if name == "stdin" else b"")

    return Case(f"input {number} | {kind} | {line}", {"kind": kind, "command": line.split()[0]}, trial)


def _garbage(draw: random.Random) -> bytes:
    if draw.random() < 0.2:
        return draw.randbytes(draw.choice([0, 1, 7, 300, 5000]))
    return b"".join(draw.choice(_PIECES) for _ in range(draw.randint(0, 60)))


def _lines(draw: random.Random) -> bytes:
    """Sound sentences with garbage between them, in one of several encodings and line ends."""
    sentences = [sentence.encode() for sentence in material.sentences(draw.randint(1, 40))]
    for _ in range(draw.randint(0, 6)):
        sentences.insert(draw.randint(0, len(sentences)), draw.choice([_garbage(draw)[:200], *_PIECES]))
    return draw.choice([b"\n", b"\r", b"\r\n", b"\n\n", b"\x00", b"\x0b", b"\x85"]).join(sentences)


def _text(draw: random.Random) -> tuple[str, bytes]:
    content = draw.choice([_garbage, _lines])(draw)
    suffix = draw.choice(
        ["txt", "txt", "txt", "txt.gz", "txt.bz2", "txt.xz", "txt.zst", "md", "", "TXT", "json", "zip"]
    )
    if suffix.endswith("gz") and draw.random() < 0.6:
        content = gzip.compress(content)[: draw.choice([None, -5, 20])]
    return f"in{'.' if suffix else ''}{suffix}", content


def _table(draw: random.Random) -> tuple[str, bytes]:
    mark = draw.choice([b",", b";", b"\t", b"|", b" ", b":"])
    rows = []
    for sentence in material.sentences(draw.randint(0, 30)):
        cells = [str(draw.randint(0, 9)).encode(), sentence.encode(), draw.choice(_PIECES)[:60]]
        draw.shuffle(cells)
        rows.append(mark.join(cells[: draw.choice([3, 3, 3, 2, 1, 0])]))
    if draw.random() < 0.5:
        rows.insert(0, mark.join([b"id", b"text", b"note"]))
    content = draw.choice([b"\n", b"\r\n", b"\r"]).join(rows)
    return f"in.{draw.choice(['csv', 'tsv', 'csv.gz'])}", content if draw.random() < 0.8 else _garbage(draw)


def _json_lines(draw: random.Random) -> tuple[str, bytes]:
    odd: list[Any] = [
        None,
        1,
        "x",
        [],
        {},
        {"text": None},
        {"text": 1e400},
        {"text": {"a": "b"}},
        {"t": ""},
        [[["a"]]],
        {"text": ["a", "b"]},
    ]
    rows = [json.dumps({"text": sentence, "id": place}) for place, sentence in enumerate(material.sentences(20))]
    for _ in range(draw.randint(0, 5)):
        rows.insert(
            draw.randint(0, len(rows)),
            draw.choice([json.dumps(draw.choice(odd)), "{", "", '{"text": "\\ud800"}', "[" * 3000]),
        )
    content = "\n".join(rows).encode()
    return "in.jsonl", content if draw.random() < 0.8 else _garbage(draw)


def _parquet(draw: random.Random) -> tuple[str, bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, list[Any]] = {
        "text": list(material.sentences(10)), "none": [None] * 10, "number": list(range(10)), "list": [["a"]] * 10,
        "bytes": [b"\xff"] * 10, "float": [float("nan")] * 10, "some": [None, "a b c", ""] * 3 + ["x y"],
    }  # fmt: skip
    names = draw.sample(list(columns), draw.randint(0, 4))
    target = io.BytesIO()
    pq.write_table(pa.table({name: columns[name] for name in names}), target)
    content = target.getvalue()
    return "in.parquet", content if draw.random() < 0.6 else content[: draw.randrange(len(content))] + _garbage(draw)[
        :40
    ]


def _pairs(draw: random.Random) -> tuple[str, bytes]:
    rows = []
    pool = material.sentences(60)
    for _ in range(draw.randint(0, 25)):
        grade = draw.choice(["0", "1", "2.5", "5", "5", "nan", "inf", "-3", "", "x", "1e999", "\u0663"])
        rows.append(
            "\t".join([grade, draw.choice(pool), draw.choice(pool), "extra"][: draw.choice([3, 3, 3, 3, 4, 2, 1])])
        )
    content = draw.choice(["\n", "\r\n", "\r"]).join(rows).encode()
    return f"in.{draw.choice(['tsv', 'csv', 'txt', 'jsonl', 'tsv.gz'])}", content if draw.random() < 0.8 else _garbage(
        draw
    )


def _record(draw: random.Random) -> tuple[str, bytes]:
    """A run.json with something odd in it."""
    training: dict[str, Any] = {"batch_size": 8, "max_steps": 1, "seed": 1}
    config: dict[str, Any] = {
        "text": ["notes.txt"],
        "encoder": "bert",
        "method": "sg-opt",
        "options": {"head_size": 8},
        "training": training,
    }
    odd: list[Any] = [
        None,
        True,
        "true",
        "False",
        "1",
        1.5,
        -1,
        10**30,
        [],
        {},
        [[]],
        "x" * 3000,
        "\u0000",
        float("inf"),
        float("nan"),
        {"a": 1},
    ]
    for _ in range(draw.randint(1, 3)):
        place = draw.choice(
            [config, training, config["options"] if isinstance(config.get("options"), dict) else config]
        )
        names = [
            "batch_size",
            "seed",
            "epochs",
            "learning_rate",
            "temperature",
            "encoder",
            "text",
            "method",
            "dev",
            "options",
            "training",
            "text_options",
            "zzz",
            "precision",
            "report",
            "keep_views",
        ]
        place[draw.choice([*place, *names])] = draw.choice(odd)
    whole: Any = draw.choice(
        [config, {"config": config}, {"config": config, "files": {}}, [config], {"config": None}, {}]
    )
    return "in/run.json", json.dumps(whole).encode() if draw.random() < 0.85 else _garbage(draw)


def _encoder(draw: random.Random) -> tuple[str, bytes]:
    """A folder that calls itself an encoder."""
    name = draw.choice(["config.json", "modules.json", "model.safetensors", "tokenizer.json", "run.json"])
    return f"in/{name}", _garbage(draw) if draw.random() < 0.6 else json.dumps(
        draw.choice([{}, [], {"model_type": "bert"}, None, 5])
    ).encode()


_READ = (
    "encode {name} --encoder bert --output out.npy",
    "encode {name} --encoder bert --output out.jsonl --skip-bad-rows 5",
    "train {name} --encoder bert --method mean --output out --no-report",
    "train {name} --encoder bert --method whitening --output out --no-report",
    "calibrate fused {name} --output out",
    "encode {name} --encoder bert --output out.npy --replace-bad-utf8 --max-length 16",
    "encode {name} --encoder bert --output out.npy --column text",
    "map {name} --encoder bert --output out.html --limit 20 --replace-bad-utf8",
)
_SCORED = (
    "eval bert --pairs {name} --output out --bootstrap 5",
    "similarity --pairs {name} --encoder bert",
    "train notes.txt --encoder bert --head-size 8 --batch-size 8 --max-steps 1 --no-report --dev {name} --output out",
    "probe bert --pairs {name}",
)
_LOADED = (
    "encode notes.txt --encoder in --output out.npy",
    "train notes.txt --encoder in --output out",
    "similarity a b --encoder in",
    "report in",
    "calibrate in notes.txt --output out",
)
_INPUTS: dict[str, tuple[Callable[[random.Random], tuple[str, bytes]], tuple[str, ...]]] = {
    "text": (_text, _READ[:6]),
    "table": (_table, _READ),
    "JSON lines": (_json_lines, _READ[:6]),
    "parquet": (_parquet, _READ[:4]),
    "graded pairs": (_pairs, _SCORED),
    "run.json": (_record, ("train --config {name} --output out --no-report",)),
    "encoder folder": (_encoder, _LOADED),
}


# -- options -----------------------------------------------------------------------------------------------------------


def _option(worlds: Worlds, number: int) -> Case:
    draw = random.Random(f"option {number}")
    command = list(_BASES)[number % len(_BASES)]
    words = shlex.split(_BASES[command])
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        words += _odd_option(command, draw)

    def trial() -> dict[str, Any]:
        return _judged(worlds, worlds.fresh(_COMMAND, f"fuzz {number}"), words)

    shown = shlex.join(
        word if len(word) < 60 else word[:20] + "…" for word in words[len(shlex.split(_BASES[command])) :]
    )
    return Case(f"option {number} | {command} | {shown}", {"kind": "options", "command": command}, trial)


def _odd_option(command: str, draw: random.Random) -> list[str]:
    names = _option_names(command)
    name = draw.choice(names)
    if draw.random() < 0.05:
        name = name[:-1] if draw.random() < 0.5 else name + "x"
    return draw.choice(
        [[name], [name, draw.choice(_VALUES)], [name, draw.choice(_VALUES)], [f"{name}={draw.choice(_VALUES)}"]]
    )


_names: dict[str, list[str]] = {}
_ELSEWHERE = ("--output", "-o", "--help", "-h", "--full", "--track", "--mteb")
"""Not drawn: they would write outside, print the help, ask for a GPU, or need other programs."""


def _option_names(command: str) -> list[str]:
    if command not in _names:
        import typer

        from selfguide.cli.main import app
        from selfguide.methods import registry

        group: Any = typer.main.get_command(app)
        found = [name for one in group.commands[command].params for name in (*one.opts, *one.secondary_opts)]
        if command == "train":
            options = dataclasses.fields(registry.method_class("sg-opt").Options)
            found += [f"--{option.name.replace('_', '-')}" for option in options]
        _names[command] = sorted(name for name in set(found) if name.startswith("-") and name not in _ELSEWHERE)
    return _names[command]


# -- both --------------------------------------------------------------------------------------------------------------


def _judged(worlds: Worlds, world: Path, words: list[str], stdin: bytes = b"") -> dict[str, Any]:
    try:
        ended = forked(words, world, stdin=stdin)
    except TimeoutError as error:
        return defect(str(error))
    facts = {"code": ended.code, "message": ended.words[-200:]}
    left = [path.name for path in world.rglob("*.tmp*")] + [path.name for path in (world / "tmp").iterdir()]
    worlds.remove(world)
    if not ended.in_words or ended.code == 130:
        return defect(f"it ended with code {ended.code}: {ended.words[-300:]}", **facts)
    if ended.code and not ended.err.strip():
        return defect("it was refused without a word", **facts)
    if left:
        return defect(f"it left {', '.join(left[:3])}", **facts)
    return sound(**facts)
