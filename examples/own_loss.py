"""``SelfGuidedLoss`` in a plain sentence-transformers training script.

    python examples/own_loss.py notes.txt my-encoder
    python examples/own_loss.py notes.txt my-encoder --max-steps 3

Nothing but the loss comes from selfguide, so everything that ``SentenceTransformerTrainer`` offers can be used with it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from selfguide.data.resources import mini_folder
from selfguide.losses import SelfGuidedLoss


def main(words: Sequence[str] | None = None) -> None:
    """Train a [CLS] encoder with SG-OPT and save it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="one sentence a line")
    parser.add_argument("output", help="folder to save the encoder in")
    parser.add_argument("--encoder", default=str(mini_folder()), help="a folder or a hub name")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--max-steps", type=int, default=-1)
    given = parser.parse_args(words)

    transformer = Transformer(given.encoder, max_seq_length=128)
    model = SentenceTransformer(
        modules=[transformer, Pooling(transformer.get_embedding_dimension(), pooling_mode="cls")]
    )
    # Two copies of a sentence in one batch would be negatives of each other, so duplicates are dropped.
    sentences = list(dict.fromkeys(given.text.read_text(encoding="utf-8").split("\n")[:-1]))
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            output_dir=f"{given.output}.checkpoints",
            per_device_train_batch_size=given.batch_size,
            num_train_epochs=1,
            max_steps=given.max_steps,
            learning_rate=5e-5,
            warmup_steps=0.1,
            adam_beta2=0.9,
            save_strategy="no",
            report_to="none",
        ),
        train_dataset=Dataset.from_dict({"sentence": sentences}),
        loss=SelfGuidedLoss(model, objective="sg-opt", temperature=0.01, stay_close=0.1),
    )
    trainer.train()
    model.save(given.output)  # the projection head belongs to the loss and is left behind
    print(f"saved {given.output}: {model.get_embedding_dimension()} dimensions")


if __name__ == "__main__":
    main()
