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
