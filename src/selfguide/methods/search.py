"""Values that several methods try when their settings are searched; each method declares its own space on its class."""

from __future__ import annotations

RATES = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4)
"""Learning rates of fine-tuning."""
BATCHES = (16, 32, 64, 128, 256)
DROPOUTS = (0.0, 0.05, 0.1, 0.2)
LOW_DROPOUTS = (0.05, 0.1, 0.2)
"""For methods that need dropout to tell the two copies of a sentence apart."""
POOLED = ("cls", "mean")
SWITCH = (False, True)
CONSERT = {
    "learning_rate": RATES,
    "batch_size": BATCHES,
    "temperature": (0.05, 0.1, 0.2),
    "first": ("shuffle", "token-cutoff", "feature-cutoff", "dropout"),
    "second": ("shuffle", "token-cutoff", "feature-cutoff", "dropout"),
    "dropout": DROPOUTS,
    "freeze_layer_0": SWITCH,
    "eval_pooling": ("last2", "mean"),
}
"""For methods whose last stage is ConSERT's contrast."""
SELF_GUIDED = {
    "learning_rate": RATES,
    "batch_size": BATCHES,
    "temperature": (0.01, 0.02, 0.05, 0.1),
    "head_size": (0, 4096),
    "stay_close": (0.0, 0.01, 0.1),
    "freeze_layer_0": SWITCH,
    "pooling": POOLED,
}
"""For methods with self-guidance."""
