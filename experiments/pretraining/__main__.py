"""Pre-train a small BERT by masked language modelling: ``python -m experiments.pretraining COMMAND --help``."""

from __future__ import annotations

import argparse
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from .config import Settings, Shape


def _add(parser: argparse.ArgumentParser, source: type, names: tuple[str, ...]) -> None:
    """Add fields of a dataclass as options, with their defaults."""
    for entry in fields(source):
        if entry.name not in names:
            continue
        flag = "--" + entry.name.replace("_", "-")
        if isinstance(entry.default, bool):
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=entry.default)
        elif entry.name == "attention":
            parser.add_argument(flag, choices=("varlen", "sdpa"), default=entry.default)
        else:
            parser.add_argument(flag, type=type(entry.default), default=entry.default, help=f"default {entry.default}")


_SHAPE = ("layers", "width", "heads", "ffn", "positions")


def _settings(args: argparse.Namespace) -> Settings:
    return Settings(**{f.name: getattr(args, f.name) for f in fields(Settings) if hasattr(args, f.name)})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments.pretraining", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, text: str, *folders: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        for folder in folders:
            made.add_argument(f"--{folder}", type=Path, required=True)
        return made

    made = command("tokenizer", "train the vocabulary", "text", "out")
    made.add_argument("--vocab", type=int, default=Shape.vocab)
    made.add_argument("--share", type=float, default=1.0, help="share of the documents to train on")
    made.add_argument("--positions", type=int, default=Shape.positions)
    made = command("prepare", "tokenise a folder of text", "text", "tokenizer", "out")
    made.add_argument("--parts", type=int, default=3)
    made.add_argument("--held-out", type=float, default=0.003)
    made.add_argument("--pack", action=argparse.BooleanOptionalAction, default=True, help="compress with xz")
    made = command("train", "pre-train by MLM", "data", "tokenizer", "out")
    made.add_argument("--init", type=Path, help="an exported encoder to start from (no optimiser state)")
    made.add_argument("--resume", action="store_true", help="continue from the checkpoint in --out")
    made.add_argument("--device", default=None)
    _add(made, Settings, tuple(f.name for f in fields(Settings)))
    _add(made, Shape, _SHAPE)
    made = command("export", "write a checkpoint as a stock BertModel folder", "checkpoint", "tokenizer", "out")
    made = command("check", "score an exported encoder on STS-B dev", "model", "data-folder")
    made.add_argument(
        "--results", type=Path, help="folder of the results file to append to (default: that of the model)"
    )
    made.add_argument("--device", default=None)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: The command's words; by default those of this process.

    Returns:
        The exit code.
    """
    args = _parser().parse_args(argv)
    if args.command == "tokenizer":
        from .tokenizer import train_tokenizer

        made = train_tokenizer(args.text, args.out, vocab=args.vocab, share=args.share, max_length=args.positions)
        print(f"{made.get_vocab_size()} entries in {args.out}")
    elif args.command == "prepare":
        from .prepare import prepare

        found = prepare(args.text, args.tokenizer, args.out, parts=args.parts, held_out=args.held_out, pack=args.pack)
        print(json.dumps(found, indent=1))
    else:
        _with_torch(args)
    return 0


def _with_torch(args: argparse.Namespace) -> None:
    import torch

    asked = getattr(args, "device", None)
    device = torch.device(asked or ("cuda" if torch.cuda.is_available() else "cpu"))
    if args.command == "train":
        from .tokenizer import load_tokenizer
        from .train import Run

        shape_options: dict[str, Any] = {name: getattr(args, name) for name in _SHAPE}
        shape = Shape(vocab=load_tokenizer(args.tokenizer).get_vocab_size(), **shape_options)
        settings = _settings(args)
        Run(args.data, args.tokenizer, args.out, settings, shape, device, init=args.init, resume=args.resume).train()
    elif args.command == "export":
        from .convert import export
        from .model import MaskedLM
        from .train import AVERAGE

        state = torch.load(args.checkpoint, map_location="cpu", weights_only=True)
        model = MaskedLM(Shape(**state["shape"]))
        model.load_state_dict(state["model"])
        print(f"{export(model, args.tokenizer, args.out):,} bytes in {args.out / 'encoder'}")
        if state.get("average"):
            model.load_state_dict(state["average"]["values"])
            print(f"{export(model, args.tokenizer, args.out / AVERAGE):,} bytes in {args.out / AVERAGE / 'encoder'}")
    else:
        from .evaluate import check
        from .train import record

        found = check(args.model, args.data_folder, device)
        record(args.results or args.model.parent, {"kind": "sts-b dev", "model": args.model.name, **found})


if __name__ == "__main__":
    raise SystemExit(main())
