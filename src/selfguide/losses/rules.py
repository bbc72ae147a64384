"""Rules of the arguments that several losses take, and of the options of the methods that use them."""

from __future__ import annotations

from selfguide.options import Above, AtLeast, Between

TEMPERATURE = Above(0)
WEIGHT = AtLeast(0)
"""Of the weight of one term of a loss."""
HEAD_SIZE = AtLeast(0)
"""Of the output dimension of a projection head; 0: no head."""
GRADIENT_CACHE = AtLeast(0)
FRACTION = Between(0, 1, open_low=True, open_high=True)
"""Of a fraction of a sentence that must change, but not all of it."""
