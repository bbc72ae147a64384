"""Pre-train a small BERT by masked language modelling: ``python -m experiments.pretraining COMMAND --help``."""

from __future__ import annotations

import argparse
import json
from dataclasses import fields
from pathlib import Path

from .config import Settings, Shape
from .presets import PRESETS, defaults
from .tokenizer import ALPHABET

_LANGUAGES = "several languages, which the files' names begin with (spanish-0.txt.xz)"
_SHAPE = ("layers", "width", "heads", "ffn", "positions")


def main(argv: list[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: The command's words; by default those of this process.

    Returns:
        The exit code.
    """
    parser, commands = _parser()
    args = parser.parse_args(argv)
    if getattr(args, "preset", None):  # parsed again, so that an option given beside the preset has the last word
        commands[args.command].set_defaults(**defaults(args.preset, args.command))
        args = parser.parse_args(argv)
    {"tokenizer": _tokenizer, "prepare": _prepare, "train": _train, "export": _export}[args.command](args)
    return 0


def _tokenizer(args: argparse.Namespace) -> None:
    from .tokenizer import train_tokenizer

    made = train_tokenizer(
        args.text, args.out, vocab=args.vocab, share=args.share, max_length=args.positions, alphabet=args.alphabet,
        multilingual=args.multilingual, temperature=args.temperature,
    )  # fmt: skip
    print(f"{made.get_vocab_size()} entries in {args.out}")


def _prepare(args: argparse.Namespace) -> None:
    from .prepare import prepare

    found = prepare(
        args.text, args.tokenizer, args.out, parts=args.parts, held_out=args.held_out, pack=args.pack, share=args.share,
        multilingual=args.multilingual,
    )  # fmt: skip
    print(json.dumps(found, indent=1))


def _train(args: argparse.Namespace) -> None:
    import torch

    from .tokenizer import load_tokenizer
    from .train import Run

    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    shape = Shape(
        vocab=load_tokenizer(args.tokenizer).get_vocab_size(), **{name: getattr(args, name) for name in _SHAPE}
    )
    settings = Settings(**{item.name: getattr(args, item.name) for item in fields(Settings)})
    Run(args.data, args.tokenizer, args.out, settings, shape, device, init=args.init, resume=args.resume).train()


def _export(args: argparse.Namespace) -> None:
    import torch

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


def _parser() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    parser = argparse.ArgumentParser(prog="python -m experiments.pretraining", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, text: str, *folders: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        for folder in folders:
            # The text may lie in several folders, the other things are one folder each.
            several = {"nargs": "+"} if folder == "text" else {}
            made.add_argument(f"--{folder}", type=Path, required=True, **several)
        return made

    made = command("tokenizer", "train the vocabulary", "text", "out")
    made.add_argument("--preset", choices=sorted(PRESETS), help="set the options to those of a named recipe")
    made.add_argument("--vocab", type=int, default=Shape.vocab)
    made.add_argument("--alphabet", type=int, default=ALPHABET, help="characters with entries of their own")
    made.add_argument("--multilingual", action=argparse.BooleanOptionalAction, default=False, help=_LANGUAGES)
    made.add_argument("--temperature", type=float, default=1.0, help="of the languages' shares of the text")
    made.add_argument("--share", type=float, default=1.0, help="share of the documents to train on")
    made.add_argument("--positions", type=int, default=Shape.positions)
    made = command("prepare", "tokenise a folder of text", "text", "tokenizer", "out")
    made.add_argument("--parts", type=int, default=3)
    made.add_argument("--share", type=float, default=1.0, help="share of the documents to read")
    made.add_argument("--multilingual", action=argparse.BooleanOptionalAction, default=False, help=_LANGUAGES)
    made.add_argument("--held-out", type=float, default=0.003)
    made.add_argument("--pack", action=argparse.BooleanOptionalAction, default=True, help="compress with xz")
    made = command("train", "pre-train by masked language modelling", "data", "tokenizer", "out")
    made.add_argument("--preset", choices=sorted(PRESETS), help="set the options to those of a named recipe")
    made.add_argument("--init", type=Path, help="an exported encoder to start from (no optimiser state)")
    made.add_argument(
        "--resume", action=argparse.BooleanOptionalAction, default=False, help="continue from the checkpoint in --out"
    )
    made.add_argument("--device", default=None)
    _add(made, Settings, tuple(item.name for item in fields(Settings)))
    _add(made, Shape, _SHAPE)
    command("export", "write a checkpoint as a stock BertModel folder", "checkpoint", "tokenizer", "out")
    return parser, commands.choices


def _add(parser: argparse.ArgumentParser, source: type[Settings] | type[Shape], names: tuple[str, ...]) -> None:
    """Add fields of a dataclass as options, with their defaults."""
    for item in fields(source):
        if item.name not in names:
            continue
        flag = "--" + item.name.replace("_", "-")
        if isinstance(item.default, bool):
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=item.default)
        elif item.name == "attention":
            parser.add_argument(flag, choices=("varlen", "sdpa"), default=item.default)
        else:
            parser.add_argument(flag, type=type(item.default), default=item.default, help=f"default {item.default}")


if __name__ == "__main__":
    raise SystemExit(main())
