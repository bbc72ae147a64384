"""Rank sentences by their similarity to a first one, with an exported encoder: neither selfguide nor PyTorch is imported.

    selfguide export mini --output mini-onnx
    python examples/run_exported.py mini-onnx "a late train" "the train has a delay" "a fast car"

It needs numpy, onnxruntime and tokenizers. `--graph sentence_embedding_quantized.onnx` runs the int8 graph of `export --int8`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import tokenizers


def load(folder: Path, graph: str = "sentence_embedding.onnx") -> Any:
    """Return a function from sentences to embeddings of length 1."""
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))  # truncates and pads
    session = onnxruntime.InferenceSession(str(folder / "onnx" / graph))
    prompt = json.loads((folder / "export.json").read_text(encoding="utf-8"))["prompt"]

    def encode(sentences: Sequence[str]) -> np.ndarray[Any, Any]:
        batch = tokenizer.encode_batch([prompt + sentence for sentence in sentences])
        inputs = {
            "input_ids": np.array([one.ids for one in batch]),
            "attention_mask": np.array([one.attention_mask for one in batch]),
        }
        (vectors,) = session.run(None, inputs)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    return encode


def main(words: Sequence[str] | None = None) -> None:
    """Print the other sentences, the most similar first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("sentences", nargs="+")
    parser.add_argument("--graph", default="sentence_embedding.onnx")
    arguments = parser.parse_args(words)
    query, *others = load(arguments.folder, arguments.graph)(arguments.sentences)
    similarity = np.array(others) @ query if others else np.zeros(0)
    for row in np.argsort(-similarity):
        print(f"{similarity[row]:.2f}  {arguments.sentences[row + 1]}")


if __name__ == "__main__":
    main()
